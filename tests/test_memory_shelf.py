"""Where in fast memory a buffer finds room."""

from __future__ import annotations

import numpy as np
from meshwright.planner.memory.fast.shelf import Shelf


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


def in_pieces() -> Shelf:
    """What stays at 40 leaves two pieces of 30 to all that comes later."""
    found = Shelf(np.full(4, 100, np.int64))
    found.take(0, 30, 0, 0)
    found.take(30, 10, 0, 3)
    found.take(40, 30, 0, 0)
    return found


def test_what_lasts_longest_is_put_first_where_all_is_put_anew() -> None:
    found = in_pieces()
    assert found.place(70, 1, 3) is None
    found.repack()
    assert found.taken[:3, 2:].tolist() == [[10, 40], [0, 10], [40, 70]]
    assert found.place(70, 1, 3) == 10
    assert found.room_bytes.tolist() == [30, 90, 90, 90]


def test_all_stays_where_it_does_not_fit_together_otherwise() -> None:
    found = Shelf(np.array([100, 20, 100], np.int64))
    found.take(0, 20, 1, 1)
    found.take(20, 80, 2, 2)
    found.take(0, 20, 2, 2)
    found.take(0, 100, 0, 0)
    before = found.taken[:4].tolist()
    found.height_bytes[1] = 10
    found.repack()
    assert found.taken[:4].tolist() == before


def test_what_was_taken_last_can_be_given_back() -> None:
    found = in_pieces()
    found.take(40, 50, 1, 2)
    found.lengthen(3)
    assert found.room_bytes.tolist() == [30, 40, 40, 40]
    found.give_back(3)
    assert found.room_bytes.tolist() == [30, 90, 90, 90]
    assert found.place(60, 1, 3) == 40
