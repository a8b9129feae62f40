"""How long the code of products is: the more they multiply, up to a limit of the chip's."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.memory.code import code_bytes, least_code_bytes
from programs import of_ops

KIB = 1 << 10


def code(rows: int, depth: int, columns: int, kind_of_chip: str) -> int:
    """What a program of one product takes beyond one without."""
    values = (Value((rows, depth), "f32"), Value((depth, columns), "f32"), Value((rows, columns), "f32"))
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    chip = catalogue()[kind_of_chip]
    return code_bytes(of_ops(values, (op,), (0, 1), (2,)), chip) - least_code_bytes(0, 0)


@pytest.mark.parametrize(("rows", "depth", "columns", "kind_of_chip", "kib"), [
    (1024, 512, 512, "v5p", 103),
    (1024, 512, 512, "v3", 73),
    (1024, 512, 2048, "v5p", 212),
    (1024, 512, 2048, "v6e", 270),
    (4096, 1024, 4096, "v3", 243),
    (4096, 1024, 4096, "v6e", 529),
])  # fmt: skip
def test_code_is_about_as_long_as_compiled(rows: int, depth: int, columns: int, kind_of_chip: str, kib: int) -> None:
    assert code(rows, depth, columns, kind_of_chip) / KIB == pytest.approx(kib, rel=0.3)


def test_no_program_takes_less_than_the_least() -> None:
    assert code(8, 8, 8, "v5e") >= least_code_bytes(1, 0) - least_code_bytes(0, 0)
