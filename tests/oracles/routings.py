"""Gates token by token and choice by choice, in plain Python: the oracles of the fast ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(kw_only=True)
class Loop:
    """What a loop found in one group: (token, expert) to (slot, weight) of what is kept, and the counters."""

    kept: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)
    counts: list[int]
    first: list[int]
    dropped: list[int]


def token_choice(
    gates: Array,
    capacity: int,
    valid: Array,
    uniform: Array,
    *,
    choices: int,
    order: str,
    normalise: str,
    threshold: float | None,
    dropped_uses_slot: bool,
    lost_slots: int,
) -> Loop:
    """One group: ``gates`` [S, E], ``valid`` and ``uniform`` [S]."""
    S, E = gates.shape
    K = min(choices, E)
    best = [sorted(range(E), key=_best_of(gates[s]))[:K] for s in range(S)]
    found = Loop(counts=[0] * E, first=[0] * E, dropped=[0] * K)
    tokens = list(range(S))
    if order == "score":
        tokens.sort(key=lambda s: -gates[s, best[s][0]])
    turns = [(k, s) for k in range(K) for s in tokens]
    if order == "token":
        turns.sort(key=lambda turn: turn[1])
    for k, s in turns:
        if not valid[s]:
            continue
        e, gate = best[s][k], np.float32(gates[s, best[s][k]])
        if normalise == "before":
            gate = gate / sum((np.float32(gates[s, other]) for other in best[s]), np.float32(0))
        unlucky = k > 0 and threshold is not None and not gate > uniform[s] * np.float32(threshold)
        slot = found.counts[e]
        found.counts[e] += not unlucky or dropped_uses_slot
        found.first[e] += k == 0
        if slot < capacity - lost_slots and not unlucky:
            found.kept[s, e] = (slot, float(gate))
        else:
            found.dropped[k] += 1
    if normalise == "after":
        totals = [sum(w for (t, _), (_, w) in found.kept.items() if t == s) for s in range(S)]
        found.kept = {(s, e): (slot, w / totals[s]) for (s, e), (slot, w) in found.kept.items()}
    return found


def _best_of(row: Array) -> Callable[[int], tuple[float, int]]:
    """The largest first, ties by number."""
    return lambda place: (-float(row[place]), place)


def expert_choice(gates: Array, capacity: int, valid: Array) -> dict[tuple[int, int], tuple[int, float]]:
    """One group: each expert takes its best tokens; (token, expert) to (slot, weight)."""
    kept: dict[tuple[int, int], tuple[int, float]] = {}
    for e in range(gates.shape[1]):
        tokens = sorted((s for s in range(len(gates)) if valid[s]), key=_best_of(gates[:, e]))
        kept |= {(s, e): (slot, float(gates[s, e])) for slot, s in enumerate(tokens[:capacity])}
    return kept


def noisy_top_k(clean: Array, noisy: Array, spread: Array, valid: Array, k: int) -> tuple[Array, Array, Array]:
    """Tokens [T, E]: gates [T, E], importance [E] and load [E] (Shazeer et al. 2017, equations 3 to 10)."""
    T, E = clean.shape
    gates, load = np.zeros((T, E)), np.zeros(E)
    for t in range(T):
        top = sorted(range(E), key=_best_of(noisy[t]))[:k]
        total = sum(math.exp(noisy[t, e]) for e in top)
        for e in top:
            gates[t, e] = math.exp(noisy[t, e]) / total
        for e in range(E):
            if not valid[t]:
                continue
            others = sorted((noisy[t, other] for other in range(E) if other != e), reverse=True)
            kth_excluding = others[k - 1] if k <= len(others) else -math.inf
            load[e] += 0.5 * (1 + math.erf((clean[t, e] - kth_excluding) / spread[t, e] / math.sqrt(2)))
    return gates, gates[valid].sum(axis=0), load


def squared_variation(values: Array, *, unbiased: bool) -> float:
    """CV²."""
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / (len(values) - unbiased)
    return float(variance / mean**2)
