"""What a program holds: liveness against a direct count, loops, donation, kinds, the points that can bind."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Graph, Op, Origin, Value
from meshwright.planner.kernels import Program
from meshwright.planner.memory import dominant_points, memory
from meshwright.planner.memory.flow.flow import flow
from meshwright.planner.memory.flow.liveness import lifetimes, live_bytes, scheduled_peak_bytes
from meshwright.planner.memory.kinds import BATCH, GRADIENTS, SAVED, TRANSIENTS, WEIGHTS, argument_kind
from meshwright.planner.memory.order.combined import combined
from meshwright.planner.memory.order.orders import depth_first_order, list_order, post_order
from meshwright.planner.memory.order.schedule import schedule
from meshwright.planner.memory.tensors.tiles import bytes_gathered, padded_bytes
from programs import form_bytes, of_ops, program

MIB = 2**20


@st.composite
def random_programs(draw: st.DrawFn) -> Program:
    """Programs in which each kernel reads any of the values before it; every third value or so is a result."""
    arguments = draw(st.integers(1, 3))
    count = draw(st.integers(1, 9))
    kernels = []
    for number in range(arguments, arguments + count):
        reads = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3, unique=True))
        kind = draw(st.sampled_from(["add", "exponential", "dot_general", "all-reduce", "reshape"]))
        kernels.append((kind, tuple(reads), (number,)))
    rows = draw(st.lists(st.sampled_from([8, 16, 64]), min_size=arguments + count, max_size=arguments + count))
    made = range(arguments, arguments + count)
    results = draw(st.lists(st.sampled_from(made), min_size=1, unique=True))
    return program([(size, 128) for size in rows], kernels, tuple(range(arguments)), tuple(results))


def directly_live(flowing: object, order: list[int], point: int) -> int:
    """Bytes live at a point, counted buffer by buffer: made by now, and still read or a result."""
    total = 0
    for buffer, num_bytes in flowing.num_bytes.items():  # type: ignore[attr-defined]
        made = order.index(flowing.maker[buffer])  # type: ignore[attr-defined]
        reads = [order.index(k) for k, read in enumerate(flowing.reads) if buffer in read]  # type: ignore[attr-defined]
        needed = len(order) - 1 if buffer in flowing.held else max([made, *reads])  # type: ignore[attr-defined]
        if made <= point <= needed:
            total += num_bytes
    return total


@given(random_programs())
def test_live_bytes_are_those_of_every_buffer_counted_alone(made: Program) -> None:
    found = flow(made, form_bytes, lambda _: 0)
    found = replace(found, places=((),) * len(made.kernels))
    for order in (list_order(found), depth_first_order(found), post_order(found)):
        expected = [directly_live(found, order, point) for point in range(len(order))]
        assert live_bytes(found, order) == expected


@given(random_programs())
def test_every_order_runs_each_kernel_once_after_what_it_reads(made: Program) -> None:
    found = flow(made, form_bytes, lambda _: 0)
    for order in (list_order(found), depth_first_order(found), post_order(found)):
        assert sorted(order) == list(range(len(made.kernels)))
        at = {kernel: point for point, kernel in enumerate(order)}
        assert all(at[found.maker[v]] < at[k] for k, values in enumerate(found.operands) for v in values)


@given(random_programs())
def test_the_schedule_is_the_best_of_the_three_orders(made: Program) -> None:
    """Where no sums over devices are made one (``test_memory_combined`` has those)."""
    found = flow(made, form_bytes, lambda _: 0)
    assume(not combined(made, found))
    orders = (list_order(found), depth_first_order(found), post_order(found))
    scheduled = flow(schedule(made), form_bytes, lambda _: 0)
    peak = scheduled_peak_bytes(scheduled, range(len(made.kernels)))
    assert peak == min(scheduled_peak_bytes(found, order) for order in orders)


@given(random_programs())
@settings(deadline=None)
def test_the_kinds_add_up_to_the_peak_and_the_heap_holds_what_is_live(made: Program) -> None:
    held = memory(made)
    assert sum(held.bytes_by_kind.values()) == held.peak_bytes
    assert all(num_bytes >= 0 for num_bytes in held.bytes_by_kind.values())
    assert all(point.num_bytes <= held.temp_bytes for point in held.points)
    arguments = len(made.graph.arguments)
    temporaries = sum(tensor.num_bytes for tensor in held.tensors) - sum(
        made.graph.values[v].num_bytes for v in range(arguments)
    )
    assert held.peak is not None
    assert temporaries == held.peak.num_bytes


@given(random_programs())
@settings(deadline=None)
def test_points_that_no_other_dominates_are_the_maximal_sets_of_live_buffers(made: Program) -> None:
    held = memory(made)
    last = range(len(made.kernels))
    inherited = set(held.level.heirs.values())
    ends = {b: span[1] - (b in inherited) for b, span in held.level.spans.items()}
    sets = {frozenset(((), b) for b, s in held.level.spans.items() if s[0] <= point <= ends[b]) for point in last}
    maximal = {one for one in sets if one and not any(one < other for other in sets)}
    assert set(dominant_points(held.level)) == maximal


def test_a_reshape_takes_no_memory_and_keeps_what_it_views_alive() -> None:
    made = program(
        [(128, 128), (128, 128), (16384,), (128, 128), (16384,)],
        [("dot_general", (0,), (1,)), ("reshape", (1,), (2,)), ("dot_general", (0,), (3,)), ("sort", (2,), (4,))],
        arguments=(0,),
        results=(3, 4),
    )
    found = flow(made, form_bytes, lambda _: 0)
    assert set(found.num_bytes) == {1, 3, 4}
    assert lifetimes(found, range(4))[1] == (0, 3)


def test_an_all_reduce_lies_where_its_operand_did_and_an_all_to_all_does_not() -> None:
    def temporaries(kind: str) -> int:
        kernels = [("dot_general", (0,), (1,)), (kind, (1,), (2,)), ("dot_general", (2,), (3,))]
        held = memory(program([(1024, 1024)] * 4, kernels, (0,), (3,)))
        return max(point.num_bytes for point in held.points)

    assert temporaries("all-reduce") == 4 * MIB
    assert temporaries("all-to-all") == 8 * MIB


def test_what_is_computed_number_by_number_takes_the_place_of_an_operand() -> None:
    def temporaries(kind: str) -> int:
        kernels = [("dot_general", (0,), (1,)), (kind, (1, 0), (2,)), ("dot_general", (2,), (3,))]
        held = memory(program([(1024, 1024)] * 4, kernels, (0,), (3,)))
        return max(point.num_bytes for point in held.points)

    assert temporaries("add") == temporaries("select") == 4 * MIB
    assert temporaries("dot_general") == 8 * MIB


def test_one_of_several_results_gives_its_place_to_none() -> None:
    """Its readers take it out of a tuple, and the compiler looks no further."""

    def temporaries(made: tuple[int, ...]) -> int:
        kernels = [("sort", (0,), made), ("add", (1, 0), (3,)), ("dot_general", (3, *made[1:]), (4,))]
        held = memory(program([(1024, 1024)] * 5, kernels, (0,), (4,)))
        return max(point.num_bytes for point in held.points)

    assert temporaries((1,)) == 4 * MIB
    assert temporaries((1, 2)) == 12 * MIB


def test_what_is_scattered_into_gives_its_place_to_nothing_else() -> None:
    def temporaries(kind: str) -> int:
        kernels = [
            ("dot_general", (0,), (1,)),
            ("dynamic_update_slice", (1, 0), (2,)),
            (kind, (2, 0), (3,)),
            ("dot_general", (3,), (4,)),
        ]
        held = memory(program([(1024, 1024)] * 5, kernels, (0,), (4,)))
        return max(point.num_bytes for point in held.points)

    assert temporaries("add") == 8 * MIB
    assert temporaries("dynamic_update_slice") == 4 * MIB


def test_what_is_scattered_into_what_is_filled_for_it_gives_its_place_to_nothing() -> None:
    """As a table's gradient: the kernel fills it with zeros first, which makes it a buffer that is written into."""

    def temporaries(kind: str) -> int:
        kernels = [(kind, (0,), (1,)), ("add", (1, 0), (2,)), ("dot_general", (2,), (3,))]
        held = memory(program([(1024, 1024)] * 4, kernels, (0,), (3,)))
        return max(point.num_bytes for point in held.points)

    assert temporaries("scatter") == 8 * MIB
    assert temporaries("dot_general") == 4 * MIB


@pytest.mark.parametrize(
    ("name", "num_bytes"), [("v3", 4 * 136 * 1152), ("cpu", 4 * 130 * 1030), ("h100", 4 * 130 * 1030)]
)
def test_only_tpus_fill_up_tiles(name: str, num_bytes: int) -> None:
    """A DLRM's tables by rows hold 76.9 MiB on CPUs, where 152.8 were predicted with tiles filled up, now 90.0."""
    made = program([(130, 1030)] * 3, [("dot_general", (0,), (1,)), ("dot_general", (1,), (2,))], (0,), (2,))
    said = memory(made, catalogue()[name])
    assert said.argument_bytes == said.output_bytes == pytest.approx(num_bytes, abs=512)
    assert said.temp_bytes == pytest.approx(num_bytes, rel=0.05)


def test_a_donated_argument_holds_the_result() -> None:
    kernels = [("multiply", (0, 1), (2,))]
    kept = memory(program([(1024, 1024)] * 3, kernels, (0, 1), (2,)))
    donated = memory(program([(1024, 1024)] * 3, kernels, (0, 1), (2,), aliases={0: 0}))
    assert (kept.argument_bytes, kept.output_bytes, kept.alias_bytes) == (8 * MIB, 4 * MIB, 0)
    assert donated.alias_bytes == 4 * MIB
    assert kept.peak_bytes - donated.peak_bytes == 4 * MIB


def loop(trips: int, *, late: bool = False) -> Program:
    """A loop that carries one tensor, makes two temporaries and multiplies by one that stays, of which a bfloat16 copy
    is made before it; ``late``: its carry is read while the new is made.
    """
    shape = Value((1024, 1024), "f32")
    body = Graph(
        values=(shape,) * 5,
        ops=(
            Op(kind="dot_general", operands=(0, 1), results=(2,)),
            Op(kind="dot_general", operands=(2, 1), results=(3,)),
            Op(kind="dot_general", operands=(2, 3, *((0,) if late else ())), results=(4,)),
        ),
        arguments=(0, 1),
        results=(4,),
    )
    ops = (
        Op(kind="exponential", operands=(0,), results=(2,)),
        Op(kind="while", operands=(2, 1), results=(3,), bodies=(body,), trips=trips),
        Op(kind="exponential", operands=(3,), results=(4,)),
    )
    return of_ops((shape,) * 5, ops, (0, 1), (4,))


def test_a_loop_holds_what_is_outside_and_what_its_body_holds_whatever_its_turns() -> None:
    held = memory(loop(4))
    inside = [point for point in held.points if len(point.path) == 2]
    assert max(point.num_bytes for point in inside) == 14 * MIB
    assert held.peak is not None
    assert held.peak.path[0] == 1
    assert held.peak_bytes == memory(loop(96)).peak_bytes


def test_a_carry_that_is_still_read_when_its_new_value_is_written_needs_another_place() -> None:
    peaks = [max(point.num_bytes for point in memory(loop(4, late=late)).points) for late in (False, True)]
    assert peaks == [14 * MIB, 18 * MIB]


def stacked(reader: str) -> Program:
    """A loop that takes a layer's weight out of a stack at each turn and reads it in one operation."""
    stack, weight, number = Value((4, 1024, 1024), "f32"), Value((1, 1024, 1024), "f32"), Value((), "s32")
    carry = Value((1024, 1024), "f32")
    body = Graph(
        values=(carry, stack, number, weight, carry),
        ops=(
            Op(kind="dynamic_slice", operands=(1, 2), results=(3,)),
            Op(kind=reader, operands=(0, 3), results=(4,)),
        ),
        arguments=(0, 1, 2),
        results=(4,),
    )
    ops = (
        Op(kind="exponential", operands=(0,), results=(3,)),
        Op(kind="while", operands=(3, 1, 2), results=(4,), bodies=(body,), trips=4),
        Op(kind="exponential", operands=(4,), results=(5,)),
    )
    return of_ops((carry, stack, number, carry, carry, carry), ops, (0, 1, 2), (5,), names=("x", "w", "i"))


def test_stacked_weights_that_only_products_read_are_copied_narrow_before_the_loop() -> None:
    multiplied, added = (memory(stacked(reader)) for reader in ("dot_general", "exponential"))
    copies = [t for t in multiplied.tensors if t.name == "narrow copy of w"]
    assert [(t.dtype, t.num_bytes) for t in copies] == [("bf16", 8 * MIB)]
    assert not [t for t in added.tensors if t.name.startswith("copy")]


def test_short_lived_tensors_stay_in_the_fast_memory_of_chips_that_have_one() -> None:
    kernels = [("dot_general", (n, 0), (n + 1,)) for n in range(3)]
    made = program([(1024, 1024)] * 4, kernels, (0,), (3,))
    v3, v5e = (memory(made, catalogue()[kind]) for kind in ("v3", "v5e"))
    assert v3.peak is not None
    assert v3.peak.num_bytes == 8 * MIB
    assert all(point.num_bytes == 0 for point in v5e.points)


def test_a_program_that_nearly_fills_the_chip_has_its_temporaries_where_results_will_lie() -> None:
    gib = (16384, 16384)
    products = [("dot_general", (n, 0), (n + 1,)) for n in range(3)]
    kernels = [*products, *(("exponential", (3,), (n,)) for n in range(4, 15))]
    roomy = memory(program([gib] * 15, kernels, (0,), tuple(range(6, 15))), catalogue()["v5p"])
    tight = memory(program([gib] * 15, kernels, (0,), tuple(range(4, 15))), catalogue()["v5e"])
    assert roomy.temp_bytes == 2 * 1024 * MIB
    assert tight.temp_bytes <= 1024 * MIB


def training_step() -> Program:
    """A layer forward, backward and its update, with the name stacks that JAX gives them."""
    weight, act = Value((1024, 1024), "f32"), Value((512, 1024), "f32")
    values = (weight, act, act, act, act, weight, weight)
    scopes = ("jvp()/dot_general", "jvp()/exp", "transpose(jvp())/mul", "transpose(jvp())/dot_general", "sub")
    made = (
        ("dot_general", (1, 0), (2,)),
        ("exponential", (2,), (3,)),
        ("divide", (3, 2), (4,)),
        ("dot_general", (1, 4), (5,)),
        ("subtract", (0, 5), (6,)),
    )
    ops = tuple(
        Op(kind=kind, operands=reads, results=writes, origin=Origin(scope=f"jit(step)/{scope}"))
        for (kind, reads, writes), scope in zip(made, scopes, strict=True)
    )
    return of_ops(values, ops, (0, 1), (6,), names=("params/w", "batch"))


def test_temporaries_are_told_apart_by_the_pass_that_makes_and_reads_them() -> None:
    held = memory(training_step(), argument_kinds=(WEIGHTS, BATCH))
    kinds = {kind for point in held.points for kind in point.bytes_by_kind}
    assert {SAVED, TRANSIENTS, GRADIENTS} <= kinds
    assert held.bytes_by_kind[WEIGHTS] == 4 * MIB
    assert held.bytes_by_kind[BATCH] == 2 * MIB
    assert {tensor.name for tensor in held.tensors} >= {"params/w", "batch"}


@pytest.mark.parametrize(
    ("path", "returned", "dtype", "kind"),
    [
        ("params/w", True, "float32", "weights"),
        ("opt_state/0/mu/w", True, "float32", "optimiser state"),
        ("state/mu/w", True, "bfloat16", "optimiser state"),
        ("params/mu", True, "float32", "weights"),
        ("tokens", False, "int32", "batch"),
        ("m", True, "bool", "batch"),
        ("opt_state/count", True, "int32", "optimiser state"),
    ],
)
def test_an_argument_is_what_its_name_its_return_and_its_dtype_say(
    path: str, returned: bool, dtype: str, kind: str
) -> None:
    assert argument_kind(path, returned, dtype) == kind


def test_the_largest_tensors_come_first() -> None:
    sizes = [tensor.num_bytes for tensor in memory(training_step()).tensors]
    assert all(first >= second for first, second in pairwise(sizes))


def test_what_is_gathered_lies_as_its_pieces_do() -> None:
    """A piece of 16 rows has its 64 numbers on the lanes, so the whole has, which pads them to 128."""
    whole = Value((64, 512, 16, 64), "bf16")
    assert bytes_gathered(Value((64, 16, 16, 64), "bf16"), whole) == 2 * padded_bytes(whole) == 2 * whole.num_bytes
    assert bytes_gathered(Value((64, 256, 16, 64), "bf16"), whole) == whole.num_bytes
