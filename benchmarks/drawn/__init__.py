"""Training steps drawn by seed, with plans as teams write them, and what the TPU compiler made of each."""
