"""GShard's Algorithm 1, line by line, one token at a time: the oracle of the fast gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    combine_weights: Array
    aux_loss: Array
    first_dropped: Array
    second_dropped: Array
    overflowed: Array
    load: Array


def algorithm1(gates: Array, capacity: int, uniform: Array, valid: Array) -> Routed:
    """``gates`` [G, S, E] float32, ``uniform`` [G, S] float32, ``valid`` [G, S] bool."""
    G, S, E = gates.shape
    combine_weights = np.zeros((G, S, E, capacity), np.float32)
    aux_loss = np.zeros(G, np.float32)
    dropped = np.zeros((2, G), np.int32)
    overflowed = np.zeros(G, np.int32)
    load = np.zeros((G, E), np.int32)
    for g in range(G):
        counts = [0] * E
        taken = [0] * S
        tokens = [s for s in range(S) if valid[g, s]]
        for s in tokens:
            g1, e1, _, _ = top2(gates[g, s])
            c = counts[e1]
            if c < capacity:
                combine_weights[g, s, e1, c] = g1
                taken[s] += 1
            else:
                dropped[0, g] += 1
            counts[e1] = c + 1
        for e in range(E):
            mean_gate = sum(float(gates[g, s, e]) for s in tokens) / max(len(tokens), 1)
            aux_loss[g] += counts[e] / max(len(tokens), 1) * mean_gate / E
        for s in tokens:
            _, _, g2, e2 = top2(gates[g, s])
            if e2 is None:
                continue
            c = counts[e2]
            if c < capacity and np.float32(2) * g2 > uniform[g, s]:
                combine_weights[g, s, e2, c] = g2
                taken[s] += 1
            else:
                dropped[1, g] += 1
            counts[e2] = c + 1
        overflowed[g] = sum(taken[s] == 0 for s in tokens)
        load[g] = counts
    return Routed(
        combine_weights=combine_weights,
        aux_loss=aux_loss,
        first_dropped=dropped[0],
        second_dropped=dropped[1],
        overflowed=overflowed,
        load=load,
    )


def top2(gates: Array) -> tuple[np.float32, int, np.float32, int | None]:
    """The two largest gates, normalised, and their experts; the lower expert wins a tie; one expert has no second."""
    order = sorted(range(len(gates)), key=lambda e: (-gates[e], e))
    e1, e2 = order[0], order[1] if len(order) > 1 else None
    g1, g2 = gates[e1], gates[e2] if e2 is not None else np.float32(0)
    return g1 / (g1 + g2), e1, g2 / (g1 + g2), e2
