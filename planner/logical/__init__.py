"""Logical axis rules laid over a machine: the mesh that they mean, the plan that they are."""
