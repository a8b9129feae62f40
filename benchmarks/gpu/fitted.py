"""The catalogue's figures of a GPU (``measured:`` in ``chips.yaml``), from the programs of ``small`` alone.

A kernel is taken to need ``start + max(FLOPs / (share of the peak), bytes / (share of the bandwidth))``; shares are
medians over programs that are long beside their start, starts medians of what is left of short ones. Long products are
as one follows the other, as in a step: the few that the profiler sees come before the card's clocks fall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax
from meshwright.planner.catalogue import catalogue

from .case import Case
from .kept import Measured, Program
from .small import small

LONG_FLOPS, SHORT_FLOPS = 2**35, 2**33
PASSES = (
    "add f32 64 MiB each", "add f32 1024 MiB each", "gelu f32", "round f32", "sum of rows f32", "sum of columns f32",
    "sum of all f32", "softmax f32 65536x1024", "norm f32 65536x1024",
)  # fmt: skip
COMPUTED, TURNED = ("gelu bf16", "softmax bf16 1024x512x512"), "gsec,gsm->egcm f32 32x1024x32x64 32x1024x1024"
TURNED_FLOPS = 2.0 * 32 * 2048 * 1024 * 1024
OPERATIONS = 20
"""How many operations on each number the planner counts in each of ``COMPUTED``; the quicker counts. Where that
waits for memory, as on an H100, the share is what is reached at least.
"""
SHORT_PASS = "add f32 1 MiB each"
ROUNDS = 5
CHAINS = {"chain of 128 products bf16 128": 128, "chain of 128 products bf16 1024": 128}
DTYPES = {"bf16": "bfloat16", "f32": "tfloat32", "f32 highest": "float32"}


@dataclass(frozen=True, slots=True)
class Product:
    """One measured product of matrices."""

    dtype: str
    flops: float
    num_bytes: int
    seconds: float


def fitted(measured: Measured) -> dict[str, Any]:
    """The figures, as the catalogue has them."""
    cases = {case.name: case for case in small()}
    chip = catalogue()[measured.topology]
    programs = measured.programs
    peaks = {dtype: chip.peak_tflops[dtype] * 1e12 for dtype in DTYPES.values()}
    bandwidth = chip.hbm_bytes_per_s or math.nan
    start_s, product_start_s = 0.0, 0.0
    products = list(_products(programs, cases))
    for _ in range(ROUNDS):
        bytes_per_s = median(_bytes(cases[name]) / (programs[name].kernels_s - start_s) for name in PASSES)
        start_s = programs[SHORT_PASS].kernels_s - _bytes(cases[SHORT_PASS]) / bytes_per_s
        reached = {dtype: median(_reached(products, dtype, product_start_s)) for dtype in peaks}
        short = (each for each in products if each.flops < SHORT_FLOPS)
        left_s = (each.seconds - max(each.flops / reached[each.dtype], each.num_bytes / bytes_per_s) for each in short)
        product_start_s = median(left_s)
    turned = TURNED_FLOPS / programs[TURNED].products_s / peaks["tfloat32"]
    vector = max(_numbers(cases[name]) * OPERATIONS / programs[name].kernels_s for name in COMPUTED) / peaks["float32"]
    return {
        "matrix": {dtype: round(reached[dtype] / peak, 2) for dtype, peak in peaks.items()},
        "turned": {"tfloat32": round(turned, 2)},
        "memory": round(bytes_per_s / bandwidth, 2),
        "vector": round(vector, 2),
        "start_us": round(start_s * 1e6, 1),
        "product_start_us": round(product_start_s * 1e6, 1),
    }


def _reached(products: Sequence[Product], dtype: str, start_s: float) -> list[float]:
    """FLOP/s of the long products of a dtype."""
    return [p.flops / (p.seconds - start_s) for p in products if p.dtype == dtype and p.flops >= LONG_FLOPS]


def _bytes(case: Case) -> int:
    """Bytes of its arguments and results."""
    leaves = jax.tree.leaves((case.args, jax.eval_shape(case.step, *case.args)))
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def _numbers(case: Case) -> int:
    """How many numbers its first argument has."""
    return math.prod(case.args[0].shape)


def _products(programs: Mapping[str, Program], cases: Mapping[str, Case]) -> Iterator[Product]:
    for name, case in cases.items():
        if name.startswith("product ") and " high " not in name:
            *dtype, sizes = name.removeprefix("product ").split()
            flops = 2.0 * math.prod(map(int, sizes.split("x")))
            own = programs[name]
            seconds = own.median_s if flops >= LONG_FLOPS else own.kernels_s
            yield Product(DTYPES[" ".join(dtype)], flops, _bytes(case), seconds)
    for name, count in CHAINS.items():
        size = int(name.split()[-1])
        yield Product("bfloat16", 2.0 * size**3, 6 * size**2, programs[name].kernels_s / count)
