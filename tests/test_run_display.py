"""The display of a run, off a terminal: a line now and then, a summary, and what to do next."""

from __future__ import annotations

import io

from meshwright.run_display import RunDisplay, sparkline
from rich.console import Console


def shown(records: list[dict[str, object]], *, terminal: bool = False) -> str:
    out = io.StringIO()
    with RunDisplay(Console(file=out, width=100, force_terminal=terminal)) as display:
        for record in records:
            display(record)
    return out.getvalue()


def a_run(status: str = "finished", steps: int = 100) -> list[dict[str, object]]:
    header = {
        "kind": "run",
        "plan": "tiny",
        "model": "m:f",
        "file": "plans/tiny.yaml",
        "mesh": {"expert": 8},
        "steps": steps,
    }
    header |= {"seed": 3, "devices": {"platform": "cpu", "kind": "cpu", "count": 8}}
    taken = [
        {
            "kind": "step",
            "step": i,
            "loss": 9.0 / i,
            "tokens_per_s": 1234.5,
            "dropped": 0.25,
            "overflowed": 0.01,
            "expert_load": [1, 1, 4],
        }
        for i in range(1, steps + 1)
    ]
    summary = {"kind": "summary", "status": status, "steps": steps, "first_loss": 9.0, "last_loss": 9.0 / steps}
    summary |= {"held_out_loss_before": 9.5, "held_out_loss_after": 0.5, "tokens_per_s": 1234.5, "step_time_s": 0.01}
    summary |= {
        "compile_time_s": 2.0,
        "num_devices": 8,
        "inputs": {"source_efficiency": 0.97, "pairs": 4321},
        "metrics_file": None,
    }
    return [header, {"kind": "held-out", "step": 0, "loss": 9.5}, *taken, summary]


def test_off_a_terminal_it_prints_a_line_every_few_steps() -> None:
    lines = [line for line in shown(a_run()).splitlines() if line.startswith("step ")]
    assert lines[0] == "step 1/100  loss 9.0000  1,234 tokens/s  dropped 1.0% of tokens  expert load 2.00x the mean"
    assert lines[-1].startswith("step 100/100")
    assert len(lines) <= 22


def test_it_begins_with_where_it_runs() -> None:
    assert shown(a_run()).startswith("tiny on 8 cpu devices, mesh expert=8, seed 3\ncompiling")


def test_it_ends_with_the_figures_and_what_to_do_next() -> None:
    text = shown(a_run())
    for words in ("9.0000 → 0.0900", "9.5000 → 0.5000", "97.0%", "4,321", "meshwright verify plans/tiny.yaml"):
        assert words in text


def test_a_diverged_run_says_so() -> None:
    assert "lower the learning rate" in shown(a_run("diverged"))


def test_on_a_terminal_the_figures_are_there_too() -> None:
    text = shown(a_run(steps=5), terminal=True)
    assert "finished after 5 steps" in text


def test_a_sparkline_falls_as_the_values_do() -> None:
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert sparkline([1.0] * 5) == "▁" * 5
    assert sparkline([]) == sparkline([float("nan")]) == ""
    assert len(sparkline(range(1000), width=20)) == 20
