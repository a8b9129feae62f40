"""What temporaries take in memory."""

from __future__ import annotations

from collections.abc import Callable

from ..chip import Chip
from ..graph import Value
from ..kernels import Program
from .convolved import convolved_bytes, smallest_batch
from .looked_up import looked_up_shapes, row_bytes
from .tiles import memoised


def temporary_bytes(program: Program, chip: Chip | None = None) -> Callable[[Value], int]:
    """The bytes of a program's temporaries, as the operations want them that read and make them."""
    tables, others = looked_up_shapes(program.graph), convolved_bytes(program, smallest_batch(chip))
    return memoised(lambda value: row_bytes(value) if value.shape in tables else others(value))
