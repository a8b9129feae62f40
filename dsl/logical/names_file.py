"""Reads a file of logical names: a pattern of paths and a name for each dim, ``params/**/wi/kernel: [embed, mlp]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import FlawError, PlanError, Problem, problem, raise_errors
from ..patterns import Pattern, compile_pattern
from ..plan import Place, Replicate, Rule
from ..rule_matches import match_rules, matching_problems
from ..strict_yaml import compose
from ..tensors import Tensor
from ..text import clean
from ..tree import Branch, Entry, Items, Leaf, Node
from .reader import shown
from .rules import Name, TensorNames

EXPECTED = "a list with a name for each dim, null for none, such as [embed, null, mlp]"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPattern:
    """A line of the file: the tensors that it is about, and the names of their dims."""

    pattern: Pattern
    names: tuple[Name, ...]
    place: Place


def loads(text: str, file: str | None = None) -> tuple[NamedPattern, ...]:
    """The names that ``text`` writes. Raises ``PlanError`` with every problem."""
    composed = compose(clean(text, file), file)
    if not isinstance(composed.root, Branch):
        place = composed.root.place if composed.root else Place(file=file)
        expected = "a mapping of patterns to names, such as 'params/**/wi/kernel: [embed, mlp]'"
        wrong = problem("MW650", place, what="What stands for the names", got="no mapping", expected=expected)
        raise PlanError([*composed.problems, wrong])
    reading = _Reading(problems=list(composed.problems))
    named = [found for entry in composed.root.entries.values() if (found := reading.entry(entry))]
    raise_errors(reading.problems)
    return tuple(named)


def names_of(given: Sequence[NamedPattern], tensors: Sequence[Tensor]) -> dict[str, TensorNames]:
    """The names of each tensor that a pattern matches, the first one's, by path.

    Raises ``PlanError`` (MW101, MW102) where a pattern names nothing or stands behind one that takes all it matches.
    """
    lines = [Rule(pattern=line.pattern.text, assignment=Replicate(), place=line.place) for line in given]
    matches = match_rules(lines, tensors)
    raise_errors(matching_problems(matches, tensors))
    by_rule = {id(rule): line for rule, line in zip(lines, given, strict=True)}
    found: dict[str, TensorNames] = {}
    for path, rule in matches.deciding.items():
        if rule is not None:
            line = by_rule[id(rule)]
            found[path] = TensorNames(names=line.names, place=line.place)
    return found


@dataclass(slots=True, kw_only=True)
class _Reading:
    problems: list[Problem] = field(default_factory=list)

    def entry(self, entry: Entry) -> NamedPattern | None:
        try:
            pattern = compile_pattern(entry.key)
        except FlawError as error:
            self.problems += [flaw.at(entry.place) for flaw in error.flaws]
            return None
        items = entry.value.items if isinstance(entry.value, Items) else None
        if items is None or not all(isinstance(item, Leaf) and _is_name(item) for item in items):
            self.problems.append(
                problem(
                    "MW650", entry.value.place, what="What stands for names", got=shown(entry.value), expected=EXPECTED
                )
            )
            return None
        names = tuple(_name(item) for item in items)
        return NamedPattern(pattern=pattern, names=names, place=entry.place)


def _is_name(leaf: Leaf) -> bool:
    return leaf.value is None or (isinstance(leaf.value, str) and leaf.value != "")


def _name(node: Node) -> Name:
    return node.value if isinstance(node, Leaf) and isinstance(node.value, str) else None
