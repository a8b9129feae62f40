"""What the commands show on stderr: problems, tables, an answer in a line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .dsl.errors import Problem
from .dsl.verdict import Verdict

if TYPE_CHECKING:
    from .backends.jax.verify import Verification
    from .planner.explain.rows import Rows

MIN_WIDTH = 60
FILE_WIDTH = 160


def _console() -> Console:
    """The screen, taken to be wide enough for a table's figures: a narrow one wraps them, nothing is left out.

    What is no terminal, a file or a pipe, has room unless it says otherwise.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    least = MIN_WIDTH if console.is_terminal or "COLUMNS" in os.environ else FILE_WIDTH
    console.width = max(console.width, least)
    return console


def show_problems(problems: Sequence[Problem]) -> None:
    """Shows problems on stderr, ``file:line:column: CODE`` first, the remedy on a line of its own."""
    console = _console()
    for problem in problems:
        where = f"{problem.place}: " if problem.place else ""
        style = "bold red" if problem.severity == "error" else "bold yellow"
        note = "note: " if problem.severity == "note" else ""
        console.print(Text.assemble(where, (problem.code, style), f" {note}{problem.message}"))
        if problem.remedy:
            console.print(Text(f"    {problem.remedy}", style="dim"))


def show_verdict(verdict: Verdict, name: str) -> None:
    """Shows what ``check`` found: bytes of a device by argument, then the answer in a line."""
    console = _console()
    if verdict.legal and verdict.argument_bytes:
        console.print(_bytes_table(verdict))
    console.print(f"{name}: {', '.join(_answers(verdict))}", markup=False)


def show_verification(verification: Verification) -> None:
    """Shows on stderr what the compiler says: memory, time and collectives as tables, then the answer."""
    from .backends.jax.report import headline, tables

    compiled = verification.compiled
    notes = [line for line in (compiled.reason, compiled.note) if line]
    show_tables(tables(verification), notes, headline(verification), good=verification.fits)


def show_note(text: str) -> None:
    """Shows a line that is no answer, on stderr."""
    _console().print(Text(text, style="dim"))


def show_tables(tables: Iterable[Rows], notes: Iterable[str], answer: str, *, good: bool) -> None:
    """Shows tables, what a reader must know besides, then the answer in a line."""
    console = _console()
    for rows in tables:
        table = Table(title=Text(rows.title), title_justify="left")
        for header in rows.headers:
            table.add_column(Text(header), overflow="fold")
        for row in rows.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for line in notes:
        console.print(Text(line))
    console.print(Text(answer, style="bold green" if good else "bold red"))


def _bytes_table(verdict: Verdict) -> Table:
    table = Table("argument", "bytes of a device", title="What the step's arguments take", title_justify="left")
    table.columns[1].justify = "right"
    for argument, held in verdict.argument_bytes.items():
        table.add_row(Text(argument), "not decided" if held is None else f"{held:,}")
    if verdict.total_bytes is not None:
        table.add_row("together", f"{verdict.total_bytes:,}", style="bold")
    if verdict.limit_bytes is not None:
        table.add_row("limit", f"{verdict.limit_bytes:,}")
    return table


def _answers(verdict: Verdict) -> Iterator[str]:
    yield "legal" if verdict.legal else "not legal"
    if verdict.holes:
        open_ends = ", ".join(verdict.holes[:8]) + (", ..." if len(verdict.holes) > 8 else "")
        yield f"not complete (the planner is to decide {open_ends})"
    elif verdict.legal:
        yield "complete"
    if verdict.legal and verdict.fits is not None:
        yield "its arguments fit" if verdict.fits else "does not fit"
