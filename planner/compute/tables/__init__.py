"""The tables that ship: what the TPU compiler says of kernels, by chip."""
