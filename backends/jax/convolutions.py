"""Convolutions that XLA's partitioner computes wrongly, and the same as matrix products, which it computes right.

Where a dim that the window runs over is split, and some axis of the mesh is left over, the partitioner may add partial
results over all devices instead of those that hold different parts: kernels' gradients, and forward results too, are
then too large by a whole factor (seen with jaxlib 0.10.2 on CPUs; the partitioner is the same for every platform).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from ...planner.convolution_layout import ConvolutionLayout, reaches
from .axis_order import Order
from .constrain import Constraints, Region, beside, rewrite
from .lowered.convolution_layouts import convolution_layouts

WHOLE_KERNELS = (
    "Convolutions read their kernels, and make their gradients, whole along the window: under these layouts XLA's "
    "partitioner adds their parts up wrongly otherwise. Splitting kernels along features alone avoids the difference."
)
AS_PRODUCTS = (
    "Convolutions are computed as sums of matrix products: under these layouts XLA's partitioner adds their parts up "
    "wrongly. Splitting batch or feature dims over the axes that are left avoids it."
)


def is_convolution(equation: JaxprEqn) -> bool:
    """Whether this equation is a convolution."""
    return bool(equation.primitive.name == "conv_general_dilated")


def partitioned_wrongly(lowered: Any, mesh: Mesh | AbstractMesh) -> bool:
    """Whether the partitioner may get some convolution of this lowered step (``jax.stages.Lowered``) wrong."""
    return len(_used(mesh)) > 1 and not are_safe(convolution_layouts(lowered), mesh)


def are_safe(layouts: Sequence[ConvolutionLayout], mesh: Mesh | AbstractMesh) -> bool:
    """Whether the partitioner gets all convolutions of these layouts right."""
    return all(layout.is_safe(_used(mesh)) for layout in layouts)


def _used(mesh: Mesh | AbstractMesh) -> set[str]:
    return {name for name, size in mesh.shape.items() if size > 1}


def with_whole_kernels(jaxpr: ClosedJaxpr, mesh: Mesh | AbstractMesh, order: Order) -> ClosedJaxpr:
    """The same step whose convolutions' kernels lie whole along the window, gradients too, whatever is made of them."""

    inside: set[int] = set()
    made = Constraints(order)

    def note(equation: JaxprEqn, region: Region | None) -> None:
        if region is not None:
            inside.add(id(equation))

    def is_meant(equation: JaxprEqn) -> bool:
        return is_convolution(equation) and id(equation) not in inside

    def whole(equation: JaxprEqn, variable: Any, spec: Sequence[int]) -> JaxprEqn:
        free = (None if dim in spec[2:] else PartitionSpec.UNCONSTRAINED for dim in range(len(spec)))
        return beside(equation, variable, "kernel", NamedSharding(mesh, PartitionSpec(*free)), made)

    def precede(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        if not is_meant(equation) or operator.gt(*_reaches(equation)):
            return []
        return [(1, whole(equation, equation.invars[1], equation.params["dimension_numbers"].rhs_spec))]

    def follow(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        if not is_meant(equation) or operator.lt(*_reaches(equation)):
            return []
        return [(0, whole(equation, equation.outvars[0], equation.params["dimension_numbers"].out_spec))]

    return rewrite(jaxpr, note, follow, precede)


def _reaches(equation: JaxprEqn) -> tuple[int, int]:
    """How much of an image a convolution's kernel covers, and how much its result."""
    given, numbers = equation.params, equation.params["dimension_numbers"]
    kernel, result = equation.invars[1].aval.shape, equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    inside, made = [kernel[dim] for dim in numbers.rhs_spec[2:]], [result[dim] for dim in numbers.out_spec[2:]]
    return reaches(inside, given["rhs_dilation"], made, given["window_strides"])


def without_convolutions(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """The same step with matrix products in place of its convolutions."""

    def replace(equation: JaxprEqn, region: Region | None) -> JaxprEqn | None:
        return _as_products(equation) if is_convolution(equation) and region is None else None

    return rewrite(jaxpr, replace)


def _as_products(equation: JaxprEqn) -> JaxprEqn:
    """The same convolution as a sum of matrix products of shifted operands, in the place of ``equation``."""
    dtype = equation.outvars[0].aval.dtype  # type: ignore[attr-defined]
    return _in_place_of(equation, lambda inputs, kernel: _convolve(inputs, kernel, equation.params).astype(dtype))


def _in_place_of(equation: JaxprEqn, fun: Callable[[jax.Array, jax.Array], jax.Array]) -> JaxprEqn:
    """A call of ``fun`` with the operands and the result of ``equation``."""
    avals: list[Any] = [v.aval for v in equation.invars]
    operands = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    (call,) = jax.make_jaxpr(jax.jit(fun))(*operands).eqns
    return equation.replace(primitive=call.primitive, params=call.params)  # type: ignore[no-any-return]


def _convolve(inputs: jax.Array, kernel: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    """The convolution with these parameters of ``jax.lax.conv_general_dilated_p``."""
    numbers = params["dimension_numbers"]
    spread = [
        (low, high, step - 1) for (low, high), step in zip(params["padding"], params["lhs_dilation"], strict=True)
    ]
    inputs = jnp.transpose(inputs, numbers.lhs_spec)  # batch, features, window dims
    inputs = jax.lax.pad(inputs, jnp.zeros((), inputs.dtype), [(0, 0, 0), (0, 0, 0), *spread])
    kernel = jnp.transpose(kernel, numbers.rhs_spec)  # outputs, features, window dims
    by_feature, by_batch = params["feature_group_count"], params["batch_group_count"]
    inputs = _grouped(inputs, 1, by_feature) if by_feature > 1 else _grouped(inputs, 0, by_batch)
    result = _products(inputs, _grouped(kernel, 0, max(by_feature, by_batch)), params)
    result = jnp.moveaxis(result, 0, 1)  # batch, groups, outputs, window dims
    result = result.reshape(result.shape[0], -1, *result.shape[3:])
    return jnp.transpose(result, np.argsort(numbers.out_spec).tolist())


def _grouped(x: jax.Array, dim: int, groups: int) -> jax.Array:
    """``x`` with dim ``dim`` cut into groups, which stand first."""
    cut = x.reshape(*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :])
    return jnp.moveaxis(cut, dim, 0)


def _products(inputs: jax.Array, kernel: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    """(groups, batch, outputs, window dims); a product for each place in the kernel or in the result, the fewer."""
    strides, steps = params["window_strides"], params["rhs_dilation"]
    places = kernel.shape[3:]
    reach = [(n - 1) * step + 1 for n, step in zip(places, steps, strict=True)]
    sizes = tuple((n - r) // s + 1 for n, r, s in zip(inputs.shape[3:], reach, strides, strict=True))
    if math.prod(places) <= math.prod(sizes):
        shifted = ((_shifted(inputs, at, steps, sizes, strides), kernel[(..., *at)]) for at in np.ndindex(*places))
        terms = [_product(a, b, params) for a, b in shifted]
        summed = sum(terms[1:], terms[0])  # before dims move, that the compiler adds up the devices' parts but once
        return jnp.moveaxis(summed, -1, 2)
    windows = (_shifted(inputs, at, strides, places, steps) for at in np.ndindex(*sizes))
    results = [jnp.moveaxis(_product(window, kernel, params), -1, 2) for window in windows]
    return jnp.stack(results, axis=-1).reshape(*results[0].shape, *sizes)


def _shifted(
    x: jax.Array, at: Sequence[int], unit: Sequence[int], counts: Sequence[int], strides: Sequence[int]
) -> jax.Array:
    """``counts`` numbers of each window dim of ``x``, ``strides`` apart, from ``at`` in steps of ``unit``."""
    begin = [place * step for place, step in zip(at, unit, strict=True)]
    end = [b + (count - 1) * stride + 1 for b, count, stride in zip(begin, counts, strides, strict=True)]
    return jax.lax.slice(x, (0, 0, 0, *begin), (*x.shape[:3], *end), (1, 1, 1, *strides))


def _product(a: jax.Array, b: jax.Array, params: Mapping[str, Any]) -> jax.Array:
    """(groups, batch, features, ...) by (groups, outputs, features, ...), in float32 at least; outputs last."""
    summed = tuple(range(2, b.ndim))
    wanted = jnp.promote_types(a.dtype, jnp.float32) if jnp.issubdtype(a.dtype, jnp.floating) else None
    return jax.lax.dot_general(
        a, b, ((summed, summed), ((0,), (0,))), precision=params["precision"], preferred_element_type=wanted
    )
