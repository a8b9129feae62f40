"""Which rule decides which tensor, and the rules that decide none: unmatched or shadowed.

Patterns that begin with ``ops/`` are for the values that a step computes (role ``op``), all others for the rest: ``**``
speaks of what the step is given, gives back and tags. A computed value that a step repeats has its turn at the end of
its path; a pattern that matches the path without it matches every turn.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .errors import Problem, listing, problem, suggest
from .patterns import Pattern, compile_pattern, literal, literal_prefix
from .plan import Like, Rule
from .tensors import Tensor

OPS = "ops/"
"""How the paths of computed values begin, and the patterns that reach them."""

_MOST_COMPARED = 2000
_MOST_KNOWN = 4096
_MOST_PATHS = 16384  # that are taken apart once


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The rules with their compiled patterns, and the rule that decides each path."""

    rules: tuple[tuple[Rule, Pattern], ...]
    deciding: Mapping[str, Rule | None]


def match_rules(rules: Sequence[Rule], tensors: Sequence[Tensor]) -> Matches:
    """For each path the first rule whose pattern matches it."""
    compiled = tuple((rule, compile_pattern(rule.pattern)) for rule in rules)
    reaching = {ops: _Reaching([each for each in compiled if _is_of_values(each[0]) == ops]) for ops in (False, True)}
    paths = {tensor.path: reaching[tensor.role == "op"] for tensor in tensors}
    return Matches(rules=compiled, deciding={path: known.deciding(path) for path, known in paths.items()})


def _is_of_values(rule: Rule) -> bool:
    return rule.pattern.startswith(OPS)


class _Reaching:
    """Rules in order; those whose pattern is a path are found by it, so that a path need not be tried with each."""

    def __init__(self, rules: Sequence[tuple[Rule, Pattern]]):
        self.rules = rules
        self.by_path: dict[str, int] = {}
        self.wild: list[int] = []
        self.known: dict[str, int] = {}
        self._may: dict[str, list[int]] = {}
        for number, (rule, _) in enumerate(rules):
            if literal(rule.pattern) == rule.pattern:
                self.by_path.setdefault(rule.pattern, number)
            else:
                self.wild.append(number)

    def deciding(self, path: str) -> Rule | None:
        """The first rule whose pattern matches the path, or the path without its turn."""
        number, whole = self._first(path), without_turn(path)
        if whole != path:
            if whole not in self.known:
                self.known[whole] = self._first(whole)
            number = min(number, self.known[whole])
        return self.rules[number][0] if number < len(self.rules) else None

    def _first(self, path: str) -> int:
        named = self.by_path.get(path, len(self.rules))
        for number in self._that_may(last_word(path)):
            if number >= named:
                break
            if self.rules[number][1].matches(path):
                return number
        return named

    def _that_may(self, word: str) -> Sequence[int]:
        """The rules whose pattern may match a path with this last word."""
        if word not in self._may:
            patterns = ((number, self.rules[number][1]) for number in self.wild)
            self._may[word] = [number for number, each in patterns if each.words is None or word in each.words]
        return self._may[word]


@lru_cache(maxsize=_MOST_PATHS)
def last_word(path: str) -> str:
    """What the last segment of a path begins with before a dot, as ``Pattern.words`` has it."""
    return path.rpartition("/")[2].partition(".")[0]


@lru_cache(maxsize=_MOST_PATHS)
def without_turn(path: str) -> str:
    """The path of a computed value less its turn; any other path as it is."""
    head, _, turn = path.rpartition("/")
    return head if turn.isdigit() and path.startswith(OPS) and head.count("/") > 1 else path


def matches_value(pattern: Pattern, path: str) -> bool:
    """Whether a pattern matches a path, or without its turn."""
    whole = without_turn(path)
    return pattern.matches(path) or (whole != path and pattern.matches(whole))


def names_values(rules: Iterable[Rule]) -> bool:
    """Whether some rule has to do with the values that a step computes."""
    return any(rule.pattern.startswith(OPS) or _target(rule).startswith(OPS) for rule in rules)


class ValuePaths:
    """A step's computed values by path, kept so that a pattern is tried with few of them."""

    def __init__(self, values: Mapping[str, Tensor]):
        self.values = values
        self._turns: dict[str, list[str]] = defaultdict(list)
        self._at = {path: number for number, path in enumerate(values)}
        self._by_word: dict[str, list[str]] = defaultdict(list)
        self._matched: dict[str, Sequence[str]] = {}
        for path in values:
            self._turns[without_turn(path)].append(path)
        for whole in self._turns:
            self._by_word[last_word(whole)].append(whole)

    def matched(self, text: str) -> Sequence[str]:
        """The paths that a pattern matches, or without their turns, in the order of the values."""
        if text in self.values:
            return (text,)
        if text not in self._matched:
            if len(self._matched) >= _MOST_KNOWN:
                self._matched.clear()
            self._matched[text] = self._turns.get(text, ()) if literal(text) == text else self._tried(text)
        return self._matched[text]

    def _tried(self, text: str) -> Sequence[str]:
        pattern, found = compile_pattern(text), list[str]()
        for whole in self._candidates(pattern):
            turns = self._turns[whole]
            found += turns if pattern.matches(whole) else [p for p in turns if p != whole and pattern.matches(p)]
        return sorted(found, key=self._at.__getitem__)

    def _candidates(self, pattern: Pattern) -> Iterable[str]:
        """The paths less their turns that may match."""
        if pattern.words is None:
            return self._turns
        return (whole for word in pattern.words for whole in self._by_word.get(word, ()))


def named_values(rules: Iterable[Rule], paths: ValuePaths) -> tuple[Tensor, ...]:
    """Of a step's computed values those that rules match or follow; all where a rule finds none."""
    found: dict[str, Tensor] = {}
    for rule in rules:
        patterns = [rule.pattern] if rule.pattern.startswith(OPS) else []
        patterns += [f"{target}/**"] if (target := _target(rule)).startswith(OPS) else []
        for text in patterns:
            matched = paths.matched(text)
            if not matched:
                return tuple(paths.values.values())
            found |= {path: paths.values[path] for path in matched}
    return tuple(found.values())


def _target(rule: Rule) -> str:
    return rule.assignment.target if isinstance(rule.assignment, Like) else ""


def matching_problems(matches: Matches, tensors: Sequence[Tensor]) -> Iterator[Problem]:
    """A problem for each rule that decides no tensor: none matches its pattern, or earlier rules take them all."""
    busy = {id(rule) for rule in matches.deciding.values()}
    for rule, pattern in matches.rules:
        if id(rule) in busy:
            continue
        own = [tensor for tensor in tensors if (tensor.role == "op") == rule.pattern.startswith(OPS)]
        paths = [path for path in dict.fromkeys(tensor.path for tensor in own) if matches_value(pattern, path)]
        if paths:
            yield _shadowed(rule, paths, matches)
        else:
            yield problem("MW101", rule.place, pattern=rule.pattern, suggestion=_nearest(rule.pattern, own))


def _shadowed(rule: Rule, paths: Sequence[str], matches: Matches) -> Problem:
    shadowing = {id(r): r for path in paths if (r := matches.deciding[path])}
    names = [f"'{r.pattern}' (line {r.place.line})" for r in shadowing.values()]
    first = next(iter(shadowing.values())).pattern
    return problem(
        "MW102", rule.place, pattern=rule.pattern, count=len(paths), earlier=listing(names, limit=4), first=first
    )


def _nearest(pattern: str, tensors: Sequence[Tensor]) -> str:
    """The paths nearest to a pattern: those that begin as it does, the likest first."""
    paths = list(dict.fromkeys(tensor.path for tensor in tensors))
    if not paths:
        return "The workload has no tensors."
    beginning = literal_prefix(pattern)
    while beginning and not any(path.startswith("/".join(beginning)) for path in paths):
        beginning.pop()
    below = [path for path in paths if path.startswith("/".join(beginning))][:_MOST_COMPARED]
    if not beginning:
        heads = list(dict.fromkeys(path.split("/")[0] for path in paths))
        return f"Paths begin with {listing(heads)}. {_likest(pattern, below)}"
    return _likest(pattern, below)


def _likest(pattern: str, paths: Sequence[str]) -> str:
    near = [literal(path) for path in difflib.get_close_matches(pattern, paths, n=3, cutoff=0.3)]
    return suggest(near[0], near) if near else f"There are {listing([literal(path) for path in paths], limit=3)}."
