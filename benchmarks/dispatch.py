"""What the ways of dispatch take on one device, at equal routing: one-hot products, by index, and sorted (dropless).

    python benchmarks/dispatch.py [--compile]

*Counted* are the operations that the systems' formulas give: 2·S·E·C·M each way for one-hot products (GShard), 2·S·K·M
by index (Tutel), and the experts' own. *Measured* is a training step of the layer behind the gate, forward and
gradient, on this CPU: tokens a CPU second, the best of some turns, taken by turns so that other work on the machine
falls on all alike. ``--compile`` adds the TPU compiler's cycles and bytes, ahead of time (some minutes); what it calls
cycles it leaves out for some of its own kernels, which is said.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from dispatch_layer import CAPACITY_2, LAYERS, Sizes, arguments, operations, step_of
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
    seconds = {name: best_cpu_seconds(step, args) for name, (step, args) in steps(sizes).items()}
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


def steps(sizes: Sizes) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    import jax

    args = arguments(sizes)
    return {name: (jax.jit(step_of(layer, sizes)), args) for name, layer in LAYERS.items()}


def best_cpu_seconds(step: Callable[..., Any], args: tuple[Any, ...]) -> float:
    import time

    import jax

    jax.block_until_ready(step(*args))
    taken = []
    for _ in range(TURNS):
        start = time.process_time()
        jax.block_until_ready(step(*args))
        taken.append(time.process_time() - start)
    return min(taken)


def shortfalls(sizes: Sizes, seconds: dict[str, float]) -> list[str]:
    """Index against one-hot products by the counted factor within 2 times; dropless ahead of capacity 2."""
    said = []
    for one_hot, index in CAPACITY_2:
        counted = operations(LAYERS[one_hot], sizes) / operations(LAYERS[index], sizes)
        measured = seconds[one_hot] / seconds[index]
        if not counted / 2 <= measured <= counted * 2:
            said.append(f"S = {sizes.tokens}: {index} is {measured:.2f}x as fast as {one_hot}, {counted:.2f}x counted")
    for pair in CAPACITY_2:
        for name in pair:
            if "2.0" in name and seconds["dropless, sorted"] >= seconds[name]:
                said.append(f"S = {sizes.tokens}: dropless is no faster than {name}")
    return said


def show_compiled(console: Console, machine: str) -> None:
    title = f"{machine}, one device, compiled: {SIZES}, forward and gradient"
    shown = Table(title=title, title_justify="left")
    for head in ("layer", "Gflop counted", "cycles", "ms at its clock", "GB accessed", "temporaries, MB", "note"):
        shown.add_column(head, justify="left" if head in ("layer", "note") else "right")
    for row in compiled(machine):
        shown.add_row(*row)
    console.print(shown)


if __name__ == "__main__":
    sys.exit(main())
