"""The command line: parses and calls. Each command imports what it needs when it runs, so help is instant."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from .commands import (
    calibrate,
    check,
    convert,
    diff,
    estimate,
    explain,
    fmt,
    run,
    schema,
    search,
    solve,
    translate,
    verify,
)
from .commands.command import BAD, INTERRUPTED, YES
from .commands.streams import close, open_streams, write_json, write_problems
from .dsl.errors import PlanError, Problem

COMMANDS = tuple(
    module.COMMAND
    for module in (
        search,
        check,
        estimate,
        explain,
        verify,
        run,
        translate,
        diff,
        calibrate,
        convert,
        fmt,
        schema,
        solve,
    )
)
EPILOG = """\
PLAN is a file, or - for the standard input.
exit codes: 0 yes; 1 a negative answer (does not fit, plans differ); 2 bad usage or file; 130 interrupted
search and solve also: 3 proven infeasible; 4 nothing found in the time
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code. As a program, what starting it took is the command's time too."""
    open_streams()
    begin_s = time.monotonic() - (time.process_time() if argv is None else 0.0)
    arguments = _parser().parse_args(argv, argparse.Namespace(begin_s=begin_s))
    code = YES
    try:
        code = _answer(arguments)
    except KeyboardInterrupt:
        print("meshwright: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        close(sys.stderr)
    return code


def _answer(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.run(arguments)
    except PlanError as error:
        return _refuse(arguments, error.problems)
    return code


def _refuse(arguments: argparse.Namespace, problems: Sequence[Problem]) -> int:
    """Says what is wrong, on stderr and, where asked, as JSON."""
    write_problems(problems)
    if getattr(arguments, "json", False):
        write_json(arguments.command, problems=[p.as_json() for p in problems])
    return BAD


def _parser() -> argparse.ArgumentParser:
    from . import __version__

    parser = argparse.ArgumentParser(
        prog="meshwright",
        description="Plans how JAX models are laid out over pods, proves the plan against the real compiler, runs it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"meshwright {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        command.arguments(subparser)
        subparser.set_defaults(run=command.run, command=command.name)
    return parser


if __name__ == "__main__":
    sys.exit(main())
