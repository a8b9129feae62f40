"""What ``meshwright run`` shows on stderr while it trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from .score_display import example_table, score_table

SPARKS = "▁▂▃▄▅▆▇█"
SPARKLINE_WIDTH = 32
PLAIN_LINES = 20
WAITING = "compiling the step, reading the data ..."


class RunDisplay:
    """Shows a run's records (``training.metrics``) as they come: live on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console | None = None, *, speaks: bool = True):
        self.console = console or Console(stderr=True, highlight=False, quiet=not speaks)
        self._losses: list[float] = []
        self._steps = self._before = 0
        self._file = "PLAN"
        self._bar = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._live = Live(console=self.console, transient=True, refresh_per_second=8)

    def __enter__(self) -> RunDisplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Shows one record."""
        shown = {"run": self._begin, "step": self._step, "held-out": self._held_out, "summary": self._end}
        shown |= {"kept": self._kept, "scores": self._scores}
        shown[record["kind"]](record)

    def _begin(self, record: Mapping[str, Any]) -> None:
        devices = record["devices"]
        mesh = " ".join(f"{axis}={size}" for axis, size in record["mesh"].items())
        self._before = record.get("steps_before", 0)
        self._steps, self._file = record["steps"] + self._before, record["file"] or self._file
        where = f"{devices['count']} {devices['kind']} devices, mesh {mesh}, seed {record['seed']}"
        self.console.print(f"{record['plan'] or record['model']} on {where}", markup=False)
        self._task = self._bar.add_task("step", total=self._steps, completed=self._before)
        if self.console.is_terminal:
            self._live.start()
            self._live.update(Text(WAITING))
        else:
            self.console.print(WAITING)

    def _step(self, record: Mapping[str, Any]) -> None:
        self._losses.append(float(record["loss"]))
        self._bar.update(self._task, completed=record["step"])
        if self.console.is_terminal:
            figures = Text("  ".join(_figures(record)))
            self._live.update(Group(self._bar, figures, Text(sparkline(self._losses))))
        elif record["step"] in (self._before + 1, self._steps) or self._is_due(record["step"]):
            line = f"step {record['step']}/{self._steps}  {'  '.join(_figures(record))}"
            self.console.print(line, markup=False, soft_wrap=True)

    def _is_due(self, step: int) -> bool:
        return step % max(1, (self._steps - self._before) // PLAIN_LINES) == 0

    def _kept(self, record: Mapping[str, Any]) -> None:
        self.console.print(f"state kept in {record['folder']} after step {record['step']}", markup=False)

    def _scores(self, record: Mapping[str, Any]) -> None:
        self.console.print(score_table(record))
        self.console.print(example_table(record))

    def _held_out(self, record: Mapping[str, Any]) -> None:
        when = f"after step {record['step']}" if record["step"] else "before the first step"
        self.console.print(f"held-out loss {float(record['loss']):.4f} {when}", markup=False)

    def _end(self, summary: Mapping[str, Any]) -> None:
        self._live.stop()
        table = Table(
            title=f"{summary['status']} after {summary['steps']} steps", title_justify="left", show_header=False
        )
        for name, value in _summary_rows(summary):
            table.add_row(name, value)
        self.console.print(table)
        if self._losses:
            self.console.print(sparkline(self._losses), markup=False)
        self.console.print("\n".join(["", "Next:", *_suggestions(summary, self._file)]), markup=False, soft_wrap=True)


def sparkline(values: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """The values as a line of block characters, means over equal stretches where there are more than ``width``."""
    finite = [value for value in values if abs(value) != float("inf") and value == value]
    if not finite:
        return ""
    count = min(width, len(finite))
    edges = [len(finite) * i // count for i in range(count + 1)]
    means = [sum(finite[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(SPARKS[round((mean - low) * scale)] for mean in means)


def _figures(record: Mapping[str, Any]) -> Iterator[str]:
    yield f"loss {float(record['loss']):.4f}"
    if "tokens_per_s" in record:
        yield f"{record['tokens_per_s']:,.0f} tokens/s"
    if "overflowed" in record:
        yield f"dropped {float(record['overflowed']):.1%} of tokens"
    elif "dropped" in record:
        yield f"dropped {float(record['dropped']):.1%}"
    if "expert_load" in record:
        yield f"expert load {_most_over_mean(record['expert_load']):.2f}x the mean"


def _most_over_mean(load: Any) -> float:
    """The largest load over the mean: given so by the model, or worked out from one load an expert."""
    if not isinstance(load, list):
        return float(load)
    mean = sum(load) / len(load)
    return max(load) / mean if mean else 0.0


def _summary_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if summary["first_loss"] is not None:
        yield "loss, first to last", _change(summary["first_loss"], summary["last_loss"])
    if summary["held_out_loss_after"] is not None:
        yield "held-out loss, before to after", _change(summary["held_out_loss_before"], summary["held_out_loss_after"])
    if summary["tokens_per_s"] is not None:
        yield "tokens a second", f"{summary['tokens_per_s']:,.0f}"
    if summary["step_time_s"] is not None:
        yield "time a step", f"{summary['step_time_s'] * 1e3:,.1f} ms"
    yield "compiling", f"{summary['compile_time_s']:.1f} s"
    yield from ((name.replace("_", " "), _plain(value)) for name, value in summary["inputs"].items())


def _change(before: float, after: float) -> str:
    return f"{float(before):.4f} → {float(after):.4f}"


def _plain(value: Any) -> str:
    return f"{value:.1%}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _suggestions(summary: Mapping[str, Any], file: str) -> Iterator[str]:
    if summary["status"] == "diverged":
        yield f"  the loss is {summary['last_loss']} at step {summary['steps']}: lower the learning rate under 'with:'"
    if summary.get("kept_in"):
        kept = summary["kept_in"]
        yield f"  translate with what it has learnt:           meshwright translate {file} --from {kept} --text TEXT"
        yield f"  go on training:                              meshwright run {file} --resume {kept} --save {kept}"
    if summary["metrics_file"]:
        yield f"  every step's figures are in {summary['metrics_file']}, a line of JSON each"
    else:
        yield f"  keep every step's figures:                   meshwright run {file} --metrics run.jsonl"
    yield f"  try another layout, the losses stay:         edit 'mesh:' or 'tensors:' in {file}, run it again"
    yield f"  see memory, time and collectives:            meshwright verify {file}"
    yield "  see them on TPUs, without a TPU:             the same with 'topology:' a pod's, such as " + _pod(summary)


def _pod(summary: Mapping[str, Any]) -> str:
    """A TPU topology with as many devices, where a small one has; a pod's slice elsewhere."""
    small = {2: "v3:1x1", 4: "v5e:2x2", 8: "v3:2x2", 16: "v5e:4x4", 32: "v3:4x4"}
    return small.get(summary["num_devices"], "v3:8x8")
