"""What ``--why TENSOR=ASSIGNMENT`` forces: rules that are put before those of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .errors import Flaw, FlawError, Problem, problem, raise_errors, shorten
from .notation import repeats, scan
from .patterns import check_pattern
from .plan import Auto, Like, Place, Plan, Rule
from .resolve import resolve
from .tensors import Tensor

UNASSIGNED = "MW103"


def forced_rules(
    texts: Sequence[str], plan: Plan, tensors: Sequence[Tensor], *, name: str = "--why"
) -> tuple[Rule, ...]:
    """The rules that ``TENSOR=ASSIGNMENT`` texts write; ``name`` is what problems call the place, a line each.

    Raises ``PlanError`` with every flaw of the texts (MW560 to MW562, patterns' MW05x, the notation's MW04x), and with
    all that is wrong with the rules for these tensors on the plan's mesh.
    """
    problems: list[Problem] = []
    rules: list[Rule] = []
    for line, text in enumerate(texts, 1):
        place = Place(file=name, line=line)
        rule, found = _rule(text, place)
        problems += [flaw.at(place) for flaw in found]
        rules += [rule] if rule else []
    problems += [problem("MW562", rules[i].place, pattern=word) for i, word in repeats([r.pattern for r in rules])]
    if rules:
        resolution = resolve(replace(plan, rules=tuple(rules), result=None), tensors)
        problems += [found for found in resolution.problems if found.code != UNASSIGNED]
    raise_errors(problems)
    return tuple(rules)


def _rule(text: str, place: Place) -> tuple[Rule | None, list[Flaw]]:
    pattern, equals, written = text.partition("=")
    if not (pattern.strip() and equals and written.strip()):
        return None, [Flaw(code="MW560", numbers={"text": shorten(text)})]
    flaws = list(_pattern_flaws(pattern))
    try:
        assignment = scan(written)
    except FlawError as error:
        begin = len(pattern) + 1
        return None, [*flaws, *(replace(flaw, offset=flaw.offset + begin) for flaw in error.flaws)]
    if isinstance(assignment, Auto | Like):
        flaws.append(Flaw(code="MW561", offset=len(pattern) + 1, numbers={"text": shorten(written.strip())}))
    if flaws:
        return None, flaws
    return Rule(pattern=pattern.strip(), assignment=assignment, place=place), flaws


def _pattern_flaws(pattern: str) -> Iterator[Flaw]:
    try:
        check_pattern(pattern.strip())
    except FlawError as error:
        yield from error.flaws
