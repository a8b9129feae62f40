"""Reads plans: a file's text into a ``Plan``, or every problem that it has."""

from __future__ import annotations

import os

from .comments import find_comments
from .errors import PlanError, Problem, problem, raise_errors
from .from_document import plan_of
from .plan import Place, Plan
from .sound import Reading, sound_part
from .strict_yaml import Composed, compose
from .text import clean, read_text
from .tree import Branch, Items, Leaf
from .validation import MAX_PROBLEMS, validate


def load(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file. Raises ``PlanError`` with every problem of the file, each with its line and column."""
    file = os.fspath(path)
    return loads(read_text(file), file)


def loads(text: str, file: str | None = None) -> Plan:
    """The plan that ``text`` writes; ``file`` names it in problems. Raises ``PlanError`` with every problem."""
    reading = read(text, file)
    if reading.plan is None or reading.problems:
        raise PlanError(reading.problems)
    return reading.plan


def read(text: str, file: str | None = None) -> Reading:
    """The plan that ``text`` writes, or its problems and what is sound of it. Raises ``PlanError`` for no mapping."""
    text = clean(text, file)
    composed = compose(text, file)
    root = _root(composed, file)
    validated = validate(root, whole=composed.whole)
    problems = [*composed.problems, *(p for p in validated.problems if composed.whole or p.place != composed.last)]
    if validated.document is not None and not problems:
        comments = find_comments(text, root, composed.spans)
        return Reading(plan=plan_of(validated.document, root, comments, file), problems=())
    known = _first(problems, validated.more)
    whole = composed.whole and len(known) <= MAX_PROBLEMS
    return Reading(plan=_sound_plan(root, problems, file) if whole else None, problems=tuple(known))


def _sound_plan(root: Branch, problems: list[Problem], file: str | None) -> Plan | None:
    """The plan that the part without problems says."""
    part = sound_part(root, problems)
    document = validate(part, whole=True).document
    return plan_of(document, part, {}, file) if document else None


def _root(composed: Composed, file: str | None) -> Branch:
    """The mapping that a plan is. Raises ``PlanError`` where the text holds none."""
    root = composed.root
    if isinstance(root, Branch):
        return root
    raise_errors(composed.problems)
    place = root.place if root else Place(file=file)
    got = "a list" if isinstance(root, Items) else "empty"
    if isinstance(root, Leaf) and root.value is not None:
        got = "a single value"
    raise PlanError([problem("MW021", place, got=got)])


def _first(problems: list[Problem], more: int) -> list[Problem]:
    """The first problems in the file's order, and how many more there are."""
    ordered = list(PlanError(problems).problems)
    shown = ordered[:MAX_PROBLEMS]
    more += len(ordered) - len(shown)
    return [*shown, problem("MW060", shown[-1].place, more=more)] if more else shown
