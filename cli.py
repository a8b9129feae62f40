"""The command line: parses, calls, renders. Each command imports what it needs when it runs, so help is instant."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from .dsl.errors import PlanError, Problem, problem
from .dsl.plan import Place

if TYPE_CHECKING:
    from .dsl.plan import Plan
    from .dsl.tensors import Tensor
    from .dsl.verdict import Verdict
    from .planner.topology import Machine

SCHEMA_VERSION = 1
YES, NO, BAD, INTERRUPTED = 0, 1, 2, 130
EPILOG = """\
PLAN is a file, or - for the standard input.
exit codes: 0 yes; 1 a negative answer (does not fit, plans differ); 2 bad usage or file; 130 interrupted
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A subcommand: its arguments, and the function that runs it and gives the exit code."""

    name: str
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code."""
    _open_streams()
    arguments = _parser().parse_args(argv)
    code = YES
    try:
        code = _answer(arguments)
    except KeyboardInterrupt:
        print("meshwright: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _close(sys.stderr)
    return code


def _answer(arguments: argparse.Namespace) -> int:
    try:
        code: int = arguments.run(arguments)
    except PlanError as error:
        return _refuse(arguments, error.problems)
    return code


def _open_streams() -> None:
    """Gives a process that was started without standard streams some, and the output every character."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _write(text: str) -> None:
    """Writes to the standard output; where nobody reads on, that changes no answer."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _close(sys.stdout)
    except OSError as error:
        _close(sys.stdout)
        raise PlanError([problem("MW071", reason=error.strerror or str(error))]) from None


def _close(stream: TextIO) -> None:
    """Sends what is left in the buffer nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def check(arguments: argparse.Namespace) -> int:
    """Legal? Complete? Do the arguments fit?"""
    from .dsl.reader import read

    reading = read(*_text(arguments.plan))
    plan = reading.plan
    if plan is None or reading.problems:
        raise PlanError(reading.also(_verdict(plan).problems if plan else ()))
    verdict = _verdict(plan)
    _show_problems(verdict.problems)
    if arguments.json:
        _print_json("check", file=plan.file, **verdict.as_json())
    else:
        from .render import show_verdict

        show_verdict(verdict, plan.file or "the plan")
    if not verdict.legal:
        return BAD
    return NO if verdict.fits is False else YES


def fmt(arguments: argparse.Namespace) -> int:
    """Writes plans canonically."""
    codes = [_format(file, arguments) for file in arguments.plans]
    return max(codes)


def diff(arguments: argparse.Namespace) -> int:
    """What changes from one plan to another."""
    from .dsl.diff import diff as changes_between

    if arguments.before == arguments.after == "-":
        raise PlanError([problem("MW070")])
    changes = changes_between(_load(arguments.before), _load(arguments.after))
    if arguments.json:
        _print_json("diff", same=not changes, changes=[change.as_json() for change in changes])
    else:
        _write("".join(f"{change}\n" for change in changes))
    return NO if changes else YES


def schema(arguments: argparse.Namespace) -> int:
    """The JSON schema of plans."""
    from .dsl.schema import json_schema

    _write(json.dumps(json_schema(), indent=2) + "\n")
    return YES


def run(arguments: argparse.Namespace) -> int:
    """Trains the plan's model on the devices that are here."""
    plan = _load(arguments.plan)
    _prepare_devices(_machine(plan))
    from .backends.jax.training.train import run as train
    from .render import RunDisplay

    with RunDisplay() as display, redirect_stdout(sys.stderr):
        summary = train(
            plan,
            steps=arguments.steps,
            seed=arguments.seed,
            metrics_path=arguments.metrics,
            eval_every=arguments.eval_every,
            on_record=[display],
        )
    if arguments.json:
        _print_json("run", **summary.as_json())
    return summary.exit_code


def verify(arguments: argparse.Namespace) -> int:
    """Compiles the plan's step for its topology and says what the compiler says."""
    plan = _load(arguments.plan)
    _prepare_devices(_machine(plan))
    from .backends.jax.loading import load_workload, trace_workload
    from .backends.jax.verify import verify as compile_step
    from .render import show_verification

    with redirect_stdout(sys.stderr):
        workload = load_workload(plan)
        trace_workload(plan, workload)  # a step that cannot be traced is a problem at the model's line
        verification = compile_step(plan, workload.step, workload.args, donate_argnums=workload.donated)
    if arguments.json:
        _print_json("verify", file=plan.file, **verification.as_json())
    else:
        show_verification(verification)
    return YES if verification.fits else NO


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


def _plan_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a plan file, or - for the standard input")


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    _plan_argument(parser)
    _json_option(parser)


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a plan file, or - for the standard input")
    parser.add_argument("after", metavar="B", help="another")
    _json_option(parser)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """The command takes none."""


def _json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object to the standard output")


def _fmt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plans", metavar="PLAN", nargs="+", help="a plan file, or - for the standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a plan is not canonical")
    parser.add_argument("--stdout", action="store_true", help="print the plans instead of writing them in place")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _plan_argument(parser)
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="steps to take (default: 100)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first weights and of the data (0)")
    parser.add_argument("--metrics", metavar="FILE", help="write every step's figures, a line of JSON each")
    parser.add_argument("--eval-every", type=int, metavar="N", help="held-out loss every N steps, not at the ends only")
    _json_option(parser)


COMMANDS = (
    Command(
        name="check",
        summary="is a plan legal, is it complete, do its arguments fit?",
        arguments=_check_arguments,
        run=check,
    ),
    Command(
        name="run",
        summary="train the plan's model on the devices that are here",
        arguments=_run_arguments,
        run=run,
    ),
    Command(
        name="verify",
        summary="compile the plan's step for its topology: the compiler's own word on memory, time, collectives",
        arguments=_check_arguments,
        run=verify,
    ),
    Command(name="fmt", summary="write plans canonically, in place", arguments=_fmt_arguments, run=fmt),
    Command(name="diff", summary="what changes from one plan to another", arguments=_diff_arguments, run=diff),
    Command(name="schema", summary="print the JSON schema of plans", arguments=_no_arguments, run=schema),
)


def _text(path: str) -> tuple[str, str]:
    """A file's text and the name that problems give it."""
    from .dsl.text import MAX_BYTES, decode, read_text

    if path == "-":
        if sys.stdin is None:
            raise PlanError([problem("MW001", Place(file="<stdin>"), reason="it is closed")])
        return decode(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>"), "<stdin>"
    return read_text(path), path


def _load(path: str) -> Plan:
    from .dsl.reader import loads

    return loads(*_text(path))


def _format(path: str, arguments: argparse.Namespace) -> int:
    """Formats one file; its problems do not keep the others from being formatted."""
    from .dsl.reader import loads
    from .dsl.writer import dumps, write_file

    try:
        text, name = _text(path)
        canonical = dumps(loads(text, name))
        if arguments.check:
            return _report_uncanonical(name) if canonical != text else YES
        if arguments.stdout or path == "-":
            _write(canonical)
        elif canonical != text:
            write_file(canonical, path)
    except PlanError as error:
        _show_problems(error.problems)
        return BAD
    return YES


def _report_uncanonical(name: str) -> int:
    print(f"{name}: not canonical; 'meshwright fmt {name}' writes it so", file=sys.stderr)
    return NO


def _machine(plan: Plan) -> Machine | None:
    """The machine of the plan's topology. Raises ``PlanError`` where there is none such."""
    from .planner.topology import physical

    return physical(plan.topology) if plan.topology else None


def _prepare_devices(machine: Machine | None) -> None:
    """Makes JAX, which must not have started, have the devices that the plan asks for."""
    from .backends.jax.devices import prepare

    prepare(machine)


def _verdict(plan: Plan) -> Verdict:
    """The verdict on a plan, with its model's tensors and its chip's memory where it names them."""
    from .dsl.verdict import judge
    from .planner import device_assignment, device_order, topology

    found = [*device_order.check(plan), *device_assignment.check(plan)]
    machine = None if plan.topology and topology.problems(plan.topology) else _machine(plan)
    tensors, of_model = _tensors(plan, machine)
    return judge(plan, tensors, other_problems=[*found, *of_model], chip_bytes=machine.hbm_bytes if machine else None)


def _tensors(plan: Plan, machine: Machine | None) -> tuple[list[Tensor] | None, Sequence[Problem]]:
    """The tensors of the plan's model (None without a model that loads), and what is wrong with it for this plan."""
    if plan.model is None:
        return None, ()
    _prepare_devices(machine)
    from .backends.jax import layouts, loading

    try:
        with redirect_stdout(sys.stderr):
            traced = loading.trace_workload(plan)
    except PlanError as error:
        return None, error.problems
    return list(traced.tensors), layouts.check(plan, traced)


def _refuse(arguments: argparse.Namespace, problems: Sequence[Problem]) -> int:
    """Says what is wrong, on stderr and, where asked, as JSON."""
    _show_problems(problems)
    if getattr(arguments, "json", False):
        _print_json(arguments.command, problems=[p.as_json() for p in problems])
    return BAD


def _show_problems(problems: Sequence[Problem]) -> None:
    if problems:
        from .render import show_problems

        show_problems(problems)


def _print_json(command: str, **fields: Any) -> None:
    _write(json.dumps({"schema_version": SCHEMA_VERSION, "command": command, **fields}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
