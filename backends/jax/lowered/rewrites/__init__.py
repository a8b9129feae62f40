"""Rewrites that XLA makes before it propagates layouts, and that change what propagation finds or what a step costs.

Every rule takes an operation and a ``Rewriter``; it replaces the operation by others, or leaves it. All is done in one
pass in program order, with new operations looked at again; what nothing uses any more stays, to be dropped afterwards.
"""
