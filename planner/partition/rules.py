"""Which rule partitions which operation."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .elementwise import follow_result, nothing_read, passed_through, reduce_rule, replicate, reshape_rule
from .indexed import gather_rule, scatter_rule
from .products import convolution_rule, dot_rule, ragged_rule
from .slices import concatenate_rule, dynamic_slice_rule, dynamic_update_rule, halo_rule, slice_rule
from .sorts import sort_rule
from .strategy import Asked, Rule, Strategy

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "constant": nothing_read,
        "iota": nothing_read,
        "dot": dot_rule,
        "dot_general": dot_rule,
        "convolution": convolution_rule,
        "ragged_dot": ragged_rule,
        "reduce": reduce_rule,
        "reshape": reshape_rule,
        "gather": gather_rule,
        "scatter": scatter_rule,
        "dynamic_slice": dynamic_slice_rule,
        "dynamic_update_slice": dynamic_update_rule,
        "concatenate": concatenate_rule,
        "sort": sort_rule,
        "slice": slice_rule,
        "pad": halo_rule,
        "reduce_window": halo_rule,
        "optimization_barrier": passed_through,
        "rng_bit_generator": replicate,
    }
)

OF_FACTORS = frozenset({"reduce", "reshape"})
"""Of these, and of what has no rule of its own, nothing counts but the loop nest, the layouts and shapes, and whether
one value is all that is read.
"""

OF_VALUES = frozenset({"gather", "scatter", "ragged_dot"})
"""Of these nothing counts but the loop nest, the layouts, the values and the sizes of slices."""


def strategy(asked: Asked) -> Strategy:
    """How XLA's partitioner computes one operation whose tensors have these layouts."""
    return RULES.get(asked.op.kind, follow_result)(asked)
