"""What experts are worth while training, on real text: against a dense model, and without the auxiliary loss.

    python benchmarks/moe_training.py [--steps N] [--seed S] [--set NAME=VALUE ...] [--out FOLDER]

Three runs on one CPU device from the same seed, on the same batches: the tiny mixture of experts (8 experts, top-2), a
dense Transformer of the same operations a token, and the mixture without its auxiliary loss. Prints, all measured, the
steps in which the mixture reaches the losses of the dense model, the mean difference of their losses batch by batch
with its standard error, and how its experts are loaded with the auxiliary loss and without it (as in Sparsely-Gated
MoE's Table 6); and writes a picture (with matplotlib, the extra ``bench``). ``--set`` changes both mixtures, as in
``--set experts=32 groups=1 dispatch=index capacity_factor=1.5``. Some four minutes of CPU time at 600 steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml
from gshard.shown import Figure, table
from meshwright.backends.jax.devices import simulate_cpu
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import load
from rich.console import Console

PLANS = Path(__file__).parent.parent / "plans" / "names"
UNBALANCED = {"aux_weight": 0.0}
NAMES = ("mixture", "dense", "mixture without auxiliary loss")
POINTS = 8
FEWEST = 4
"""Steps of a run: each half has two, or its losses have no standard error."""
WINDOW = 20
"""Steps whose training losses are averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One run: its settings, its steps' records, the held-out losses by step."""

    settings: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    held_out: Mapping[int, float]

    def loss_at(self, step: int) -> float:
        """The mean training loss of the steps up to this one, ``WINDOW`` of them."""
        return self._mean("loss", step)

    def load_at(self, step: int) -> float:
        return self._mean("expert_load", step)

    def dropped_at(self, step: int) -> float:
        return self._mean("dropped", step)

    def overflowed_at(self, step: int) -> float:
        return self._mean("overflowed", step)

    def ahead_of(self, other: Trained, first: int, last: int) -> tuple[float, float]:
        """By how much its training loss is lower from one step to another, batch by batch, and the standard error."""
        both = zip(self.steps[first:last], other.steps[first:last], strict=True)
        lower = [float(theirs["loss"]) - float(own["loss"]) for own, theirs in both]
        return fmean(lower), stdev(lower) / len(lower) ** 0.5

    def reaches(self, loss: float) -> int | None:
        """The first step whose mean training loss is no higher."""
        return next((r["step"] for r in self.steps[WINDOW - 1 :] if self.loss_at(r["step"]) <= loss), None)

    def _mean(self, name: str, step: int) -> float:
        values = [float(record[name]) for record in self.steps[max(0, step - WINDOW) : step]]
        return sum(values) / len(values)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked for; wrong usage ends the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=steps_said, default=300, help=f"of each run, {FEWEST} or more (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="+", type=setting_said, default=[], metavar="NAME=VALUE", help="settings of both mixtures"
    )
    parser.add_argument("--out", type=Path, default=Path("build/figures"), help="the picture's folder (%(default)s)")
    return parser.parse_args(given)


def main() -> None:
    given = arguments()
    simulate_cpu(1)
    console = Console(width=max(120, Console().width))
    asked = zip(NAMES, plans_of(dict(given.set)), strict=True)
    runs = {name: trained(plan, given.steps, given.seed) for name, plan in asked}
    made = Figure(
        name="moe-training",
        tables=(loss_table(runs, given.steps), load_table(runs, given.steps)),
        words=tuple(words(runs, given.steps)),
        draw=lambda canvas: draw(canvas, runs, given.steps),
    )
    made.print(console)
    try:
        console.print(f"Written: {', '.join(map(str, made.save(given.out)))}", highlight=False)
    except ImportError:
        console.print("No picture: matplotlib is not here (pip install -e '.\\[bench]').", highlight=False)


def steps_said(text: str) -> int:
    """A number of steps, of which each half has two: fewer have no standard error."""
    steps = int(text)
    if steps < FEWEST:
        raise argparse.ArgumentTypeError(f"{steps} steps are too few: at least {FEWEST}")
    return steps


def setting_said(text: str) -> tuple[str, Any]:
    """A setting's name and its value, which is YAML."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise argparse.ArgumentTypeError(f"{value!r} is no value in YAML") from None


def plans_of(own: Mapping[str, Any]) -> tuple[Plan, Plan, Plan]:
    """The plans of ``NAMES``, both mixtures with these settings; the last without auxiliary loss whatever they are."""
    return plan_of("mixture", **own), plan_of("dense"), plan_of("mixture", **{**own, **UNBALANCED})


def plan_of(name: str, **settings: Any) -> Plan:
    """The plan of this name with further settings."""
    plan = load(PLANS / f"{name}.yaml")
    return replace(plan, settings={**plan.settings, **settings})


def trained(plan: Plan, steps: int, seed: int) -> Trained:
    """A run of the plan."""
    from meshwright.backends.jax.training.train import run

    records: list[Mapping[str, Any]] = []
    run(plan, steps=steps, seed=seed, eval_every=max(1, steps // POINTS), on_record=[records.append])
    return Trained(
        settings=plan.settings,
        steps=[record for record in records if record["kind"] == "step"],
        held_out={record["step"]: record["loss"] for record in records if record["kind"] == "held-out"},
    )


def active_weights(settings: Mapping[str, Any]) -> tuple[int, int]:
    """Weights that one token is multiplied by (two experts of each MoE layer), and all weights; no embeddings."""
    from meshwright.backends.jax.models.family import configure
    from meshwright.backends.jax.models.parameters import parameter_table

    config = configure(settings["member"], {name: value for name, value in settings.items() if name != "member"})
    active = every = 0
    for path, parameter in parameter_table(config).items():
        if not path.startswith(("encoder", "decoder")):
            continue
        count = 1
        for size in parameter.shape:
            count *= size
        every += count
        active += count * 2 // config.experts if parameter.stacked == 2 else count
    return active, every


def loss_table(runs: Mapping[str, Trained], steps: int) -> Any:
    heads = ["step", *(f"{name}, {kind}" for name in NAMES[:2] for kind in ("training", "held out"))]
    rows = [
        [f"{step}", *(cell for name in NAMES[:2] for cell in _losses(runs[name], step))] for step in points(runs, steps)
    ]
    return table(f"Loss a target token (measured; training: mean of {WINDOW} steps)", heads, rows)


def _losses(of: Trained, step: int) -> tuple[str, str]:
    return f"{of.loss_at(step):.3f}", f"{of.held_out[step]:.3f}"


def load_table(runs: Mapping[str, Trained], steps: int) -> Any:
    both = (NAMES[0], NAMES[2])
    heads = ["step", *(f"{name}: {what}" for name in both for what in ("busiest / mean", "dropped", "overflowed"))]
    rows = [[f"{step}", *(cell for name in both for cell in _loads(runs[name], step))] for step in points(runs, steps)]
    return table(f"Experts (measured, mean of {WINDOW} steps; busiest of all layers; dropped choices)", heads, rows)


def _loads(of: Trained, step: int) -> tuple[str, str, str]:
    return f"{of.load_at(step):.2f}", f"{of.dropped_at(step):.1%}", f"{of.overflowed_at(step):.1%}"


def points(runs: Mapping[str, Trained], steps: int) -> list[int]:
    return [step for step in runs[NAMES[0]].held_out if 0 < step <= steps]


def words(runs: Mapping[str, Trained], steps: int) -> Iterator[str]:
    mixture, dense, unbalanced = (runs[name] for name in NAMES)
    for name, of in zip(NAMES[:2], (mixture, dense), strict=True):
        active, every = active_weights(of.settings)
        yield f"{name}: {active:,} weights a token, of {every:,} (embeddings left out)"
    for step in (steps // 2, steps):
        wanted = dense.loss_at(step)
        reached = mixture.reaches(wanted)
        told = f"{reached}, {step / reached:.2f} times fewer" if reached else f"none of {steps}"
        yield f"the dense model's training loss after {step} steps, {wanted:.3f}: the mixture has it after {told}"
    for first, last in ((0, steps // 2), (steps // 2, steps)):
        lower, error = mixture.ahead_of(dense, first, last)
        yield f"steps {first + 1} to {last}: the mixture's training loss is {lower:.3f} ± {error:.3f} lower"
    yield (
        f"busiest expert over the mean, last {WINDOW} steps: {mixture.load_at(steps):.2f} with the auxiliary loss, "
        f"{unbalanced.load_at(steps):.2f} without; dropped choices {mixture.dropped_at(steps):.1%} and "
        f"{unbalanced.dropped_at(steps):.1%}"
    )


def draw(canvas: Any, runs: Mapping[str, Trained], steps: int) -> None:
    losses, loads = canvas.subplots(1, 2)
    shown = range(WINDOW, steps + 1)
    for name in NAMES:
        losses.plot(shown, [runs[name].loss_at(step) for step in shown], label=name)
    for name in (NAMES[0], NAMES[2]):
        loads.plot(shown, [runs[name].load_at(step) for step in shown], label=name)
    losses.set(xlabel="step", ylabel="training loss a target token", title="Loss (measured)")
    loads.set(xlabel="step", ylabel="busiest expert / mean", title="Load of the experts (measured)")
    for axes in (losses, loads):
        axes.legend()


if __name__ == "__main__":
    main()
