"""The order in which the TPU compiler's schedulers run kernels, and what is under way meanwhile."""
