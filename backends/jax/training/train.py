"""Runs a plan: trains its model on the devices that are here (``meshwright run``)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ....dsl.errors import PlanError, problem, raise_errors
from ....dsl.plan import Plan
from ..apply import Applied
from ..loading import load_workload, models_code, trace_workload
from ..workload import PyTree, Workload
from .evaluation import apply_evaluation
from .feed import placed_batch, placed_state
from .interrupt import Interrupt
from .metrics import SCHEMA_VERSION, Record, RunSummary, Sink, Status, metrics_sink, versions
from .runnable import compile_step, local_devices, require_runnable

HELD_OUT_BATCHES = 8
HELD_OUT_SEED = 0
MOST = 2**32 - 1  # JAX's keys tell no larger seeds apart


def run(
    plan: Plan,
    *,
    steps: int = 100,
    seed: int = 0,
    metrics_path: str | Path | None = None,
    eval_every: int | None = None,
    on_record: Sequence[Sink] = (),
) -> RunSummary:
    """Trains the plan's model for ``steps`` steps on the devices of its topology, which must be here.

    Every record (see ``metrics``) goes to the file ``metrics_path``, a line of JSON each, and to each of
    ``on_record``. The held-out loss is taken before and after, and every ``eval_every`` steps. The first Ctrl-C ends
    the run after the step in progress. The same seed gives the same losses on the same devices and versions.

    Raises ``PlanError``: MW507 for devices that are not here; MW508 to MW510 and MW513 to MW515 for a workload that
    cannot be run; MW511 for a metrics file that cannot be written; MW512 for a number out of range; and all that
    ``apply`` raises.
    """
    _check_options(steps, seed, eval_every)
    devices = local_devices(plan)
    workload = load_workload(plan)
    require_runnable(plan, workload)
    trace_workload(plan, workload)
    with metrics_sink(metrics_path, *on_record) as record, Interrupt() as interrupt:
        record(_header(plan, steps, seed, devices))
        running = _Run(plan, workload, devices, seed, record, interrupt)
        status = running.train(steps, eval_every)
        summary = running.summary(status, metrics_path)
        record({"kind": "summary", **summary.as_json()})
    return summary


@dataclass(slots=True, kw_only=True)
class _Progress:
    """What a run remembers of its steps."""

    losses: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    step_times_s: list[float] = field(default_factory=list)
    tokens: list[float | None] = field(default_factory=list)


class _Run:
    """One run in progress: the state on the devices, the batches, and where its records go."""

    def __init__(
        self, plan: Plan, workload: Workload, devices: Sequence[Any], seed: int, record: Sink, interrupt: Interrupt
    ):
        self._started_s = time.perf_counter()
        self._plan, self._workload, self._devices, self._seed = plan, workload, devices, seed
        self._record, self._interrupt = record, interrupt
        self._progress = _Progress()
        self._compiled = compile_step(plan, workload, devices)
        self._batches: Iterator[PyTree] = iter(())
        self._evaluate: Applied | None = None
        self._held_out: list[PyTree] = []
        self._state: tuple[PyTree, ...] = ()

    def train(self, steps: int, eval_every: int | None) -> Status:
        """Takes the steps; returns how that ended."""
        for prepare in (self._open_batches, self._apply_evaluation, self._place_state):
            if not self._interrupt.asked:
                prepare()
        self._measure_held_out(0)
        batch = self._next_batch()
        for step in range(1, steps + 1):
            if self._interrupt.asked:
                return "interrupted"
            if batch is None:
                raise PlanError([problem("MW513", split="train", given=step - 1, wanted=steps)])
            batch = self._take_step(step, batch)
            if not math.isfinite(self._progress.losses[-1]):
                return "diverged"
            if step == steps or (eval_every and step % eval_every == 0):
                self._measure_held_out(step)
        return "finished"

    def _open_batches(self) -> None:
        with self._users("batches"):
            self._batches = iter(self._workload.batches(self._seed, "train"))  # type: ignore[misc]

    def _apply_evaluation(self) -> None:
        with self._users("evaluate"):
            self._evaluate = apply_evaluation(self._plan, self._workload, self._devices)

    def _place_state(self) -> None:
        init, expected = self._workload.init, self._workload.args[:-1]
        with self._users("init"):
            self._state = placed_state(init, self._seed, expected, self._compiled.state_shardings)  # type: ignore[arg-type]

    def _users(self, part: str) -> AbstractContextManager[None]:
        """Around a part of the workload: what it raises is a problem (MW515)."""
        return models_code(self._plan, "MW515", part=part)

    def _take_step(self, step: int, batch: PyTree) -> PyTree:
        """One step; the next batch is made ready while the devices work on this one."""
        began_s = time.perf_counter()
        tokens = _tokens_in(batch)
        self._state, promised = self._compiled(self._state, self._put(batch))
        following = self._next_batch()
        metrics: Mapping[str, Any] = jax.device_get(promised)
        self._note(step, metrics, tokens, time.perf_counter() - began_s)
        return following

    def _note(self, step: int, metrics: Mapping[str, Any], tokens: float | None, step_time_s: float) -> None:
        tokens = float(metrics["tokens"]) if "tokens" in metrics else tokens
        progress = self._progress
        progress.losses.append(float(metrics["loss"]))
        progress.step_times_s.append(step_time_s)
        progress.tokens.append(tokens)
        own = {"kind": "step", "step": step, "step_time_s": step_time_s, "wall_time_s": self._wall_time_s()}
        rate = {} if tokens is None else {"tokens": tokens, "tokens_per_s": tokens / step_time_s}
        self._record({**own, **metrics, **rate, **own})

    def _measure_held_out(self, step: int) -> None:
        if self._evaluate is None or self._interrupt.asked:
            return
        if not self._held_out:
            with self._users("batches"):
                batches = self._workload.batches(HELD_OUT_SEED, "held-out")  # type: ignore[misc]
                self._held_out = list(islice(batches, HELD_OUT_BATCHES))
        if not self._held_out:
            raise PlanError([problem("MW513", split="held-out", given=0, wanted=HELD_OUT_BATCHES)])
        losses = [self._evaluate(*self._state, self._put(batch))[-1]["loss"] for batch in self._held_out]
        loss = float(np.mean(jax.device_get(losses)))
        self._progress.held_out.append(loss)
        self._record({"kind": "held-out", "step": step, "loss": loss, "wall_time_s": self._wall_time_s()})

    def _next_batch(self) -> PyTree:
        with self._users("batches"):
            return next(self._batches, None)

    def _put(self, batch: PyTree) -> PyTree:
        return placed_batch(batch, self._workload.args[-1], self._compiled.batch_shardings)

    def _wall_time_s(self) -> float:
        return time.perf_counter() - self._started_s

    def summary(self, status: Status, metrics_path: str | Path | None) -> RunSummary:
        """What the run came to."""
        progress = self._progress
        losses, held_out = progress.losses, progress.held_out
        return RunSummary(
            plan=self._plan.name,
            status=status,
            steps=len(losses),
            seed=self._seed,
            num_devices=len(self._devices),
            first_loss=losses[0] if losses else None,
            last_loss=losses[-1] if losses else None,
            held_out_loss_before=held_out[0] if held_out else None,
            held_out_loss_after=held_out[-1] if len(held_out) > 1 else None,
            tokens_per_s=_rate(progress),
            step_time_s=float(np.mean(_settled(progress.step_times_s))) if losses else None,
            compile_time_s=self._compiled.compile_time_s,
            wall_time_s=self._wall_time_s(),
            inputs=self._batches.report() if hasattr(self._batches, "report") else {},
            metrics_file=str(metrics_path) if metrics_path else None,
        )


def _check_options(steps: int, seed: int, eval_every: int | None) -> None:
    given = (("--steps", steps, 1), ("--seed", seed, 0), ("--eval-every", eval_every, 1))
    raise_errors(
        problem("MW512", option=option, value=value, least=least, most=MOST)
        for option, value, least in given
        if value is not None and not least <= value <= MOST
    )


def _header(plan: Plan, steps: int, seed: int, devices: Sequence[Any]) -> Record:
    return {
        "kind": "run",
        "schema_version": SCHEMA_VERSION,
        "plan": plan.name,
        "file": plan.file,
        "model": plan.model,
        "settings": plan.settings,
        "topology": str(plan.topology) if plan.topology else None,
        "mesh": plan.mesh.sizes,
        "steps": steps,
        "seed": seed,
        "devices": {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)},
        "versions": versions(),
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _settled(values: Sequence[Any]) -> Sequence[Any]:
    """All but the first, which pays for what is done once; the first where it is alone."""
    return values[1:] or values


def _rate(progress: _Progress) -> float | None:
    tokens = [count for count in _settled(progress.tokens) if count is not None]
    return sum(tokens) / sum(_settled(progress.step_times_s)) if tokens else None


def _tokens_in(batch: PyTree) -> float | None:
    """Target tokens of a packed batch; None where a batch does not say."""
    segments = batch.get("target_segments") if isinstance(batch, Mapping) else None
    return None if segments is None else float(np.count_nonzero(segments))
