"""How gathers and scatters are split over devices, as XLA's partitioner decides it."""

from .rules import gather_rule, scatter_rule

__all__ = ["gather_rule", "scatter_rule"]
