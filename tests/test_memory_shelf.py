"""Where in fast memory a buffer finds room."""

from __future__ import annotations

import numpy as np
from meshwright.planner.memory.shelf import Shelf


def shelf() -> Shelf:
    """A hundred bytes at each of four points; at the second and the third 20 bytes lie at the bottom and 30 at 50."""
    found = Shelf(np.full(4, 100, np.int64))
    found.take(0, 20, 1, 2)
    found.take(50, 30, 1, 2)
    return found


def test_the_smallest_piece_that_has_room_is_taken() -> None:
    assert shelf().place(25, 0, 3) == 20
    assert shelf().place(20, 0, 3) == 20
    assert shelf().place(90, 3, 3) == 0


def test_what_is_free_in_pieces_has_no_room_for_what_none_of_them_holds() -> None:
    """50 bytes are free, 30 and 20 of them together."""
    assert shelf().place(40, 0, 1) is None
    assert shelf().room_bytes.tolist() == [100, 50, 50, 100]


def test_a_buffer_can_stay_where_nothing_else_lies() -> None:
    assert shelf().is_free(20, 30, 0, 3)
    assert not shelf().is_free(20, 31, 0, 3)
    assert not shelf().is_free(80, 21, 0, 0)
    assert shelf().is_free(0, 100, 3, 2)
