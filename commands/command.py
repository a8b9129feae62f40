"""What every command is: a name, arguments, a function that gives the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

YES, NO, BAD, INTERRUPTED = 0, 1, 2, 130
INFEASIBLE, NOTHING_FOUND = 3, 4  # of what searches


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand: its arguments, and the function that runs it and gives the exit code."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def plan_argument(parser: argparse.ArgumentParser) -> None:
    """The plan that a command is about."""
    parser.add_argument("plan", metavar="PLAN", help="a plan file, or - for the standard input")


def json_option(parser: argparse.ArgumentParser) -> None:
    """Whether the answer is wanted as JSON."""
    parser.add_argument("--json", action="store_true", help="print one JSON object to the standard output")


def process_option(parser: argparse.ArgumentParser) -> None:
    """Which of several processes this is, where several run one plan."""
    parser.add_argument(
        "--process", metavar="I/N@HOST:PORT", help="the I-th of N processes that run this together, or auto (TPU pods)"
    )


def plan_and_json(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that answers one question about one plan."""
    plan_argument(parser)
    json_option(parser)


def no_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes none."""
