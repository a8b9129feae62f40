"""The layers of ``dispatch.py`` as the TPU compiler makes them, ahead of time, for one device."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import meshwright as mw
from dispatch_layer import LAYERS, Layer, Sizes, arguments, operations, products, step_of
from jax.sharding import SingleDeviceSharding
from meshwright.backends.jax.models.moe.dispatch.sorted import SortedDispatch
from meshwright.backends.jax.models.moe.experts import FeedForward
from meshwright.backends.jax.program.hlo import parse
from meshwright.backends.jax.program.hlo_loops import Runs
from meshwright.dsl.machine import parse_topology
from meshwright.planner.topology import physical

MACHINES = ("v5e:2x2", "v5p:2x2x1", "v3:2x2")
SIZES = Sizes(tokens=2048, experts=16, model_dim=1024, hidden_dim=4096, dtype="bfloat16")
MEGABLOX = Layer(dispatch=SortedDispatch(multiple=128), work=FeedForward(kernel="megablox"))


def compiled(machine: str) -> Iterator[tuple[str, ...]]:
    """Rows of a table: a layer's name, operations counted, cycles, milliseconds, and bytes."""
    device = mw.topology(machine).devices()[0]
    chip = physical(parse_topology(machine)).chip
    clock_hz, peak = chip.clock_hz, chip.peak_flops_per_s(SIZES.dtype)
    layers = LAYERS | ({"dropless, megablox": MEGABLOX} if not machine.startswith("v3") else {})
    shapes = jax.eval_shape(lambda: arguments(SIZES))
    placed = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=SingleDeviceSharding(device)), shapes
    )
    for name, layer in layers.items():
        made = jax.jit(step_of(layer, SIZES)).lower(*placed).compile()
        text = made.as_text() or ""
        cycles = Runs(program=parse(text)).estimated_cycles
        apart = text.count('custom_call_target="tpu_custom_call"')
        yield (
            name,
            f"{operations(layer, SIZES) / 1e9:,.0f}",
            f"{cycles:,}",
            f"{cycles / clock_hz * 1e3:.3f}" if clock_hz else "",
            f"{products(layer, SIZES) / peak * 1e3:.3f} ({apart} kernels)" if apart and peak else "",
            f"{made.cost_analysis()['bytes accessed'] / 1e9:.2f}",
            f"{made.memory_analysis().temp_size_in_bytes / 1e6:.0f}",
        )
