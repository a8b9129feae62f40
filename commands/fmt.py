"""``meshwright fmt``: writes plans canonically."""

from __future__ import annotations

import argparse
import sys

from ..dsl.errors import PlanError
from . import plan_file
from .command import BAD, NO, YES, Command
from .streams import write, write_problems


def run(arguments: argparse.Namespace) -> int:
    """Writes plans canonically."""
    return max([_format(file, arguments) for file in arguments.plans])


def _format(path: str, arguments: argparse.Namespace) -> int:
    """Formats one file; its problems do not keep the others from being formatted."""
    from ..dsl.reader import loads
    from ..dsl.writer import dumps, write_file

    try:
        text, name = plan_file.text(path)
        canonical = dumps(loads(text, name))
        if arguments.check:
            return _report_uncanonical(name) if canonical != text else YES
        if arguments.stdout or path == "-":
            write(canonical)
        elif canonical != text:
            write_file(canonical, path)
    except PlanError as error:
        write_problems(error.problems)
        return BAD
    return YES


def _report_uncanonical(name: str) -> int:
    print(f"{name}: not canonical; 'meshwright fmt {name}' writes it so", file=sys.stderr)
    return NO


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plans", metavar="PLAN", nargs="+", help="a plan file, or - for the standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a plan is not canonical")
    parser.add_argument("--stdout", action="store_true", help="print the plans instead of writing them in place")


COMMAND = Command(name="fmt", summary="write plans canonically, in place", arguments=_arguments, run=run)
