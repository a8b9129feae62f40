"""Where buffers lie in the compiler's heap, from both its sides."""

from __future__ import annotations

from meshwright.planner.memory.heap import Heap


def test_a_buffer_takes_the_smallest_gap_that_holds_it_else_the_end() -> None:
    heap = Heap()
    starts = [heap.take(size) for size in (10, 1, 4, 1)]
    heap.give(starts[0], 10)
    heap.give(starts[2], 4)
    assert [heap.take(3), heap.take(5), heap.take(6)] == [11, 0, 16]
    assert heap.size_bytes == 22


def test_what_is_free_behind_the_last_buffer_is_no_gap() -> None:
    """A larger gap is taken rather than that end, were it as large as the buffer."""
    heap = Heap()
    starts = [heap.take(size) for size in (10, 1, 8)]
    heap.give(starts[0], 10)
    heap.give(starts[2], 8)
    assert heap.take(8) == 0
    assert heap.size_bytes == 19


def test_what_other_cores_write_lies_below_and_leaves_the_free_end_alone() -> None:
    """TPU7x lays its second sum's 771 MiB beside the first's, where a small tensor came to lie, not into 2 GiB that are
    free at the end.
    """
    heap = Heap()
    scores = heap.take(2048)
    first = heap.take(771, below=True)
    assert (first, heap.size_bytes) == (-771, 2819)
    heap.give(first, 771)
    heap.give(scores, 2048)
    heap.take(64)
    kept = heap.take(64, below=True)
    second = heap.take(771, below=True)
    assert second < kept
    assert heap.size_bytes > 2819


def test_the_lowest_gap_grows() -> None:
    heap = Heap()
    heap.take(8)
    heap.give(heap.take(4, below=True), 4)
    assert heap.take(6, below=True) == -6
    assert heap.take(1) == 8
    assert heap.size_bytes == 15
