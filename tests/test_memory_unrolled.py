"""Products of what lies in vector memory are one window, or few, whose code has an instruction for every row."""

from __future__ import annotations

import importlib.util

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
import small_steps
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.products import Product
from meshwright.planner.graph import Op, Value
from meshwright.planner.memory.level import level
from meshwright.planner.memory.order.schedule import put_in_order
from meshwright.planner.memory.unrolled import unrolled_bytes, window_rows
from programs import of_ops

MIB = 1 << 20


@pytest.mark.parametrize(("rows", "depth", "columns", "kind_of_chip", "windows"), [
    (1024, 2560, 1024, "v5e", 1),
    (1024, 3072, 1024, "v5e", 2),
    (1024, 4096, 1024, "v5e", 3),
    (2304, 512, 1024, "v5e", 1),
    (4096, 1024, 1024, "v5e", 3),
    (1024, 6144, 1024, "v6e", 1),
    (1024, 7168, 1024, "v6e", 2),
    (2048, 2048, 2048, "v6e", 2),
    (4096, 256, 2048, "v6e", 3),
    (4096, 2048, 2048, "v6e", 4),
])  # fmt: skip
def test_windows_are_as_many_as_compiled(rows: int, depth: int, columns: int, kind_of_chip: str, windows: int) -> None:
    """As the compiler prints them of products alone, but of the third, which it cuts into four."""
    chip = catalogue()[kind_of_chip]
    product = Product(batch=1, rows=rows, columns=columns, depth=depth, passes=1, dtype="bf16")
    edge = chip.matrix_unit.edge if chip.matrix_unit else 0
    assert chip.whole_product is not None
    whole = rows * depth * columns / edge**2
    assert window_rows(product, edge, chip.whole_product) == pytest.approx(whole / windows)


def longer(kind_of_chip: str, *, dtype: str = "f32", sent: bool = False) -> int:
    """What the code of a product is longer whose operands are made before and whose result is read after it; if it is
    not a result of the program itself (``sent``).
    """
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    left, right, made = Value((1024, 2048), "bf16"), Value((2048, 1024), "bf16"), Value((1024, 1024), dtype)
    ops = (
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind="tanh", operands=(1,), results=(3,)),
        Op(kind="dot_general", operands=(2, 3), results=(4,), attributes=said),
        Op(kind="sort", operands=(4,), results=(5,)),
    )
    program = of_ops((left, right, left, right, made, made), ops, (0, 1), (4,) if sent else (5,))
    chip = catalogue()[kind_of_chip]
    return unrolled_bytes(level(put_in_order(program, chip), chip), chip)


def test_only_products_of_what_lies_near_are_unrolled() -> None:
    assert longer("v5e") == pytest.approx(1.22 * MIB, rel=0.1)
    assert longer("v6e") == pytest.approx(0.08 * MIB, rel=0.2)
    assert longer("v5e", sent=True) == longer("v6e", sent=True) == 0
    assert longer("v3") == longer("v5p") == 0


def test_v5e_has_a_product_whole_that_is_not_rounded() -> None:
    assert longer("v5e", dtype="bf16") == 0
    assert longer("v6e", dtype="bf16") == longer("v6e")


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
@pytest.mark.parametrize("topology", ["v5e:2x4", "v6e:2x4"])
def test_code_of_what_lies_near_is_as_long_as_compiled(topology: str) -> None:
    """Of four products in turn, each added to what it is made of: on v5e twice as long as is usual."""

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        w = jax.lax.optimization_barrier(jnp.tanh(w))
        for _ in range(4):
            x = x + jnp.maximum(x, 0) @ w
        return jnp.sum(x * x)

    args = (small_steps.shape(1024, 1024), small_steps.shape(1024, 1024))
    tensors = "  x: _ _\n  w: _ _\n  out: replicate\n"
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{x: 8}}\ntensors:\n{tensors}")
    compiled = mw.apply(plan, step, args).lower(*args).compile().memory_analysis().generated_code_size_in_bytes
    assert mw.estimate(plan, step, args).memory.code_bytes == pytest.approx(compiled, rel=0.3)
