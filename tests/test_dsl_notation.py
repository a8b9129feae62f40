"""The notation, and the other words with a syntax of their own: machines and amounts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.dsl.errors import Flaw, FlawError, PlanError
from meshwright.dsl.machine import parse_topology, scan_over
from meshwright.dsl.notation import parse, scan, write
from meshwright.dsl.plan import Auto, Dim, Dims, Infer, Like, OverDim, Place, Replicate, Rest, Topology
from meshwright.dsl.units import parse_bytes, write_bytes


def test_a_dim_is_a_name_its_axes_and_a_mark() -> None:
    expected = (Dim(name="E", axes=("expert",)), Rest(), Dim(name="H", axes=("model", "data"), pad=True))
    assert scan(" E@expert  ... H@model+data!pad ") == Dims(dims=expected)


@pytest.mark.parametrize(
    ("text", "assignment"),
    [("replicate", Replicate()), ("auto", Auto()), ("infer", Infer()), ("like params/enc", Like(target="params/enc"))],
)
def test_single_words_stand_for_themselves(text: str, assignment: object) -> None:
    assert scan(text) == assignment
    assert write(scan(text)) == text


@pytest.mark.parametrize(
    ("text", "flaws"),
    [
        ("", [("MW040", 0)]),
        ("E replicate", [("MW041", 2)]),
        ("like", [("MW042", 0)]),
        ("like a b", [("MW042", 7)]),
        ("like a/*", [("MW043", 7)]),
        ("like a//b", [("MW043", 5)]),
        ("... E ...", [("MW044", 6)]),
        ("E M E", [("MW045", 4)]),
        ("E@x M@y+x", [("MW046", 8)]),
        ("E@x+x", [("MW046", 4)]),
        ("E@x!pat", [("MW047", 3)]),
        ("E!pad", [("MW048", 1)]),
        ("@x", [("MW049", 0)]),
        ("E@", [("MW049", 2)]),
        ("E@x+", [("MW049", 4)]),
        ("E@x,y", [("MW050", 3)]),
        ("3D", [("MW050", 0)]),
        ("É", [("MW050", 0)]),
        ("E\u00a0M", [("MW050", 1)]),
        ("E@a E@a 1", [("MW045", 4), ("MW046", 6), ("MW050", 8)]),
    ],
)
def test_every_flaw_is_found_where_it_stands(text: str, flaws: list[tuple[str, int]]) -> None:
    with pytest.raises(FlawError) as caught:
        scan(text)
    assert [(f.code, f.offset) for f in caught.value.flaws] == flaws


def test_a_parsed_text_reports_its_own_place() -> None:
    with pytest.raises(PlanError, match=r"p\.yaml:3:9: MW050"):
        parse("E M-", Place(file="p.yaml", line=3, column=6))


@given(st.text(max_size=40))
def test_any_text_is_an_assignment_or_flawed(text: str) -> None:
    flaws: tuple[Flaw, ...] = ()
    try:
        assignment = scan(text)
    except FlawError as error:
        flaws = error.flaws
    assert all(0 <= f.offset <= len(text) and f.at(None).message for f in flaws)
    assert flaws or scan(write(assignment)) == assignment


@pytest.mark.parametrize(
    ("text", "topology"),
    [
        ("v3:32x32", Topology(kind="v3", dims=(32, 32))),
        ("cpu:8", Topology(kind="cpu", dims=(8,))),
        ("4*v5e:16x16", Topology(kind="v5e", dims=(16, 16), num_slices=4)),
    ],
)
def test_a_topology_is_a_kind_and_dims(text: str, topology: Topology) -> None:
    assert parse_topology(text) == topology
    assert str(topology) == text


@pytest.mark.parametrize(
    "text", ["", "v3", "v3:", ":8", "v3:8x", "v3:0", "v3:-1", "v3:8*8", "0*v3:8", "v3:9999999", "a b:3"]
)
def test_no_topology(text: str) -> None:
    with pytest.raises(PlanError, match=r"MW02[89]"):
        parse_topology(text)


def test_an_axis_lies_on_a_physical_dim_or_part_of_one() -> None:
    assert [scan_over("y"), scan_over("x:4")] == [OverDim(name="y"), OverDim(name="x", size=4)]
    with pytest.raises(FlawError):
        scan_over("x:0")


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("15 GiB", 15 * 2**30),
        ("15GiB", 15 * 2**30),
        ("16 GB", 16 * 10**9),
        ("1.5 KiB", 1536),
        ("7 B", 7),
        ("15.5 GiB", 31 * 2**29),
        ("67.9MiB", 71_198_310),
    ],
)
def test_amounts_have_units(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GiB", "MW024"),
        ("-1 GiB", "MW024"),
        ("1e3 GiB", "MW024"),
        ("15", "MW025"),
        ("15 gib", "MW025"),
        ("15 Gb", "MW025"),
        ("0.3 B", "MW026"),
        ("0 GiB", "MW027"),
        ("9999999 PiB", "MW027"),
        ("9" * 500, "MW024"),
    ],
)
def test_amounts_that_are_none(text: str, code: str) -> None:
    with pytest.raises(FlawError) as caught:
        parse_bytes(text)
    assert [f.code for f in caught.value.flaws] == [code]
    assert caught.value.flaws[0].at(None).remedy


@given(st.integers(1, 2**63 - 1))
def test_an_amount_written_reads_back(amount: int) -> None:
    assert parse_bytes(write_bytes(amount)) == amount
