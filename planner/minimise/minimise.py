"""From the layouts of all of a step's tensors to the plan that a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...dsl.errors import PlanError
from ...dsl.plan import Plan
from ..estimate.figures import Estimate
from ..graph import Sharding
from ..search.workload import Workload
from .dims import logical_dims
from .groups import grouped
from .prices import Priced, Prices
from .rules import Writer
from .shorten import shortened

TRIALS = 40


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
    writer = Writer(layouts, plan, workload.tensors, logical_dims(workload.graph(plan)))
    prices = Prices(workload, writer, trials=trials, deadline=deadline)
    everything = frozenset(tensor.path for tensor in writer.values)
    if exact:
        return _short(prices.of(everything), prices, everything)
    groups = grouped(writer.values, writer.layouts)
    found = shortened(prices, groups)
    return _short(_wider(prices, found), prices, everything)


def _wider(prices: Prices, found: Priced) -> Priced:
    """The same plan with patterns that give more values what they are to have, where that takes fewer lines."""
    if prices.spent or not found.values:
        return found
    plan = prices.writer.plan_of(found.values, wider=True)
    if len(plan.rules) >= len(found.plan.rules):
        return found
    wider = prices.of_plan(plan, found.values)
    return wider if prices.good(wider) else found


def _short(found: Priced, prices: Prices, everything: frozenset[str]) -> Short:
    if found.estimate is None:
        raise found.error or PlanError([])
    exact = prices.known.get(everything)
    return Short(plan=found.plan, estimate=found.estimate, exact=exact.estimate if exact else None, trials=prices.count)
