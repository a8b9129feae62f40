"""What the TPU compiler's passes do to collectives after the partitioner, one module a pass."""
