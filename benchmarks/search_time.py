"""How long a search takes and how much memory, on steps, machines and depths, each in a process of its own.

    python benchmarks/search_time.py [--only steps,machines,layers,unrolled,gshard] [--names mlp,conv-net]
                                     [--topology v3:4x4] [--mesh x=4,y=8] [--time-limit 60] [--repeat 1]

Wall is from the call of ``search`` to its answer, CPU the same of the process and its workers together, memory the
most that they held at once. Times of a step and bounds are predicted. The first search on a machine compiles the
solver, for some 25 s of CPU time, which a search beforehand takes upon it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

GIB = 2**30
LOOK_EVERY_S = 0.1
STEPS = ("mlp", "wide-mlp", "moe-layer", "dense-lm", "moe-lm", "conv-net")
HEADERS = ("step", "machine", "mesh", "wall", "CPU", "memory", "a step", "bound", "gap", "status", "meshes")
GSHARD = {"member": "moe-2048e-36l"}


class Asked(NamedTuple):
    """A search: the step's name, the machine, the mesh (empty: searched)."""

    step: str
    topology: str
    mesh: str = ""


class Pair(NamedTuple):
    """Two searches whose times are compared: the second should take at most ``most`` times the first."""

    title: str
    first: Asked
    second: Asked
    most: float


def pairs(only: Sequence[str]) -> Iterator[Pair]:
    if "machines" in only:
        small, large = "v5p:2x2x4", "v5p:16x20x28"
        yield Pair("16 devices and 8960, the mesh searched", Asked("mlp-8960", small), Asked("mlp-8960", large), 1.3)
        fixed = Asked("mlp-8960", small, "x=4,y=4"), Asked("mlp-8960", large, "x=256,y=35")
        yield Pair("16 devices and 8960, the mesh given", *fixed, 1.3)
    if "layers" in only:
        one, other = (Asked(f"decoder-{layers}", "v5e:4x4", "x=4,y=4") for layers in (4, 96))
        yield Pair("4 scanned layers and 96", one, other, 1.3)
    if "unrolled" in only:
        one, other = (Asked(name, "v5e:4x4", "x=4,y=4") for name in ("decoder-36", "decoder-36-unrolled"))
        yield Pair("36 layers scanned and unrolled", one, other, 2.0)


def main() -> None:
    arguments = parsed()
    if arguments.child:
        print(json.dumps(searched(Asked(*arguments.child), arguments.time_limit)), flush=True)
        return
    only = arguments.only.split(",")
    console = Console(width=150)
    measured(Asked("mlp", "v5e:2x2", "x=4"), 60.0)  # compiles the solver where that was not done before
    if "steps" in only:
        asked = [Asked(name, arguments.topology, mesh) for name in arguments.names for mesh in (arguments.mesh, "")]
        console.print(table("Training steps, the mesh given and searched", [best(one, arguments) for one in asked]))
    for pair in pairs(only):
        one, other = best(pair.first, arguments), best(pair.second, arguments)
        console.print(table(pair.title, [one, other]))
        console.print(f"{ratios(one, other)} (wanted: at most {pair.most})\n")
    if "gshard" in only:
        asked = [Asked("gshard", "v3:32x32")]
        console.print(table("GShard's 600B: 36 layers, 2048 experts", [best(one, arguments) for one in asked]))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="steps,machines,layers,unrolled,gshard")
    parser.add_argument("--names", type=lambda text: text.split(","), default=list(STEPS))
    parser.add_argument("--topology", default="v3:4x4")
    parser.add_argument("--mesh", default="x=4,y=8")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--repeat", type=int, default=1, help="the run with the least CPU time counts")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def best(asked: Asked, arguments: argparse.Namespace) -> dict[str, Any]:
    runs = [measured(asked, arguments.time_limit) for _ in range(arguments.repeat)]
    return min(runs, key=lambda run: run.get("cpu_s", float("inf")))


def measured(asked: Asked, time_limit_s: float) -> dict[str, Any]:
    """A search in a process of its own, and the most memory that it and its workers held at once."""
    command = [sys.executable, __file__, "--time-limit", str(time_limit_s), "--child", *asked]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    most = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        while process.poll() is None:
            most = max(most, sum(map(resident_bytes, family(process.pid))))
            time.sleep(LOOK_EVERY_S)
        said = process.stdout.read() if process.stdout else ""
    failed = {"error": f"ended with {process.returncode}"} if process.returncode or not said else {}
    found = failed or json.loads(said.splitlines()[-1])
    return {"asked": asked, "memory_bytes": most, **found}


def family(process: int) -> list[int]:
    """A process and those that it started."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        threads = [path.name for path in Path(f"/proc/{process}/task").iterdir() if path.name != str(process)]
        for thread in threads:
            children += Path(f"/proc/{process}/task/{thread}/children").read_text().split()
    except OSError:
        return [process]
    return [process, *(one for child in children for one in family(int(child)))]


def resident_bytes(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def searched(asked: Asked, time_limit_s: float) -> dict[str, Any]:
    """The search itself, in this process. Tracing and reading the step are part of it."""
    import meshwright as mw

    plan, step, args, donated = subject(asked.step)
    sizes = dict(part.split("=") for part in asked.mesh.split(",")) if asked.mesh else None
    mesh = {name: int(size) for name, size in sizes.items()} if sizes else None
    begin, cpu_s = time.monotonic(), cpu_seconds()
    found = mw.search(
        step, args, plan=plan, topology=asked.topology, mesh=mesh, time_limit_s=time_limit_s, donate_argnums=donated
    )
    return {
        "wall_s": time.monotonic() - begin,
        "cpu_s": cpu_seconds() - cpu_s,
        "step_time_s": found.step_time_s,
        "bound_s": found.tried_bound_s,
        "status": found.status,
        "meshes": f"{found.meshes.tried} of {found.meshes.distinct}",
    }


def subject(name: str) -> tuple[Any, Any, Any, Any]:
    """What is searched: a plan with limits or None, the step, its arguments, what is donated."""
    import meshwright as mw

    if name == "gshard":
        from meshwright.backends.jax.models import gshard

        workload = gshard(**GSHARD)
        plan = mw.loads("meshwright: 1\nlimits: {hbm: 15 GiB}\n")
        return plan, workload.step, workload.args, workload.donated
    from searched_steps import SEARCHED

    return None, *SEARCHED[name](), None


def cpu_seconds() -> float:
    """Of this process and of those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    made = Table(*HEADERS, title=title, title_justify="left")
    for row in rows:
        made.add_row(*cells(row))
    return made


def cells(row: dict[str, Any]) -> Iterator[str]:
    asked = row["asked"]
    yield from (asked.step, asked.topology, asked.mesh or "searched")
    if "error" in row:
        yield from ("-", "-", f"{row['memory_bytes'] / GIB:.2f} GiB", "-", "-", "-", row["error"], "-")
        return
    step_s, bound_s = row["step_time_s"], row["bound_s"]
    yield from (f"{row['wall_s']:.1f} s", f"{row['cpu_s']:.1f} s", f"{row['memory_bytes'] / GIB:.2f} GiB")
    yield f"{step_s * 1e3:.3f} ms" if step_s is not None else "-"
    yield f"{bound_s * 1e3:.3f} ms" if bound_s is not None else "-"
    yield f"{(step_s - bound_s) / step_s:.2%}" if step_s and bound_s is not None else "-"
    yield from (row["status"], row["meshes"])


def ratios(one: dict[str, Any], other: dict[str, Any]) -> str:
    if "error" in one or "error" in other:
        return "no ratio"
    wall, cpu = other["wall_s"] / one["wall_s"], other["cpu_s"] / one["cpu_s"]
    return f"{wall:.2f} times the wall time, {cpu:.2f} times the CPU time"


if __name__ == "__main__":
    main()
