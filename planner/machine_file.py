"""A user's own machine: one entry of the catalogue's form in a file of its own, read as strictly as a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ..dsl.errors import PlanError, Problem, listing, problem, raise_errors, shorten, suggest
from ..dsl.plan import Place
from ..dsl.strict_yaml import compose
from ..dsl.text import clean, read_text
from ..dsl.tree import Branch, Items, Node, data
from .chip import Chip


def read_machine(path: str, place: Place | None = None) -> Chip:
    """The chip in the file at ``path``; ``place`` is where it was asked for.

    Raises ``PlanError`` with every problem: the file's (MW207), its YAML's (MW0xx), its entry's (MW208).
    """
    try:
        text = read_text(path)
    except PlanError as error:
        reason = error.problems[0].message
        raise PlanError([problem("MW207", place, file=path, reason=reason)]) from None
    composed = compose(clean(text, path), path)
    raise_errors(composed.problems)
    root = composed.root
    if not isinstance(root, Branch):
        where = root.place if root else Place(file=path)
        raise PlanError([problem("MW208", where, what="The machine", wrong="is no mapping", remedy=_keys())])
    try:
        return Chip.model_validate(data(root))
    except ValidationError as error:
        raise PlanError(_problems(root, error)) from None


def _problems(root: Branch, error: ValidationError) -> Iterator[Problem]:
    for found in error.errors(include_url=False):
        path = tuple(found["loc"])
        what = f"'{shorten('.'.join(map(str, path)))}'" if path else "The machine"
        yield problem("MW208", _place(root, path), what=what, wrong=_wrong(found), remedy=_remedy(path, found["type"]))


def _wrong(found: Any) -> str:
    if found["type"] == "extra_forbidden":
        return "is not a key here"
    if found["type"] == "missing":
        return "is missing"
    said = found["msg"][:1].lower() + found["msg"][1:]
    return f"is wrong: {said}"


def _remedy(path: tuple[str | int, ...], kind: str) -> str:
    if kind == "extra_forbidden" and len(path) == 1:
        return suggest(str(path[0]), Chip.model_fields)
    return "" if len(path) > 1 or kind != "missing" else _keys()


def _keys() -> str:
    needed = [name for name, field in Chip.model_fields.items() if field.is_required()]
    return f"A machine has at least {listing(needed)}; planner/chips.yaml has examples."


def _place(root: Branch, path: tuple[str | int, ...]) -> Place:
    """Where a value stands, or the last thing on the way to it."""
    node: Node = root
    place = root.place
    for step in path:
        if isinstance(node, Branch) and isinstance(step, str) and step in node.entries:
            place, node = node.entries[step].place, node.entries[step].value
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            place = node.place
    return place
