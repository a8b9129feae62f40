"""The planner: topologies, device orders and, to come, the search. Imports ``dsl``; knows nothing of JAX."""
