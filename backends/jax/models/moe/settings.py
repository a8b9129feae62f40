"""An MoE layer's settings: one choice of each of gate, dispatch, exchange and experts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import jax

from .capacity import Capacity
from .dispatch import Dispatch
from .dispatch.einsum import EinsumDispatch
from .exchange import Exchange
from .exchange.annotated import AnnotatedExchange
from .experts import Experts, FeedForward
from .gates import Gate
from .gates.top_k import TopKGate


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeSettings:
    """A member of the family gate x dispatch x exchange x experts; the defaults are GShard's."""

    experts: int
    """E."""
    groups: int
    """G, groups that tokens are dispatched in."""
    capacity: Capacity
    gate: Gate = field(default_factory=TopKGate)
    dispatch: Dispatch = field(default_factory=EinsumDispatch)
    exchange: Exchange = field(default_factory=AnnotatedExchange)
    work: Experts = field(default_factory=FeedForward)

    def in_turn(self, uniform: jax.Array) -> MoeSettings:
        """The same, with a gate by whose choices tokens go round the experts where ``uniform``, a bool, is true.

        Raises ``TypeError`` for a gate that has no such choices; plans that ask it of one are refused.
        """
        if not isinstance(self.gate, TopKGate):
            raise TypeError(f"tokens cannot go round the experts of {type(self.gate).__name__}")
        return replace(self, gate=replace(self.gate, uniform=uniform | self.gate.uniform))
