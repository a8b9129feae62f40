"""Which rule decides which tensor, and the rules that decide none: unmatched or shadowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .errors import Problem, listing, problem, suggest
from .patterns import Pattern, compile_pattern, literal_prefix
from .plan import Rule
from .tensors import Tensor

_MOST_COMPARED = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """The rules with their compiled patterns, and the rule that decides each path."""

    rules: tuple[tuple[Rule, Pattern], ...]
    deciding: Mapping[str, Rule | None]


def match_rules(rules: Sequence[Rule], tensors: Sequence[Tensor]) -> Matches:
    """For each path the first rule whose pattern matches it."""
    compiled = tuple((rule, compile_pattern(rule.pattern)) for rule in rules)
    paths = dict.fromkeys(tensor.path for tensor in tensors)
    deciding = {path: next((rule for rule, pattern in compiled if pattern.matches(path)), None) for path in paths}
    return Matches(rules=compiled, deciding=deciding)


def matching_problems(matches: Matches, tensors: Sequence[Tensor]) -> Iterator[Problem]:
    """A problem for each rule that decides no tensor: none matches its pattern, or earlier rules take them all."""
    busy = {id(rule) for rule in matches.deciding.values()}
    for rule, pattern in matches.rules:
        if id(rule) in busy:
            continue
        paths = [path for path in matches.deciding if pattern.matches(path)]
        if paths:
            yield _shadowed(rule, paths, matches)
        else:
            yield problem("MW101", rule.place, pattern=rule.pattern, suggestion=_nearest(rule.pattern, tensors))


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
    near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.3)
    return suggest(near[0], near) if near else f"There are {listing(paths, limit=3)}."
