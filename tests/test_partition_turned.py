"""Copies around all-to-alls: beside the TPU compiler's, and priced alike by the estimate and the program."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.backends.jax.shardings import default_devices
from meshwright.dsl.plan import Plan
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.single_ops import copy_seconds, gather_seconds, rows_seconds, turn_seconds
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.compute.work import work_of
from meshwright.planner.estimate.traffic import tariff
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.images import Image
from meshwright.planner.kernels import Kernel
from meshwright.planner.kinds import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    IN_ORDER,
    REDUCE_SCATTER,
    TILE_ROWS,
    TURNED_COPY,
)
from meshwright.planner.partition.passes.turned import arrives_in_rows, tells_groups_apart, turned, turns
from meshwright.planner.partition.target import target
from meshwright.planner.program.pricing.costs import Sum
from meshwright.planner.program.pricing.reshards import Reshards
from meshwright.planner.topology import physical

SHAPES = ((4096, 1024), (64, 512, 512), (16, 32, 512, 512))
TURNS = [(shape, *pair) for shape in SHAPES for pair in itertools.permutations(range(len(shape)), 2)]
"""Shapes, the dim that is split over y before, and the one that is after."""


def rows(name: str, shape: tuple[int, ...], split: int | None) -> str:
    said = " ".join(f"{'ABCD'[dim]}{size}" + ("@y" if dim == split else "") for dim, size in enumerate(shape))
    return f"  {name}: {said}"


def exchanging(turns: Sequence[tuple[tuple[int, ...], int, int]]) -> tuple[Plan, object, tuple[object, ...]]:
    """A step whose products hand values on to others that lie otherwise."""

    def step(a: dict[str, jax.Array]) -> dict[str, jax.Array]:
        out = {}
        for i in range(len(turns)):
            with jax.named_scope(f"case{i}z"):
                made = mw.tag(jnp.einsum("...a,ab->...b", a[f"x{i}"], a[f"w{i}"]), f"v{i}")
                out[f"o{i}"] = jnp.tanh(jnp.einsum("...a,ab->...b", mw.tag(made, f"u{i}"), a[f"w{i}"]))
        return out

    args, lines = {}, []
    for i, (shape, before, after) in enumerate(turns):
        args[f"x{i}"] = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
        args[f"w{i}"] = jax.ShapeDtypeStruct((shape[-1], shape[-1]), jnp.bfloat16)
        lines += [rows(f"{path}{i}", shape, before) for path in ("a/x", "acts/v")]
        lines += [rows(f"{path}{i}", shape, after) for path in ("acts/u", "out/o")]
        lines.append(rows(f"a/w{i}", (shape[-1],) * 2, None))
    header = "meshwright: 1\ntopology: v3:2x2\nmesh: {x: 2, y: 4}\ntensors:\n"
    return mw.loads(header + "\n".join(lines) + "\n"), jax.jit(step), (args,)


def case_of(scope: str) -> int:
    found = re.search(r"case(\d+)z", scope)
    assert found is not None
    return int(found[1])


def predicted(plan: Plan, step: object, args: tuple[object, ...]) -> dict[int, int]:
    """The copies of each case in an estimate."""
    found = dict.fromkeys(range(len(TURNS)), 0)
    for kernel in mw.estimate(plan, step, args).kernels:
        if kernel.label == "turned-copy":
            found[case_of(kernel.origin.scope or "")] += 1
    return found


def compiled(text: str) -> Iterator[int]:
    """The case of each copy between an all-to-all and what makes it or reads it in a compiled program."""
    found = re.findall(r"%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(.*)", text)
    ops = {name: (kind, re.findall(r"%([\w.\-]+)", operands), rest) for name, _, kind, operands, rest in found}
    readers = {operand: name for name, (_, operands, _) in ops.items() for operand in operands}
    for name, (kind, operands, rest) in ops.items():
        if kind != "all-to-all":
            continue
        case = case_of(rest)
        for now, back in ((operands[0], True), (readers[name], False)):
            while ops[now][0] in ("bitcast", "copy", "reshape"):
                if ops[now][0] == "copy":
                    yield case
                now = ops[now][1][0] if back else readers.get(now, name)


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_exchanges_take_about_the_copies_that_the_compiler_makes() -> None:
    """Products may leave and take some dims in another order, which saves a copy here and costs one there."""
    plan, step, args = exchanging(TURNS)
    text = mw.apply(plan, step, args, devices=default_devices(plan)).lower(*args).compile().as_text()
    made = list(compiled(text))
    ours = predicted(plan, step, args)
    assert sum(ours.values()) == pytest.approx(len(made), abs=3)
    assert all(abs(made.count(case) - copies) <= 1 for case, copies in ours.items())


def resharding() -> Reshards:
    """What resharding takes, x=2 and y=4."""
    plan, _, _ = exchanging(TURNS[:1])
    machine = physical(plan.topology)
    return Reshards(
        mesh={"x": 2, "y": 4},
        tariff=tariff(plan.mesh, machine, {}),
        speed=speed_of(machine.chip),
        target=target(machine.platform, machine, 8),
    )


@pytest.mark.parametrize(("before", "after", "copies"), [(0, 1, 1), (1, 0, 1), (1, 2, 2), (0, 2, 1)])
def test_a_resharding_costs_its_copies_too(before: int, after: int, copies: int) -> None:
    priced = resharding()
    source, after_it = (tuple(("y",) if dim == split else () for dim in range(3)) for split in (before, after))
    took_s = priced.seconds(Value((64, 512, 512), "bf16"), source, after_it)
    copy_s = max(priced.copies.values())
    (exchange_s,) = (price.total_s for price in priced.tariff.prices.values())
    assert took_s == pytest.approx(exchange_s + copies * copy_s)


@pytest.mark.parametrize(
    ("source", "after_it", "dims", "is_spared"),
    [
        (("x", "", ""), ("x", "y", ""), {0, 1}, True),
        (("x", "", ""), ("x", "y", ""), {0, 2}, False),  # of which parts are no whole tiles
        (("x", "", ""), ("", "y", "x"), {0, 1}, True),  # cut, and then exchanged
        (("", "x", ""), ("", "", "y"), {0, 1, 2}, False),  # gathered first
        (("", "x", ""), ("", "", "x"), {0, 1, 2}, False),
        (("", "", ""), ("x", "", ""), {0, 1, 2}, False),
        (("x", "", ""), ("x", "", ""), {0, 1, 2}, False),
    ],
)
def test_a_sum_of_which_each_device_keeps_a_part_takes_less(
    source: tuple[str, ...], after_it: tuple[str, ...], dims: set[int], is_spared: bool
) -> None:
    """Of what is added up along ``y``: where the first that is done to it is to cut one dim along ``y`` of which a ring
    may leave each device its part.
    """
    priced, num_bytes = resharding(), 1 << 24
    before, after = (tuple((axis,) if axis else () for axis in layout) for layout in (source, after_it))
    ((less_s,),) = priced.spared([Sum(("y",), num_bytes, num_bytes, frozenset(dims))], [before], [after])
    took_s = {key[0]: each for key, each in priced.sent.items()}
    assert (less_s > 0) == is_spared
    assert not is_spared or less_s == took_s[ALL_REDUCE] - took_s[REDUCE_SCATTER]


def test_a_sum_that_is_rounded_is_spared_no_bytes_where_it_is_scattered() -> None:
    """Where all have it bfloat16 is left, parts are float32: as much is sent either way, in half the hops."""
    priced, whole_bytes = resharding(), 1 << 24
    before, after = ((), (), ()), (("y",), (), ())
    sums = [Sum(("y",), num_bytes, whole_bytes, frozenset({0})) for num_bytes in (whole_bytes // 2, whole_bytes)]
    rounded_s, as_it_is_s = priced.spared(sums, [before, before], [after])[:, 0]
    assert 0 <= rounded_s < 0.1 * as_it_is_s


@pytest.mark.parametrize(
    ("shape", "cut", "cycles"),
    [((16, 16, 1024), 2, 20092), ((16, 16, 512), 2, 20092), ((16, 16, 8192), 2, 39220), ((2, 512, 1024), 2, 20092)],
)
def test_a_copy_goes_over_its_pieces_in_tiles(shape: tuple[int, ...], cut: int, cycles: int) -> None:
    """The compiler's cycles on v3, of bfloat16 in 32 pieces: without the tiles 0.16 and 0.3 of them."""
    of = speed_of(catalogue()["v3"])
    took = turn_seconds(Value(shape, "bf16"), (cut, 32), of) * of.clock_hz
    assert took == pytest.approx(cycles, rel=0.1)


def test_pieces_without_whole_lanes_arrive_in_rows() -> None:
    narrow, wide = ((24, 16, 512), (24, 512, 16)), ((24, 16, 8192), (24, 512, 256))
    assert arrives_in_rows(ALL_TO_ALL, (1, 2), *narrow)
    assert not arrives_in_rows(ALL_TO_ALL, (1, 2), *wide)
    assert not arrives_in_rows(ALL_GATHER, (1,), (24, 16, 16), (24, 512, 16))
    for shapes in (narrow, wide):
        assert turns(ALL_TO_ALL, (1, 2), *shapes, in_order=True) == (1, 1)
        assert turns(ALL_TO_ALL, (1, 2), *shapes, in_order=False) == (1, 0)


@pytest.mark.parametrize(
    ("chip", "rows", "cycles"),
    [
        *[("v3", 8192, 0), ("v4", 8192, 119104), ("v5e", 8192, 192992), ("v5e", 1024, 11667), ("v5p", 8192, 95840)],
        *[("v6e", 8192, 171808), ("v6e", 32768, 687136), ("tpu7x", 4096, 18344)],
    ],
)
def test_rows_are_put_into_tiles_one_by_one(chip: str, rows: int, cycles: int) -> None:
    """The compiler's cycles of what it puts behind an all-to-all of narrow pieces: of float32, of narrower it counts
    none.
    """
    of = speed_of(catalogue()[chip])
    assert rows_seconds(Value((16, rows * 8), "f32"), (), of) * of.clock_hz == pytest.approx(cycles, rel=0.1, abs=200)
    assert rows_seconds(Value((16, rows * 8), "bf16"), (), of) == 0


@pytest.mark.parametrize(("width", "is_put"), [(64, True), (2048, False)])
def test_a_resharding_puts_its_rows_into_tiles(width: int, is_put: bool) -> None:
    """Numbers go on as they lie to what works number by number, as a layer's scale does, but not from rows."""
    value, layouts = Value((16, 64, width), "f32"), [((), (), ("y",)), ((), ("y",), ())]
    of = speed_of(catalogue()["v5p"])
    twice = replace(of, coefficients=replace(of.coefficients, row_cycles=2 * of.coefficients.row_cycles))
    once_s, twice_s = (replace(resharding(), speed=s).seconds(value, *layouts, in_order=False) for s in (of, twice))
    rows_s = rows_seconds(Value((16, 16, width), "f32"), (), of)
    assert twice_s - once_s == pytest.approx(rows_s if is_put else 0)


def test_what_is_gathered_for_a_result_is_copied_there() -> None:
    args = (jax.ShapeDtypeStruct((1024, 512), jnp.float32),)
    said = "meshwright: 1\ntopology: v3:2x2\nmesh: {y: 8}\ntensors:\n  x: A@y B\n  out: "

    def labels(layout: str) -> list[str]:
        plan = mw.loads(f"{said}{layout}\n")
        return [kernel.label for kernel in mw.estimate(plan, jax.jit(lambda x: jnp.tanh(x)), args).kernels]

    assert labels("A B").count("turned-copy") == 1
    assert "turned-copy" not in labels("A@y B")


@pytest.mark.parametrize(("dims", "copies"), [((0,), 0), ((0, 1), 1), ((0, 2), 2)])
def test_what_is_gathered_along_several_dims_is_copied_into_its_place(dims: tuple[int, ...], copies: int) -> None:
    """Case by case as the compiler has it for shapes of two to four dims; products read what is gathered."""
    assert turns(ALL_GATHER, dims, (8, 8, 8), (64, 64, 64), in_order=True) == (0, copies)


@pytest.mark.parametrize(
    ("experts", "tokens", "places", "copied"), [(1, 1024, 64, 0), (8, 512, 32, 1), (1, 64, 64, 2), (1, 1024, 128, 1)]
)
def test_masks_that_go_to_one_expert_a_device_arrive_as_they_lie(
    experts: int, tokens: int, places: int, copied: int
) -> None:
    """With their tokens on the lanes, as compiled for v3 and v4; those for eight experts are copied on v5e and v6e."""
    before, after = (32, tokens, experts, places), (1, tokens, 32 * experts, places)
    first, last = turns(ALL_TO_ALL, (2, 0), before, after, in_order=True)
    assert (first, last + arrives_in_rows(ALL_TO_ALL, (2, 0), before, after)) == (0, copied)


@pytest.mark.parametrize(
    ("dims", "before", "after", "copies"),
    [
        ((0, 3), (4, 32, 32, 1024), (32, 32, 32, 128), (1, 1)),
        ((3, 0), (32, 32, 32, 32), (4, 32, 32, 256), (1, 1)),
        ((0, 1), (8, 64, 64, 64), (64, 8, 64, 64), (0, 1)),  # rows of places are outermost
        ((1, 0), (64, 8, 64, 64), (8, 64, 64, 64), (1, 0)),
        ((3, 1), (32, 32, 32, 32), (32, 4, 32, 256), (0, 1)),
        ((0, 3), (16, 32, 32, 128), (128, 32, 32, 16), (2, 1)),  # the batch comes to lie on the lanes
        ((3, 0), (32, 64, 64, 16), (4, 64, 64, 128), (1, 2)),
    ],
)
def test_images_are_copied_as_they_lie(
    dims: tuple[int, int], before: tuple[int, ...], after: tuple[int, ...], copies: tuple[int, int]
) -> None:
    """Between convolutions, seen compiled for v3; what rows of numbers take besides is not among these."""
    image = Image(features=3, batch=0)
    assert turns(ALL_TO_ALL, dims, before, after, in_order=True, image=image) == copies


@pytest.mark.parametrize(
    ("chip", "piece", "features", "cycles"),
    [
        ("v3", (16, 32, 32, 32), 256, 367_248),
        ("v3", (8, 64, 64, 64), 512, 822_496),
        ("v3", (32, 16, 16, 32), 256, 21_276),  # more images than places: read as they lie then
        ("v3", (32, 64, 64, 16), 128, 0),  # they lie so before
        ("v3", (16, 32, 32, 128), 1024, 0),
        ("v5p", (8, 64, 64, 64), 512, 260_848),
    ],
)
def test_narrow_features_are_copied_to_be_gathered(
    chip: str, piece: tuple[int, ...], features: int, cycles: int
) -> None:
    """Seen compiled between two convolutions."""
    speed = speed_of(catalogue()[chip])
    parts = (Value(piece, "bf16"), Value((*piece[:3], features), "bf16"))
    took_s = gather_seconds(*parts, Image(features=3, batch=0), speed)
    assert took_s * speed.clock_hz == pytest.approx(cycles, rel=0.2)


@pytest.mark.parametrize(("kind", "copies"), [("broadcast_in_dim", 0), ("tanh", 1)])
def test_what_is_spread_to_be_sent_is_spread_in_pieces(kind: str, copies: int) -> None:
    """A token's place among those of each of 16 experts, four of which a device has (a mixture on v5e)."""
    given = (4, 512, 64) if kind == "broadcast_in_dim" else (4, 512, 16, 64)
    values = [Value(shape, "f32") for shape in (given, (4, 512, 16, 64), (16, 512, 4, 64), (16, 512, 4, 64))]
    ops = (
        Op(kind=kind, operands=(0,), results=(1,), attributes={"broadcast_dimensions": (0, 1, 3)}),
        Op(kind=ALL_TO_ALL, operands=(1,), results=(2,), attributes={"axes": ("x",), "dimensions": (0, 2)}),
        Op(kind="tanh", operands=(2,), results=(3,)),
    )
    made = turned(Graph(values=tuple(values), ops=ops, arguments=(0,), results=(3,)))
    sent = next(number for number, op in enumerate(made.ops) if op.kind == ALL_TO_ALL)
    assert sum(op.kind == TURNED_COPY for op in made.ops[:sent]) == copies


@pytest.mark.parametrize(
    ("part", "is_copied"),
    [
        ((1, 1024, 32, 64), True),
        ((4, 1024, 32, 64), False),
        ((1, 1024, 32, 1024), False),
        ((1, 1024, 64), False),
        ((1, 64, 32, 1024), False),
    ],
)
def test_groups_that_are_gathered_along_the_lanes_are_copied_apart(part: tuple[int, ...], is_copied: bool) -> None:
    """As compiled for v3 to v5p of a group's routing of tokens to experts, whose tokens are on the lanes."""
    said = {"axes": ("x",), "dimensions": (0,)}
    values = (Value(part, "f32"),) * 2 + (Value((32, *part[1:]), "f32"),) * 2
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes=said),
        Op(kind="tanh", operands=(2,), results=(3,)),
    )
    made = turned(Graph(values=values, ops=ops, arguments=(0,), results=(3,)))
    copies = [op for op in made.ops if op.kind == TURNED_COPY]
    assert [IN_ORDER in op.attributes for op in copies] == [True] * is_copied
    assert not tells_groups_apart(ALL_TO_ALL, (0, 1), part)
    assert not tells_groups_apart(ALL_GATHER, (len(part) - 1,), (*part[:-1], 1))


def test_a_resharding_tells_groups_apart_too() -> None:
    """Of four devices that hold a group each, as the estimate has it for what is gathered of one of 1024 tokens."""
    priced, layouts = resharding(), [(("y",), (), (), ()), ((), (), (), ())]
    whole = Value((4, 1024, 32, 64), "f32")
    took_s = priced.seconds(whole, *layouts) - priced.sent[next(iter(priced.sent))]
    assert took_s == pytest.approx(copy_seconds(whole, priced.speed))


@pytest.mark.parametrize(
    ("experts", "parts", "places", "rows"),
    [(2, 16, 16, 2), (4, 16, 32, 4), (4, 8, 16, 4), (2, 8, 32, 0), (2, 8, 16, 0), (8, 8, 16, 0), (4, 4, 16, 0)],
)
def test_experts_of_gradients_lie_on_rows_where_they_are_more_than_places(
    experts: int, parts: int, places: int, rows: int
) -> None:
    """As compiled for v4, v5e, v5p and v6e: spread in tiles of a device's experts, which a copy puts beside others'."""
    made = sent_mask(experts, parts, places, reader="multiply")
    copies = [op for op in made.ops if op.kind == TURNED_COPY]
    assert [op.attributes[TILE_ROWS] for op in copies] == ([rows] if rows else [])
    assert next(op for op in made.ops if op.kind == "broadcast_in_dim").attributes.get(TILE_ROWS, 0) == rows


@pytest.mark.parametrize(("experts", "places"), [(2, 32), (4, 16), (16, 32), (4, 128), (1, 512)])
def test_masks_are_multiplied_as_they_arrive(experts: int, places: int) -> None:
    """In bfloat16, as compiled for v3, v4, v5e, v5p and v6e."""
    made = sent_mask(experts, 4, places, reader="dot_general")
    assert all(op.kind != TURNED_COPY for op in made.ops)


def sent_mask(experts: int, parts: int, places: int, *, reader: str) -> Graph:
    """The mask of 1024 tokens, so many experts of each device, sent to where the tokens are; what multiplies reads
    what is computed of what is spread, a gradient that itself.
    """
    before, after = (parts, 1024, experts, places), (1, 1024, parts * experts, places)
    shapes = [(parts, 1024, places), before, before, after, after]
    values = tuple(Value(shape, "f32") for shape in shapes)
    narrow = Op(kind="convert" if reader == "dot_general" else "reshape", operands=(1,), results=(2,))
    sent = 2 if reader == "dot_general" else 1
    ops = (
        Op(kind="broadcast_in_dim", operands=(0,), results=(1,), attributes={"broadcast_dimensions": (0, 1, 3)}),
        *([narrow] if sent == 2 else []),
        Op(kind=ALL_TO_ALL, operands=(sent,), results=(3,), attributes={"axes": ("x",), "dimensions": (2, 0)}),
        Op(kind=reader, operands=(3, 3), results=(4,)),
    )
    return turned(Graph(values=values, ops=ops, arguments=(0,), results=(4,)))


@pytest.mark.parametrize(
    ("chip", "kind", "shape", "cycles"),
    [
        ("v5e", "broadcast_in_dim", (32, 1024, 2, 32), 184_608),
        ("v5e", "broadcast_in_dim", (16, 1024, 4, 32), 92_384),
        ("v5e", TURNED_COPY, (16, 1024, 4, 32), 92_256),
        ("v5p", "broadcast_in_dim", (32, 1024, 2, 32), 99_072),
        ("v5p", "broadcast_in_dim", (16, 1024, 4, 32), 52_752),
        ("v5p", TURNED_COPY, (32, 1024, 2, 32), 46_448),
        ("v5p", "broadcast_in_dim", (16, 256, 2, 16), 4_387),
        ("v5e", "broadcast_in_dim", (16, 256, 2, 16), 6_720),
        ("v4", "broadcast_in_dim", (16, 256, 2, 16), 7_225),
        ("v6e", "broadcast_in_dim", (16, 256, 2, 16), 4_996),
        ("v6e", "broadcast_in_dim", (32, 512, 2, 16), 13_638),
        ("v6e", TURNED_COPY, (32, 512, 2, 16), 11_590),
        ("v6e", "broadcast_in_dim", (16, 1024, 4, 32), 85_792),
        ("v6e", TURNED_COPY, (16, 1024, 4, 32), 85_664),
        ("v4", TURNED_COPY, (16, 1024, 4, 32), 73_056),
    ],
)
def test_tiles_of_few_rows_are_made_one_by_one(chip: str, kind: str, shape: tuple[int, ...], cycles: int) -> None:
    """Masks of experts by the compiler's own cycles: what is copied was sent, which v5p has in the large memory."""
    speed = speed_of(catalogue()[chip])
    read = shape if kind == TURNED_COPY else (shape[0], shape[1], shape[3])
    op = Op(kind=kind, operands=(0,), results=(1,), attributes={TILE_ROWS: shape[2]})
    graph = Graph(values=(Value(read, "f32"), Value(shape, "f32")), ops=(op,), arguments=(0,), results=(1,))
    work = work_of(graph, Kernel(ops=(0,), reads=(0,), writes=(1,)))
    took = cycles_of(work, (chip != "v5p",), (chip != "v5p",), speed.edge, speed.coefficients)
    assert took.total == pytest.approx(cycles, rel=0.2)
