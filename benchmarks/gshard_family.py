"""GShard's family on the TPU compiler: bytes a core and compile time, beside the paper's claims.

    python benchmarks/gshard_family.py [PLAN ...]        default: every gshard plan for v3 that ships, one after another

Figure 7 says that memory of a device is constant in the number of experts and linear in the number of layers, and
section 3 that one program is compiled whose size does not depend on the devices. Figures are of the TPU compiler for
v3, ahead of time, on no TPU. Each plan is verified in a process of its own; compile times are of this machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

PLANS = Path(__file__).parent.parent / "plans"
FAMILY = {
    "gshard-12b": 12.5,
    "gshard-50b": 50,
    "gshard-200b": 200,
    "gshard-37b": 37,
    "gshard-150b": 150,
    "gshard-600b": 600,
    "gshard-1t": 1000,
}
"""Billions of weights as Table 1 has them, shallow members first, by number of experts."""
GIB = 2**30


def verified(plan: str) -> dict[str, object]:
    """What ``meshwright verify --json`` says of one plan."""
    command = [sys.executable, "-m", "meshwright.cli", "verify", str(PLANS / f"{plan}.yaml"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def main(names: list[str]) -> None:
    rows = {name: verified(name) for name in names}
    console = Console(width=max(140, Console().width))
    table = Table(title="A core's memory and the step's work, compiled for TPU v3")
    for head in (
        "plan",
        "weights, paper",
        "topology",
        "fits",
        "peak GiB",
        "weights",
        "optimiser",
        "temporaries",
        "compute s",
        "all-to-all MiB",
        "compile s",
    ):
        table.add_column(head, justify="right")
    for name, said in rows.items():
        table.add_row(name, f"{FAMILY[name]:g}B", *cells(said))
    console.print(table)
    for line in claims(rows):
        console.print(line)


def cells(said: dict) -> Iterator[str]:
    compiled = said["compiled"]
    kinds = compiled["bytes_by_kind"]
    yield str(said["topology"])
    yield "yes" if said["fits"] else "no"
    yield f"{compiled['peak_bytes'] / GIB:.2f}" if compiled["peak_bytes"] else "-"
    for kind in ("weights", "optimiser state", "temporaries"):
        yield f"{kinds[kind] / GIB:.2f}" if kind in kinds else "-"
    yield f"{compiled['compute_s']:.2f}" if compiled["compute_s"] else "-"
    yield f"{compiled['collective_bytes'].get('all-to-all', 0) / 2**20:.0f}"
    yield f"{compiled['compile_s']:.0f}"


def claims(rows: dict[str, dict]) -> Iterator[str]:
    """The paper's words, and what these figures say to them."""
    for layers, members in (
        ("12", ["gshard-12b", "gshard-50b", "gshard-200b"]),
        ("36", ["gshard-37b", "gshard-150b", "gshard-600b"]),
    ):
        here = [rows[name]["compiled"] for name in members if name in rows]
        if len(here) == len(members):
            peaks = [c["peak_bytes"] for c in here]
            yield (
                f"{layers} layers, 128 to 2048 experts: a core's peak, most/least = {max(peaks) / min(peaks):.3f}; "
                f"paper, Figure 7: 'constant'"
            )
            ratio = here[-1]["compile_s"] / here[0]["compile_s"]
            yield (
                f"{layers} layers: compile time at 2048 cores / at 128 = {ratio:.2f}; "
                f"paper, section 3: O(1) in the number of devices"
            )


if __name__ == "__main__":
    main(sys.argv[1:] or list(FAMILY))
