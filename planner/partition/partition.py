"""The graph of one device."""

from __future__ import annotations

from ..graph import Graph
from ..kinds import KINDS
from ..topology import Machine
from .layout import ways
from .passes.accumulated import sum_behind_loops
from .passes.broadcasts import gather_before_broadcasts
from .passes.dead import without_dead
from .passes.kept_once import keep_once
from .passes.masked import mask_lookups
from .passes.narrow import narrow
from .passes.same_gathers import share_gathers
from .passes.scatters import scatter
from .passes.sliced import slice_sums
from .passes.summed_gathers import sum_small_gathers, sum_whole_gathers
from .passes.sums_of_sums import reassociate
from .passes.turned import turned
from .reshard import SLICE
from .reused import Found
from .spread import spread
from .target import target

_CHANGED = frozenset({*KINDS, SLICE})
"""What the compiler's passes begin with: without any of these, or loops, they change nothing."""


def partition(
    graph: Graph,
    *,
    platform: str = "tpu",
    machine: Machine | None = None,
    found: Found | None = None,
    sums_viewed: bool = True,
) -> Graph:
    """The graph of one device with its collectives, from a step's global tensors and their layouts.

    First every operation is split as XLA's partitioner splits it (``spread``), then what the TPU compiler's passes
    change of the collectives is done to them. ``machine`` tells which sums become reduce-scatters; without it those of
    all devices do. ``found`` is what earlier graphs had in common with this one, and is added to. Unless it
    ``sums_viewed`` vectors are gathered that a plan may gather in more dims, and no sums. A collective has ``axes``,
    the ``dimensions`` of the tensor that it changes, and the origin of the operation that asked for it.
    """
    goal = target(platform, machine, ways(graph.mesh, graph.mesh))
    local = without_dead(spread(graph, graph.mesh, goal, (found or Found()).of(graph.mesh, goal)))
    if not goal.is_tpu or not (local.nesting or not local.kinds.isdisjoint(_CHANGED)):
        return local
    shared = share_gathers(gather_before_broadcasts(local))
    local = reassociate(local if shared is local else without_dead(shared))
    local = keep_once(sum_small_gathers(local, viewed=sums_viewed))
    local = turned(narrow(sum_behind_loops(scatter(slice_sums(local), goal, graph.mesh))))
    return mask_lookups(sum_whole_gathers(local, goal, graph.mesh))
