"""Backends apply a plan to a model and run it. One today: JAX."""
