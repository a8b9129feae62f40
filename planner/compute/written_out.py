"""What the TPU compiler writes out as products and loops of its own: Fourier transforms, factors of matrices.

Their cycles are counted, but for those of the squares that are factored one by one. Of a Fourier transform each dim is
multiplied by matrices of at most 128 rows, of what is factored each 128 rows take some kernels that go over what is
left. Roughly: a few sizes of each were seen, on v3, v5e and v6e.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..graph import Graph, Op

FFT = "fft"
WRITTEN_OUT = frozenset({FFT, "cholesky", "triangular_solve", "custom_call"})
"""The kinds among which there are operations that the compiler writes out."""
TRANSFORM_PASSES = 6.0
"""How often the products of a Fourier transform go over what it reads and makes, for each dim, where all of that stands
in vector memory; twice as often where it does not (v5e: ``f32[1024,1024]`` 104638 cycles, two dims of ``f32[512,512]``
107070, there and back of ``f32[2048,4096]`` 3.0 million).
"""

BLOCK = 128
BLOCK_CYCLES, SOLVE_CYCLES = 10000.0, 5000.0
"""What starting the kernels of each 128 rows takes of a factor, and where a triangle is solved (v3, v5e and v6e alike:
the Cholesky factor of 512 rows 45105, 44576 and 41933 cycles; 256 columns by such a triangle 35215, 25265 and 26123).
"""

LEFT_PASSES, ALL_PASSES = 1 / 3, 1.6
"""How often each 128 rows go over the matrix: over what is left of it, and where rows are exchanged or all rows follow
(v5e: the Cholesky factor of 1024 rows 129466 cycles; LU and two triangles of 1024 rows and 256 columns 418 thousand).
"""

_FACTORS = {
    "cholesky": (BLOCK_CYCLES, LEFT_PASSES),
    "triangular_solve": (SOLVE_CYCLES, LEFT_PASSES),
    "LuDecomposition": (BLOCK_CYCLES, ALL_PASSES),
    "Qr": (BLOCK_CYCLES, ALL_PASSES),
    "ProductOfElementaryHouseholderReflectors": (BLOCK_CYCLES, ALL_PASSES),
}

TRANSFORM_CODE = 4 << 20
_FACTOR_CODE = {
    "cholesky": (570 << 10, 43 << 10),
    "triangular_solve": (140 << 10, 4 << 10),
    "LuDecomposition": (105 << 10, 72 << 10),
    "Qr": (130 << 10, 93 << 10),
    "ProductOfElementaryHouseholderReflectors": (130 << 10, 93 << 10),
}
"""The code of each dim of a Fourier transform, and of each 128 rows of a factor: of its own, and for each 128 rows or
columns, on average, of all that are gone over, whose kernels are written out. On v5e transforms take 3.3 to 6.6 MiB and
7.6 of two dims, the Cholesky factors of 256, 512, 1024 and 2048 rows 1.24, 2.89, 6.94 and 20.18 MiB (of 512 on v6e
2.76), LU of the first three 0.49, 1.54 and 5.34, QR 1.24, 4.00 and 15.63 and of 1024 rows and 256 columns 2.16, a
triangle of 512 and 1024 rows 0.62 and 1.35.
"""


class WrittenOut(NamedTuple):
    """So many ``times`` kernels that take ``cycles`` to start and go over all bytes in so many ``passes``, in twice as
    many if it ``leaves`` vector memory in between. ``share`` of the bytes are there at all.
    """

    times: int
    cycles: float
    passes: float
    leaves: bool = False
    share: float = 1.0

    def total(self, num_bytes: float, byte_cycles: float, near_bytes: float) -> float:
        """Cycles of what reads and makes so many bytes, where vector memory has so much room."""
        num_bytes *= self.share
        often = 2 if self.leaves and 2 * num_bytes > near_bytes else 1
        return self.times * (self.cycles + often * self.passes * num_bytes * byte_cycles)


def is_written_out(op: Op) -> bool:
    """Whether the compiler writes an operation out."""
    return op.kind == FFT or _named(op) in _FACTORS


def written_out_of(graph: Graph, ops: Sequence[Op]) -> WrittenOut | None:
    """What the compiler makes of these operations, if it writes one of them out."""
    for op in ops:
        if op.kind == FFT:
            share, dims = 0.5 if is_real(graph, op) else 1.0, len(op.attributes.get("fft_length", (0,)))
            return WrittenOut(dims, 0.0, TRANSFORM_PASSES, leaves=True, share=share)
        if is_written_out(op):
            rows = min(graph.shape(op.operands[0])[-2:])
            return WrittenOut(-(-rows // BLOCK), *_FACTORS[_named(op)])
    return None


def code_bytes_of(graph: Graph, op: Op) -> int:
    """The code of what is written out."""
    if op.kind == FFT:
        return TRANSFORM_CODE * len(op.attributes.get("fft_length", (0,)))
    rows, columns = graph.shape(op.operands[0])[-2:]
    blocks, all_rows = (-(-size // BLOCK) for size in (min(rows, columns), max(rows, columns)))
    own, each = _FACTOR_CODE[_named(op)]
    return blocks * (own + (all_rows + blocks) * each // 2)


def is_real(graph: Graph, op: Op) -> bool:
    """Whether a transform's numbers were real before: it is not given the imaginary parts, which are zero."""
    made = (each for each in graph.of_kind("convert") if each.results[0] == op.operands[0])
    return any(not graph.values[each.operands[0]].dtype.startswith("c") for each in made)


def _named(op: Op) -> str:
    return str(op.attributes.get("call_target_name", "")) if op.kind == "custom_call" else op.kind
