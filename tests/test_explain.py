"""An estimate as tables, text, JSON and a page: the same figures everywhere, each saying that it is predicted."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from estimates import MIB, collective, kernel, small_estimate
from hypothesis import given
from hypothesis import strategies as st
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh
from meshwright.planner.estimate.figures import MemoryPoint
from meshwright.planner.explain.difference import difference_json, difference_table
from meshwright.planner.explain.page.memory import thinned
from meshwright.planner.explain.page.page import page
from meshwright.planner.explain.page.timeline import Event, events, merged
from meshwright.planner.explain.page.torus import positions
from meshwright.planner.explain.rows import columns
from meshwright.planner.explain.text import headline, tables, text
from meshwright.planner.network import Network, network
from meshwright.planner.topology import physical

SMALL = """\
the plan fits v5e:2x2: a device needs 6.00 MiB of 8.00 MiB (the plan). A step takes 8.000 ms (compute 5.000 ms, \
communication 3.000 ms). Predicted.

Time of a step, predicted
  what                                                             time      of the step
  compute                                                          5.000 ms  62.5%
  communication                                                    3.000 ms  37.5%
  step: all of it, nothing overlapped                              8.000 ms  100.0%
  with full overlap: the longer of both                            5.000 ms  62.5%
  bound of this plan: its FLOPs at peak, its arguments moved once  4.000 ms  50.0%
  bound of the step, split evenly over all devices                 2.000 ms  25.0%

Memory of a device at the peak, predicted
  what             bytes     of the peak
  activations      4.00 MiB  66.7%
  weights          2.00 MiB  33.3%
  in all           6.00 MiB  100.0%
  limit: the plan  8.00 MiB  75.0% of it used

Communication by axis, predicted
  collective  axes        times  bytes a device  time      of communication  waits for
  all-reduce  data        4      8.00 MiB        2.000 ms  66.7%             x
  all-gather  data+model  1      2.00 MiB        1.000 ms  33.3%             x"""


def a_network(topology: str = "v5e:2x2", **sizes: int) -> Network:
    axes = tuple(Axis(name=name, size=size) for name, size in (sizes or {"data": 2, "model": 2}).items())
    return network(Mesh(axes=axes), physical(parse_topology(topology)))


class Reader(HTMLParser):
    """Reads a page: its tables' cells, its script data, and whether every element that opens is closed."""

    VOID = ("meta", "line", "rect", "path", "br")

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.data: Any = None
        self.links: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element that has nothing inside."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        if self.open and self.open[-1] == "script" and self.data is None:
            self.data = json.loads(data)


def test_the_text_of_a_small_estimate() -> None:
    assert text(small_estimate()) == str(small_estimate()) == SMALL


def test_every_table_says_that_it_is_predicted() -> None:
    shown = tables(small_estimate())
    assert len(shown) == 9
    assert all(table.title.endswith(", predicted") for table in shown)
    assert all(len(row) == len(table.headers) for table in shown for row in table.rows)


def test_layers_stand_beside_their_phases_and_operations_alike_together() -> None:
    later = replace(kernel(4, "dot_general", took_s=2e-3), phase="backward")
    shown = {table.title: table for table in tables(small_estimate(kernels=(*small_estimate().kernels, later)))}
    layers = shown["Compute by layer, predicted"]
    assert layers.headers == ("layer", "forward", "backward", "together", "of compute")
    assert layers.rows[0] == ("mlp", "4.000 ms", "2.000 ms", "6.000 ms", "120.0%")
    assert [row[3] for row in shown["Operations that take longest, predicted"].rows] == ["4", "1", "1"]


def test_a_long_table_says_what_it_leaves_out() -> None:
    many = tuple(kernel(i, f"op{i}", took_s=1e-3) for i in range(30))
    (operations,) = [t for t in tables(small_estimate(kernels=many)) if t.title.startswith("Operations")]
    assert len(operations.rows) == 21
    assert operations.rows[-1][0] == "... 10 more (--json has all)"
    assert columns(operations)


def test_traffic_over_a_part_of_an_axis_is_the_axis_own() -> None:
    part = collective(1, "all-reduce", "data:(1)2", took_s=1e-3)
    (table,) = [t for t in tables(small_estimate(collectives=(part,))) if t.title.startswith("The mesh")]
    assert [row[4:] for row in table.rows] == [("2.00 MiB", "1.000 ms"), ("0 B", "0.000 ms")]


def test_what_the_compiler_counts_no_cycles_for_is_said_on_its_own() -> None:
    gather = replace(kernel(4, "gather", took_s=7e-3, unit="memory"), counted=False)
    estimate = small_estimate(kernels=(*small_estimate().kernels, gather), uncounted_s=7e-3)
    assert (estimate.uncounted_s, estimate.step_time_s) == (7e-3, 15e-3)
    shown = {table.title: table.rows for table in tables(estimate)}
    assert shown["Time of a step, predicted"][2][1] == "7.000 ms"
    assert shown["Operations that take longest, predicted"][0][0::5] == ("gather", "memory, not counted")
    assert "gather" not in {event.said.split(",")[0] for event in events(estimate)}


def test_what_does_not_fit_is_said_first() -> None:
    assert "does not fit v5e:2x2: a device needs 6.00 MiB of 1.00 MiB" in headline(small_estimate(limit_bytes=MIB))
    assert small_estimate(limit_bytes=None).fits


def test_json_adds_up() -> None:
    said = json.loads(json.dumps(small_estimate().as_json()))
    assert said["what"] == "predicted"
    assert said["step_time_s"] == said["compute_s"] + said["comm_s"]
    assert sum(c["predicted_s"] * c["times"] for c in said["collectives"]) == pytest.approx(said["comm_s"])
    assert sum(k["predicted_s"] * k["times"] for k in said["kernels"]) == pytest.approx(said["compute_s"])
    assert said["collective_bytes"] == {"all-reduce": 8 * MIB, "all-gather": 2 * MIB}
    assert said["memory"]["timeline"][0]["bytes"] == said["peak_bytes"]


def test_the_page_is_whole_and_needs_nothing_from_elsewhere() -> None:
    html = page(small_estimate(), a_network(), name="<tiny> & co")
    read = Reader(html)
    assert "http" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert read.links == []
    assert "&lt;tiny&gt; &amp; co" in html
    assert "<b>hidden</b>" not in html
    assert "prefers-color-scheme: dark" in html


def test_the_pages_figures_are_those_of_the_json_and_the_tables() -> None:
    estimate = small_estimate()
    read = Reader(page(estimate, a_network(), name="tiny"))
    said = json.loads(json.dumps(estimate.as_json()))
    assert {key: read.data[key] for key in said if key in read.data} == {
        k: v for k, v in said.items() if k in read.data
    }
    assert {"step_time_s", "compute_s", "comm_s", "peak_bytes", "bytes_by_kind", "tensors"} <= read.data.keys()
    assert read.tables == [[list(table.headers), *map(list, table.rows)] for table in tables(estimate)]


def test_data_cannot_end_its_element() -> None:
    html = page(small_estimate(notes=("</script><script>alert(1)",)), a_network(), name="n")
    assert html.count("<script") == 2
    assert Reader(html).data["notes"] == ["</script><script>alert(1)"]


def test_the_page_of_a_large_pod_stays_light() -> None:
    wide = a_network("v5p:16x20x28", data=560, model=16)
    steps = tuple(kernel(i, "dot_general", took_s=1e-4) for i in range(0, 40_000, 2))
    points = tuple(MemoryPoint(label="dot_general", by_kind={"weights": i % 7 + 1}) for i in range(20_000))
    memory = replace(small_estimate().memory, timeline=points)
    html = page(small_estimate(kernels=steps, memory=memory, compute_s=2.0), wide, name="pod")
    assert len(html) < 1_500_000


def test_events_follow_each_other_and_fill_the_step() -> None:
    estimate = small_estimate()
    listed = list(events(estimate))
    assert [event.lane for event in listed] == ["compute", "data", "compute", "data+model"]
    assert all(b.begin_s == pytest.approx(a.begin_s + a.took_s) for a, b in pairwise(listed))
    assert listed[-1].begin_s + listed[-1].took_s == pytest.approx(estimate.step_time_s)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(1e-6, 1.0)), min_size=1, max_size=40))
def test_joining_short_events_loses_no_time(runs: list[tuple[str, float]]) -> None:
    now_s, listed = 0.0, []
    for lane, took_s in runs:
        listed.append(Event(lane=lane, color="", begin_s=now_s, took_s=took_s, said=""))
        now_s += took_s
    joined = list(merged(iter(listed), 1e-2))
    assert sum(event.count for event in joined) == len(listed)
    for lane in "ab":
        spent = [sum(e.took_s for e in events if e.lane == lane) for events in (listed, joined)]
        assert spent[0] == pytest.approx(spent[1])


@given(st.lists(st.integers(0, 100), min_size=1, max_size=200), st.integers(1, 50))
def test_thinning_keeps_the_peak(held: list[int], count: int) -> None:
    points = [MemoryPoint(label=str(i), by_kind={"a": each}) for i, each in enumerate(held)]
    kept = thinned(points, count)
    assert len(kept) <= max(count, 1) or len(kept) == len(held)
    assert max(point.num_bytes for point in kept) == max(held)


def test_positions_along_an_axis_are_in_the_machines_own_dims() -> None:
    net = a_network("v5e:4x4", data=2, model=8)
    where = positions(net, "data")
    assert where.shape == (4, 4)
    np.testing.assert_array_equal(where[:, 0], [0, 0, 1, 1])
    np.testing.assert_array_equal(positions(net, "model")[0], [0, 1, 2, 3])
    assert positions(a_network("cpu:8", data=8), "data").tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_a_difference_shows_what_moves_with_its_sign() -> None:
    before = small_estimate()
    memory = replace(before.memory, by_kind={"weights": MIB, "cache": 2 * MIB})
    after = small_estimate(comm_s=4e-3, collectives=before.collectives[:1], peak_bytes=3 * MIB, memory=memory)
    rows = {row[0]: row[1:] for row in difference_table(before, after).rows}
    assert "compute" not in rows
    assert rows["step"] == ("8.000 ms", "9.000 ms", "+1.000 ms (+12.5%)")
    assert rows["memory: cache"] == ("0 B", "2.00 MiB", "+2.00 MiB")
    assert rows["memory: weights"] == ("2.00 MiB", "1.00 MiB", "-1.00 MiB (-50.0%)")
    assert rows["communicated: all-gather"] == ("2.00 MiB", "0 B", "-2.00 MiB (-100.0%)")
    more = difference_table(before, replace(after, comm_s=90e-3)).rows
    assert more[1][3] == "+87.000 ms (30 times)"
    said = difference_json(before, after)
    assert said["peak_bytes"] == {"before": 6 * MIB, "after": 3 * MIB, "change": -3 * MIB}
