"""A plan that is written reads back equal, and writing it again changes nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import yaml
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import (
    ArgumentPrint,
    Auto,
    Axis,
    Dim,
    Dims,
    Fingerprint,
    Infer,
    Like,
    Limits,
    Mesh,
    OverDim,
    Plan,
    Remat,
    Replicate,
    Rest,
    Result,
    Rule,
    Shard,
    Split,
    SplitDim,
    Topology,
)
from meshwright.dsl.reader import load, loads
from meshwright.dsl.writer import dump, dumps

RESERVED = {"replicate", "auto", "infer", "like"}
names = st.one_of(
    st.sampled_from(["no", "on", "y", "null", "true", "E", "M", "x"]),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
).filter(lambda name: name not in RESERVED)
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["no", "1e5", "0x1", "16:9", "2024-01-01", "<<", "#", "a: b", "..."])
)
words = texts.filter(lambda text: bool(text.strip()))
integers = st.integers(-(2**63) + 1, 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), integers, floats, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
counts = st.integers(0, 2**62)
durations = st.one_of(st.none(), st.floats(0, 1e9))


@st.composite
def dims(draw: st.DrawFn) -> Dims:
    axes = draw(st.lists(names, unique=True, max_size=4))
    entries: list[Dim | Rest] = []
    for name in draw(st.lists(names, unique=True, min_size=1, max_size=4)):
        count = draw(st.integers(0, len(axes)))
        taken, axes = tuple(axes[:count]), axes[count:]
        entries.append(Dim(name=name, axes=taken, pad=bool(taken) and draw(st.booleans())))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Rest())
    return Dims(dims=tuple(entries))


@st.composite
def split_forms(draw: st.DrawFn) -> Split:
    positions = draw(st.lists(st.integers(-4, 4), unique=True, min_size=1, max_size=3))
    axes = iter(draw(st.lists(names, unique=True, min_size=3, max_size=3)))
    return Split(splits=tuple(SplitDim(dim=p, axes=(next(axes),), pad=draw(st.booleans())) for p in positions))


@st.composite
def patterns(draw: st.DrawFn) -> str:
    segment = st.one_of(
        names, st.sampled_from(["**", "*", "w[io]", "[!a-c]?", "{wi,wo}", "a b", "é", "#", ":", "x: y"])
    )
    return "/".join(draw(st.lists(segment, min_size=1, max_size=4)))


assignments = st.one_of(
    st.sampled_from([Replicate(), Auto(), Infer(), Like(target="params"), Like(target="params/enc:0")]),
    dims(),
    split_forms(),
    st.permutations(range(4)).map(lambda p: Shard(device_assignment=((p[0], p[1]), (p[2], p[3])))),
)
axes = st.builds(
    Axis,
    name=names,
    size=st.one_of(st.none(), st.integers(1, 4096)),
    over=st.one_of(
        st.none(),
        st.lists(
            st.builds(OverDim, name=names, size=st.one_of(st.none(), st.integers(1, 64))),
            min_size=1,
            max_size=2,
            unique_by=lambda d: d.name,
        ).map(tuple),
    ),
)
meshes = st.one_of(
    st.just(Mesh(axes=None)),
    st.lists(axes, min_size=1, max_size=3, unique_by=lambda axis: axis.name).map(lambda found: Mesh(axes=tuple(found))),
)
fingerprints = st.builds(
    Fingerprint,
    arguments=st.dictionaries(
        words, st.builds(ArgumentPrint, tensors=counts, elements=counts, digest=texts), max_size=2
    ),
    dims=st.dictionaries(names, counts, max_size=2),
)
results = st.builds(
    Result,
    status=words,
    step_time_s=durations,
    bound_s=durations,
    gap=durations,
    peak_bytes=st.dictionaries(words, counts, max_size=2),
    seed=st.one_of(st.none(), integers),
    versions=st.dictionaries(words, texts, max_size=2),
    pins=st.lists(words, max_size=2).map(tuple),
    fingerprint=st.one_of(st.none(), fingerprints),
)
plans = st.builds(
    Plan,
    name=st.one_of(st.none(), words),
    model=st.sampled_from([None, "models:gshard", "a.b.c:d.e"]),
    settings=st.dictionaries(words, json_values, max_size=3),
    topology=st.one_of(
        st.none(),
        st.builds(
            Topology,
            kind=st.sampled_from(["v3", "cpu", "h100"]),
            dims=st.lists(st.integers(1, 64), min_size=1, max_size=3).map(tuple),
            num_slices=st.integers(1, 4),
        ),
    ),
    mesh=meshes,
    rules=st.lists(
        st.builds(Rule, pattern=patterns(), assignment=assignments), max_size=4, unique_by=lambda rule: rule.pattern
    ).map(tuple),
    remat=st.one_of(
        st.none(),
        st.sampled_from(["none", "full", "dots", "auto"]).map(lambda p: Remat(policy=p)),
        st.lists(words, min_size=1, max_size=2, unique=True).map(lambda n: Remat(policy="save", names=tuple(n))),
    ),
    limits=st.builds(
        Limits, hbm_bytes=st.one_of(st.none(), st.integers(1, 2**63 - 1), st.integers(1, 64).map(lambda n: n * 2**29))
    ),
    result=st.one_of(st.none(), results),
)


@settings(max_examples=examples(100, 300), deadline=None)
@given(plans)
def test_a_plan_written_reads_back_equal_and_writes_the_same_again(plan: Plan) -> None:
    text = dumps(plan)
    assert loads(text) == plan
    assert dumps(loads(text)) == text


@settings(max_examples=examples(33, 100), deadline=None)
@given(plans)
def test_yaml_1_1_reads_the_settings_as_they_were_meant(plan: Plan) -> None:
    assert yaml.safe_load(dumps(plan)).get("with", {}) == plan.settings


EXAMPLE = """\
# yaml-language-server: $schema=plan.schema.json
meshwright: 1
name: gshard-600b
model: meshwright.backends.jax.models:gshard  # yours may stand here
with: {experts: 2048, layers: 36}

# the machine
topology: v3:32x32
mesh:
  # one axis is enough
  expert: {size: 2048, over: [y, "x:4"]}
tensors:  # the first pattern that matches wins
  batch/**:            B@expert T
  params/**/moe/w[io]: L E@expert ...

  # everything else
  params/**:           replicate
  opt/**:              like params
  acts/moe/dispatched: E@expert G C M  # split() from G to E
  "**":                {split: {dim: -1, axis: expert, pad: true}}
  # acts/moe/combined: G@expert S M
remat: full
limits: {hbm: 15.5 GiB}
# the end
"""


def test_canonical_text_stays_as_it_is() -> None:
    assert dumps(loads(EXAMPLE)) == EXAMPLE


def test_keys_are_put_in_order_and_keep_their_comments() -> None:
    text = "# head\nremat: full # r\n# m\nmeshwright: 1\nmesh: # axes\n  x: 4 # four\n"
    assert dumps(loads(text)) == "# head\n# m\nmeshwright: 1\nmesh:  # axes\n  x: 4  # four\nremat: full  # r\n"


@pytest.mark.parametrize(
    "text",
    [
        "meshwright: 1 # a\r\nname: 'x # no' # b\r\n",
        "# a\n\n\n\nmeshwright: 1\n\n\nwith: {a: 1, # one\n  b: 2} # two\n\n# end\n\n",
        "meshwright: 1\nwith:\n  t: |\n    # no comment\n\n    text\n  # after\n  u: 1\n",
        "{meshwright: 1, # odd\n mesh: auto}\n",
        "meshwright: 1\ntensors: # empty\n  # a: replicate\n# end\n",
    ],
)
def test_no_comment_is_lost_and_writing_settles_at_once(text: str) -> None:
    written = dumps(loads(text))
    assert dumps(loads(written)) == written
    assert loads(written) == loads(text)
    for comment in ("# a", "# b", "# one", "# two", "# end", "# after", "# odd", "# empty"):
        assert (comment in text) == (comment in written)


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("meshwright: 1\n")
    path.chmod(0o640)
    dump(Plan(mesh=Mesh(axes=None)), path)
    assert load(path) == Plan(mesh=Mesh(axes=None))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["plan.yaml"]


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="MW062"):
        dump(Plan(mesh=Mesh(axes=None)), tmp_path / "none" / "plan.yaml")


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), 2**70, object(), "\ud800", {1: 2}, {"x" * 2000: 1}])
def test_values_that_no_plan_can_hold_are_refused(odd: object) -> None:
    with pytest.raises(PlanError, match="MW061"):
        dumps(Plan(mesh=Mesh(axes=None), settings={"x": odd}))


def test_a_pattern_cannot_be_written_twice() -> None:
    rule = Rule(pattern="a", assignment=Replicate())
    with pytest.raises(PlanError, match="twice"):
        dumps(Plan(mesh=Mesh(axes=None), rules=(rule, rule)))


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        (
            "topology: # a\n  # b\n  name: v5e:2x2 # c\n  num_slices: 4\n  # d\nmesh: auto\n",
            "# b\n# c\n# d\ntopology: 4*v5e:2x2  # a\nmesh: auto\n",
        ),
        ("mesh: auto\ntensors:\n  a: >- # b\n    M\n    N\n", "mesh: auto\ntensors:\n  a: M N  # b\n"),
    ],
)
def test_comments_of_what_is_written_otherwise_are_kept(written: str, canonical: str) -> None:
    assert dumps(loads("meshwright: 1\n" + written)) == "meshwright: 1\n" + canonical
