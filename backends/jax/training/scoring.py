"""Scores of a run's translations of held-out text, and beside them another run's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....dsl.errors import PlanError, problem
from ....dsl.plan import Plan
from ..decoding.beam import BeamSearch
from ..decoding.scores import kept_scores, score
from ..decoding.texts import Translator, chosen
from ..decoding.translation import Translation
from ..workload import PyTree, Workload
from .options import RunOptions


class Scoring:
    """What is to be scored after a run, if anything.

    Raises ``PlanError``, before anything is compiled: MW522 for a model that does not translate, MW526 for scores of
    another run that cannot be read.
    """

    def __init__(self, plan: Plan, workload: Workload, options: RunOptions):
        self._plan, self._workload, self._options = plan, workload, options
        self._translation = translation_of(plan, workload) if options.score else None
        self._against = kept_scores(options.against) if options.against else None

    def scores(
        self, devices: Sequence[Any], state: Sequence[PyTree], stop: Callable[[], bool]
    ) -> Iterator[dict[str, Any]]:
        """The scores of the state's translations, as a record has them; none where they are not asked for, or where
        ``stop`` says so.
        """
        if self._translation is None or stop():
            return
        length = self._workload.args[-1]["source"].shape[1]
        search = BeamSearch(max_tokens=length)
        translator = Translator(self._plan, self._workload, self._translation, devices, search)
        parts = chosen(state, self._workload, translator.arguments)
        pairs = self._options.pairs_a_language
        found = score(translator, parts, self._translation.corpus, pairs_a_language=pairs, stop=stop)
        if found:
            searched = {"beams": search.beams, "length_penalty": search.length_penalty}
            yield {**found.as_json(), **searched, "against": self._against}


def translation_of(plan: Plan, workload: Workload) -> Translation:
    """How the workload translates. Raises ``PlanError`` (MW522) where it does not."""
    if workload.translation is None:
        raise PlanError([problem("MW522", plan.places.get("model"), model=plan.model)])
    translation: Translation = workload.translation()
    return translation
