"""What changes from one plan to another."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.diff import diff
from meshwright.dsl.plan import Plan, Rule
from meshwright.dsl.reader import loads

BEFORE = """\
meshwright: 1
name: a
with: {layers: 2, experts: 4}
mesh: {x: 2, y: 4}
tensors:
  a: M@x
  b: replicate
  c: auto
limits: {hbm: 15 GiB}
"""
AFTER = """\
meshwright: 1
with: {layers: 3, experts: 4, seed: "1"}
mesh: {y: 4, x: {size: 2, over: [z]}}
tensors:
  c: auto
  a: M@x
  b: M@y
  d: infer
remat: full
limits: {hbm: 16 GiB}
"""


def plan_of(text: str) -> Plan:
    return loads(text)


def test_a_plan_does_not_differ_from_itself() -> None:
    assert diff(plan_of(AFTER), plan_of(AFTER)) == ()


def test_every_change_is_a_line() -> None:
    assert list(map(str, diff(plan_of(BEFORE), plan_of(AFTER)))) == [
        "- name: a",
        "~ with.layers: 2 -> 3",
        "~ mesh.x: 2 -> {size: 2, over: [z]}",
        "~ tensors.b: replicate -> M@y",
        "~ limits.hbm: 15 GiB -> 16 GiB",
        '+ with.seed: "1"',
        "+ tensors.d: infer",
        "+ remat: full",
        "> mesh.y: axis 2 -> axis 1",
        "> tensors.c: rule 3 -> rule 1",
    ]


@settings(deadline=None)
@given(st.permutations([f"p{i}" for i in range(6)]))
def test_moves_are_the_fewest_and_only_where_the_order_changed(order: list[str]) -> None:
    rules = {f"p{i}": Rule(pattern=f"p{i}", assignment=plan_of(BEFORE).rules[1].assignment) for i in range(6)}
    before = replace(plan_of(BEFORE), rules=tuple(rules.values()))
    moved = {change.key for change in diff(before, replace(before, rules=tuple(rules[p] for p in order)))}
    still = [p for p in order if f"tensors.{p}" not in moved]
    assert still == sorted(still)
    assert (not moved) == (order == sorted(order))
