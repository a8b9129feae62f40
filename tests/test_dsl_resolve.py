"""A plan against tensors: which rule decides, what layout it gives, and everything that can be wrong."""

from __future__ import annotations

import math

import pytest
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.checks import check
from meshwright.dsl.footprint import argument_bytes, device_bytes
from meshwright.dsl.holes import holes
from meshwright.dsl.patterns import compile_pattern
from meshwright.dsl.plan import Axis, Dim, Dims, Mesh, Plan, Replicate, Rest, Rule, SplitDim
from meshwright.dsl.plan import Split as SplitForm
from meshwright.dsl.reader import loads
from meshwright.dsl.resolve import assign, resolve
from meshwright.dsl.rule_matches import match_rules
from meshwright.dsl.tensors import Layout, Role, Tensor
from meshwright.dsl.verdict import judge


def tensor(path: str, *shape: int, role: Role = "argument", returns: str | None = None) -> Tensor:
    return Tensor(path=path, shape=shape, dtype="float32", role=role, returns=returns)


def plan_with(rules: str, mesh: str = "{x: 4, y: 6}") -> Plan:
    lines = "\n".join(f"  {line.strip()}" for line in rules.strip().split("\n"))
    return loads(f"meshwright: 1\nmesh: {mesh}\ntensors:\n{lines}\n")


def codes(plan: Plan, *tensors: Tensor) -> list[str]:
    return [p.code for p in check(plan, tensors) if p.severity == "error"]


def axes_of(plan: Plan, *tensors: Tensor) -> list[tuple[tuple[str, ...], ...]]:
    resolution = resolve(plan, tensors)
    assert resolution.problems == ()
    return [resolution.layouts[t.path, t.shape].axes for t in tensors]


def test_the_first_rule_that_matches_decides() -> None:
    plan = plan_with("params/w: A@x B\nparams/**: replicate")
    w, v = tensor("params/w", 8, 3), tensor("params/v", 8)
    assert axes_of(plan, w, v) == [(("x",), ()), ((),)]
    rules = resolve(plan, [w, v]).rules
    assert rules["params/w", (8, 3)] == plan.rules[0]
    assert rules["params/v", (8,)] == plan.rules[1]


def test_named_dims_have_one_size_each() -> None:
    plan = plan_with("a: M@x ...\nb: ... M\nc: M N")
    tensors = [tensor("a", 8, 1, 2), tensor("b", 5, 8), tensor("c", 8, 7)]
    assert resolve(plan, tensors).dims == {"M": 8, "N": 7}
    found = check(plan, [*tensors[:2], tensor("c", 9, 7)])
    assert [p.code for p in found if p.severity == "error"] == ["MW108"]
    assert found[-1].numbers["size"] == 9
    assert found[-1].numbers["other_size"] == 8


def test_a_rest_is_any_number_of_dims() -> None:
    plan = plan_with("a: A@x ... Z@y\nb: '...'")
    assert axes_of(plan, tensor("a", 4, 12), tensor("b", 3, 3)) == [(("x",), ("y",)), ((), ())]
    assert axes_of(plan, tensor("a", 4, 5, 5, 6), tensor("b")) == [(("x",), (), (), ("y",)), ()]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("a: M", "MW104"),
        ("a: M N O", "MW104"),
        ("a: M N O ...", "MW104"),
        ("a: M@x N", "MW105"),
        ("a: M N@x+y", "MW105"),
        ("a: M N@z", "MW106"),
        ("a: {split: {dim: 2, axis: x}}", "MW109"),
        ("a: {split: {dim: -3, axis: x}}", "MW109"),
        ("a: {split: [{dim: 1, axis: x}, {dim: -1, axis: y}]}", "MW110"),
        ("a: {split: {dim: 0, axis: x}}", "MW105"),
        ("a: {shard: {device_assignment: [0, 1]}}", "MW111"),
        ("a: {shard: {device_assignment: [[0], [1]]}}", "MW113"),
        ("a: {shard: {device_assignment: [" + ", ".join(f"[{i}]" for i in range(24)) + "]}}", "MW112"),
        ("a: like b", "MW114"),
        ("a: like a", "MW116"),
        ("b: M N\n'**': replicate", "MW101"),
        ("'**': replicate\na: M N", "MW102"),
        ("'*': replicate\n'{a,b}': M N", "MW102"),
    ],
)
def test_what_cannot_be(rules: str, expected: str) -> None:
    assert codes(plan_with(rules), tensor("a", 6, 8)) == [expected]


@pytest.mark.parametrize(
    ("word", "meant"), [("replicat", "replicate"), ("inferred", "infer"), ("M", None), ("_@x", None)]
)
def test_a_misspelt_word_is_said_to_be(word: str, meant: str | None) -> None:
    (found,) = resolve(plan_with(f"a: {word}"), [tensor("a", 6, 8)]).problems
    assert found.code == "MW104"
    assert ("Did you mean" in found.remedy) == (meant is not None)
    assert meant is None or f"Did you mean '{meant}'?" in found.remedy


def test_keys_that_look_like_patterns_are_named_as_patterns_that_match_them() -> None:
    (found,) = resolve(plan_with("'p/{x,y}': M N\n'**': replicate"), [tensor("p/{x,y}", 6, 8)]).problems
    assert found.code == "MW101"
    assert "Did you mean 'p/[{]x,y[}]'?" in found.remedy
    assert resolve(plan_with("'p/[{]x,y[}]': M N"), [tensor("p/{x,y}", 6, 8)]).problems == ()


def test_a_misspelt_word_is_asked_about_once_and_a_missing_dim_for_each_shape() -> None:
    tensors = [tensor("a/b", 6, 8), tensor("a/c", 6, 8, 4), tensor("b", 2, 2)]
    asked = resolve(plan_with("a/*: replicat\nb: replicat"), tensors).problems
    assert [each.code for each in asked] == ["MW104", "MW104"]  # one a line
    told = resolve(plan_with("'**': _@x"), tensors).problems
    assert [each.code for each in told] == ["MW104"] * 3


def test_an_indivisible_dim_comes_with_the_numbers_and_with_what_divides() -> None:
    (found,) = resolve(plan_with("a: B T@x"), [tensor("a", 3, 18)]).problems
    assert (found.numbers["size"], found.numbers["parts"], found.numbers["remainder"]) == (18, 4, 2)
    assert "@y (6)" in found.remedy
    assert "16 or 20" in found.remedy
    assert "T@x!pad" in found.remedy


def test_padding_is_a_note_with_the_numbers() -> None:
    plan = plan_with("a: B T@x!pad")
    (found,) = resolve(plan, [tensor("a", 3, 18)]).problems
    assert (found.code, found.severity, found.numbers["padded"], found.numbers["waste"]) == ("MW121", "note", 20, 2)
    assert resolve(plan, [tensor("a", 3, 18)]).layouts["a", (3, 18)].padded == {1}


def test_nothing_that_is_not_known_yet_is_a_problem() -> None:
    assert codes(plan_with("a: M@p N@q", mesh="auto"), tensor("a", 7, 7)) == []
    assert codes(plan_with("a: M@x N@y", mesh="{x: auto, y: 7}"), tensor("a", 5, 7)) == []
    assert codes(plan_with("a: M@x N", mesh="{x: 4}"), tensor("a", 0, 7)) == []


def test_the_language_has_defaults_for_values_inside_results_and_scalars() -> None:
    plan = plan_with("params/**: M@x")
    tensors = [
        tensor("params/w", 8),
        tensor("lr"),
        tensor("acts/h", 3, role="tagged"),
        tensor("out/params/w", 8, role="result", returns="params/w"),
        tensor("out/loss", role="result"),
    ]
    layouts = resolve(plan, tensors).layouts
    assert layouts["acts/h", (3,)] == Layout(how="infer")
    assert layouts["out/params/w", (8,)].axes == (("x",),)
    assert layouts["lr", ()].replicated
    assert layouts["out/loss", ()].replicated
    assert codes(plan, *tensors, tensor("batch/x", 3), tensor("out/logits", 2, role="result")) == ["MW103", "MW103"]


def test_without_any_rule_every_tensor_is_a_hole() -> None:
    plan = loads("meshwright: 1\n")
    assert resolve(plan, [tensor("a", 3)]).layouts["a", (3,)] == Layout(how="auto")
    assert holes(plan) == ("mesh", "tensors")


def test_one_tag_can_stand_at_several_shapes() -> None:
    plan = plan_with("acts/h: {split: {dim: 0, axis: x}}")
    tensors = [tensor("acts/h", 8, 3, role="tagged"), tensor("acts/h", 4, role="tagged")]
    assert axes_of(plan, *tensors) == [(("x",), ()), (("x",),)]


def test_optimiser_state_follows_the_parameters() -> None:
    plan = plan_with("params/**/w: L E@x M@y\nparams/**: replicate\nopt/**: like params")
    tensors = [
        tensor("params/enc/w", 2, 8, 6),
        tensor("params/b", 5),
        tensor("opt/0/count"),
        tensor("opt/0/mu/enc/w", 2, 8, 6),
        tensor("opt/0/v_row/enc/w", 2, 8),
        tensor("opt/0/v_col/enc/w", 2, 6),
        tensor("opt/0/v/enc/w", 1),
        tensor("opt/0/mu/b", 5),
    ]
    assert axes_of(plan, *tensors)[2:] == [(), ((), ("x",), ("y",)), ((), ("x",)), ((), ("y",)), ((),), ((),)]


def test_a_single_tensor_can_be_followed_and_a_follower_too() -> None:
    plan = plan_with("w: A@x\nema/**: like w\nslow/**: like ema")
    tensors = [tensor("w", 8), tensor("ema/w", 8), tensor("slow/w", 8)]
    assert axes_of(plan, *tensors) == [(("x",),)] * 3


def test_a_tensor_that_cannot_follow_says_so() -> None:
    plan = plan_with("params/**: A@x B\nopt/**: like params")
    assert codes(plan, tensor("params/w", 8, 6), tensor("opt/w", 6, 8)) == ["MW115"]
    explicit = plan_with("params/**: {shard: {device_assignment: [[0, 1]]}}\nopt/**: like params", mesh="{x: 2}")
    assert codes(explicit, tensor("params/w", 8, 6), tensor("opt/w", 6)) == ["MW115"]
    assert codes(explicit, tensor("params/w", 8, 6), tensor("opt/w", 8, 6)) == []
    left_open = plan_with("opt/**: like params")
    assert codes(left_open, tensor("params/w", 8, 6), tensor("opt/w", 6, 8)) == ["MW103", "MW115"]
    assert codes(left_open, tensor("params/w", 8, 6), tensor("opt/w", 6)) == ["MW103"]


def test_likes_that_run_in_a_circle_are_found_with_and_without_tensors() -> None:
    plan = plan_with("a/**: like b\nb/**: like c\nc/**: like b")
    tensors = [tensor("a/w", 2), tensor("b/w", 2), tensor("c/w", 2)]
    (found,) = resolve(plan, tensors).problems
    assert found.code == "MW116"
    assert found.numbers["cycle"] == "b/w -> c/w -> b/w"
    assert [p.numbers["cycle"] for p in check(plan) if p.code == "MW116"] == ["b/** -> c/** -> b/**"]


def test_a_long_chain_of_likes_is_followed_to_its_end() -> None:
    count = 3000
    rules = "\n".join(f"t{i}: like t{i + 1}" for i in range(count)) + f"\nt{count}: A@x"
    tensors = [tensor(f"t{i}", 8) for i in range(count + 1)]
    assert set(axes_of(plan_with(rules), *tensors)) == {(("x",),)}


def test_everything_wrong_is_said_at_once() -> None:
    plan = plan_with("a: M@q\nb: M N\nzz: replicate\nc: like a/b")
    found = codes(plan, tensor("a", 3), tensor("b", 3), tensor("c", 4), tensor("d", 5))
    assert sorted(found) == ["MW101", "MW103", "MW104", "MW106", "MW114"]


def test_an_unused_axis_and_a_value_that_is_not_tagged() -> None:
    assert [p.code for p in check(plan_with("a: M@x"))] == ["MW120"]
    plan = loads("meshwright: 1\nmesh: {x: 2}\ntensors: {a: M@x}\nremat: {save: [q]}\n")
    assert codes(plan, tensor("a", 2), tensor("acts/k", 2, role="tagged")) == ["MW117"]


def test_an_assignment_in_a_model_is_checked_alike() -> None:
    plan = plan_with("a: M")
    layout, problems = assign(plan, SplitForm(splits=(SplitDim(dim=-1, axes=("x",)),)), tensor("in place", 3, 8))
    assert layout == Layout(axes=((), ("x",)))
    assert problems == []
    layout, problems = assign(plan, SplitForm(splits=(SplitDim(dim=0, axes=("q",)),)), tensor("in place", 3))
    assert [p.code for p in problems] == ["MW106"]


def test_bytes_of_a_device_count_padding_and_parts() -> None:
    mesh = Mesh(axes=(Axis(name="x", size=4),))
    padded = Layout(axes=(("x",), ()), padded=frozenset({0}))
    assert device_bytes(mesh, tensor("a", 5, 3), padded) == 2 * 3 * 4
    assert device_bytes(mesh, tensor("a", 4), Layout(how="assigned", device_assignment=(0, 1))) == 8
    assert device_bytes(mesh, tensor("a", 4), Layout(how="infer")) is None
    plan = plan_with("params/**: M@x\nopt: infer", mesh="{x: 4}")
    tensors = [tensor("params/a", 8), tensor("params/b", 4), tensor("opt", 4), tensor("out", role="result")]
    assert argument_bytes(plan.mesh, tensors, resolve(plan, tensors)) == {"params": 12, "opt": None}


def test_a_verdict_says_whether_the_arguments_fit() -> None:
    plan = plan_with("a: M@x", mesh="{x: 4}")
    verdict = judge(plan, [tensor("a", 2**20)], chip_bytes=2**20)
    assert (verdict.legal, verdict.fits, verdict.total_bytes) == (True, True, 2**20)
    verdict = judge(plan, [tensor("a", 2**20)], chip_bytes=2**20 - 1)
    assert (verdict.legal, verdict.fits) == (True, False)
    assert [p.code for p in verdict.problems] == ["MW122"]
    assert not holes(plan)


names = st.sampled_from(["x", "y", "z"])


@settings(max_examples=examples(66, 200), deadline=None)
@given(
    shape=st.lists(st.integers(0, 12), max_size=3).map(tuple),
    sizes=st.tuples(*[st.sampled_from([1, 2, 3, 4])] * 3),
    data=st.data(),
)
def test_a_layout_is_given_exactly_where_every_dim_divides(
    shape: tuple[int, ...], sizes: tuple[int, ...], data: st.DataObject
) -> None:
    free = list("xyz")
    dims: list[Dim | Rest] = []
    for i in range(len(shape)):
        taken = tuple(free[: data.draw(st.integers(0, len(free)))])
        free = free[len(taken) :]
        dims.append(Dim(name=f"d{i}", axes=taken))
    mesh = Mesh(axes=tuple(Axis(name=n, size=s) for n, s in zip("xyz", sizes, strict=True)))
    assignment = Dims(dims=tuple(dims)) if dims else Replicate()
    plan = Plan(mesh=mesh, rules=(Rule(pattern="a", assignment=assignment),))
    subject = tensor("a", *shape)
    parts = [math.prod(mesh.sizes[a] or 1 for a in d.axes) for d in dims if isinstance(d, Dim)]
    divides = all(size % n == 0 for size, n in zip(shape, parts, strict=True))
    resolution = resolve(plan, [subject])
    assert (resolution.layout(subject) is not None) == divides
    assert bool(resolution.problems) != divides


def test_two_tensors_that_are_like_each_other_are_a_circle_without_a_model_too() -> None:
    plan = loads("meshwright: 1\nmesh: {x: 2}\ntensors: {a: like b, b: like a, c: like c}\n")
    assert [p.numbers["cycle"] for p in check(plan) if p.code == "MW116"] == ["a -> b -> a", "c -> c"]


PATTERNS = [
    "ops/f/a.0",
    "ops/f/*",
    "ops/**/b.0",
    "ops/f/**",
    "ops/f/a.0/1",
    "ops/f/a.0/[02]",
    "ops/**/2",
    "ops/f/a.[01]/*",
]
VALUES = [f"ops/f/{name}{turn}" for name in ("a.0", "grad/b.0") for turn in ("/0", "/1", "/2")] + ["ops/f/a.1"]


@given(st.lists(st.sampled_from(PATTERNS), unique=True))
def test_a_pattern_without_a_turn_speaks_of_every_turn(patterns: list[str]) -> None:
    """The first rule decides whose pattern matches the path as it is, or as it is without its last number."""
    rules = [Rule(pattern=pattern, assignment=Replicate()) for pattern in patterns]
    deciding = match_rules(rules, [tensor(path, 4, role="op") for path in VALUES]).deciding
    for path in VALUES:
        forms = [path, path.rpartition("/")[0]] if path[-2] == "/" else [path]
        matching = (rule for rule in rules if any(compile_pattern(rule.pattern).matches(form) for form in forms))
        assert deciding[path] is next(matching, None)


def test_numbers_at_the_end_of_other_paths_are_no_turns() -> None:
    plan = plan_with("params/w: A@x B\nparams/**: replicate")
    assert axes_of(plan, tensor("params/w", 8, 3), tensor("params/w/0", 8, 3)) == [(("x",), ()), ((), ())]
