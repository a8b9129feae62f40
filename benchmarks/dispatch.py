"""What the ways of dispatch take on one device, at equal routing: one-hot products, by index, and sorted (dropless).

    python benchmarks/dispatch.py [--compile]

*Counted* are the operations that the systems' formulas give: 2·S·E·C·M each way for one-hot products (GShard), 2·S·K·M
by index (Tutel), and the experts' own. *Measured* is a training step of the layer behind the gate, forward and
gradient, on this CPU: tokens a CPU second, the best of some turns, taken by turns so that other work on the machine
falls on all alike. ``--compile`` adds the TPU compiler's cycles and bytes, ahead of time (some minutes). It has no
cycles for kernels written apart, Pallas' and its own of ragged products: for these the table adds what the products'
operations take at the chip's peak, which is predicted and the least that they can take.
"""

from __future__ import annotations

import argparse
import sys
import time

import jax
from dispatch_layer import LAYERS, PAIRS, Sizes, arguments, operations, step_of
from dispatch_tpu import MACHINES, SIZES, compiled
from rich.console import Console
from rich.table import Table

GROUP_TOKENS = (256, 1024, 2048)
TURNS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="ask the TPU compiler too")
    asked = parser.parse_args()
    console = Console(width=max(130, Console().width))
    failures = [said for tokens in GROUP_TOKENS for said in measure(console, Sizes(tokens=tokens))]
    if asked.compile:
        for machine in MACHINES:
            show_compiled(console, machine)
    for said in failures:
        console.print(f"[red]not met:[/] {said}", highlight=False)
    return 1 if failures else 0


def measure(console: Console, sizes: Sizes) -> list[str]:
    """Prints the table of one size; returns what should have come out and did not."""
    seconds = cpu_seconds(sizes)
    exact = next(iter(LAYERS))
    shown = Table(title=f"{sizes}, forward and gradient", title_justify="left")
    for head in ("layer", "Mflop counted", "tokens/CPU s measured", "faster, counted", "faster, measured"):
        shown.add_column(head, justify="left" if head == "layer" else "right")
    for name, layer in LAYERS.items():
        counted = operations(LAYERS[exact], sizes) / operations(layer, sizes)
        rate = sizes.tokens / seconds[name]
        cells = (f"{operations(layer, sizes) / 1e6:,.0f}", f"{rate:,.0f}", f"{counted:.2f}x")
        shown.add_row(name, *cells, f"{seconds[exact] / seconds[name]:.2f}x")
    console.print(shown)
    return list(shortfalls(sizes, seconds))


def cpu_seconds(sizes: Sizes) -> dict[str, float]:
    """The least CPU seconds of a step of each layer."""
    args = arguments(sizes)
    steps = {name: jax.jit(step_of(layer, sizes)) for name, layer in LAYERS.items()}
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(TURNS + 1):
        for name, step in steps.items():
            start = time.process_time()
            jax.block_until_ready(step(*args))
            if turn:  # the first compiles
                taken[name].append(time.process_time() - start)
    return {name: min(each) for name, each in taken.items()}


def shortfalls(sizes: Sizes, seconds: dict[str, float]) -> list[str]:
    """Index against one-hot products by the counted factor within 2 times; dropless ahead of capacity 2."""
    said = []
    for one_hot, index in PAIRS:
        counted = operations(LAYERS[one_hot], sizes) / operations(LAYERS[index], sizes)
        measured = seconds[one_hot] / seconds[index]
        if not counted / 2 <= measured <= counted * 2:
            said.append(f"S = {sizes.tokens}: {index} is {measured:.2f}x as fast as {one_hot}, {counted:.2f}x counted")
    for pair in PAIRS:
        for name in pair:
            if "2.0" in name and seconds["dropless, sorted"] >= seconds[name]:
                said.append(f"S = {sizes.tokens}: dropless is no faster than {name}")
    return said


def show_compiled(console: Console, machine: str) -> None:
    title = f"{machine}, one device, compiled: {SIZES}, forward and gradient"
    shown = Table(title=title, title_justify="left")
    for head in (
        "layer",
        "Gflop counted",
        "cycles",
        "ms of them",
        "ms of kernels apart, predicted",
        "GB accessed",
        "temporaries, MB",
    ):
        shown.add_column(head, justify="left" if head == "layer" else "right")
    for row in compiled(machine):
        shown.add_row(*row)
    console.print(shown)


if __name__ == "__main__":
    sys.exit(main())
