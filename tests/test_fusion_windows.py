"""Windows put beside each other: copies that the compiler fuses nothing to."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import TURNED_COPY

Shape = tuple[int, ...]


def cut(whole: Shape, parts: Shape, order: Shape, joined: Shape, features: int) -> Graph:
    """What is computed of an image, cut into windows and multiplied."""
    turned = tuple(parts[dim] for dim in order)
    shapes = (whole, (joined[-1], features), whole, parts, turned, joined, (*joined[:-1], features))
    said = {"lhs_contracting_dimensions": (len(joined) - 1,), "rhs_contracting_dimensions": (0,)}
    ops = (
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind="reshape", operands=(2,), results=(3,)),
        Op(kind="transpose", operands=(3,), results=(4,), attributes={"permutation": order}),
        Op(kind="reshape", operands=(4,), results=(5,)),
        Op(kind="dot_general", operands=(5, 1), results=(6,), attributes=said),
    )
    return Graph(values=tuple(Value(shape, "bf16") for shape in shapes), ops=ops, arguments=(0, 1), results=(6,))


WINDOWS = (2, 32, 32, 256), (2, 4, 8, 4, 8, 256), (0, 1, 3, 2, 4, 5), (32, 64, 256), 512
AXES = (4, 32, 32, 128), (4, 8, 4, 8, 4, 128), (0, 2, 4, 1, 3, 5), (64, 64, 128), 256
MERGED = (4, 32, 32, 128), (4, 16, 2, 16, 2, 128), (0, 1, 3, 2, 4, 5), (4, 16, 16, 512), 256
HEADS = (256, 512), (4, 64, 4, 128), (0, 2, 1, 3), (16, 64, 128), 64
SPLIT = (4, 64, 512), (4, 64, 4, 128), (0, 2, 1, 3), (16, 64, 128), 64


def copies(graph: Graph) -> list[int]:
    program = fuse(graph)
    moved = [number for number, op in enumerate(program.graph.ops) if op.kind == TURNED_COPY]
    return [number for number in moved if any(kernel.ops == (number,) for kernel in program.kernels)]


@pytest.mark.parametrize("windows", [WINDOWS, AXES, MERGED, HEADS])
def test_windows_beside_each_other_are_copied_by_themselves(windows: tuple[Shape, Shape, Shape, Shape, int]) -> None:
    assert len(copies(cut(*windows))) == 1


def test_what_has_a_layout_as_it_was_and_as_it_is_is_no_copy() -> None:
    """Heads of rows of tokens, side by side with the rows: tokens may lie outside of both."""
    assert not copies(cut(*SPLIT))


def test_pictures_are_left_to_those_that_count_their_copies() -> None:
    """Patches of few features, which do not stay on the lanes."""
    assert not copies(cut((8, 32, 32, 3), (8, 4, 8, 4, 8, 3), (0, 1, 3, 2, 4, 5), (8, 16, 192), 256))


@pytest.mark.parametrize(
    ("name", "windows", "compiled_us"),
    [
        ("v5e", WINDOWS, 4.22), ("v4", WINDOWS, 7.95), ("v5e", AXES, 4.31), ("v4", AXES, 10.57), ("v3", AXES, 11.10),
        ("v5e", MERGED, 13.26), ("v4", MERGED, 23.68),
    ],
)  # fmt: skip
def test_a_copy_of_windows_takes_what_it_takes_compiled(
    name: str, windows: tuple[Shape, Shape, Shape, Shape, int], compiled_us: float
) -> None:
    """The larger ones are of two rows a tile, moved one by one: parts of two places by two."""
    graph = cut(*windows)
    (copied,) = copies(graph)
    (found,) = (each for each in price(fuse(graph), catalogue()[name]) if each.kernel.ops == (copied,))
    assert found.seconds * 1e6 == pytest.approx(compiled_us, rel=0.27)
