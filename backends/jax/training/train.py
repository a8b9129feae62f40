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

from ....dsl.errors import PlanError, problem
from ....dsl.plan import Plan
from ..apply import Applied
from ..hosts import in_any_process
from ..loading import load_workload, models_code, trace_workload
from ..workload import PyTree, Workload
from .evaluation import apply_evaluation
from .feed import placed_batch, placed_state
from .interrupt import Interrupt
from .keeping import Keeping
from .metrics import SCHEMA_VERSION, Record, RunSummary, Sink, Status, metrics_sink, versions
from .options import PAIRS_A_LANGUAGE, RunOptions
from .runnable import compile_step, local_devices, require_runnable
from .scoring import Scoring

HELD_OUT_BATCHES = 8
HELD_OUT_SEED = 0


def run(
    plan: Plan,
    *,
    steps: int = 100,
    seed: int | None = None,
    metrics_path: str | Path | None = None,
    eval_every: int | None = None,
    save: str | Path | None = None,
    save_every: int | None = None,
    resume: str | Path | None = None,
    score: bool = False,
    pairs_a_language: int = PAIRS_A_LANGUAGE,
    against: str | Path | None = None,
    on_record: Sequence[Sink] = (),
) -> RunSummary:
    """Trains the plan's model for ``steps`` steps on the devices of its topology, which must be here.

    Every record (see ``metrics``) goes to the file ``metrics_path``, a line of JSON each, and to each of
    ``on_record``; of several processes the first writes the file. The held-out loss is taken before and after, and
    every ``eval_every`` steps. The first Ctrl-C ends the run after the step in progress. The same seed (0 where none is
    given) gives the same losses on the same devices and versions.

    The folder ``save`` keeps the state at the end, also of a run that is interrupted, and every ``save_every`` steps;
    not after a loss that is not finite. ``resume`` goes on from what a folder keeps, with its seed and the batches
    after those already taken: as if the run had never ended. With ``score``, held-out pairs, at most
    ``pairs_a_language`` each, are translated at the end and scored (BLEU, chrF); ``against`` is the metrics file of
    another run that did so, to compare with.

    Raises ``PlanError``: MW507 for devices that are not here; MW508 to MW510, MW513 to MW515 and MW522 for a workload
    that cannot be run so; MW511 for a metrics file that cannot be written; MW512 for a number out of range, MW525 for
    an option of no use; MW516 to MW521 and MW527 for what is kept; MW526 for scores that cannot be read; and all that
    ``apply`` raises.
    """
    options = RunOptions(
        steps=steps,
        seed=seed,
        metrics_path=metrics_path,
        eval_every=eval_every,
        save=save,
        save_every=save_every,
        resume=resume,
        score=score,
        pairs_a_language=pairs_a_language,
        against=against,
    )
    options.check()
    devices = local_devices(plan)
    workload = load_workload(plan)
    require_runnable(plan, workload)
    trace_workload(plan, workload)
    keeping, scoring = Keeping(plan, workload, options), Scoring(plan, workload, options)
    path = metrics_path if jax.process_index() == 0 else None
    with metrics_sink(path, *on_record) as record, Interrupt() as interrupt:
        record(_header(plan, options, keeping, devices))
        running = _Run(plan, workload, devices, keeping, record, interrupt)
        status = running.train(steps, eval_every)
        if status == "finished":
            running.score(scoring)
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
        self,
        plan: Plan,
        workload: Workload,
        devices: Sequence[Any],
        keeping: Keeping,
        record: Sink,
        interrupt: Interrupt,
    ):
        self._started_s = time.perf_counter()
        self._plan, self._workload, self._devices, self._keeping = plan, workload, devices, keeping
        self._seed, self._before = keeping.seed, keeping.steps_before
        self._record, self._interrupt = record, interrupt
        self._progress = _Progress()
        self._compiled = compile_step(plan, workload, devices)
        self._batches: Iterator[PyTree] = iter(())
        self._evaluate: Applied | None = None
        self._held_out: list[PyTree] = []
        self._state: tuple[PyTree, ...] = ()
        self._scores: dict[str, float] = {}

    def train(self, steps: int, eval_every: int | None) -> Status:
        """Takes the steps; returns how that ended."""
        for prepare in (self._open_batches, self._apply_evaluation, self._place_state):
            if not self._asked():
                prepare()
        last = self._before + steps
        self._measure_held_out(self._before)
        batch = self._next_batch()
        for step in range(self._before + 1, last + 1):
            if self._asked():
                self._keep(step - 1)
                return "interrupted"
            if batch is None:
                raise PlanError([problem("MW513", split="train", given=step - 1, wanted=last)])
            batch = self._take_step(step, batch)
            if not math.isfinite(self._progress.losses[-1]):
                return "diverged"
            if step == last or self._keeping.is_due(step):
                self._keep(step)
            if step == last or (eval_every and step % eval_every == 0):
                self._measure_held_out(step)
        return "finished"

    def score(self, scoring: Scoring) -> None:
        """Translates held-out text and scores it, where that is asked for."""
        for found in scoring.scores(self._devices, self._state, self._asked):
            self._scores = {name: found[name] for name in ("bleu", "chrf")}
            self._record({"kind": "scores", "step": self._before + len(self._progress.losses), **found})

    def _asked(self) -> bool:
        """Whether the run is to end; in every process of several if in one."""
        return in_any_process(self._interrupt.asked)

    def _keep(self, step: int) -> None:
        if self._state and self._progress.losses and self._keeping.keep(step, self._state):
            where = str(self._keeping.folder)
            self._record({"kind": "kept", "step": step, "folder": where, "wall_time_s": self._wall_time_s()})

    def _open_batches(self) -> None:
        """Opens the batches, those that were taken before left out."""
        with self._users("batches"):
            self._batches = iter(self._workload.batches(self._seed, "train"))  # type: ignore[misc]
            for _ in islice(self._batches, self._before):
                pass

    def _apply_evaluation(self) -> None:
        with self._users("evaluate"):
            self._evaluate = apply_evaluation(self._plan, self._workload, self._devices)

    def _place_state(self) -> None:
        init, expected, shardings = self._workload.init, self._workload.args[:-1], self._compiled.state_shardings
        if self._keeping.resumes:
            self._state = self._keeping.restored(shardings)
            return
        with self._users("init"):
            self._state = placed_state(init, self._seed, expected, shardings)  # type: ignore[arg-type]

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
        if self._evaluate is None or self._asked():
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
            steps_before=self._before,
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
            kept_in=str(self._keeping.folder) if self._keeping.has_kept else None,
            **self._scores,
        )


def _header(plan: Plan, options: RunOptions, keeping: Keeping, devices: Sequence[Any]) -> Record:
    return {
        "kind": "run",
        "schema_version": SCHEMA_VERSION,
        "plan": plan.name,
        "file": plan.file,
        "model": plan.model,
        "settings": plan.settings,
        "topology": str(plan.topology) if plan.topology else None,
        "mesh": plan.mesh.sizes,
        "steps": options.steps,
        "steps_before": keeping.steps_before,
        "seed": keeping.seed,
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
