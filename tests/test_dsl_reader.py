"""Reading: what is wrong is said, all of it, where it stands; nothing that a file holds makes it crash or hang."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Axis, Mesh, OverDim, Remat, Shard, Split, SplitDim, Topology
from meshwright.dsl.reader import load, loads

HEAD = "meshwright: 1\n"


def problems_of(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(PlanError) as caught:
        loads(text)
    found = caught.value.problems
    assert all(p.place and p.message for p in found)
    return [(p.code, p.place.line, p.place.column) for p in found if p.place]


def test_the_long_forms_say_what_the_short_ones_do() -> None:
    plan = loads(
        HEAD + "topology: {name: 'v5e:16x16', num_slices: 4}\n"
        'mesh: {a: auto, b: {size: 4, over: [y, "x:2"]}, c: {over: [z]}}\n'
        "remat: {save: [q, k]}\n"
        "tensors:\n"
        "  s: {split: {dim: -1, axis: a+b, pad: true}}\n"
        "  t: {split: [{dim: 0, axis: [a, b]}, {dim: 1, axis: c}]}\n"
        "  d: {shard: {device_assignment: [[0, 1], [3, 2]]}}\n"
    )
    over = (OverDim(name="y"), OverDim(name="x", size=2))
    assert plan.topology == Topology(kind="v5e", dims=(16, 16), num_slices=4)
    assert plan.mesh == Mesh(
        axes=(
            Axis(name="a", size=None),
            Axis(name="b", size=4, over=over),
            Axis(name="c", size=None, over=(OverDim(name="z"),)),
        )
    )
    assert plan.remat == Remat(policy="save", names=("q", "k"))
    assert [rule.assignment for rule in plan.rules] == [
        Split(splits=(SplitDim(dim=-1, axes=("a", "b"), pad=True),)),
        Split(splits=(SplitDim(dim=0, axes=("a", "b")), SplitDim(dim=1, axes=("c",)))),
        Shard(device_assignment=((0, 1), (3, 2))),
    ]


def test_every_value_knows_its_place() -> None:
    plan = loads(HEAD + "mesh: {x: 2,\n  y: 4}\ntensors:\n  a: M\nwith: {q: 1}\n", "p.yaml")
    assert [str(axis.place) for axis in plan.mesh.axes or ()] == ["p.yaml:2:8", "p.yaml:3:3"]
    assert str(plan.rules[0].place) == "p.yaml:5:3"
    assert str(plan.places["with.q"]) == "p.yaml:6:8"


def test_numbers_are_read_as_yaml_1_2_reads_them() -> None:
    plan = loads(HEAD + "with: {a: 9e10, b: 1e-3, c: 0x1F, d: .5, e: 'no', f: ~, g: True, h: -0, i: 2.}\n")
    numbers = {"a": 9e10, "b": 1e-3, "c": 31, "d": 0.5, "h": 0, "i": 2.0}
    assert plan.settings == {**numbers, "e": "no", "f": None, "g": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("MW021", 1, 1)]),
        ("\n# only a comment\n", [("MW021", 1, 1)]),
        ("~", [("MW021", 1, 1)]),
        ("[1]", [("MW021", 1, 1)]),
        ("plan", [("MW021", 1, 1)]),
        ("name: a\n", [("MW014", 1, 1)]),
        ("meshwright: 2\n", [("MW016", 1, 13)]),
        ("meshwright: '1'\n", [("MW015", 1, 13)]),
        ("meshwright: true\n", [("MW015", 1, 13)]),
        ("meshwright:\n", [("MW017", 1, 12)]),
        (HEAD + "mesh: auto\nmseh: auto\n", [("MW011", 3, 1)]),
        (HEAD + "mesh: auto\nmesh: auto\n", [("MW010", 3, 1)]),
        (HEAD + "name: no\n", [("MW018", 2, 7)]),
        (HEAD + "on: 1\n", [("MW018", 2, 1)]),
        (HEAD + "with: {a: 16:9, b: 010, c: 0o17, d: 1_000}\n", [("MW018", 2, c) for c in (11, 20, 28, 37)]),
        (HEAD + "with: {a: 0b1, b: 2020-01-01, c: +0x1, d: 1_0.5}\n", [("MW018", 2, c) for c in (11, 19, 34, 43)]),
        (HEAD + "with: {a: .inf, b: -.INF, c: .nan}\n", [("MW019", 2, c) for c in (11, 20, 30)]),
        (HEAD + "with: {a: 9223372036854775808, b: 1e999}\n", [("MW020", 2, 11), ("MW020", 2, 35)]),
        (HEAD + f"with: {{a: {'9' * 5000}}}\n", [("MW020", 2, 11)]),
        (HEAD + "with: {1: 2, ~: 3, true: 4, [a]: 5}\n", [("MW012", 2, c) for c in (8, 14, 20, 29)]),
        (HEAD + "with: {a: &x 1, b: *x}\n", [("MW007", 2, 11), ("MW007", 2, 20)]),
        (HEAD + "with: {a: !!python/object:os.system 1}\n", [("MW007", 2, 11)]),
        (HEAD + "with: {<<: {a: 1}}\n", [("MW007", 2, 8)]),
        (HEAD + "---\n" + HEAD, [("MW008", 2, 1)]),
        ("%YAML 1.1\n---\n" + HEAD, [("MW009", 1, 1)]),
        (HEAD + "name: a\u0085b\x00\n", [("MW003", 2, 8), ("MW003", 2, 10)]),
        (HEAD + "mesh:\n\tx: 4\n", [("MW013", 3, 1)]),
        (HEAD + "nmae: a\nmesh: {x: 4\nname: b\n", [("MW011", 2, 1), ("MW013", 4, 5)]),
        (HEAD + "tensors:\n  **: replicate\n", [("MW013", 3, 4)]),
        (HEAD + "mesh: {}\n", [("MW015", 2, 7)]),
        (HEAD + "mesh: {x: 0, y: -1, z: 1.5, w: true}\n", [("MW015", 2, c) for c in (11, 17, 24, 32)]),
        (HEAD + "mesh: {a b: 1}\n", [("MW050", 2, 9)]),
        (HEAD + "mesh: [x]\n", [("MW015", 2, 7)]),
        (HEAD + "mesh: {x: {over: [x:0, y, y]}}\n", [("MW030", 2, 19)]),
        (HEAD + "mesh: {x: {over: [y, y]}}\n", [("MW032", 2, 18)]),
        (HEAD + "topology: v3\n", [("MW028", 2, 11)]),
        (HEAD + "topology: {name: 'v3:8x', num_slices: 0}\n", [("MW029", 2, 22), ("MW015", 2, 39)]),
        (HEAD + "topology: {name: '2*v3:8x8'}\n", [("MW037", 2, 20)]),
        (HEAD + "model: foo.bar\n", [("MW023", 2, 8)]),
        (HEAD + "name: ' '\n", [("MW022", 2, 8)]),
        (HEAD + "limits: {hbm: 15}\n", [("MW025", 2, 15)]),
        (HEAD + "limits: {hbm: 15 GIB}\n", [("MW025", 2, 18)]),
        (HEAD + "limits: {hbm: 1.5}\n", [("MW015", 2, 15)]),
        (HEAD + "remat: fulll\n", [("MW015", 2, 8)]),
        (HEAD + "remat: {save: [a, a]}\n", [("MW033", 2, 15)]),
        (HEAD + "tensors:\n  a/**b: M\n  b: 'E E'\n  c:\n", [("MW054", 3, 5), ("MW045", 4, 9), ("MW017", 5, 5)]),
        (HEAD + "tensors: {'a//b': M, \"a/[\": M}\n", [("MW053", 2, 14), ("MW055", 2, 25)]),
        (
            HEAD + 'tensors:\n  a: M@x\n    N!pa\n  b: "M\\x40x N!pa"\n',
            [("MW047", 3, 6), ("MW048", 3, 6), ("MW047", 5, 7), ("MW048", 5, 7)],
        ),
        (HEAD + "mesh: {x: 2}\ntensors:\n  a: M@x !pad\n", [("MW049", 4, 10)]),
        (HEAD + "tensors:\n  a: {splt: 1}\n  b: [M]\n  c: 3\n", [("MW015", n, 6) for n in (3, 4, 5)]),
        (HEAD + "tensors: {a: {split: {dim: 0}}}\n", [("MW014", 2, 15)]),
        (HEAD + "tensors: {a: {split: {dim: 0, axis: x+x}}}\n", [("MW046", 2, 37)]),
        (HEAD + "tensors: {a: {split: [{dim: 0, axis: x}, {dim: 0, axis: y}]}}\n", [("MW031", 2, 22)]),
        (HEAD + "tensors: {a: {split: {dim: 0, axis: x}, shard: {}}}\n", [("MW011", 2, 41)]),
        (HEAD + "tensors: {a: {shard: {device_assignment: [[0, 1], [2]]}}}\n", [("MW034", 2, 42)]),
        (HEAD + "tensors: {a: {shard: {device_assignment: [0, 0]}}}\n", [("MW035", 2, 42)]),
        (HEAD + "tensors: {a: {shard: {device_assignment: [0, -1]}}}\n", [("MW036", 2, 42)]),
        (HEAD + "tensors: {a: {shard: {device_assignment: [0, [1]]}}}\n", [("MW034", 2, 42)]),
        (HEAD + "result: {seed: 1}\n", [("MW014", 2, 1)]),
        (HEAD + "result: {status: optimal, gap: -1, peak_bytes: {a: 1.5}}\n", [("MW015", 2, 32), ("MW015", 2, 52)]),
    ],
)
def test_every_problem_is_said_where_it_stands(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert problems_of(text) == expected


def test_a_value_that_was_refused_is_not_refused_again() -> None:
    assert problems_of(HEAD + "mesh: {x: 1_0}\nremat: no\nlimits: {hbm: 0o7}\n") == [
        ("MW018", 2, 11),
        ("MW018", 3, 8),
        ("MW018", 4, 15),
    ]


def test_an_unknown_key_comes_with_the_nearest_known_one() -> None:
    with pytest.raises(PlanError, match="'topology'"):
        loads(HEAD + "toplogy: v3:8x8\n")


def test_bytes_windows_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xef\xbb\xbfmeshwright: 1\r\nname: caf\xc3\xa9\r\n")
    assert load(path).name == "café"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, large, secret = tmp_path / "binary", tmp_path / "large", tmp_path / "secret"
    binary.write_bytes(b"meshwright: 1\nname: \xff\n")
    large.write_bytes(b"#" * (2**20 + 1))
    secret.write_text(HEAD)
    secret.chmod(0)
    cases = {tmp_path: "MW001", tmp_path / "none": "MW001", "a\0b": "MW001", binary: "MW002", large: "MW004"}
    if os.geteuid():
        cases[secret] = "MW001"
    for path, code in cases.items():
        with pytest.raises(PlanError, match=code):
            load(path)


N = 2**20 - 100
HOSTILE = {
    "flow lists": "[" * N,
    "flow mappings": "{" * N,
    "block lists": "- " * (N // 2),
    "complex keys": "? " * (N // 2),
    "nested keys": "\n".join(" " * i + "a:" for i in range(1000)),
    "closing brackets": "]" * N,
    "list entries": HEAD + "with: {a: [" + "1," * (N // 2 - 20) + "]}\n",
    "unknown keys": "\n".join(f"k{i}: {i}" for i in range(60_000)),
    "the same key": "a: 1\n" * 100_000,
    "wrong rules": HEAD + "tensors:\n" + "".join(f"  p{i}: E E\n" for i in range(40_000)),
    "axes": HEAD + "mesh: {" + ", ".join(f"a{i}: 0" for i in range(50_000)) + "}\n",
    "devices": HEAD + "tensors: {a: {shard: {device_assignment: [" + "0," * 90_000 + "]}}}\n",
    "aliases": "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [{'*a,' * 9}]\n" for i in range(9)),
    "anchors": "&a " * (N // 3),
    "tags": "! " * (N // 2),
    "a long tag": "!" * N,
    "tag directives": "".join(f"%TAG !{i}! x\n" for i in range(60_000)),
    "documents": "---\n" * (N // 4),
    "comments": "#\n" * (N // 2),
    "spaces": " " * N,
    "line breaks": "\n" * N,
    "an open quote": "a: '" + "x" * N,
    "an open block": "a: |\n" + " x\n" * (N // 3),
    "digits": "meshwright: " + "9" * (N - 20),
    "underscores": "meshwright: 1" + "_" * (N - 20),
    "dots": HEAD + "tensors: {a: '" + "... " * (N // 4 - 20) + "'}\n",
    "dims": HEAD + "tensors: {a: '" + " ".join(f"d{i}" for i in range(100_000)) + "@'}\n",
    "axes of a dim": HEAD + "tensors: {a: 'E@" + "+".join(f"d{i}" for i in range(100_000)) + "+'}\n",
    "stars": HEAD + "tensors: {'" + "*/" * 400_000 + "': M}\n",
    "braces": HEAD + "tensors: {'" + "{a,b}" * 90 + "': M}\n",
    "colons": ":" * N,
    "escapes": 'a: "' + "\\x00" * (N // 4 - 10) + '"',
    "NULs": "\0" * N,
    "too much": "#" * (2**20 + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_soon(name: str) -> None:
    start = time.process_time()
    with pytest.raises(PlanError) as caught:
        loads(HOSTILE[name])
    assert len(str(caught.value)) < 2_000_000
    assert time.process_time() - start < 10


EXAMPLE = HEAD + (
    "name: x # c\nmodel: a.b:c\nwith: {a: [1, 'b'], c: null}\ntopology: v3:4x4\n"
    "mesh: {x: 4, y: {size: auto, over: [z]}}\n"
    "tensors:\n  a/**: E@x+y!pad ... M\n  b: {split: {dim: 0, axis: x}}\n  c: {shard: {device_assignment: [[0, 1]]}}\n"
    "  '**': like params\nremat: full\nlimits: {hbm: 15 GiB}\nresult: {status: ok, peak_bytes: {a: 1}, gap: 0.1}\n"
)
pieces = st.sampled_from(
    ["", "{", "}", "[", "]", ": ", "\n", "  ", "\t", "'", '"', "#", "&a", "*a", "!", "|", "0", "-", "é"]
)


def read_or_refuse(text: str) -> None:
    try:
        loads(text)
    except PlanError as error:
        found = error.problems
    else:
        return
    assert found
    assert all(p.place and p.place.line <= text.count("\n") + text.count("\r") + 2 for p in found)


@settings(max_examples=examples(133, 400), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(EXAMPLE)), st.integers(0, 12), pieces), min_size=1, max_size=4))
def test_a_mutated_plan_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    text = EXAMPLE
    for at, removed, inserted in edits:
        text = text[:at] + inserted + text[at + removed :]
    read_or_refuse(text)


@settings(max_examples=examples(66, 200), deadline=None)
@given(st.one_of(st.text(), st.text(alphabet="ab:{}[]-#&*!|>'\"%@`?, \n\t01._/"), st.text(st.characters())))
def test_any_text_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)
    read_or_refuse(HEAD + text)


def test_the_pure_python_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml
    from meshwright.dsl import strict_yaml

    monkeypatch.setattr(strict_yaml, "PARSER", yaml.SafeLoader)
    assert loads(EXAMPLE).rules
    assert problems_of("[" * N) == [("MW005", 1, 33)]
