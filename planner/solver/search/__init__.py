"""The search for plans: trees of subproblems, neighbourhoods of a plan."""
