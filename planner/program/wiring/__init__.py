"""Kernels as nodes, what they hand on as edges, and what several nodes take or are spared together."""
