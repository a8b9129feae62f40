"""Products spread over loops of permutes: every turn multiplies its own parts, as the TPU compiler's loops do."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.dsl.machine import parse_topology
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, COLLECTIVE_PERMUTE
from meshwright.planner.memory.fast.accessed import matrix_flops
from meshwright.planner.partition.builder import Builder
from meshwright.planner.partition.looped import in_loop
from meshwright.planner.partition.target import target
from meshwright.planner.partition.windows import Window, gather_body, sum_body, turns
from meshwright.planner.topology import physical

ROWS, DEPTH, COLUMNS = 512, 256, 1024
SUMMED = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
PLAIN = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}


def turn(body: Graph) -> Program:
    """A turn's kernels, after everything that is the same is computed once."""
    return fuse(body)


def flops(program: Program) -> float:
    return sum(matrix_flops(program.graph, program.graph.ops[op]) for kernel in program.kernels for op in kernel.ops)


def permutes(program: Program) -> int:
    return sum(program.graph.ops[kernel.ops[-1]].kind == COLLECTIVE_PERMUTE for kernel in program.kernels)


@pytest.mark.parametrize("parts", [2, 4, 8, 16])
def test_a_loop_that_sums_multiplies_as_much_as_the_product(parts: int) -> None:
    """The gradient of a weight: both operands whole rows, the result's columns one device's."""
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=SUMMED)
    window = Window(axes=("x",), parts=parts, moving=None, dims=(None, 1, 1))
    left, right = Value((ROWS, DEPTH), "bf16"), Value((ROWS, COLUMNS), "bf16")
    program = turn(sum_body(op, window, left, right, Value((DEPTH, COLUMNS // parts), "f32")))
    assert turns(parts)[0] * flops(program) == 2 * ROWS * DEPTH * COLUMNS
    assert turns(parts)[0] * permutes(program) == parts
    later = sum_body(op, window, left, right, Value((DEPTH, COLUMNS // parts), "f32"), sends_zeros=False)
    assert turns(parts)[0] * permutes(turn(later)) == (parts - 2 if turns(parts)[0] == 1 else parts)


@pytest.mark.parametrize("parts", [2, 4, 8, 16])
def test_a_loop_that_gathers_multiplies_as_much_as_the_product(parts: int) -> None:
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=PLAIN)
    window = Window(axes=("x",), parts=parts, moving=1, dims=(1, 0, None))
    moved, other = Value((DEPTH // parts, COLUMNS), "bf16"), Value((ROWS, DEPTH), "bf16")
    program = turn(gather_body(op, window, moved, other, Value((ROWS, COLUMNS), "f32")))
    assert turns(parts)[0] * flops(program) == 2 * ROWS * DEPTH * COLUMNS
    assert turns(parts)[0] * permutes(program) == (parts if turns(parts)[0] > 1 else parts - 2)  # the last are not read


def test_each_half_of_a_product_of_two_parts_is_put_in_its_place_by_a_kernel_of_its_own() -> None:
    """A feed-forward layer whose weights' columns go round, compiled for v5p: two products and four updates a turn."""
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=PLAIN)
    window = Window(axes=("x",), parts=16, moving=1, dims=(None, 1, 1))
    moved, other = Value((DEPTH, COLUMNS // 16), "bf16"), Value((ROWS, DEPTH), "bf16")
    program = turn(gather_body(op, window, moved, other, Value((ROWS, COLUMNS), "bf16")))
    kinds = [{program.graph.ops[op].kind for op in kernel.ops} for kernel in program.kernels]
    assert sum("dot_general" in each for each in kinds) == 2
    assert kinds.count({"slice", "dynamic_update_slice"}) == 4


def test_partial_sums_are_added_behind_the_product_and_begin_with_nothing() -> None:
    """The kernels of a turn in a program compiled for v5e: two selections, then product, sum, product, sum."""
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=SUMMED)
    window = Window(axes=("x",), parts=8, moving=None, dims=(None, 1, 1))
    left, right = Value((ROWS, DEPTH), "bf16"), Value((ROWS, COLUMNS), "bf16")
    program = turn(sum_body(op, window, left, right, Value((DEPTH, COLUMNS // 8), "f32")))
    kinds = [{program.graph.ops[op].kind for op in kernel.ops} for kernel in program.kernels]
    assert sum("select" in each for each in kinds) == 2
    assert not any("dot_general" in each and "add" in each for each in kinds)
    (product, _) = (kernel for kernel, each in zip(program.kernels, kinds, strict=True) if "dot_general" in each)
    assert [program.graph.shape(value) for value in product.writes] == [(DEPTH, COLUMNS // 8 * 2)]


@pytest.mark.parametrize(("parts", "begins_with"), [(4, ["allocate"]), (8, ["constant", "broadcast_in_dim"])])
def test_a_loop_of_a_single_turn_begins_with_nothing(parts: int, begins_with: list[str]) -> None:
    """The compiler writes a single turn out, and no zeros for it."""
    builder = Builder({"x": parts})
    operands = [builder.value(Value(shape, "bf16")) for shape in ((ROWS, DEPTH), (ROWS, COLUMNS))]
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=SUMMED)
    window = Window(axes=("x",), parts=parts, moving=None, dims=(None, 1, 1))
    in_loop(builder, op, window, operands, Value((DEPTH, COLUMNS // parts), "f32"), SUMMED)
    kinds = [op.kind for op in builder.ops]
    assert kinds[: kinds.index("while")] == begins_with


def test_zeros_are_sent_once_for_all_single_turns_that_begin_with_the_like() -> None:
    """Seen for v5e: a product alone takes five permutes, two that leave parts of one shape eight together."""
    builder = Builder({"x": 4})
    operands = [builder.value(Value(shape, "bf16")) for shape in ((ROWS, DEPTH), (ROWS, COLUMNS))]
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=SUMMED)
    window = Window(axes=("x",), parts=4, moving=None, dims=(None, 1, 1))
    for dtype in ("f32", "f32", "bf16"):
        in_loop(builder, op, window, operands, Value((DEPTH, COLUMNS // 4), dtype), SUMMED)
    sent = [sum(o.kind == COLLECTIVE_PERMUTE for o in op.bodies[0].ops) for op in builder.ops if op.bodies]
    assert sent == [4, 2, 4]


@pytest.mark.parametrize(
    ("topology", "begins_rows"),
    [("v4:2x2x1", (2224, 2320)), ("v4:2x2x4", (184, 208)), ("v5e:2x4", (1024, 1112)), ("v5p:2x2x2", (1024, 1112))],
)
def test_loops_begin_where_the_compiler_begins_them(topology: str, begins_rows: tuple[int, int]) -> None:
    """Bisected over the rows that a device has of a product with float32[1024, 4096] split over all devices."""
    machine = physical(parse_topology(topology))
    parts = math.prod(machine.sizes)
    begins = target("tpu", machine, parts).window_flops_per_byte
    assert begins is not None
    fewest, most = (rows / 2 * parts / 2 for rows in begins_rows)
    assert fewest <= begins <= most


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("topology", "split", "columns", "found"),
    [
        ("v4:2x2x2", 4, 4096, ALL_GATHER),
        ("v4:2x2x2", 4, 8192, COLLECTIVE_PERMUTE),
        ("v5p:2x2x4", 4, 8192, ALL_GATHER),
        ("v5p:2x2x4", 4, 10240, COLLECTIVE_PERMUTE),
        ("v5e:4x4", 4, 10240, COLLECTIVE_PERMUTE),
        ("v4:2x2x1", 2, 20480, ALL_GATHER),  # a single host
        ("v5e:2x2", 1, 20480, ALL_GATHER),
        ("v5p:2x2x1", 1, 20480, ALL_GATHER),
        ("v6e:2x2", 1, 65536, ALL_GATHER),
    ],
)
def test_four_parts_go_round_where_the_product_is_large_enough(
    topology: str, split: int, columns: int, found: str
) -> None:
    """Of a product with a gathered operand, by how many columns the other has."""
    lines = f"  x: D0s1024@x D1s512@y\n  w: D0s512 D1s{columns}@y\n  '**': infer\n"
    mesh = f"mesh: {{x: {split}, y: 4}}\n"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\n{mesh}tensors:\n" + lines)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1024, 512), (512, columns))]
    seen = mw.verify(plan, jax.jit(lambda x, w: jnp.tanh(x @ w)), args)
    for each in (seen.predicted, seen.compiled):
        assert {c.kind for c in each.collectives if c.total_bytes >= 2**15} == {found}
