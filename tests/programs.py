"""Small programs of kernels for tests."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.memory.tensors.tiles import padded_bytes

CONVOLVED = {
    "input_batch_dimension": 0,
    "input_feature_dimension": 3,
    "input_spatial_dimensions": (1, 2),
    "kernel_input_feature_dimension": 2,
    "kernel_output_feature_dimension": 3,
    "kernel_spatial_dimensions": (0, 1),
    "output_batch_dimension": 0,
    "output_feature_dimension": 3,
    "output_spatial_dimensions": (1, 2),
    "padding": ((1, 1), (1, 1)),
}
"""The dims of images by batch, rows, columns and features, and of their kernels, features last."""

KERNEL_GRADIENT = CONVOLVED | {
    "input_batch_dimension": 3,
    "input_feature_dimension": 0,
    "kernel_input_feature_dimension": 0,
    "kernel_spatial_dimensions": (1, 2),
    "output_batch_dimension": 2,
    "output_spatial_dimensions": (0, 1),
}
"""The same of the gradient of such a kernel: images are convolved with each other."""


def program(
    shapes: Sequence[tuple[int, ...]],
    kernels: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]],
    arguments: tuple[int, ...],
    results: tuple[int, ...],
    dtype: str = "f32",
    **graph: object,
) -> Program:
    """A program of kernels of one operation each: (kind, reads, writes) by the values' numbers."""
    ops = tuple(Op(kind=kind, operands=reads, results=writes) for kind, reads, writes in kernels)
    return of_ops(tuple(Value(shape, dtype) for shape in shapes), ops, arguments, results, **graph)


def of_ops(
    values: tuple[Value, ...],
    ops: tuple[Op, ...],
    arguments: tuple[int, ...],
    results: tuple[int, ...],
    **graph: object,
) -> Program:
    """A program with a kernel for each operation."""
    made = Graph(values=values, ops=ops, arguments=arguments, results=results, **graph)  # type: ignore[arg-type]
    kernels = tuple(
        Kernel(
            ops=(number,),
            reads=tuple(dict.fromkeys(op.operands)),
            writes=op.results,
            bodies=tuple(of_ops(body.values, body.ops, body.arguments, body.results) for body in op.bodies),
        )
        for number, op in enumerate(ops)
    )
    return Program(graph=made, kernels=kernels)


def form_bytes(graph: Graph, number: int) -> int:
    """Bytes of a value that its shape and dtype alone decide."""
    return padded_bytes(graph.values[number])
