"""What the ways from a product meet in is written for it, as compiled for v3, v5e, v6e (gradients of SiLU and GELU)."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse
from test_fusion import Writer, kinds


@pytest.mark.parametrize("meet", [True, False])
def test_a_gradient_that_multiplies_twice_is_made_with_its_product_where_all_ways_meet(meet: bool) -> None:
    g = Writer()
    back = g.dot(g.arg(4096, 512, dtype="bf16"), g.arg(512, 2048, dtype="bf16"))
    one, two = (g.op("multiply", back, g.op("tanh", g.arg(4096, 2048, dtype="bf16"))) for _ in range(2))
    made = g.op("add", one, two) if meet else one
    ends = [g.dot(made, g.arg(2048, 512, dtype="bf16")), g.dot(g.arg(512, 4096, dtype="bf16"), made)]
    program = fuse(g.graph(*ends, *([] if meet else [two])))
    (first,) = (kernel for kernel in program.kernels if back in kernel.writes or made in kernel.writes)
    assert first.writes == (made,) if meet else made not in first.writes
    counted = [kinds(program, kernel)["multiply"] for kernel in program.kernels if kernel is not first]
    assert (sum(counted) == 0) == meet
