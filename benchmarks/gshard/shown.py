"""What a figure is: tables, words, and a picture. Each column says if it is predicted, compiled or the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure or table of the paper. ``draw`` puts its picture on a ``matplotlib`` figure."""

    name: str
    tables: tuple[Table, ...]
    words: tuple[str, ...]
    draw: Callable[[Any], None]

    def print(self, console: Console) -> None:
        for table in self.tables:
            console.print(table)
        for line in self.words:
            console.print(f"- {line}", highlight=False)
        console.print()

    def save(self, folder: Path) -> list[Path]:
        """Writes the picture as SVG and PNG. Raises ``ImportError`` without matplotlib."""
        from matplotlib.figure import Figure as Canvas

        folder.mkdir(parents=True, exist_ok=True)
        canvas = Canvas(figsize=(11, 4.5), layout="constrained")
        self.draw(canvas)
        paths = [folder / f"{self.name}.{ending}" for ending in ("svg", "png")]
        for path in paths:
            canvas.savefig(path)
        return paths


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and all others are figures."""
    shown = Table(title=title, title_justify="left")
    for number, head in enumerate(heads):
        shown.add_column(head, justify="right" if number else "left", overflow="fold", no_wrap=not number)
    for row in rows:
        shown.add_row(*row)
    return shown


def figure(value: float | None, form: str, scale: float = 1.0) -> str:
    """A number in a table; a dash where there is none."""
    return "-" if value is None else format(value * scale, form)
