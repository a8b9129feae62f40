"""What is done fast is done alike: operations moved to other values, partitioning without collectives, no collector."""

from __future__ import annotations

import gc
import pickle
from dataclasses import fields, replace
from typing import Any

import pytest
from meshwright.backends.jax.uncollected import uncollected
from meshwright.planner.graph import Factors, Graph, Op, Origin, Value
from meshwright.planner.partition import partition

EMPTY = Graph(values=(), ops=(), arguments=(), results=())
GIVEN: dict[str, Any] = {
    "kind": "while",
    "operands": (1, 2),
    "results": (3,),
    "attributes": {"a": 1},
    "factors": Factors(sizes=(4,), operands=(((0,),),), results=(((0,),),)),
    "bodies": (EMPTY,),
    "trips": 5,
    "origin": Origin(source="model.py:3", scope="layer", repeats=2),
}


def test_records_compare_hash_and_travel_by_their_fields() -> None:
    whole = Value((3, 5), "s4")
    for one in (whole, replace(whole), pickle.loads(pickle.dumps(whole))):
        assert (one, hash(one), one.num_bytes) == (whole, hash(whole), 8)
    assert whole != Value((5, 3), "s4")
    assert not hasattr(whole, "__dict__")
    assert set(GIVEN) == {field.name for field in fields(Op)}
    assert pickle.loads(pickle.dumps(Op(**GIVEN))) == Op(**GIVEN)


@pytest.mark.parametrize("results", [None, (8, 9)])
def test_a_moved_operation_differs_in_its_values_alone(results: tuple[int, ...] | None) -> None:
    op = Op(**GIVEN)
    assert op.moved((6, 7), results) == replace(op, operands=(6, 7), results=results or op.results)
    assert op == Op(**GIVEN)


def test_a_value_knows_its_size() -> None:
    known = [Value((3, 5), "s4"), Value((), "token"), Value((2,), "f8e4m3fn"), Value((2, 0), "f32")]
    assert [value.num_bytes for value in known] == [8, 0, 2, 0]
    assert [value.bits for value in known] == [4, 0, 8, 32]


def test_no_pass_changes_what_asks_no_other_device() -> None:
    split = (("x",), ())
    values = tuple(Value((8, 4), "f32", split) for _ in range(3))
    rule = Factors(sizes=(8, 4), operands=(((0,), (1,)),), results=(((0,), (1,)),))
    ops = tuple(Op(kind="exponential", operands=(n,), results=(n + 1,), factors=rule) for n in range(2))
    graph = Graph(values=values, ops=ops, arguments=(0,), results=(2,), mesh={"x": 2})
    local, on_cpu = (partition(graph, platform=platform) for platform in ("tpu", "cpu"))
    assert local == on_cpu
    assert [op.kind for op in local.ops] == ["exponential"] * 2
    assert {value.shape for value in local.values} == {(4, 4)}


@pytest.mark.parametrize("enabled", [True, False])
def test_what_a_price_makes_counts_as_old(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with uncollected():
            assert not gc.isenabled()
            made = [[number] for number in range(2000)]
        assert gc.isenabled() == enabled
        young = {id(each) for each in gc.get_objects(generation=0)}
        assert young.isdisjoint(map(id, made)) == enabled
        assert not gc.get_freeze_count()
    finally:
        (gc.enable if before else gc.disable)()
