"""A convolution as matrix units see it: at each place and each position of its window, rows streamed through squares.

Read off the cycles of compiled convolutions. With features on the lanes the images of the batch are the rows, and the
features that enter fill the depth of a square; with the batch on the lanes the features are the rows. A square takes
several positions of a window at once where the features leave it room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..graph import Graph, Op, Value
from ..images import LANES, ROWS, batch_on_lanes, images_of, is_gradient_of_kernel, tile_rows
from .manner import FIRST, Manner

NARROWEST, NARROWER, FEW = 64, 32, 4
"""The features that a position of a window takes of a square's depth at least; where registers are full of images, as
v5e and v6e have it; and in patches, of few features.
"""

MOST_SHARED = 2 * ROWS
"""The largest batch for which positions share a depth in the forward pass, seen on v3 and v5e."""

WIDE_ROW = 1.8
"""What a row of a square of 256 takes, brought there, in rows of one of 128."""

TURNED_ROWS = 1.3 * ROWS
"""How many rows a register of images takes whose few features are turned to be a depth, seen on v3."""


GRADIENT_APART = 0.6
"""What of a convolution's vector operations its kernel's gradient takes, of features apart, seen on v5e."""

SHARED_LANES = 64
"""How many images on the lanes take as much of a depth as fewer do: seen on v3, v5e and v5p."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """``taps`` are the places times the positions of the window: at each ``streamed`` rows for a depth of ``entering``
    and ``leaving`` columns, and no fewer than ``least`` all told. Several positions share a depth if each takes only
    so much ``room`` of it; they do not if that is None. Where only two can, the odd one of each row of ``beside`` that
    lie beside each other stays alone. ``registers`` are vector operations instead of squares, and ``loads`` how often a
    register of an image is brought to the squares. ``loading`` are the rows at each tap that bringing a row of a kernel
    there takes, which has the features that leave written last or not, and so many ``features`` enter, where images
    are the depth.
    """

    taps: int
    streamed: int
    entering: int
    leaving: int
    room: int | None = None
    least: float = 0.0
    beside: int = 1
    turns_over: bool = False
    registers: float = 0.0
    adds: bool = False
    loads: float = 0
    loading: float = 0.0
    leaves_last: bool = True
    features: int = 0

    def rows(self, edge: int) -> float:
        """Rows streamed through squares of this edge."""
        room = _up(self.entering, LANES) if self.room is None else self.room
        share = min(1.0, room / edge)
        if self.beside > 1 and edge == 2 * room:
            share = -(-self.beside // 2) / self.beside
        if self.turns_over:
            share = max(share, min(1.0, (edge - LANES) / edge))
        squares = share * -(-self.entering // edge) * -(-self.leaving // edge)
        return self.taps * max(self.streamed * squares, self.least, self.loading * self._kernel_rows(edge))

    def _kernel_rows(self, edge: int) -> float:
        """The rows of squares that a kernel takes, in rows of squares of 128: as it lies, those features on lanes that
        are written last, or those that leave where they are few (32 of 256 and of 512 on v3). Wide squares hold it one
        way, and take it in half the time where it is narrow (seen on v6e).
        """
        entering = self.features or self.entering
        if edge > LANES:
            return entering * -(-self.leaving // edge) * WIDE_ROW * (0.5 if self.leaving <= NARROWEST else 1.0)
        upright = self.leaves_last or self.leaving < NARROWEST
        rows, lanes = (entering, self.leaving) if upright else (self.leaving, entering)
        return rows * -(-lanes // edge)


def windows_of(
    graph: Graph, op: Op, manner: Manner = FIRST, parts: int = 1, *, turned: bool = False, across: bool = False
) -> Windows:
    """What a convolution streams, its images cut into so many parts; ``turned`` if its batch is on the lanes anyway,
    ``across`` if its kernel's last dim but one is.

    What leaves of an image with gaps so few features that it has the batch on the lanes is streamed as it is: no kernel
    is brought to squares, and nothing is put between (16 images of 16 by 16 by 128, to pictures of 32 by 32 by windows
    of 4 by 4, take 37882 cycles on v3, 22239 on v4, 16485 on v5e).
    """
    said, is_gradient = op.attributes, is_gradient_of_kernel(graph, op)
    (value, image), *_ = images_of(graph, op)
    left, right, made = (graph.values[number] for number in (value, op.operands[1], op.results[0]))
    window, result = spatial(right, said, "kernel"), spatial(made, said, "output")
    if is_depthwise(graph, op):
        return _apart(graph, op, manner, math.prod(result if is_gradient else window), is_gradient=is_gradient)
    groups = _groups_apart(graph, op)
    features, batch = max(left.shape[image.features] // groups, 1), max(left.shape[image.batch] * parts, 1)
    gaps = math.prod(said.get("lhs_dilation", ()))
    by_batch = batch_on_lanes(features, batch, left.bits)
    turned = turned or by_batch
    taps = groups * math.prod(window) * math.prod(result) // parts
    leaving = max(right.shape[said["kernel_output_feature_dimension"]] // groups, 1)
    if (
        features < ROWS
        and _is_patched(said, result if is_gradient else window, is_gradient)
        and (turned or not is_gradient)
    ):
        registers = -(-batch // (LANES if turned else ROWS))
        least = TURNED_ROWS * registers
        return Windows(taps=taps, streamed=batch, entering=features, leaving=leaving, room=FEW, least=least)
    if features < ROWS and gaps == 1 and batch < LANES and math.prod(result if is_gradient else window) > 1:
        picture = Windows(taps=taps, streamed=batch, entering=features, leaving=leaving, room=FEW)
        return _of_picture(manner, picture, is_gradient=is_gradient, is_whole=parts == 1)
    plain = is_plain(said) or (manner.packs_all and gaps == 1)
    beside = (result if is_gradient else window)[-1] if manner.packs_all and window else 1
    leaves_on_lanes = _leaves_on_lanes(graph, op, is_gradient)
    turns_over = manner.packs_all and batch_on_lanes(leaving, batch)
    if turned:
        rows, room = _up(features, ROWS), _up(batch, SHARED_LANES)
        if plain and beside > 1 and turns_over:
            room = _up(min(features, batch), NARROWER)
        found = Windows(taps=taps, streamed=rows, entering=batch, leaving=leaving, room=room, turns_over=turns_over)
        if by_batch or gaps == 1:
            return found
        return replace(found, streamed=-(-rows // gaps), loading=manner.loading, features=features)
    rows = _up(batch, min(ROWS, tile_rows(batch, 1)))
    turns_round = is_gradient and manner.packs_all and plain and leaving <= NARROWEST < features
    if turns_round and parts == 1 and batch >= ROWS and math.prod(result) > 1:  # what leaves room is the depth
        features, leaving, leaves_on_lanes = leaving, features, True
    few = is_gradient or manner.packs_all or ROWS <= batch <= MOST_SHARED
    least = 0.0
    shared: int | None = None
    if plain and few and (turns_over or leaves_on_lanes):
        shared = _up(features, NARROWER if manner.packs_all and beside > 1 and batch >= ROWS else NARROWEST)
    if batch < ROWS and not is_gradient:
        if manner.packs_all:
            rows = max(rows, ROWS)
        else:
            least = manner.few_rows * -(-features // LANES)
    is_place = math.prod(window) == 1 and batch < ROWS and not is_gradient
    made_registers = -(-batch // ROWS) * -(-leaving // LANES)
    fills_gaps = gaps > 1 and not batch_on_lanes(leaving, batch)
    operations = manner.gap_operations * taps * made_registers if fills_gaps and not is_gradient else 0.0
    rows = -(-rows // gaps)
    loads = taps * -(-features // LANES) * -(-batch // (2 * ROWS)) * _loaded(manner, batch, shared, is_gradient)
    return Windows(
        taps=taps,
        streamed=rows,
        entering=features,
        leaving=leaving,
        room=shared,
        least=least,
        beside=1 if is_gradient else beside,
        turns_over=turns_over,
        loads=loads if gaps == 1 else 0,
        registers=manner.place_operations * taps * -(-leaving // LANES) if is_place else operations,
        loading=manner.loading if fills_gaps else 0.0,
        leaves_last=(said["kernel_output_feature_dimension"] > said["kernel_input_feature_dimension"]) != across,
    )


def _of_picture(manner: Manner, windows: Windows, *, is_gradient: bool, is_whole: bool) -> Windows:
    """The same of few features, as pictures have them. What they make is added up by the vector units, position by
    position, of up to sixteen whole images at once: on v5e of 8 pictures at 12544 places of 49 positions 414107 cycles,
    of which 246000 for this, on v6e of 16 215040. For a kernel's gradient they are one row: 123295 and 133460 cycles,
    333334 on v3.
    """
    batch = windows.streamed
    if batch < ROWS or not is_whole or not (is_gradient or manner.picture_operations):
        return replace(windows, least=manner.picture_rows * -(-batch // ROWS))
    if is_gradient:
        return replace(windows, least=manner.gradient_rows * -(-batch // (2 * ROWS)))
    made = -(-batch // (2 * ROWS)) * -(-windows.leaving // LANES)
    registers = manner.picture_operations * windows.taps * made
    return replace(windows, least=manner.picture_rows, registers=registers, adds=True)


def _loaded(manner: Manner, batch: int, room: int | None, is_gradient: bool) -> float:
    """What of its registers an image brings to the squares at each position: half where many positions share one."""
    if not manner.packs_all:
        return 1.0
    return min(1.0, (room or LANES) / NARROWEST) * (min(1.0, batch / ROWS) if is_gradient else 1.0)


def is_depthwise(graph: Graph, op: Op) -> bool:
    """Whether each feature is convolved by itself: no products, but sums of shifted images."""
    groups, said = _groups(op), op.attributes
    images, kernel = (graph.shape(value) for value in op.operands[:2])
    by_batch = int(said.get("batch_group_count", 1)) > 1
    entering = kernel[said["kernel_input_feature_dimension"]]
    each = images[said["input_batch_dimension"]] // groups if by_batch else entering
    return groups > 1 and each == 1 and groups == kernel[said["kernel_output_feature_dimension"]]


def _apart(graph: Graph, op: Op, manner: Manner, positions: int, *, is_gradient: bool) -> Windows:
    """A convolution of features apart: each position goes over what it makes, or for a kernel's gradient over what it
    reads, with lanes filled up (v5e: 49 positions over 96 features of 8 images, 3136 places, 375328 and 193618 cycles).
    """
    (read, first), (second, image) = images_of(graph, op)
    value, features = (read, first.features) if is_gradient else (second, image.features)
    many = graph.shape(value)[features]
    share = GRADIENT_APART if is_gradient and manner.packs_all else 1.0
    numbers = graph.values[value].num_elements // max(many, 1) * _up(many, LANES)
    registers = share * manner.tap_operations * positions * numbers / (LANES * ROWS)
    return Windows(taps=0, streamed=0, entering=0, leaving=0, registers=registers, adds=True)


def _groups(op: Op) -> int:
    said = op.attributes
    return int(said.get("feature_group_count", 1)) * int(said.get("batch_group_count", 1))


def _groups_apart(graph: Graph, op: Op) -> int:
    """How many groups of features are convolved one after the other: those that fill squares; small ones are one."""
    groups = _groups(op)
    leaving = graph.shape(op.operands[1])[op.attributes["kernel_output_feature_dimension"]]
    return groups if leaving // groups >= LANES else 1


def _is_patched(said: Mapping[str, Any], window: Sequence[int], is_gradient: bool) -> bool:
    """Whether images are cut into patches: whether windows lie side by side."""
    steps = said.get("rhs_dilation" if is_gradient else "window_strides", ())
    return math.prod(window) > 1 and list(window) == list(steps)


def is_plain(said: Mapping[str, Any]) -> bool:
    """Whether windows move on by one, over what lies side by side."""
    return all(step == 1 for name in ("window_strides", "rhs_dilation", "lhs_dilation") for step in said.get(name, ()))


def _leaves_on_lanes(graph: Graph, op: Op, is_gradient: bool) -> bool:
    """Whether a kernel has the features that leave on its lanes: what pads less is, or else what is written last."""
    said = op.attributes
    shape = graph.shape(op.results[0] if is_gradient else op.operands[1])
    names = ("output_batch", "output_feature") if is_gradient else ("kernel_input_feature", "kernel_output_feature")
    enters, leaves = (said[f"{name}_dimension"] for name in names)
    if batch_on_lanes(shape[enters], shape[leaves]):
        return True
    return leaves > enters and not batch_on_lanes(shape[leaves], shape[enters])


def spatial(value: Value, said: Mapping[str, Any], side: str) -> list[int]:
    """The sizes of a value's spatial dims, as this side of a convolution has them."""
    return [value.shape[int(dim)] for dim in said.get(f"{side}_spatial_dimensions", ())]


def _up(size: int, to: int) -> int:
    return -(-size // to) * to
