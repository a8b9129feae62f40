"""What a run is asked for: how long, from where, what is kept and scored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....dsl.errors import Problem, problem, raise_errors

MOST = 2**32 - 1  # JAX's keys tell no larger seeds apart
PAIRS_A_LANGUAGE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of ``run``; see there."""

    steps: int = 100
    seed: int | None = None
    metrics_path: str | Path | None = None
    eval_every: int | None = None
    save: str | Path | None = None
    save_every: int | None = None
    resume: str | Path | None = None
    score: bool = False
    pairs_a_language: int = PAIRS_A_LANGUAGE
    against: str | Path | None = None

    def check(self) -> None:
        """Raises ``PlanError`` with all that is out of range (MW512) or of no use (MW525)."""
        raise_errors([*self._out_of_range(), *self._of_no_use()])

    def _out_of_range(self) -> Iterator[Problem]:
        given = (
            ("--steps", self.steps, 1),
            ("--seed", self.seed, 0),
            ("--eval-every", self.eval_every, 1),
            ("--save-every", self.save_every, 1),
            ("--eval-pairs", self.pairs_a_language, 1),
        )
        for option, value, least in given:
            if value is not None and not least <= value <= MOST:
                yield problem("MW512", option=option, value=value, least=least, most=MOST)

    def _of_no_use(self) -> Iterator[Problem]:
        if self.save_every is not None and self.save is None:
            yield problem("MW525", option="--save-every", needed="--save DIR")
        if self.against is not None and not self.score:
            yield problem("MW525", option="--against", needed="--eval")
