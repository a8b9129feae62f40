"""The copies that loops and convolutions read in the place of what they are given, or that lie beside it for them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import NamedTuple

from ..chip import Chip
from ..compute.images.parted import WIDE_EDGE
from ..kernels import Program
from ..whole_images import taken_whole
from .copies.copied import Copied, Span
from .copies.hoisted import NARROW, hoisted_copies
from .fast.accessed import WHILE_TURNS, bytes_per_s
from .fast.near import Wanted
from .flow.flow import Flow
from .tensors.across_loops import copied_across
from .tensors.convolved import (
    copied_whole,
    laid_bytes,
    shifted_images,
    smallest_batch,
    sources_of,
    widened_images,
)
from .tensors.cut_anew import copies_cut_anew, given_parts
from .tensors.kept_parts import kept_parts
from .tensors.scattered_images import copied_for_convolutions
from .tensors.taken_in_pieces import Alone, beside_loops
from .tensors.taken_whole import beside_whole, whole_bytes


class NarrowCopies(NamedTuple):
    """Copies by their buffers: the values, of those below zero from when to when they are there, and their bytes; and
    those that are ``Alone``.
    """

    values: Mapping[int, int]
    spans: Mapping[int, Span]
    num_bytes: Mapping[int, int]
    alone: frozenset[int] = frozenset()


NO_COPIES = NarrowCopies({}, {}, {})


def narrow_copies(program: Program, flow: Flow, chip: Chip | None, images: Copied) -> NarrowCopies:
    """Those of a step, ``images`` among them that it is given."""
    stacks = hoisted_copies(program, flow.buffer)
    copies = {
        value if value in flow.num_bytes and not _is_read_since(program, flow, value, stacks) else -1 - value: value
        for value in stacks.keys() | images.keys()
    }
    spans = {b: images[value][0] if value in images else stacks[value] for b, value in copies.items() if b < 0}
    graph, laid, read_whole = program.graph, laid_bytes(program, smallest_batch(chip)), taken_whole(program.graph)
    narrow = {b: laid(replace(graph.values[value], dtype=NARROW)) for b, value in copies.items()}
    narrow |= {
        b: whole_bytes(graph, value, read_whole[value], narrow=True)
        for b, value in copies.items()
        if value in read_whole
    }
    narrow |= {-1 - value: num_bytes for value, (_, num_bytes) in images.items()}
    early = chip is not None and chip.gathers_beside_products
    in_turn = chip.put_in_turn_window if chip is not None else 0
    loops = beside_loops(program, early=early, in_turn=in_turn)
    rows = copied_for_convolutions(program, laid)
    smallest = smallest_batch(chip)
    whole = copied_whole(program, smallest, early=early)
    near_bytes = chip.buffer_vmem_bytes if chip is not None else 0
    widened = widened_images(program, smallest, near_bytes)
    in_one = near_bytes > 0 and chip is not None and chip.matrix_unit is not None and chip.matrix_unit.edge < WIDE_EDGE
    shifted = (*shifted_images(program, smallest, early=early, in_one=in_one), *widened)
    across = (*copied_across(program, early=early), *kept_parts(program, smallest, laid))
    anew = (
        *copies_cut_anew(program, smallest, sources_of(graph), laid),
        *given_parts(program, smallest, laid),
    )
    alone = set[int]()
    for number, beside in enumerate((*loops, *rows, *whole, *shifted, *beside_whole(program), *across, *anew)):
        buffer = -1 - 3 * len(graph.values) - number
        copies[buffer], spans[buffer], narrow[buffer] = beside
        alone |= {buffer} if isinstance(beside, Alone) else set()
    return NarrowCopies(copies, spans, narrow, frozenset(alone))


def _is_read_since(program: Program, flow: Flow, buffer: int, stacks: Mapping[int, Span]) -> bool:
    """Whether what loops read rounded is read by something else once the first of them has begun: it stays as it was
    made then, beside that.
    """
    first = stacks[buffer][0] if buffer in stacks else 0
    since = zip(program.kernels[first:], flow.reads[first:], strict=True)
    return any(buffer in reads for kernel, reads in since if not kernel.bodies)


def wanted_copies(program: Program, found: NarrowCopies, chip: Chip, images: Container[int]) -> list[Wanted]:
    """Those that are made just before their kernel, which ask for fast memory as all else does: each is written, and
    read by its kernel. Of ``images`` that are given the arguments ask (``vmem``).
    """
    wanted = []
    for buffer, (first, last) in found.spans.items():
        if first == last and -1 - buffer not in images and found.num_bytes[buffer]:
            op = program.graph.ops[program.kernels[last].ops[-1]]
            times = WHILE_TURNS if op.kind == "while" else 1
            wanted.append(
                Wanted(
                    number=buffer,
                    num_bytes=found.num_bytes[buffer],
                    uses=[last],
                    made=first,
                    left_near=buffer not in found.alone or chip.products_into_vmem,
                    saved_s=(1 + times) * found.num_bytes[buffer] / bytes_per_s(chip),
                )
            )
    return wanted
