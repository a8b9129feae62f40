"""``meshwright calibrate``: learns what kernels take on a chip from its own compiler, with no chip."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, problem
from .command import YES, Command, json_option
from .plan_file import prepare_devices, unwritable
from .streams import write, write_json

if TYPE_CHECKING:
    from ..planner.compute import Calibration


def run(arguments: argparse.Namespace) -> int:
    """Compiles small programs for the topology and writes what their cycles teach."""
    from ..dsl.machine import parse_topology
    from ..planner.compute import dump
    from ..planner.topology import physical

    machine = physical(parse_topology(arguments.topology))  # what cannot be is said before anything else
    if machine.platform != "tpu":
        raise PlanError([problem("MW416", topology=arguments.topology)])
    if arguments.out is not None and (reason := unwritable(arguments.out)):
        raise PlanError([problem("MW414", path=arguments.out, reason=reason)])
    prepare_devices(None)
    from ..backends.jax.calibration import calibrate

    with redirect_stdout(sys.stderr):
        learned = calibrate(arguments.topology, _progress)
    print(file=sys.stderr)
    _write_table(dump(learned), arguments)
    _answer(learned, arguments)
    return YES


def _write_table(text: str, arguments: argparse.Namespace) -> None:
    """Writes the table to its file, or else, unless JSON is wanted there, to the standard output."""
    if arguments.out is None:
        if not arguments.json:
            write(text)
        return
    try:
        Path(arguments.out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError([problem("MW414", path=arguments.out, reason=error.strerror or str(error))]) from None


def _answer(learned: Calibration, arguments: argparse.Namespace) -> None:
    error = learned.error
    how = f"median error {error.median:.1%}, 95th percentile {error.p95:.1%}"
    if arguments.json:
        figures = {"programs": error.programs, "median": error.median, "p95": error.p95}
        said = {"jax_kind": learned.jax_kind, "topology": learned.topology, "compiler": learned.compiler}
        write_json("calibrate", file=arguments.out, **said, programs=learned.programs, error=figures)
    print(
        f"{learned.jax_kind}: learned from {learned.programs} programs of {learned.compiler}; "
        f"predicted against compiled cycles of {error.programs} programs held out: {how}",
        file=sys.stderr,
    )


def _progress(done: int, of: int) -> None:
    print(f"\rcompiled {done} of {of} small programs", end="", file=sys.stderr, flush=True)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topology", metavar="TOPOLOGY", help="a machine whose compiler is here, such as v5e:2x2")
    parser.add_argument("-o", "--out", metavar="FILE", help="write the table there, not to the standard output")
    json_option(parser)


COMMAND = Command(
    name="calibrate",
    summary="learn what kernels take on a chip from its compiler's own cycles (minutes, no chip needed)",
    arguments=_arguments,
    run=run,
)
