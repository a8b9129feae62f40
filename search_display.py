"""What ``meshwright search`` shows on stderr while it goes on."""

from __future__ import annotations

import math
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from .planner.search.progress import Progress as State

BEGIN = "reading the step ..."


class SearchDisplay:
    """Shows how a search goes on: live on a terminal, a line for each change elsewhere."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, highlight=False)
        self._bar = Progress(TextColumn("candidates"), MofNCompleteColumn(), BarColumn(), console=self.console)
        self._live = Live(console=self.console, transient=True, refresh_per_second=8)
        self._task = self._bar.add_task("candidates", total=None)
        self._doing = BEGIN

    def __enter__(self) -> SearchDisplay:
        if self.console.is_terminal:
            self._live.start()
            self._live.update(Text(BEGIN))
        else:
            self.console.print(BEGIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, state: State) -> None:
        """Shows the state of the search."""
        self._doing = state.doing or self._doing
        if self.console.is_terminal:
            self._bar.update(self._task, completed=state.tried, total=state.total)
            self._live.update(Group(self._bar, Text(figures(state)), Text(self._doing)))
        elif state.doing:
            line = f"{state.elapsed_s:6.1f} s  {state.tried}/{state.total}  {figures(state)}  {state.doing}"
            self.console.print(line, markup=False, soft_wrap=True)


def figures(state: State) -> str:
    """The best so far, the bound, the gap and the time left, in a line."""
    gap = "" if math.isinf(state.gap) else f"  gap {state.gap:.1%}"
    return f"best {_ms(state.best_s)}  bound {_ms(state.bound_s)}{gap}  {state.left_s:.0f} s left"


def _ms(seconds: float) -> str:
    return "-" if math.isinf(seconds) else f"{seconds * 1e3:.3f} ms"
