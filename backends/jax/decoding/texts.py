"""Translates lines of text under a plan: the same layouts, on the devices that the plan names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ....dsl.errors import PlanError, listing, problem
from ....dsl.plan import Dim, Dims, Plan, Replicate, Rule
from ..apply import apply
from ..paths import argument_names
from ..training.evaluation import deciding
from ..training.feed import placed_batch
from ..training.runnable import where_arguments_lie
from ..workload import PyTree, Workload
from .beam import BeamSearch
from .translation import Translation

Ids = list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """One text's translation. ``score`` is its log-probability over the length penalty."""

    text: str
    score: float
    tokens: int
    """EOS included."""

    def as_json(self) -> dict[str, Any]:
        """The translation as plain JSON values."""
        return {"translation": self.text, "score": self.score, "tokens": self.tokens}


class Translator:
    """A workload's translation, compiled under a plan. ``arguments`` names those of the step that it reads."""

    def __init__(
        self, plan: Plan, workload: Workload, translation: Translation, devices: Sequence[Any], search: BeamSearch
    ):
        decode = translation.decode(search)
        abstract = dict(zip(argument_names(workload.step, len(workload.args)), workload.args, strict=True))
        self.arguments = tuple(inspect.signature(decode).parameters)[:-1]
        args = (*(abstract[name] for name in self.arguments), workload.args[-1])
        fast = apply(_for_decoding(plan, decode, args), decode, args, devices)
        self._executable = fast.lower(*args).compile()
        *state, self._batch_shardings = where_arguments_lie(fast, self._executable)
        self.state_shardings = tuple(state)
        self._translation, self._abstract_batch = translation, args[-1]
        self._shape: tuple[int, int] = args[-1]["source"].shape

    def fits(self, text: str) -> bool:
        """Whether a text is no longer than a row."""
        return len(self._translation.source.encode([text])[0]) <= self._shape[1]

    def __call__(self, state: Sequence[PyTree], texts: Sequence[str]) -> list[Translated]:
        """The best translation of each text, in their order; see ``batches``."""
        told: dict[int, Translated] = {}
        for found in self.batches(state, texts):
            told |= found
        return [told[at] for at in range(len(texts))]

    def batches(self, state: Sequence[PyTree], texts: Sequence[str]) -> Iterator[dict[int, Translated]]:
        """The best translations by place in ``texts``, as many at once as the step's batch has rows.

        ``state`` are the values of ``arguments``. Texts of similar length go together; an empty text's translation is
        empty. Raises ``PlanError`` (MW523) with every text that is longer than a row.
        """
        ids = self._encode(texts)
        state = jax.device_put(tuple(state), self.state_shardings)
        asked = sorted((at for at, text in enumerate(texts) if text.strip()), key=lambda at: len(ids[at]))
        yield {at: Translated(text="", score=0.0, tokens=0) for at in set(range(len(texts))) - set(asked)}
        for start in range(0, len(asked), self._shape[0]):
            together = asked[start : start + self._shape[0]]
            yield dict(zip(together, self._translate(state, [ids[at] for at in together]), strict=False))

    def _encode(self, texts: Sequence[str]) -> list[Ids]:
        ids = self._translation.source.encode(texts)
        long = [f"{at} ({len(tokens)})" for at, tokens in enumerate(ids, start=1) if len(tokens) > self._shape[1]]
        if long:
            raise PlanError([problem("MW523", lines=listing(long), length=self._shape[1])])
        return ids

    def _translate(self, state: Sequence[PyTree], sources: Sequence[Ids]) -> Iterator[Translated]:
        batch = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._abstract_batch)
        for row, tokens in enumerate(sources):
            batch["source"][row, : len(tokens)] = tokens
            batch["source_segments"][row, : len(tokens)] = 1
            batch["source_positions"][row, : len(tokens)] = np.arange(len(tokens))
        placed = placed_batch(batch, self._abstract_batch, self._batch_shardings)
        found = jax.device_get(self._executable(*state, placed))
        for tokens, score in zip(found.tokens[:, 0], found.scores[:, 0], strict=True):
            text = self._translation.target.decode(tokens.tolist())
            yield Translated(text=text, score=float(score), tokens=int(np.count_nonzero(tokens)))


def _for_decoding(plan: Plan, decode: Callable[..., Any], args: Sequence[PyTree]) -> Plan:
    """What the plan says of parameters, batch and tagged values, for decoding; what is found is on every device.

    Names of dims are left out, for a decoder's values have the dims of the step's, and other sizes.
    """
    rules = (Rule(pattern="out/**", assignment=Replicate()), *map(_nameless, plan.rules))
    return deciding(replace(plan, rules=rules), decode, args)


def _nameless(rule: Rule) -> Rule:
    if not isinstance(rule.assignment, Dims):
        return rule
    dims = (replace(dim, name="_") if isinstance(dim, Dim) else dim for dim in rule.assignment.dims)
    return replace(rule, assignment=Dims(dims=tuple(dims)))


def chosen(state: Sequence[PyTree], workload: Workload, names: Iterable[str]) -> tuple[PyTree, ...]:
    """Some parts of a step's state, by the names of its arguments."""
    named: Mapping[str, PyTree] = dict(zip(argument_names(workload.step, len(state)), state, strict=True))
    return tuple(named[name] for name in names)
