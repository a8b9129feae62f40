"""What attention leaves in memory of its probabilities: as the compiler's programs for v3 to tpu7x do."""

from __future__ import annotations

from meshwright.planner.fusion import fuse
from test_fusion import Writer

BATCH, HEADS, ROWS = 4, 2, 256


def writes_probabilities(width: int, readers: int, heads: int = HEADS) -> bool:
    """Whether what ``exp`` makes of scores is written that so many products of batches over two dims read."""
    g = Writer()
    scores = g.arg(BATCH, heads, ROWS, ROWS)
    made = g.op("exponential", scores)
    said = {f"{side}_batching_dimensions": (0, 1) for side in ("lhs", "rhs")}
    ends = []
    for _ in range(readers):
        values = g.arg(BATCH, heads, ROWS, width)
        contracted = {"lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (2,)}
        ends.append(g.op("dot_general", made, values, shape=(BATCH, heads, ROWS, width), **said, **contracted))
    program = fuse(g.graph(*ends))
    return any(made in kernel.writes for kernel in program.kernels)


def test_probabilities_are_written_for_two_products_as_wide_as_a_registers_lanes() -> None:
    assert writes_probabilities(128, 2)
    assert not writes_probabilities(128, 1)


def test_narrower_products_compute_them_in_passing() -> None:
    assert not writes_probabilities(64, 2)


def test_so_do_batches_over_one_dim() -> None:
    assert not writes_probabilities(128, 2, heads=1)
