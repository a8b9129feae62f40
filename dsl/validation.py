"""A document tree against the models of ``document.py``: either a ``Document``, or every problem with its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from .document import Document, legal_keys
from .errors import Problem, problem, shorten, suggest
from .plan import Place
from .tree import Branch, Items, Leaf, Node, data

MAX_PROBLEMS = 1000
Path = tuple[str | int, ...]

_KINDS = {
    "number": "a whole number",
    "text": "a text",
    "list": "a list",
    "mapping": "a mapping",
    "split form": "a mapping with the key 'split'",
    "shard form": "a mapping with the key 'shard'",
}
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "too_short": "{kind_of_node} of one entry or more",
}
_EXAMPLES = {
    "meshwright": "meshwright: 1",
    "name": "name: gshard-600b",
    "model": "model: package.module:callable",
    "with": "with: {experts: 8, layers: 4}",
    "topology": "topology: v3:32x32, or topology: {name: v5e:16x16, num_slices: 4}",
    "mesh": "mesh: auto, mesh: {expert: 2048}, or mesh: {expert: {size: 64, over: [y]}}",
    "tensors": "params/**: L E@expert ..., replicate, auto, infer, like params, {split: {dim: 0, axis: expert}}, "
    "or {shard: {device_assignment: [[0, 1], [2, 3]]}}",
    "remat": "remat: none, full, dots, auto, or {save: [names]}",
    "limits": "limits: {hbm: 15 GiB}",
    "result": "result: {status: optimal, step_time_s: 0.25}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """The document (None where there is none), its problems, and how many more there are than were looked into."""

    document: Document | None
    problems: tuple[Problem, ...]
    more: int = 0


def validate(root: Branch, *, whole: bool) -> Validated:
    """The document, or its problems. Where the text was not read to its end (``whole``), no key is missing."""
    document = None
    errors: list[Any] = []
    try:
        document = Document.model_validate(data(root))
    except ValidationError as error:
        errors = [e for e in error.errors(include_url=False) if whole or e["type"] != "missing"]
    said = [[found] for found in islice(_without_value(root, ()), MAX_PROBLEMS)]
    said += [_problems(root, error) for error in errors[:MAX_PROBLEMS]]
    refused = _refused_places(root)
    shown = tuple(p for p in _first_of_each_place(said) if p.place not in refused)
    return Validated(document=document, problems=shown, more=max(0, len(errors) - MAX_PROBLEMS))


def _problems(root: Branch, error: Any) -> list[Problem]:
    """The problems that one pydantic error stands for."""
    path, node, key_place = _follow(root, error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "flaws":
        place = _key_text(root, path) if error["loc"][-1] == "[key]" else _text_place(node)
        verbatim = not isinstance(node, Leaf) or node.verbatim or error["loc"][-1] == "[key]"
        flaws = context["flaws"][:MAX_PROBLEMS]
        return [(flaw if verbatim else replace(flaw, offset=0)).at(place) for flaw in flaws]
    if kind == "extra_forbidden":
        keys = legal_keys(path[:-1])
        numbers: dict[str, Any] = {
            "key": shorten(str(path[-1])),
            "where": _where(path[:-1]),
            "suggestion": suggest(str(path[-1]), keys),
        }
        return [problem("MW011", key_place, **numbers)]
    if kind == "missing":
        key = error["loc"][-1]
        example = _EXAMPLES.get(str((*path, key)[0]), "")
        return [problem("MW014", key_place, key=key, where=_where(path), example=example)]
    return [_wrong_value(path, node, kind, context)]


def _wrong_value(path: Path, node: Node, kind: str, context: dict[str, Any]) -> Problem:
    if kind.startswith("union_tag"):
        expected = _either(context.get("expected_tags", "'split', 'shard'"))
    else:
        expected = _EXPECTED.get(kind, "something else ({kind})").format(
            **{"kind": kind, "kind_of_node": _kind_of(node), **context}
        )
    example = _EXAMPLES.get(str(path[0]), "") if path else ""
    remedy = f"Write it like this: {example}." if example else ""
    return problem("MW015", node.place, what=_what(path), expected=expected, got=_got(node), example=remedy)


def _either(tags: str) -> str:
    words = [_KINDS.get(tag.strip("' "), tag) for tag in tags.split(",")]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _follow(root: Branch, location: tuple[str | int, ...]) -> tuple[Path, Node, Place]:
    """A pydantic location without its tags, the node there (or the last on the way) and the place of its key."""
    path: list[str | int] = []
    node: Node = root
    key_place = root.place
    for step in location:
        if isinstance(node, Branch) and isinstance(step, str) and (entry := node.entries.get(step)):
            node, key_place = entry.value, entry.place
        elif isinstance(node, Items) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            key_place = node.place
        else:
            continue
        path.append(step)
    return tuple(path), node, key_place


def _without_value(node: Node, path: Path) -> Iterator[Problem]:
    """A problem for each key without a value; ``with`` may hold nulls, and ``tensors`` may be empty."""
    if isinstance(node, Leaf) and node.value is None and path not in ((), ("tensors",)):
        yield problem("MW017", node.place, what=_what(path))
    if isinstance(node, Branch) and path != ("with",):
        for entry in node.entries.values():
            yield from _without_value(entry.value, (*path, entry.key))
    if isinstance(node, Items):
        for i, item in enumerate(node.items):
            yield from _without_value(item, (*path, i))


def _refused_places(node: Node) -> set[Place]:
    """Where the reader has already refused a value: nothing more is to be said of it."""
    if isinstance(node, Leaf):
        return {_text_place(node), node.place} if node.flawed else set()
    inner = [entry.value for entry in node.entries.values()] if isinstance(node, Branch) else node.items
    return set().union(*map(_refused_places, inner))


def _first_of_each_place(said: list[list[Problem]]) -> Iterator[Problem]:
    """The problems without those that say another thing of a value of which earlier ones have said what is wrong."""
    seen: set[Place | None] = set()
    for problems in said:
        yield from (found for found in problems if found.place not in seen)
        seen.update(found.place for found in problems)


def _text_place(node: Node) -> Place:
    quote = node.quote if isinstance(node, Leaf) else 0
    return replace(node.place, column=node.place.column + quote)


def _key_text(root: Branch, path: Path) -> Place:
    """Where the text of the last key of a path begins."""
    _, parent, _ = _follow(root, path[:-1])
    entry = parent.entries[str(path[-1])] if isinstance(parent, Branch) else None
    return replace(entry.place, column=entry.place.column + entry.quote) if entry else parent.place


def _what(path: Path) -> str:
    return f"'{shorten('.'.join(map(str, path)))}'" if path else "The plan"


def _where(path: Path) -> str:
    return f"in {_what(path)}" if path else "of a plan"


def _kind_of(node: Node) -> str:
    return "a mapping" if isinstance(node, Branch) else "a list"


def _got(node: Node) -> str:
    if isinstance(node, Branch):
        return "a mapping" if node.entries else "an empty mapping"
    if isinstance(node, Items):
        return "a list" if node.items else "an empty list"
    if isinstance(node.value, bool) or node.value is None:
        return {True: "true", False: "false", None: "nothing"}[node.value]
    return shorten(repr(node.value))
