"""Translates text with what a run has learnt (``meshwright translate``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ....dsl.errors import Problem, problem, raise_errors
from ....dsl.plan import Plan
from ..loading import load_workload
from ..training.checkpoint import kept_in
from ..training.keeping import fingerprints, require_usable, restored
from ..training.runnable import local_devices
from ..training.scoring import translation_of
from .beam import BeamSearch
from .texts import Translated, Translator

MOST_BEAMS = 256
MOST_LENGTH_PENALTY = 10.0


def translate(
    plan: Plan,
    texts: Sequence[str],
    *,
    folder: str | Path,
    beams: int = 4,
    max_tokens: int | None = None,
    length_penalty: float = 0.6,
) -> list[Translated]:
    """The best translation of each text that flat beam search finds, with the parameters that ``folder`` keeps.

    The plan's model must be the one that was trained; its layouts and devices may be others. A translation is at most
    ``max_tokens`` long, its end included; by default as long as a row of the plan's batches.

    Raises ``PlanError``: MW507 for devices that are not here; MW512 and MW524 for numbers out of range; MW516 to
    MW518, MW521 and MW527 for what is kept; MW522 for a model that does not translate; MW523 for texts longer than a
    row; and all that ``apply`` raises.
    """
    devices = local_devices(plan)
    workload = load_workload(plan)
    translation = translation_of(plan, workload)
    length = workload.args[-1]["source"].shape[1]
    search = BeamSearch(
        beams=beams, max_tokens=length if max_tokens is None else max_tokens, length_penalty=length_penalty
    )
    raise_errors(_out_of_range(search, length))
    kept = kept_in(folder)
    translator = Translator(plan, workload, translation, devices, search)
    require_usable(plan, workload, kept, translator.arguments, fingerprints(translation))
    state = restored(workload, kept, translator.arguments, translator.state_shardings)
    return translator(state, texts)


def _out_of_range(search: BeamSearch, length: int) -> Iterator[Problem]:
    for option, value, most in (("--beams", search.beams, MOST_BEAMS), ("--max-tokens", search.max_tokens, length)):
        if not 1 <= value <= most:
            yield problem("MW512", option=option, value=value, least=1, most=most)
    if not 0 <= search.length_penalty <= MOST_LENGTH_PENALTY:
        penalty = search.length_penalty
        yield problem("MW524", option="--length-penalty", value=penalty, least=0, most=MOST_LENGTH_PENALTY)
