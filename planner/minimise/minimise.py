"""From the layouts of all of a step's tensors to the plan that a person reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...dsl.errors import PlanError
from ...dsl.plan import Plan
from ..estimate.figures import Estimate
from ..graph import Sharding
from ..search.workload import Workload
from .dims import logical_dims
from .flow import Flow
from .groups import grouped
from .guide import Guide
from .prices import TOLERANCE, Priced, Prices
from .rules import Writer
from .shorten import shortened

TRIALS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A complete plan with its price. ``exact`` is the price with every layout written, ``trials`` how many were made.

    ``exact`` is None where propagation does not take some layout, or where only the exact plan was asked for.
    """

    plan: Plan
    estimate: Estimate
    exact: Estimate | None
    trials: int


def minimise(
    layouts: Mapping[str, Sharding],
    plan: Plan,
    workload: Workload,
    *,
    deadline: float,
    exact: bool = False,
    trials: int = TRIALS,
) -> Short:
    """The plan with the fewest annotations whose price is that of ``layouts``, or better.

    ``layouts`` are those of arguments, results and values by path; ``plan`` has the mesh with its sizes, the remat
    policy and the limits, and rules: those that are not ``auto`` stay as they are. With ``exact`` every layout is
    written. ``trials`` plans are priced at most, fewer where ``time.monotonic()`` passes ``deadline`` (at least two).
    Raises ``PlanError`` where no plan with these layouts is legal.
    """
    graph = workload.graph(plan)
    tags = workload.tags_under(plan.remat)
    writer = Writer(_with_tags(layouts, tags), plan, workload.tensors_under(plan.remat), logical_dims(graph))
    prices = Prices(workload, writer, trials=trials, deadline=deadline)
    everything = frozenset(tensor.path for tensor in writer.values)
    if exact:
        return _short(_written(prices, prices.of(everything)), prices, everything)
    groups = grouped(writer.values, writer.layouts, tags)
    spare = writer.spare
    prices.reserved = min(len(spare), trials // 4)
    found = shortened(prices, groups, Guide(groups, Flow(graph), workload.lies))
    prices.reserved = 0
    found = _without_spare(prices, found, spare)
    return _short(_shortest(prices, found), prices, everything)


def _with_tags(layouts: Mapping[str, Sharding], tags: Mapping[str, Sequence[str]]) -> dict[str, Sharding]:
    """The layouts, and those of tags all of whose values lie alike."""
    found = {tag: {layouts[path] for path in paths if path in layouts} for tag, paths in tags.items()}
    return {**{tag: alike.pop() for tag, alike in found.items() if len(alike) == 1}, **layouts}


def _without_spare(prices: Prices, found: Priced, spare: Sequence[tuple[int, int]]) -> Priced:
    """The plan without those lines for arguments and results that cost no time and no memory to do without.

    What they decided lies then as a later line says: layouts that cost the same are often chosen by chance.
    """
    for slot, number in spare:
        fewer = prices.writer.without(slot, number)
        if prices.spent or found.estimate is None:
            break
        if fewer is None:
            continue
        trial = prices.of_plan(fewer.draft_of(found.values), found.values)
        peak_bytes = trial.estimate.peak_bytes if trial.estimate else 0
        if prices.good(trial) and peak_bytes <= (1 + TOLERANCE) * found.estimate.peak_bytes:
            prices.writer, found = fewer, trial
    return found


def _shortest(prices: Prices, found: Priced) -> Priced:
    """The plan with the fewest lines that annotates what ``found`` does.

    Its patterns may give more values what they are to have, where that changes nothing of the price.
    """
    narrow = _written(prices, found)
    if not found.values or prices.spent:
        return narrow
    wider = prices.writer.plan_of(found.values, wider=True)
    if len(wider.rules) >= len(narrow.plan.rules):
        return narrow
    priced = prices.of_plan(wider, found.values)
    return priced if prices.good(priced) else narrow


def _written(prices: Prices, found: Priced) -> Priced:
    """The plan that a person reads of what ``found`` is a draft of: the same layouts, so the same price."""
    return replace(found, plan=prices.writer.plan_of(found.values))


def _short(found: Priced, prices: Prices, everything: frozenset[str]) -> Short:
    if found.estimate is None:
        raise found.error or PlanError([])
    exact = prices.known.get(everything)
    return Short(plan=found.plan, estimate=found.estimate, exact=exact.estimate if exact else None, trials=prices.count)
