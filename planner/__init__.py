"""The planner: machines, what a step takes on them, and the search. Imports ``dsl``; knows nothing of JAX."""
