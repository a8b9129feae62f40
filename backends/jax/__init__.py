"""The JAX backend: reads a step function, applies a plan to it, compiles it for any topology, runs it."""
