"""Logical axis rules: read as Flax and MaxText write them, looked up as Flax does, found for layouts that have some."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import jax
import pytest
from flax.core import spmd as flax_spmd
from flax.linen import spmd
from hypothesis import given
from hypothesis import strategies as st
from meshwright.dsl.errors import PlanError
from meshwright.dsl.logical import names_file, reader, writer
from meshwright.dsl.logical.from_plan import rules_of
from meshwright.dsl.logical.lookup import mesh_axes
from meshwright.dsl.logical.rules import LogicalRule, TensorNames
from meshwright.dsl.plan import Axis, Mesh, Plan, Rule, Split, SplitDim
from meshwright.dsl.reader import loads
from meshwright.dsl.tensors import Tensor

AXES = ("data", "fsdp", "tensor")
NAMES = ("batch", "embed", "mlp", "heads", "vocab")

axis_lists = st.lists(st.sampled_from(AXES), unique=True, max_size=2)
rule_lists = st.lists(st.tuples(st.sampled_from(NAMES), axis_lists), max_size=7)
name_lists = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=4)


def rules(pairs: Any) -> tuple[LogicalRule, ...]:
    return tuple(LogicalRule(name=name, axes=tuple(axes)) for name, axes in pairs)


def entries(spec: Any) -> tuple[tuple[str, ...], ...]:
    """A partition spec's entries as tuples of axes."""
    return tuple(() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in spec)


def tensor(path: str, *shape: int) -> Tensor:
    return Tensor(path=path, shape=shape, dtype="float32", role="argument")


def codes(error: Any) -> list[str]:
    return [found.code for found in error.value.problems]


# Looking up.


@given(
    pairs=rule_lists,
    names=st.lists(st.sampled_from([*NAMES, None, ("data",), ("tensor", "fsdp")]), min_size=1, max_size=4),
)
def test_names_are_looked_up_as_linen_does(pairs: Any, names: Any) -> None:
    words = [name for name in names if isinstance(name, str)]
    if len(set(words)) < len(words):
        return
    as_flax = [(name, tuple(axes) if axes else None) for name, axes in pairs]
    expected = spmd._logical_to_mesh_axes(tuple(names), as_flax)
    found = mesh_axes(TensorNames(names=tuple(names)), rules(pairs))
    assert found == entries(e or None for e in expected)


@given(pairs=rule_lists, names=st.lists(st.sampled_from([*NAMES, *AXES, None]), min_size=1, max_size=4))
def test_names_of_nnx_are_looked_up_as_nnx_does(pairs: Any, names: Any) -> None:
    as_flax = [(name, tuple(axes) if axes else None) for name, axes in pairs]
    table = dict(as_flax)
    found = mesh_axes(TensorNames(names=tuple(names), literal=True), rules(pairs))
    assert found == entries(table.get(name, name) for name in names)
    if all(len(entry) < 2 for entry in found) and len({a for e in found for a in e}) == sum(map(len, found)):
        expected = flax_spmd.apply_rules(jax.sharding.PartitionSpec(*names), as_flax)
        assert found == entries(expected)


# Making rules of layouts.


def plan_of_layouts(layouts: dict[str, tuple[tuple[str, ...], ...]]) -> Plan:
    written = [
        Rule(pattern=path, assignment=Split(splits=tuple(SplitDim(dim=i, axes=a) for i, a in enumerate(axes))))
        for path, axes in layouts.items()
    ]
    return Plan(mesh=Mesh(axes=tuple(Axis(name=name, size=2) for name in AXES)), rules=tuple(written))


@given(pairs=rule_lists, tensors=st.lists(name_lists, min_size=1, max_size=5))
def test_rules_are_found_wherever_there_are_any(pairs: Any, tensors: list[list[str]]) -> None:
    names = {f"params/{i}": TensorNames(names=tuple(own)) for i, own in enumerate(tensors)}
    layouts = {path: mesh_axes(own, rules(pairs)) for path, own in names.items()}
    table = [tensor(path, *[64] * len(own.names)) for path, own in names.items()]
    found = rules_of(plan_of_layouts(layouts), table, names)
    assert {path: mesh_axes(own, found) for path, own in names.items()} == layouts
    as_flax = [(rule.name, rule.axes or None) for rule in found]
    for path, own in names.items():
        assert entries(spmd.logical_to_mesh_axes(own.names, as_flax)) == layouts[path]


@given(st.data())
def test_what_no_rules_say_is_refused(data: Any) -> None:
    """Random layouts: either the rules found say them, or trying every rule list that could finds none."""
    shapes = data.draw(st.lists(st.lists(st.sampled_from("ab"), unique=True, min_size=1), min_size=2, max_size=3))
    layouts = {}
    for i, own in enumerate(shapes):
        free = data.draw(st.permutations(["x", "y", None, None]))
        layouts[f"params/{i}"] = tuple((free[j],) if free[j] else () for j in range(len(own)))
    names = {f"params/{i}": TensorNames(names=tuple(own)) for i, own in enumerate(shapes)}
    plan = Plan(mesh=Mesh(axes=(Axis(name="x", size=2), Axis(name="y", size=2))), rules=plan_of_layouts(layouts).rules)
    table = [tensor(path, *[4] * len(own.names)) for path, own in names.items()]
    possible = any(
        all(mesh_axes(own, rules(pairs)) == layouts[path] for path, own in names.items())
        for pairs in orders([(n, a) for n in "ab" for a in (["x"], ["y"])])
    )
    if possible:
        found = rules_of(plan, table, names)
        assert {path: mesh_axes(own, found) for path, own in names.items()} == layouts
        return
    with pytest.raises(PlanError) as error:
        rules_of(plan, table, names)
    assert set(codes(error)) == {"MW672"}


def orders(pairs: list[Any]) -> Any:
    """Every list of some of these rules, in every order."""
    yield []
    for i, pair in enumerate(pairs):
        for rest in orders(pairs[:i] + pairs[i + 1 :]):
            yield [pair, *rest]


def test_one_name_in_two_layouts_is_refused_with_both_tensors() -> None:
    names = {"params/a": TensorNames(names=("embed",)), "params/b": TensorNames(names=("embed",))}
    plan = loads("meshwright: 1\nmesh: {x: 2, y: 2}\ntensors:\n  params/a: E@x\n  params/b: E@y\n", "plan.yaml")
    with pytest.raises(PlanError) as error:
        rules_of(plan, [tensor("params/a", 8), tensor("params/b", 8)], names)
    (found,) = error.value.problems
    assert str(found).startswith(
        "plan.yaml:4:3: MW672 'embed' is split over x in params/a float32[8], but split over y in params/b float32[8]"
    )


def test_all_that_rules_cannot_say_is_said_at_once() -> None:
    plan = loads(
        "meshwright: 1\nmesh: {x: 2}\ntensors:\n  params/a: E@x\n  params/b: E@x!pad\n  params/c: M E@x\n"
        "  params/d: infer\n"
    )
    names = {
        "params/b": TensorNames(names=("embed",)),
        "params/c": TensorNames(names=("mlp", None)),
        "params/d": TensorNames(names=("embed",)),
    }
    table = [tensor("params/a", 8), tensor("params/b", 8), tensor("params/c", 4, 8), tensor("params/d", 8)]
    with pytest.raises(PlanError) as error:
        rules_of(plan, table, names)
    assert codes(error) == ["MW670", "MW673", "MW671", "MW673"]


def test_what_a_line_says_of_several_tensors_and_no_rule_can_is_said_once() -> None:
    plan = loads("meshwright: 1\nmesh: {x: 2}\ntensors:\n  params/d: infer\n  params/*: E@x!pad\n", "plan.yaml")
    table = [tensor(f"params/{name}", 7) for name in "abcd"]
    names = {each.path: TensorNames(names=("embed",)) for each in table}
    with pytest.raises(PlanError) as error:
        rules_of(plan, table, names)
    left, padded = map(str, error.value.problems)
    assert "plan.yaml:5:3: MW673 params/a float32[7] (and 2 more) is padded" in padded
    assert "plan.yaml:4:3: MW673 params/d float32[7] is left to propagation" in left


def test_nnx_knows_one_rule_a_name() -> None:
    plan = loads("meshwright: 1\nmesh: {x: 2, y: 2}\ntensors:\n  params/a: A@x B@y\n  params/b: B@x\n")
    table = [tensor("params/a", 8, 8), tensor("params/b", 8)]
    names = {"params/a": ("a", "b"), "params/b": ("b",)}
    linen = rules_of(plan, table, {path: TensorNames(names=own) for path, own in names.items()})
    assert [(rule.name, rule.axes) for rule in linen] == [("a", ("x",)), ("b", ("x",)), ("b", ("y",))]
    with pytest.raises(PlanError) as error:
        rules_of(plan, table, {path: TensorNames(names=own, literal=True) for path, own in names.items()})
    assert codes(error) == ["MW672"]


# Reading and writing.

PAIRS = [["batch", ["data", "fsdp"]], ["embed", None], ["mlp", "tensor"], ["mlp", []]]
EXPECTED = rules([("batch", ["data", "fsdp"]), ("embed", []), ("mlp", ["tensor"]), ("mlp", [])])


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(PAIRS),
        "- [batch, [data, fsdp]]\n- [embed, null]\n- [mlp, tensor]\n- [mlp, []]\n",
        "# ours\n(('batch', ('data', 'fsdp')), ('embed', None), ('mlp', 'tensor'), ('mlp', ()))",
        "logical_axis_rules: [['batch', ['data', 'fsdp']], ['embed', null], ['mlp', 'tensor'], ['mlp', []]]",
    ],
)
def test_rules_are_read_in_every_form(text: str) -> None:
    assert reader.loads(text).rules == EXPECTED


def test_what_is_written_reads_back_equal() -> None:
    assert reader.loads(writer.as_flax(EXPECTED)).rules == EXPECTED
    assert reader.loads(writer.as_flax(())).rules == ()
    back = reader.loads(writer.as_maxtext(EXPECTED, {"data": 2, "stage": 4}, {"data": 8}))
    assert (back.rules, back.mesh_axes, back.ici, back.dcn) == (
        EXPECTED,
        ("data", "stage"),
        {"data": 2, "stage": 4},
        {"data": 8},
    )


def test_settings_beside_the_rules_may_be_as_they_like() -> None:
    text = "enable: yes\nport: 0o17\nport: 1\nlogical_axis_rules: [[a, x]]\nbase_config: base.yml\n"
    read = reader.loads(text, "model.yml")
    assert read.rules == rules([("a", ["x"])])
    assert [str(note.place) for note in read.notes] == ["model.yml:5:14"]


def test_every_mistake_is_said_with_its_place() -> None:
    text = (
        "mesh_axes: data\nici_data_parallelism: 0\nlogical_axis_rules:\n  - [a, [x, x]]\n  - [b]\n  - [1, x]\n"
        "  - [c, [x, 2]]\n  - [on, x]\n"
    )
    with pytest.raises(PlanError) as error:
        reader.loads(text, "r.yml")
    assert [(p.code, str(p.place)) for p in error.value.problems] == [
        ("MW650", "r.yml:1:12"),
        ("MW650", "r.yml:2:23"),
        ("MW653", "r.yml:4:13"),
        ("MW650", "r.yml:5:5"),
        ("MW650", "r.yml:6:6"),
        ("MW650", "r.yml:7:13"),
        ("MW018", "r.yml:8:6"),
    ]


@pytest.mark.parametrize("text", ["", "a: 1", "logical_axis_rules:", "# nothing"])
def test_no_rules_is_said(text: str) -> None:
    with pytest.raises(PlanError) as error:
        reader.loads(text)
    assert codes(error) == ["MW651"]


@given(st.text(alphabet="[](){}',:# \nabcxNone-0=", max_size=60))
def test_no_text_ends_in_anything_but_problems(text: str) -> None:
    for read in (reader.loads, names_file.loads):
        with contextlib.suppress(PlanError):
            read(text, "f")


def test_names_by_pattern_the_first_match_decides() -> None:
    given_names = names_file.loads("params/*/wi: [embed, null]\nparams/**: [norm]\n")
    found = names_file.names_of(given_names, [tensor("params/a/wi", 2, 2), tensor("params/b", 2), tensor("batch", 2)])
    assert {path: own.names for path, own in found.items()} == {"params/a/wi": ("embed", None), "params/b": ("norm",)}


def test_patterns_of_names_that_match_nothing_are_refused() -> None:
    with pytest.raises(PlanError) as error:
        names_file.names_of(names_file.loads("params/x: [a]\n"), [tensor("params/a", 2)])
    assert codes(error) == ["MW101"]
    with pytest.raises(PlanError) as error:
        names_file.loads("params/**/: [a]\nb: embed\nc: [1]\n")
    assert codes(error) == ["MW053", "MW650", "MW650"]
