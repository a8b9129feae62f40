"""Ways of an MoE layer's exchange, from the cost model: two levels against one, and chunks that overlap against none.

    python benchmarks/exchange.py [--compile]

All figures are predicted, nothing is measured. ``--compile`` adds what the TPU compiler's programs overlap, and their
all-to-alls of one level and of two over several slices, ahead of time (a minute). The sizes are those of Tutel's
evaluation (Hwang et al. 2023): its all-to-all of 1, 32 and 256 MiB a GPU (Figure 18), and a layer of 16384 tokens a
GPU, two choices, D = H = 2048, two experts a GPU, capacity factor 1 (section 5.2). A TPU's row has the same layer on a
torus, without a second level.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
from exchange_levels import compiled_levels
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from meshwright.backends.jax.models.moe.exchange.manual import ManualExchange
from meshwright.backends.jax.models.moe.exchange.routes import Direct
from meshwright.backends.jax.models.moe.experts import FeedForward
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis
from meshwright.dsl.plan import Mesh as PlanMesh
from meshwright.planner.collectives import HIERARCHICAL, LINEAR, all_to_all_choices
from meshwright.planner.network import network
from meshwright.planner.price import Price
from meshwright.planner.topology import physical
from rich.console import Console
from rich.table import Table

MIB = 2**20
MESSAGES_MIB = (1, 32, 256)
GPUS = (16, 32, 64, 128, 256, 512, 1024, 2048)
DEGREES = (1, 2, 4, 8)
"""Tutel's degrees of pipelining."""
TOKENS, CHOICES, DIM, EXPERTS, WORD = 16384, 2, 2048, 2, 2
OVERLAPPED_ON, ASYNC = "v5e:4x4", "xla_tpu_enable_async_all_to_all"
LAYERS = (("a100:8x{}", (2, 4, 8, 16, 32, 64, 256)), ("v5e:4x{}", (4, 8)), ("v5p:4x4x{}", (4, 8, 16)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="ask the TPU compiler what it overlaps")
    compiles = parser.parse_args().compile
    console = Console(width=max(120, Console().width))
    console.print(levels())
    console.print("\n".join(crossovers()), highlight=False)
    console.print(overlaps())
    console.print(
        "Tutel's adaptive pipelining: 1.43x at 16 GPUs, 1.04x at 2048 (measured; its own kernels)", highlight=False
    )
    if compiles:
        console.print(programs())
        console.print(compiled_levels())


def all_to_all(topology: str, num_bytes: float) -> dict[str, Price]:
    """The ways of an all-to-all over all devices of a machine of which each holds ``num_bytes``, by name."""
    machine = physical(parse_topology(topology))
    mesh = PlanMesh(axes=(Axis(name="expert", size=machine.num_devices),))
    placed = network(mesh, machine).placement(["expert"])
    return {way.algorithm: way for way in all_to_all_choices(num_bytes, placed)}


def both(gpus: int, mib: int) -> tuple[float, float]:
    """Seconds of the linear all-to-all and of 2DH over nodes of eight A100."""
    ways = all_to_all(f"a100:8x{gpus // 8}", mib * MIB)
    return ways[LINEAR].total_s, ways[HIERARCHICAL].total_s


def levels() -> Table:
    title = "All-to-all over A100, eight a node: linear / 2DH in ms, and how many times faster 2DH is; predicted"
    shown = Table(title=title, title_justify="left")
    for head in ("GPUs", *(f"{mib} MiB a GPU" for mib in MESSAGES_MIB)):
        shown.add_column(head, justify="right")
    for gpus in GPUS:
        found = [both(gpus, mib) for mib in MESSAGES_MIB]
        cells = (f"{1e3 * one:.3f} / {1e3 * two:.3f}  {one / two:.2f}x" for one, two in found)
        shown.add_row(str(gpus), *cells)
    return shown


def crossovers() -> Iterator[str]:
    """From how many GPUs on 2DH wins, beside what Figure 18 shows."""
    reported = {1: "at all sizes", 32: "at large numbers only", 256: "at large numbers only"}
    for mib in MESSAGES_MIB:
        wins = [gpus for gpus in GPUS if both(gpus, mib)[1] < both(gpus, mib)[0]]
        on = bool(wins) and wins == list(GPUS[-len(wins) :])
        where = "at all sizes" if wins == list(GPUS) else f"from {wins[0]} GPUs on" if on else f"at {wins}"
        yield f"{mib} MiB: 2DH wins {where} (Tutel's Figure 18: {reported[mib]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer's forward pass on one device, cut into chunks: seconds of one chunk's exchange one way, and its work."""

    exchange_s: float
    work_s: float
    chunks: int

    @property
    def in_turn_s(self) -> float:
        """Nothing overlaps."""
        return self.chunks * (2 * self.exchange_s + self.work_s)

    @property
    def overlapped_s(self) -> float:
        """One chunk travels while another is computed: all there first, then back as they are ready (FastMoE)."""
        there = [self.exchange_s * (number + 1) for number in range(self.chunks)]
        done = list(itertools.accumulate(there, lambda end, come: max(end, come) + self.work_s, initial=0.0))[1:]
        return list(
            itertools.accumulate(done, lambda end, ready: max(end, ready) + self.exchange_s, initial=there[-1])
        )[-1]


def layer(topology: str, chunks: int) -> Layer:
    """Tutel's layer in so many chunks."""
    rows = TOKENS * CHOICES // chunks
    ways = all_to_all(topology, rows * DIM * WORD)
    exchange_s = min(way.total_s for way in ways.values())
    return Layer(exchange_s=exchange_s, work_s=work_s(topology.partition(":")[0], rows), chunks=chunks)


def work_s(chip: str, rows: int) -> float:
    """Seconds of the experts' products of ``rows`` rows on one device, as a step that is nothing else is estimated."""
    one = {"a100": "a100:1", "v5e": "v5e:1x1", "v5p": "v5p:1x1x1"}[chip]

    def step(wi: jax.Array, wo: jax.Array, sent: jax.Array) -> jax.Array:
        return jnp.einsum("ECH,EHM->ECM", jax.nn.relu(jnp.einsum("ECM,EMH->ECH", sent, wi)), wo)

    weight = jax.ShapeDtypeStruct((EXPERTS, DIM, DIM), jnp.bfloat16)
    sent = jax.ShapeDtypeStruct((EXPERTS, rows // EXPERTS, DIM), jnp.bfloat16)
    plan = mw.loads(f"meshwright: 1\ntopology: {one}\nmesh: {{x: 1}}\ntensors: {{'**': replicate}}\n")
    return mw.estimate(plan, step, (weight, weight, sent)).compute_s


def overlaps() -> Table:
    title = "A layer forward, exchange, products and exchange, in ms by degree (chunks); predicted"
    shown = Table(title=title, title_justify="left")
    for head in ("topology", "exchange", *(f"degree {d}" for d in DEGREES), "best", "faster than degree 1"):
        shown.add_column(head, justify="right")
    for form, counts in LAYERS:
        for count in counts:
            topology = form.format(count)
            found = [layer(topology, degree) for degree in DEGREES]
            times = [each.overlapped_s for each in found]
            best = DEGREES[times.index(min(times))]
            share = 2 * found[0].exchange_s / found[0].in_turn_s
            cells = (f"{1e3 * time:.3f}" for time in times)
            shown.add_row(topology, f"{share:.0%}", *cells, str(best), f"{times[0] / min(times):.2f}x")
        shown.add_section()
    return shown


def programs() -> Table:
    title = f"All-to-alls that run while something is computed, of all, on {OVERLAPPED_ON}; compiled"
    shown = Table(title=title, title_justify="left")
    for head in ("degree", "by default", f"with {ASYNC}"):
        shown.add_column(head, justify="right")
    for degree in DEGREES[:3]:
        found = (hidden_of_all(program(degree, options)) for options in ({}, {ASYNC: True}))
        shown.add_row(str(degree), *(f"{hidden} of {every}" for hidden, every in found))
    return shown


def program(chunks: int, options: dict[str, bool]) -> str:
    """The TPU's program of a layer forward, sixteen devices with two experts each, in so many chunks."""
    devices = np.array(mw.topology(OVERLAPPED_ON).devices())
    mesh = Mesh(devices, ("expert",), axis_types=(AxisType.Auto,))
    exchange = ManualExchange(
        mesh=(("expert", devices.size),), owners=("expert",), route=Direct(axes=("expert",)), chunks=chunks
    )
    experts = FeedForward()

    def forward(params: dict[str, jax.Array], sent: jax.Array) -> Any:
        return exchange(lambda w, x, key: experts(w, x, key=key), params, sent, key=None).returned

    params = {name: jax.ShapeDtypeStruct((32, DIM, DIM), jnp.bfloat16) for name in ("wi", "wo")}
    sent = jax.ShapeDtypeStruct((32, 16, 64, DIM), jnp.bfloat16)
    laid = NamedSharding(mesh, PartitionSpec("expert")), NamedSharding(mesh, PartitionSpec(None, "expert"))
    text: str = jax.jit(forward, in_shardings=laid).lower(params, sent).compile(options).as_text()
    return text


def hidden_of_all(text: str) -> tuple[int, int]:
    """How many all-to-alls of a program have a fusion between start and end, and how many there are."""
    entry = text[text.index("ENTRY") :]
    named = re.findall(r"^\s*(?:ROOT )?%?([\w.-]+) = .*? (all-to-all(?:-start|-done)?|fusion)\(", entry, re.MULTILINE)
    kinds = [kind for _, kind in named]
    starts = [at for at, kind in enumerate(kinds) if kind == "all-to-all-start"]
    hidden = sum("fusion" in kinds[at : kinds.index("all-to-all-done", at)] for at in starts)
    return hidden, len(starts) + kinds.count("all-to-all")


if __name__ == "__main__":
    main()
