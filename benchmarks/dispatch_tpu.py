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
from meshwright.backends.jax.program.program_text import program_text
from meshwright.dsl.machine import parse_topology
from meshwright.planner.topology import physical

MACHINES = ("v5e:2x2", "v5p:2x2x1", "v3:2x2")
SIZES = Sizes(tokens=2048, experts=16, model_dim=1024, hidden_dim=4096, dtype="bfloat16")
MEGABLOX = Layer(dispatch=SortedDispatch(multiple=128), work=FeedForward(kernel="megablox"))


def compiled(topology: str) -> Iterator[tuple[str, ...]]:
    """Rows of a table: a layer's name, operations counted, cycles, milliseconds, and bytes.

    Where the compiler gives gathers and scatters to SparseCores (v5p), jaxlib cannot read the program: cycles are then
    those of the program that has them on the TensorCores.
    """
    device = mw.topology(topology).devices()[0]
    machine = physical(parse_topology(topology))
    clock_hz, peak = machine.clock_hz, machine.chip.peak_flops_per_s(SIZES.dtype)
    layers = LAYERS | ({"dropless, megablox": MEGABLOX} if not topology.startswith("v3") else {})
    shapes = jax.eval_shape(lambda: arguments(SIZES))
    placed = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=SingleDeviceSharding(device)), shapes
    )
    for name, layer in layers.items():
        lowered = jax.jit(step_of(layer, SIZES)).lower(*placed)
        made = lowered.compile()
        text = program_text(made, lowered, machine).text
        cycles = Runs(program=parse(text)).estimated_cycles if text else None
        apart = text.count('custom_call_target="tpu_custom_call"') if text else 0
        yield (
            name,
            f"{operations(layer, SIZES) / 1e9:,.0f}",
            "unreadable" if cycles is None else f"{cycles:,}",
            f"{cycles / clock_hz * 1e3:.3f}" if cycles and clock_hz else "",
            f"{products(layer, SIZES) / peak * 1e3:.3f} ({apart} kernels)" if apart and peak else "",
            f"{made.cost_analysis()['bytes accessed'] / 1e9:.2f}",
            f"{made.memory_analysis().temp_size_in_bytes / 1e6:.0f}",
        )
