"""Paths covered by patterns: the oracle is the language's own resolution."""

from collections import defaultdict

import pytest
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.patterns import compile_pattern
from meshwright.dsl.rule_matches import matches_value
from meshwright.planner.minimise.cover import cover

SEGMENTS = st.sampled_from(["a", "b", "wi", "wo", "0", "1", "17", "moe", "*", "x{y", "q,k", "ops", "[z]"])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=5).map("/".join)


def lines(*args, **options):
    """The cover as pairs of pattern and label."""
    return [(line.pattern, line.label) for line in cover(*args, **options)]


def decided(rules, path):
    """The label of the first pattern that matches, by the language's own reading."""
    return next((label for pattern, label in rules if matches_value(compile_pattern(pattern), path)), None)


@given(
    wanted=st.dictionaries(PATHS, st.lists(st.sampled_from("xyz"), min_size=1, max_size=2), min_size=1, max_size=24),
    optional=st.dictionaries(PATHS, st.lists(st.sampled_from("xyz"), min_size=1, max_size=2), max_size=8),
    others=st.sets(PATHS, max_size=8),
)
@settings(max_examples=examples(50, 150), deadline=None)
def test_every_path_gets_a_label_that_it_accepts(wanted, optional, others):
    optional = {path: labels for path, labels in optional.items() if path not in wanted}
    others = others - set(wanted) - set(optional)
    accepted = wanted | optional
    rules = lines(wanted, optional=optional, others=others)
    assert all(decided(rules, path) in labels for path, labels in wanted.items())
    assert all(decided(rules, path) in [None, *labels] for path, labels in optional.items())
    assert all(decided(rules, path) is None for path in others)
    used: dict[int, int] = defaultdict(int)
    for path in wanted:
        used[next(i for i, (pattern, _) in enumerate(rules) if matches_value(compile_pattern(pattern), path))] += 1
    assert len(used) == len(rules)
    found = cover(wanted, optional=optional, others=others)
    for line in found:
        assert set(line.paths) == {p for p in accepted if decided([(x.pattern, x) for x in found], p) == line}
    assert rules == lines(wanted, optional=optional, others=others)


def transformer(layers, experts=("e",), plain=("r",)):
    """An encoder's parameters, unrolled."""
    table = {}
    for i in range(layers):
        for name in ("wq", "wk", "wv", "wo"):
            table[f"params/blocks/{i}/attention/{name}"] = list(plain)
        for name in ("wi", "wo"):
            table[f"params/blocks/{i}/moe/{name}"] = list(experts)
            table[f"params/blocks/{i}/ffn/{name}"] = list(plain)
    return table | {"params/embedding": list(plain)}


def test_experts_are_one_line_and_the_rest_another():
    assert lines(transformer(4)) == [("params/**/moe/**", "e"), ("params/**", "r")]


def test_words_are_put_together():
    table = {
        f"params/{i}/{name}": ["x" if name in ("wi", "wo") else "y"]
        for i in range(3)
        for name in ("wi", "wo", "a", "b")
    }
    table |= {"params/norm": ["z"], "params/0/b": ["z"], "params/1/b": ["z"], "params/2/b": ["z"]}
    rules = lines(table)
    assert ("params/*/w[io]", "x") in rules
    assert len(rules) == 3


def test_words_of_two_segments_are_put_together_where_most_of_what_that_says_is_meant():
    def paths(*names):
        return {f"ops/{name}": ["r"] for name in names}

    five = paths("top/grad/mul.0", "top/grad/mul.1", "end/grad/mul.0", "end/grad/mul.1", "end/grad/mul.2")
    others = {"ops/top/grad/add", "ops/end/grad/add"}
    assert lines(five, others=others) == [("ops/{top,end}/grad/mul.[012]", "r")]
    assert len(lines(five, others={*others, "ops/top/grad/mul.2"})) == 2
    assert len(lines(paths("top/mul.0", "end/add.1"), others={"ops/top/sub", "ops/end/sub"})) == 2


def test_like_arguments_share_lines():
    table = {f"{head}/{name}": ["x"] for head in ("params", "mu", "nu") for name in "abc"}
    assert lines(table) == [("{params,mu,nu}/**", "x")]


def test_other_paths_are_left_alone():
    rules = lines({"ops/f/dot.1/0": ["x"], "ops/f/dot.1/1": ["x"]}, others=["ops/f/dot.2", "ops/g/dot.1/0"])
    assert rules == [("ops/f/dot.1", "x")]


def test_optional_paths_make_a_pattern_shorter():
    wanted = {"ops/f/dot.1": ["x"], "ops/f/dot.7": ["x"], "ops/f/grad/add.1": ["x"]}
    assert lines(wanted, optional={"ops/f/dot.2": ["x"]}) == [("ops/f/**", "x")]


@pytest.mark.parametrize("layers", [1, 96])
def test_depth_makes_no_difference(layers):
    assert len(lines(transformer(layers))) == 2
