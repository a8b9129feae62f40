"""From the layouts of all of a step's tensors to the plan that a person reads."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...dsl.errors import PlanError
from ...dsl.plan import Auto, Plan
from ...dsl.resolve import resolve
from ...dsl.tensors import Tensor
from ..convolution_layout import NEARLY
from ..estimate.figures import Estimate
from ..graph import Sharding
from ..search.workload import Workload
from .alike import alike
from .dims import logical_dims
from .flow import Flow
from .groups import grouped
from .guide import Guide
from .prices import ALIKE, CLOSE, TOLERANCE, Priced, Prices, allowed_s
from .relieved import relieved
from .rules import Writer, is_value
from .shorten import FEW_LINES, shortened

WORK, FEWEST, MOST = 20000, 9, 40
"""How many operations are priced in all trials together, and how many trials that may be."""

DROPPING, FEW = 6, 3
"""What part of the trials that there is time for may leave out what is perhaps needless, and how many at the least."""

LITTLE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A complete plan with its price. ``exact`` is the price with every layout written, ``trials`` how many were made.

    ``exact`` is as trials have it, nearly, and None where propagation does not take some layout, or where only the
    exact plan was asked for.
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
    trials: int | None = None,
    promised_s: float = 0.0,
    proven_s: float = 0.0,
    begun: Short | None = None,
) -> Short:
    """The plan with the fewest annotations whose price is that of ``layouts``, or better.

    ``layouts`` are those of arguments, results and values by path; ``plan`` has the mesh with its sizes, the remat
    policy and the limits, and rules: those that are not ``auto`` stay as they are. With ``exact`` every layout is
    written, as it lies under that plan. What no argument decides, as zeros, is never named: the compiler would not see
    what it is. ``promised_s`` is what the layouts are said to take: what takes no longer need not be compared with
    them; fewer lines are not worth taking much longer than ``proven_s``, which no plan takes less than. ``trials``
    plans are priced at most (fewer, the larger the step, if None), and fewer where ``time.monotonic()`` passes
    ``deadline`` (at least two); once more so many where what they were nearly said to take is not what the plan takes.
    The plan is written as if nothing were proven first, and once more where it takes longer than what is proven allows:
    ``begun`` is the first of these, if it is known. Raises ``PlanError`` where no plan with these layouts is legal.
    """
    options: dict[str, Any] = {"deadline": deadline, "exact": exact, "trials": trials, "promised_s": promised_s}
    short = begun or _checked(layouts, plan, workload, **options, proven_s=0.0)
    over, seconds = _rank(short)
    is_nearer_allowed = allowed_s(promised_s, proven_s) < seconds <= allowed_s(promised_s, 0.0)
    if over or not is_nearer_allowed or time.monotonic() > deadline:
        return short
    nearer = _checked(layouts, plan, workload, **options, proven_s=proven_s)
    return replace(min(nearer, short, key=_rank), trials=short.trials + nearer.trials)


def _rank(short: Short) -> tuple[float, float]:
    """Bytes above the limit, then seconds."""
    return Priced(values=frozenset(), plan=short.plan, estimate=short.estimate).rank


def _checked(layouts: Mapping[str, Sharding], plan: Plan, workload: Workload, **options: Any) -> Short:
    """That plan by prices that are known nearly; and by whole ones, where what it was nearly said to take is not what
    it takes.
    """
    found, prices = _minimised(layouts, plan, workload, **options)
    short = _short(found, prices)
    taken = replace(found, estimate=short.estimate)
    if not prices.sketched or prices.late or _is_kept(taken, found, prices):
        return short
    other = _short(*_minimised(layouts, plan, workload, **options, nearly=False))
    over, seconds = replace(found, estimate=other.estimate).rank
    is_better = (over, seconds * (1 + TOLERANCE)) < taken.rank
    return replace(other if is_better else short, trials=prices.count + other.trials)


def _is_kept(taken: Priced, nearly: Priced, prices: Prices) -> bool:
    """Whether a plan takes what was promised, but for what fewer lines are worth, or no more than it was nearly said to
    where that is not in reach.
    """
    if prices.promised_s and prices.keeps(taken):
        return True
    most_s = min(nearly.rank[1] * (1 + TOLERANCE), prices.promised_s * (1 + ALIKE) or math.inf)
    return taken.rank[0] <= nearly.rank[0] and taken.rank[1] <= most_s


def _minimised(
    layouts: Mapping[str, Sharding],
    plan: Plan,
    workload: Workload,
    *,
    deadline: float,
    exact: bool,
    trials: int | None,
    promised_s: float,
    proven_s: float,
    nearly: bool = True,
) -> tuple[Priced, Prices]:
    """That plan as it is priced, ``nearly`` or not, and what prices it."""
    graph, tensors = workload.graph(plan), workload.tensors_under(plan.remat)
    flow = Flow(graph)
    layouts = {path: lies for path, lies in layouts.items() if path not in flow.constant}
    tags, dims = workload.tags_under(plan.remat), logical_dims(graph)
    affordable = WORK // max(sum(1 for _ in graph.walk()), 1)
    if trials is None:
        trials = min(max(affordable, FEWEST), MOST)

    def writer(chosen: Mapping[str, Sharding]) -> Writer:
        return Writer(_with_tags(chosen, tags), plan, tensors, dims)

    said = {"promised_s": promised_s, "proven_s": proven_s}
    prices = Prices(workload, writer(layouts), trials=trials, deadline=deadline, nearly=nearly, **said)
    sizes = {name: size or 1 for name, size in plan.mesh.sizes.items()}
    for other in alike(layouts, tensors, sizes, dims, _pinned(plan, tensors)):
        if prices.spent or prices.prefers(writer(other)):
            break
    groups = grouped(prices.writer.values, prices.writer.layouts, tags, flow.same)
    prices.reserved = min(len(prices.writer.spare), trials // 6)
    guide = Guide(groups, flow, workload.lies, workload.laid)
    found = shortened(prices, groups, guide, max(affordable // DROPPING, FEW))
    prices.reserved = 0
    if affordable >= FEWEST:
        found = relieved(prices, found, groups, flow)
    if affordable >= FEWEST or len(prices.writer.plan_of(found.values).rules) > FEW_LINES:
        found = _without_spare(prices, found)
    if not exact:
        return _shortest(prices, found), prices
    spelled = _spelled_out(found, prices, workload, tags, flow.constant)
    return _written(prices, spelled), prices


def _pinned(plan: Plan, tensors: Sequence[Tensor]) -> frozenset[str]:
    """What the plan's own rules decide."""
    decided = resolve(plan, tensors).rules.items() if plan.rules else ()
    return frozenset(path for (path, _), rule in decided if rule and not isinstance(rule.assignment, Auto))


def _spelled_out(
    found: Priced, prices: Prices, workload: Workload, tags: Mapping[str, Sequence[str]], unnamed: Collection[str]
) -> Priced:
    """The plan with the layout of everything, as it lies under a short one: so both compile to the same.

    Where saying it costs time (a plan that says more keeps the compiler from joining operations) or cannot be known,
    what was chosen for everything if that is better.
    """
    lies = workload.lies(found.plan)
    chosen = prices.of(prices.everything)
    if lies is None:
        return chosen
    held = prices.writer
    known = {path: layout.axes for path, layout in held.layouts.items() if not is_value(path) or path in found.values}
    lies = {path: axes for path, axes in lies.items() if path not in unnamed}
    prices.writer = held.saying({**_with_tags(lies, tags), **known})
    everything = prices.everything
    spelled = prices.of_plan(prices.writer.draft_of(everything), everything)
    if spelled.rank[0] <= chosen.rank[0] and spelled.rank[1] <= chosen.rank[1] * (1 + CLOSE):
        return spelled
    prices.writer = held
    return chosen


def _with_tags(layouts: Mapping[str, Sharding], tags: Mapping[str, Sequence[str]]) -> dict[str, Sharding]:
    """The layouts, and those of tags all of whose values lie alike."""
    found = {tag: {layouts[path] for path in paths if path in layouts} for tag, paths in tags.items()}
    return {**{tag: alike.pop() for tag, alike in found.items() if len(alike) == 1}, **layouts}


def _without_spare(prices: Prices, found: Priced) -> Priced:
    """The plan without those lines for arguments and results that cost no time and no memory to do without.

    What they decided lies then as a later line says: layouts that cost the same are often chosen by chance. Those that
    decide little are tried together first.
    """
    spare = () if prices.spent else prices.writer.spare
    total = sum(prices.writer.bytes_at(*place) for place in spare)
    little = [place for place in spare if prices.writer.bytes_at(*place) < LITTLE * total]
    if little:
        prices.writer, found = _fewer(prices, found, little)
    for place in prices.writer.spare:
        if prices.spent:
            break
        prices.writer, found = _fewer(prices, found, [place])
    return found


def _fewer(prices: Prices, found: Priced, places: Sequence[tuple[int, int]]) -> tuple[Writer, Priced]:
    """The writer without these lines and what it writes, if that is no worse; else as it was. The last line first."""
    writer = prices.writer
    for place in places:
        writer = writer.without(*place) or writer
    if writer is prices.writer or found.estimate is None:
        return prices.writer, found
    trial = prices.of_plan(writer.draft_of(found.values), found.values)
    peak_bytes = trial.estimate.peak_bytes if trial.estimate else 0
    if prices.close(trial) and peak_bytes <= (1 + TOLERANCE) * found.estimate.peak_bytes:
        return writer, trial
    return prices.writer, found


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
    return priced if prices.close(priced) else narrow


def _written(prices: Prices, found: Priced) -> Priced:
    """The plan that a person reads of what ``found`` is a draft of: the same layouts, so the same price."""
    return replace(found, plan=prices.writer.plan_of(found.values))


def _short(found: Priced, prices: Prices) -> Short:
    if found.estimate is None:
        raise found.error or PlanError([])
    exact, estimate = prices.known.get(prices.everything), found.estimate
    if found.is_sketched or NEARLY in estimate.notes:
        estimate = prices.workload.estimate(found.plan)
    return Short(plan=found.plan, estimate=estimate, exact=exact.estimate if exact else None, trials=prices.count)
