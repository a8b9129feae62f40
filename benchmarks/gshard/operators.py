"""The operators of Table 4, each as a function and a plan for any number of partitions.

Each operator is a small JAX function under a plan that splits the underlined dims over all D cores; those dims that the
paper has as O(D) grow with D. What grows is read off the estimate: nothing is said of it here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from meshwright.backends.jax.annotate import propagation_barrier
from meshwright.backends.jax.models.moe.dispatch.einsum import dispatch
from meshwright.dsl.plan import Plan
from meshwright.dsl.reader import loads

MACHINES = {32: "v3:4x4", 128: "v3:8x8", 512: "v3:16x16", 2048: "v3:32x32"}
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A row of Table 4. ``grows`` and ``moves`` are the paper's powers of D, ``moves`` None where nothing moves."""

    name: str
    run: Callable[..., jax.Array]
    shapes: Callable[[int], Shapes]
    rules: tuple[str, ...]
    grows: float
    moves: float | None
    by: str = ""
    masks: bool = False
    """Whether the first operand is a mask."""
    beyond: str = ""
    """What the compiler writes for it that estimates do not have, by the kernels of what it compiled."""

    def args(self, partitions: int) -> tuple[jax.ShapeDtypeStruct, ...]:
        dtypes = [jnp.bool_ if self.masks and position == 0 else jnp.float32 for position in range(len(self.rules))]
        return tuple(jax.ShapeDtypeStruct(shape, d) for shape, d in zip(self.shapes(partitions), dtypes, strict=False))

    def plan(self, partitions: int) -> Plan:
        *operands, out = self.rules
        rules = "\n".join(f"  {name}: {rule}" for name, rule in (*zip("ab", operands, strict=False), ("out", out)))
        head = f"meshwright: 1\ntopology: {MACHINES[partitions]}\nmesh: {{d: {partitions}}}"
        return loads(f"{head}\ntensors:\n{rules}\n", "operator.yaml")

    def step(self) -> Callable[..., jax.Array]:
        """A function of operands named ``a`` and ``b``, new each time."""
        if len(self.rules) == 2:
            return lambda a: self.run(a)
        return lambda a, b: self.run(a, b)


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b


def convolve(a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(a, b, (1, 1), "SAME", dimension_numbers=("NCHW", "HWIO", "NCHW"))


OPERATORS = (
    Operator(
        name="Add(A̲,A̲→A̲)",
        run=jnp.add,
        shapes=lambda d: ((d * 2**20,), (d * 2**20,)),
        rules=("A@d", "A@d", "A@d"),
        grows=0,
        moves=None,
    ),
    Operator(
        name="Matmul(AB̲,B̲C→AC)",
        run=matmul,
        shapes=lambda d: ((2048, 512 * d), (512 * d, 2048)),
        rules=("A B@d", "B@d C", "A C"),
        grows=0,
        moves=0,
        by="AR",
    ),
    Operator(
        name="Matmul(A̲B,BC→A̲C)",
        run=matmul,
        shapes=lambda d: ((512 * d, 2048), (2048, 2048)),
        rules=("A@d B", "B C", "A@d C"),
        grows=0,
        moves=None,
    ),
    Operator(
        name="Matmul(A̲B,B̲C→A̲C)",
        run=matmul,
        shapes=lambda d: ((256 * d, 64 * d), (64 * d, 512)),
        rules=("A@d B", "B@d C", "A@d C"),
        grows=1,
        moves=1,
        by="AG or CP",
    ),
    Operator(
        name="Matmul(A̲B,BC̲→A̲C̲)",
        run=matmul,
        shapes=lambda d: ((256 * d, 512), (512, 128 * d)),
        rules=("A@d B", "B C@d", "A@d C"),
        grows=1,
        moves=1,
        by="AG or CP",
    ),
    Operator(
        name="Reduce(A̲B→A̲)",
        run=lambda a: a.sum(1),
        shapes=lambda d: ((256 * d, 4096),),
        rules=("A@d B", "A@d"),
        grows=0,
        moves=None,
    ),
    Operator(
        name="Reduce(A̲B→B)",
        run=lambda a: a.sum(0),
        shapes=lambda d: ((8 * d, 2**20),),
        rules=("A@d B", "B"),
        grows=0,
        moves=0,
        by="AR",
    ),
    Operator(
        name="Einsum(GSEC,GSM→EGCM)",
        run=lambda a, b: propagation_barrier(dispatch(a, b), allowed="forward"),
        shapes=lambda d: ((d, 2048, d, 4096 // d), (d, 2048, 1024)),
        rules=("G@d S E C", "G@d S M", "E@d G C M"),
        grows=0,
        moves=0.5,
        by="AA",
        masks=True,
        beyond="a mask that is given with few places (C = 8 at 512) is copied with S on the lanes, in 0.25 ms",
    ),
    Operator(
        name="Convolution(BIXY,xyIO→BOXY)",
        run=convolve,
        shapes=lambda d: ((8, 128, 16 * d, 128), (3, 3, 128, 128)),
        rules=("B I X@d Y", "x y I O", "B O X@d Y"),
        grows=0,
        moves=0,
        by="CP",
        beyond="images with Y on the lanes are turned for the convolution and back, and what neighbours send is "
        "written beside a device's own rows, in 0.30 ms; the convolution itself takes 0.087",
    ),
)
