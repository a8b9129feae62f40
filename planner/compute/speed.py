"""How fast a chip is: what a table says of it, or what its published peaks allow where no compiler can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...dsl.errors import listing
from ..chip import Chip, Measured, Precision
from .calibration import Calibration, shipped
from .coefficients import Coefficients
from .products import HIGH_PASSES, PRECISE_PASSES, Product
from .work import Work

# Of a chip without a table that nobody measured: the shares of its published peaks that well-written kernels reach, and
# what starting one takes. Round figures, stated as such.
MATRIX_SHARE, MEMORY_SHARE = 0.75, 0.8
GPU_START_S, CPU_START_S = 3e-6, 1e-6
# Of a chip of which the catalogue gives no peaks (a host's CPU): round figures, no machine's.
CPU_BYTES_PER_S, CPU_FLOPS_PER_S = 2e10, 1e11
CONVOLVED_COLUMNS = 128
"""How many features at a time a GPU's library of convolutions makes: 64 of them took as long as 128 do, on an H200."""
NANOSECOND = 1e-9
EDGE = 128
UNBOUNDED_BYTES = 1e18
PRECISIONS: Mapping[float, Precision] = MappingProxyType({1: "default", HIGH_PASSES: "high", PRECISE_PASSES: "highest"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A chip's coefficients and the clock of their cycles; ``source`` says where both come from.

    ``products_near`` and ``gathers_near``: whether what products make, and what collectives do but for permutes, may be
    left in vector memory. ``peaks`` is the chip whose published peaks say what products of other dtypes than bfloat16
    take; none where the passes of its matrix units do.
    """

    coefficients: Coefficients
    clock_hz: float
    edge: int
    source: str
    products_near: bool = True
    gathers_near: bool = True
    peaks: Chip | None = None

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU's."""
        return self.peaks is not None and self.peaks.platform == "gpu"

    def work(self, work: Work) -> Work:
        """The work with its products as often as this chip multiplies in the time of one of bfloat16's.

        On a GPU what is only gone through takes nothing.
        """
        if self.peaks is None or not (work.products or work.spill_bytes):
            return work
        products = tuple(map(self.product, work.products))
        return replace(work, products=products, spill_bytes=0 if self.is_gpu else work.spill_bytes)

    def product(self, product: Product) -> Product:
        """The same of one product."""
        if self.peaks is None:
            return product
        precision = PRECISIONS.get(product.passes, "default")
        one = self._flops_per_s("bfloat16", "default", is_turned=False)
        reached = self._flops_per_s(product.dtype, precision, is_turned=product.turned)
        passes = one / reached if one and reached else product.passes
        if product.windows is None or not self.is_gpu:
            return replace(product, passes=passes)
        columns = -(-product.columns // CONVOLVED_COLUMNS) * CONVOLVED_COLUMNS
        return replace(product, passes=passes, windows=None, columns=columns)

    def _flops_per_s(self, dtype: str, precision: Precision, *, is_turned: bool) -> float:
        """What products reach, or in proportion to it; none where no peak is known."""
        peak = self.peaks.peak_flops_per_s(dtype, precision) if self.peaks else None
        measured = self.peaks.measured if self.peaks else None
        if not peak or self.peaks is None or measured is None:
            return peak or 0.0
        return peak * measured.share(self.peaks.multiplied(dtype, precision), is_turned=is_turned)


def speed_of(chip: Chip, calibration: Calibration | None = None) -> Speed:
    """The speed of a chip by this calibration, else by the table that ships, else by its published peaks."""
    table = calibration or shipped(chip.jax_kind)
    return _assumed(chip) if table is None else _learned(chip, table)


def _learned(chip: Chip, table: Calibration) -> Speed:
    edge = chip.matrix_unit.edge if chip.matrix_unit else EDGE
    said = f"learned from {table.compiler} on {table.topology}"
    if not chip.clock_hz:
        said += "; clock not published: as fast as its published peaks allow at what the compiler counts a cycle"
    return Speed(
        coefficients=table.coefficients,
        clock_hz=chip.clock_hz or _clock_hz(chip, table.coefficients),
        edge=edge,
        source=said,
        products_near=chip.products_into_vmem,
        gathers_near=chip.gathers_into_vmem,
    )


def _clock_hz(chip: Chip, of: Coefficients) -> float:
    """The fastest clock at which neither multiply-adds nor bytes a cycle come to more than what is published."""
    flops_per_s = chip.peak_flops_per_s("bfloat16") or CPU_FLOPS_PER_S
    bytes_per_s = chip.hbm_bytes_per_s or CPU_BYTES_PER_S
    return min(flops_per_s / 2 * of.multiply_add_cycles, bytes_per_s * of.byte_cycles)


def _assumed(chip: Chip) -> Speed:
    """In nanoseconds, so that a cycle is one."""
    had = chip.measured or _guessed(chip)
    bytes_per_s = (chip.hbm_bytes_per_s or CPU_BYTES_PER_S) * had.memory
    flops_per_s = (chip.peak_flops_per_s("bfloat16") or CPU_FLOPS_PER_S) * had.matrix["bfloat16"]
    vector_flops_per_s = (chip.peak_flops_per_s("float32", "highest") or CPU_FLOPS_PER_S) * had.vector
    assumed = Coefficients(
        byte_cycles=1 / bytes_per_s / NANOSECOND,
        step_cycles=0.0,
        near_step_cycles=0.0,
        start_cycles=had.start_us * 1e-6 / NANOSECOND,
        register_cycles=1024 / vector_flops_per_s / NANOSECOND,
        multiply_add_cycles=2 / flops_per_s / NANOSECOND,
        loop_window_bytes=UNBOUNDED_BYTES,
        single_window_bytes=UNBOUNDED_BYTES,
        product_window_bytes=UNBOUNDED_BYTES,
        fill_bytes=0.0,
        tile_bytes=UNBOUNDED_BYTES,
        held_bytes=UNBOUNDED_BYTES,
        near_bytes=0.0,
        near_total_bytes=0.0,
        product_start_cycles=had.product_start_us * 1e-6 / NANOSECOND,
    )
    return Speed(coefficients=assumed, clock_hz=1 / NANOSECOND, edge=1, source=_source(chip), peaks=chip)


def _source(chip: Chip) -> str:
    """Where a price comes from that no compiler has taught."""
    known = {
        f"products ({CPU_FLOPS_PER_S / 1e9:.0f} GFLOP/s)": chip.peak_flops_per_s("bfloat16"),
        f"memory ({CPU_BYTES_PER_S / 1e9:.0f} GB/s)": chip.hbm_bytes_per_s,
    }
    guesses = [what for what, peak in known.items() if peak is None]
    round_figures = f"round figures, no machine's, for {listing(guesses)}"
    said = "published peaks" if len(guesses) < len(known) else round_figures
    if chip.measured:
        said += f", of them the shares measured: {chip.sources.get('measured', 'where is not said')}"
    else:
        said += f", of which {MATRIX_SHARE:.0%} of the FLOP/s and {MEMORY_SHARE:.0%} of the bandwidth"
    return f"{said}; {round_figures}" if 0 < len(guesses) < len(known) else said


def _guessed(chip: Chip) -> Measured:
    start_us = (GPU_START_S if chip.platform == "gpu" else CPU_START_S) * 1e6
    return Measured(
        matrix={"bfloat16": MATRIX_SHARE},
        memory=MEMORY_SHARE,
        vector=MATRIX_SHARE,
        start_us=start_us,
        product_start_us=start_us,
    )
