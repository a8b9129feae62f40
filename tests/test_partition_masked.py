"""Rows looked up in a part of a table, and the choice between them and zeros before they are added up."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import ALL_REDUCE
from meshwright.planner.partition.passes.masked import mask_lookups

NODES, EDGES, WIDTH = 16384, 65536, 128


def looked_up(*, summed: bool) -> Graph:
    """Rows of nodes for edges; ``summed`` if each device has only some of the nodes."""
    said = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "slice_sizes": (1, WIDTH)}
    rows = Value((EDGES, WIDTH), "f32")
    values = (Value((NODES, WIDTH), "f32"), Value((EDGES, 1), "s32"), rows, rows)
    look = Op(kind="gather", operands=(0, 1), results=(2,), attributes=said)
    total = Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"})
    after = total if summed else Op(kind="negate", operands=(2,), results=(3,))
    return Graph(values=values, ops=(look, after), arguments=(0, 1), results=(3,), mesh={"x": 8})


def test_rows_of_a_part_of_a_table_are_chosen_before_they_are_added_up() -> None:
    """f32[65536,128] compiled for v3: 159 thousand cycles for the choice."""
    graph = mask_lookups(looked_up(summed=True))
    chosen = next(op for op in graph.ops if op.kind == "select")
    total = graph.ops[-1]
    assert (total.kind, total.operands) == (ALL_REDUCE, chosen.results)
    counted = [each.cycles for each in price(fuse(graph), catalogue()["v3"]) if each.counted]
    assert max(counted) == pytest.approx(159_000, rel=0.1)


def test_rows_of_a_whole_table_are_not_chosen() -> None:
    graph = looked_up(summed=False)
    assert mask_lookups(graph) == graph
