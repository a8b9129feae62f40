"""Exact reductions: a smaller problem, and the way back from its choices to those of the problem before."""
