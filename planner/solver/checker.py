"""What a solution costs and uses, straight from the problem's text; shares no code with the solver or its reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FORBIDDEN_COST = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The exact cost of a solution, the most that it uses at any time, and what is wrong with it."""

    cost: int
    peak_usage: int
    wrong: tuple[str, ...]


def price(document: Mapping[str, Any], choices: Sequence[int]) -> Price:
    """Prices the choices (one for each node) under a contest problem as JSON has it."""
    problem = document["problem"]
    nodes, edges = problem["nodes"], problem["edges"]
    wrong = _misfits(nodes["costs"], choices)
    if wrong:
        return Price(cost=0, peak_usage=0, wrong=wrong)
    terms = [costs[choice] for costs, choice in zip(nodes["costs"], choices, strict=True)]
    for (a, b), table in zip(edges["nodes"], edges["costs"], strict=True):
        terms.append(table[choices[a] * len(nodes["costs"][b]) + choices[b]])
    if max(terms, default=0) >= FORBIDDEN_COST:
        wrong = (*wrong, "a forbidden choice or pair is taken")
    peak = _peak(nodes["intervals"], nodes["usages"], choices)
    limit = problem.get("usage_limit")
    if limit is not None and peak > limit:
        wrong = (*wrong, f"{peak} is used at once, the limit is {limit}")
    return Price(cost=sum(terms), peak_usage=peak, wrong=wrong)


def _misfits(costs: Sequence[Sequence[int]], choices: Sequence[int]) -> tuple[str, ...]:
    if len(costs) != len(choices):
        return (f"{len(choices)} choices for {len(costs)} nodes",)
    return tuple(
        f"node {node} has no choice {choice}"
        for node, choice in enumerate(choices)
        if not 0 <= choice < len(costs[node])
    )


def _peak(intervals: Sequence[Sequence[int]], usages: Sequence[Sequence[int]], choices: Sequence[int]) -> int:
    """The most in use at any time: ends come before beginnings of the same time, as intervals are half open."""
    events: list[tuple[int, int]] = []
    for (begin, end), usage, choice in zip(intervals, usages, choices, strict=True):
        if begin < end:
            events += [(begin, usage[choice]), (end, -usage[choice])]
    used = peak = 0
    for _, change in sorted(events):
        used += change
        peak = max(peak, used)
    return peak
