"""The layouts in which Switch (Figure 9) and Tutel (Tables 3 and 4) run a mixture-of-experts layer, on 16 devices.

Each has what its paper's table says of its communication, evaluated: bytes that a device holds of what it exchanges,
gathers or sums over which axes, forward and backward. The papers' tables give one forward pass (Switch) or an order of
growth (Tutel); the backward pass has each a second time, gradients of gathered weights and summed tokens included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE, REDUCE_SCATTER
from switch_layer import Sizes

TOPOLOGY, DEVICES = "v5e:4x4", 16
SHIFTED = "shifted"
ROLES = {
    ALL_GATHER: "gathered",
    ALL_REDUCE: "summed",
    REDUCE_SCATTER: "summed",
    ALL_TO_ALL: "exchanged",
    COLLECTIVE_PERMUTE: SHIFTED,
}
"""An all-reduce of V bytes and a reduce-scatter of V bytes both sum V bytes. What is shifted is the padding that the
TPU compiler gives to reduce-scatters whose parts do not fill its tiles; no table has it."""
Volume = dict[tuple[str, str], int]
"""Bytes by role and axes (``data+expert``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout of the layer: ``rules`` are ``tensors:`` of a plan, ``said`` the paper's entry, ``volume`` its value."""

    mesh: dict[str, int]
    rules: str
    sizes: Sizes
    said: str
    volume: Callable[[Sizes], Volume] = field(repr=False)

    def plan(self, topology: str = TOPOLOGY) -> Plan:
        axes = ", ".join(f"{axis}: {size}" for axis, size in self.mesh.items())
        rules = "\n".join(f"  {line.strip()}" for line in f"{self.rules}\nout/**: infer".strip().splitlines())
        return loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{{axes}}}\ntensors:\n{rules}\n", "layout.yaml")

    @property
    def expected(self) -> Volume:
        """What the paper's table has, evaluated, and the sum of the router's gradient, which no table mentions."""
        volume = Counter(self.volume(self.sizes))
        if self.sizes.experts:
            volume["summed", "+".join(sorted(self._token_axes))] += self.sizes.router_bytes
        return dict(volume)

    @property
    def _token_axes(self) -> list[str]:
        (line,) = (line for line in self.rules.splitlines() if line.strip().startswith("batch/"))
        return line.partition("@")[2].split()[0].split("+")


def volume_of(collectives: Iterable[Any]) -> Volume:
    """Bytes by role and axes of collectives, an estimate's or a compiled program's."""
    found: Counter[tuple[str, str]] = Counter()
    for each in collectives:
        names = sorted(getattr(axis, "name", axis) for axis in each.axes)
        found[ROLES[each.kind], "+".join(names)] += each.total_bytes
    return dict(found)


SWITCH = {
    "DP": Layout(
        mesh={"data": 16},
        rules="params/**: replicate\nbatch/**: G@data S M",
        sizes=Sizes(groups=16, experts=0),
        said="nothing forward; the gradients of all weights",
        volume=lambda s: {("summed", "data"): s.weight_bytes},
    ),
    "MP": Layout(
        mesh={"model": 16},
        rules="params/wi: M H@model\nparams/wo: H@model M\nbatch/**: G S M",
        sizes=Sizes(groups=16, experts=0),
        said="[B, d] forward and backward",
        volume=lambda s: {("summed", "model"): 2 * s.batch_bytes},
    ),
    "DP+MP": Layout(
        mesh={"data": 4, "model": 4},
        rules="params/wi: M H@model\nparams/wo: H@model M\nbatch/**: G@data S M",
        sizes=Sizes(groups=16, experts=0),
        said="[B/n, d] in each group of m; gradients over n",
        volume=lambda s: {("summed", "model"): 2 * s.batch_bytes // 4, ("summed", "data"): s.weight_bytes // 4},
    ),
    "EP+DP": Layout(
        mesh={"expert": 16},
        rules="params/w[io]: E@expert ...\nparams/router: replicate\nbatch/**: G@expert S M\n"
        "acts/dispatched: E@expert G C M\nacts/combined: G@expert S M",
        sizes=Sizes(groups=16, experts=16),
        said="[E, C, d] twice forward, twice backward",
        volume=lambda s: {("exchanged", "expert"): 4 * s.slot_bytes},
    ),
    "EP+MP+DP": Layout(
        mesh={"expert": 4, "model": 4},
        rules="params/wi: E@expert M H@model\nparams/wo: E@expert H@model M\nparams/router: replicate\n"
        "batch/**: G@expert S M\nacts/dispatched: E@expert G C M\nacts/hidden: E@expert G C H@model\n"
        "acts/combined: G@expert S M",
        sizes=Sizes(groups=4, experts=4),
        said="[E, C, d] over n as above, and sums over m",
        volume=lambda s: {("exchanged", "expert"): 4 * s.slot_bytes, ("summed", "model"): 2 * s.slot_bytes},
    ),
}
"""Switch, Figure 9 and section 5: N = n·m cores, n ways of data, m of model parallelism."""


def tutel(
    said: str, volume: Callable[[Sizes], Volume], *, experts: int = 4, expert: int = 1, data: int = 1, model: int = 1
) -> Layout:
    """A layout of Tutel's: tokens split over all devices, weights too; those split over ``data`` are gathered for use.

    The axis that moves from the groups to the experts is the groups' minor one: XLA's partitioner then makes one
    all-to-all of it.
    """
    mesh = {axis: size for axis, size in (("expert", expert), ("data", data), ("model", model)) if size > 1}
    every, kept, gathered = (
        at(*(axis for axis in axes if axis in mesh))
        for axes in (("data", "model", "expert"), ("data", "model"), ("data",))
    )
    E, M, H = at(*{"expert"} & mesh.keys()), at(*{"data"} & mesh.keys()), at(*{"model"} & mesh.keys())
    rules = [
        f"params/wi: E{E} M{M} H{H}",
        f"params/wo: E{E} H{H} M{M}",
        "params/router: replicate",
        f"batch/**: G{every} S M",
        *(f"acts/{name}: E{E} G{kept} C M" for name in ("sent", "returned")),
        *(f"acts/{name}: E{E} G{gathered} C M" for name in ("dispatched", "outputs")),
        f"acts/hidden: E{E} G{gathered} C H{H}",
        f"acts/combined: G{every} S M",
        f"out/1/0/wi: E{E} M{M} H{H}",
        f"out/1/0/wo: E{E} H{H} M{M}",
    ]
    return Layout(
        mesh=mesh, rules="\n".join(rules), sizes=Sizes(groups=DEVICES, experts=experts), said=said, volume=volume
    )


def at(*axes: str) -> str:
    return f"@{'+'.join(axes)}" if axes else ""


def weights(num_bytes: int) -> Volume:
    """Weights gathered for the forward pass and kept for the backward; their gradients summed."""
    return {("gathered", "data"): num_bytes, ("summed", "data"): num_bytes}


def slots(num_bytes: int) -> Volume:
    """Slots gathered from a group that shares experts, and what its members make of them summed; forward, backward."""
    return {("gathered", "model"): 2 * num_bytes, ("summed", "model"): 2 * num_bytes}


TUTEL = {
    "DP (r=0)": tutel("O(P)", lambda s: weights(s.weight_bytes), data=16),
    "MP": tutel("O(C_g·W)", lambda s: slots(16 * s.slot_bytes), model=16),
    "DP+MP": tutel("O(C_g·r + P/r)", lambda s: slots(4 * s.slot_bytes) | weights(s.weight_bytes // 4), data=4, model=4),
    "EP": tutel("O(C_g)", lambda s: {("exchanged", "expert"): 4 * s.slot_bytes}, experts=16, expert=16),
    "EP+DP": tutel(
        "O(C_g + P/E)",
        lambda s: {("exchanged", "expert"): 4 * s.slot_bytes} | weights(s.weight_bytes // 4),
        expert=4,
        data=4,
    ),
    "EP+MP": tutel(
        "O(C_g·max(1, W/E))",
        lambda s: {("exchanged", "expert"): 4 * s.slot_bytes} | slots(4 * s.slot_bytes),
        expert=4,
        model=4,
    ),
    "EP+DP+MP (r=2)": tutel(
        "O(C_g·r + P/(E·r))",
        lambda s: {("exchanged", "expert"): 4 * s.slot_bytes} | slots(2 * s.slot_bytes) | weights(s.weight_bytes // 8),
        expert=4,
        data=2,
        model=2,
    ),
}
"""Tutel, Tables 3 and 4: W devices, E experts, C_g a device's slots of all experts, P the experts' weights, r in
``model``, the group that shares an expert."""
