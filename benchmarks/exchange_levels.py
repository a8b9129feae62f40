"""The exchange in one level and in two, as the TPU compiler makes them ahead of time for several slices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
from meshwright.backends.jax.models.moe.exchange.manual import ManualExchange
from meshwright.backends.jax.models.moe.exchange.routes import Direct, Route, TwoLevel
from meshwright.backends.jax.program.collectives import Collective
from meshwright.dsl.machine import parse_topology
from meshwright.planner.collectives import LINEAR, all_to_all_choices
from meshwright.planner.network import Network, network
from meshwright.planner.topology import physical
from rich.table import Table

CHIPS, DIM, MIB = 16, 1024, 2**20
SLICES = (2, 4, 8, 16)
MESSAGES_MIB = (1, 32)
PLAN = """
meshwright: 1
topology: {slices}*v5e:4x4
mesh: {{outer: {slices}, inner: {chips}}}
tensors:
  sent: E G@outer+inner C M
  out: E G@outer+inner C M
"""


def compiled_levels() -> Table:
    """There and back: the all-to-alls of each program and what the network model has for them, whatever is sent."""
    title = "All-to-alls there and back over slices of 16 v5e: compiled, and their predicted ms"
    shown = Table(title=title, title_justify="left")
    for head in ("slices", "MiB a chip", "one level", "two levels", "2DH is faster"):
        shown.add_column(head, justify="right")
    for slices in SLICES:
        for mib in MESSAGES_MIB:
            one, two = (found(slices, mib, route) for route in routes(slices))
            faster = f"{one[1] / two[1]:.2f}x"
            shown.add_row(str(slices), str(mib), *(f"{kinds}: {1e3 * s:.3f}" for kinds, s in (one, two)), faster)
    return shown


def routes(slices: int) -> tuple[Route, Route]:
    """One all-to-all over all chips; one within slices and one between them."""
    both = TwoLevel(outer="outer", inner="inner", outer_size=slices, inner_size=CHIPS)
    return Direct(axes=("outer", "inner")), both


def found(slices: int, mib: int, route: Route) -> tuple[str, float]:
    """The collectives of the program in words, and their seconds."""
    devices = slices * CHIPS
    mesh = (("outer", slices), ("inner", CHIPS))
    exchange = ManualExchange(mesh=mesh, owners=("outer", "inner"), route=route)

    def step(sent: jax.Array) -> Any:
        return exchange(lambda weights, arrived, key: arrived * 2, {}, sent, key=None).returned

    sent = jax.ShapeDtypeStruct((devices, devices, mib * MIB // (2 * devices * DIM), DIM), jnp.bfloat16)
    plan = mw.loads(PLAN.format(slices=slices, chips=CHIPS))
    made = mw.verify(plan, step, (sent,)).compiled.collectives
    names = (f"{each.times} {'+'.join(use.name for use in each.axes)}" for each in made)
    placed = network(plan.mesh, physical(parse_topology(f"{slices}*v5e:4x4")))
    return ", ".join(names), sum(as_it_is(placed, each) * each.times for each in made)


def as_it_is(placed: Network, made: Collective) -> float:
    """Seconds of a compiled all-to-all: over slices the compiler leaves one transfer, a message for each device."""
    ways = all_to_all_choices(made.num_bytes, placed.placement([use.name for use in made.axes]))
    return next((way for way in ways if way.algorithm == LINEAR), ways[0]).total_s
