"""What the formula cannot know of a chip: the numbers that calibration learns from the compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Of one chip, in the cycles that the compiler counts (of its clock).

    ``byte_cycles``: a byte to or from memory. ``step_cycles``: what each window of a kernel waits for memory, and
    ``near_step_cycles`` what it waits where all it reads is in vector memory. ``start_cycles``: any kernel at all.
    ``register_cycles``: a vector operation on 1024 numbers. ``multiply_add_cycles``: one of the matrix units.
    ``loop_window_bytes``, ``single_window_bytes``, ``product_window_bytes``: how much a window takes at once, of fused
    operations, of one alone, of a product. ``fill_bytes``: what of a product's bytes comes before it multiplies.
    ``tile_bytes``: how much of a product's result is added up at once; its operands are read anew for each, unless one
    of them is no more than ``held_bytes``. ``near_bytes``: how large a value may be that is kept in vector memory, and
    ``near_total_bytes`` all of them. ``near_read_share``: what a fused operation's read from vector memory counts
    against one from memory. ``whole_bytes``: how much one operation alone takes at once where that is all of it.
    ``batch_fills``: how often each product of a batch waits for ``fill_bytes``, if not all of them once.
    ``start_bytes``: how much a kernel moves for which starting it takes all of ``start_cycles``; one that moves less
    is cut into fewer windows. ``fill_share``: what of a product's bytes comes before it multiplies where they are few.
    ``carried_bytes``: how large a value may be that stays in vector memory though each turn of a loop changes it.
    ``shared_bytes``: how much of what all turns of a loop read alike stays in a memory beside it (v4's, of two cores).
    ``common_bytes``: how much of what kernels make or read stays there, where products have it at hand,
    ``common_write_cycles`` what a byte that products leave there takes more than one of the large memory, and
    ``common_cycles`` what one takes that fused operations read or leave there, if all that takes longer than memory.
    ``scoped_bytes``: the windows of one kernel, of two at a time of each; none where products are not seen to be cut by
    them (``windowed``). ``wait_cycles``: what each such window waits for memory.
    ``product_start_cycles``: starting a product; ``product_read_cycles``, ``product_write_cycles`` and
    ``product_round_cycles``: what that takes besides for each operand that it reads from memory, where it writes there,
    and where its result is only rounded; none of these where a product starts as any kernel does.
    ``whole_start_cycles``: starting fused operations that take all they work on as one window, if that is known.
    ``copied_window_bytes``: how much a copy takes at once that puts pieces in another order, if not what any operation
    alone does. ``row_cycles``: what putting a row of 128 numbers into a register takes that lies in no tile; none where
    the compiler counts none. ``few_rows_cycles``: what moving a tile of two or four rows takes besides its bytes.
    ``join_cycles``: a register of two halves that are put together.
    """

    byte_cycles: float
    step_cycles: float
    near_step_cycles: float
    start_cycles: float
    register_cycles: float
    multiply_add_cycles: float
    loop_window_bytes: float
    single_window_bytes: float
    product_window_bytes: float
    fill_bytes: float
    tile_bytes: float
    held_bytes: float
    near_bytes: float
    near_total_bytes: float
    near_read_share: float = 1.0
    whole_bytes: float = 0.0
    batch_fills: float = 0.0
    start_bytes: float = 0.0
    fill_share: float = 1.0
    carried_bytes: float = 0.0
    shared_bytes: float = 0.0
    common_bytes: float = 0.0
    common_write_cycles: float = 0.0
    common_cycles: float = 0.0
    scoped_bytes: float = 0.0
    wait_cycles: float = 0.0
    product_start_cycles: float = 0.0
    product_read_cycles: float = 0.0
    product_write_cycles: float = 0.0
    product_round_cycles: float = 0.0
    whole_start_cycles: float = 0.0
    copied_window_bytes: float = 0.0
    row_cycles: float = 0.0
    few_rows_cycles: float = 0.0
    join_cycles: float = 0.0

    @property
    def held_near_bytes(self) -> float:
        """How much is kept near at once, in vector memory or a common one."""
        return self.near_total_bytes or self.common_bytes

    @property
    def value_near_bytes(self) -> float:
        """How large a value may be that is kept near."""
        return self.near_bytes or self.common_bytes / 2
