"""``meshwright diff``: what changes from one plan to another."""

from __future__ import annotations

import argparse

from ..dsl.errors import PlanError, problem
from .command import NO, YES, Command, json_option
from .plan_file import load
from .streams import write, write_json


def run(arguments: argparse.Namespace) -> int:
    """What changes from one plan to another."""
    from ..dsl.diff import diff as changes_between

    if arguments.before == arguments.after == "-":
        raise PlanError([problem("MW070")])
    changes = changes_between(load(arguments.before), load(arguments.after))
    if arguments.json:
        write_json("diff", same=not changes, changes=[change.as_json() for change in changes])
    else:
        write("".join(f"{change}\n" for change in changes))
    return NO if changes else YES


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a plan file, or - for the standard input")
    parser.add_argument("after", metavar="B", help="another")
    json_option(parser)


COMMAND = Command(name="diff", summary="what changes from one plan to another", arguments=_arguments, run=run)
