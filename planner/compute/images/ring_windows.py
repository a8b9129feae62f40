"""A convolution of few images going round a ring, as matrix units see it: two devices' features lie side by side."""

from __future__ import annotations

import math

from ...fusion.nature import UPDATE
from ...graph import Graph, Op
from ...image_pieces import NARROW_BITS
from ...images import LANES, ROWS, batch_on_lanes, images_of, is_gradient_of_kernel
from ..manner import Manner
from ..windows import FEW, Windows, spatial

RING_PIECES = 2
"""The devices whose features each turn of a ring brings."""

ENTERING_ROWS, GAPPED_ROWS = 68, 64
"""The rows at each place, at least, where the two devices' features enter with the batch on the lanes, whatever the
window is (v5e, v6e). And those of each position where the image has gaps, half of which are passed (v5e).
"""

PICTURE_GRADIENT_ROWS = 7.2
"""The rows at each position that the gradient of a kernel over pictures takes whose outputs go round a ring (v5e: of
eight of 224 rows, 7x7, four features of each of two devices 1122229 cycles, where they are convolved 2475054).
"""

GRADIENT_TAP, ONE_IMAGE, GAPS = 0.01, 0.6, 0.6
"""For each position of a kernel, what part a gradient takes more of what it takes at each place of an image; what part
of the vector operations windows of one place of a single image take (v6e), and images with gaps (v4 and v6e), which
stream half of the rows.
"""

GAPPED_OPERATIONS, GAPPED_TAP_OPERATIONS, LOADINGS = 13.5, 3.5, 2
"""The vector operations of an image with gaps for each place, and for each position of the window there, and how often
the kernel of each position is brought to the squares, where two devices' features enter with features on the lanes
(two images on v5e and v6e: 3x3 windows take 45 operations, those of one place 17; of 32 features that enter on v6e, 3.8
rows are streamed at each tap, of 16 1.9).
"""


def ring_windows_of(graph: Graph, op: Op, manner: Manner) -> Windows | None:
    """What a convolution of few images takes for a turn of a ring, whose two devices' features are places of one more
    dim; none if that is what others take.

    Seen on v4 to v6e: at each position of a window a register of rows for both devices where features of each leave,
    half of one where they enter, and two with the batch on the lanes, as a few features of a device put it there; and
    for each place no fewer vector operations than its manner says, however small the window is.
    """
    said, is_gradient = op.attributes, is_gradient_of_kernel(graph, op)
    (value, image), *_ = images_of(graph, op)
    whole, right, made = (graph.values[number] for number in (value, op.operands[1], op.results[0]))
    batch, entering = whole.shape[image.batch], whole.shape[image.features]
    operations = _ring_operations(graph, op, manner)
    if batch >= ROWS:
        return _of_pictures(graph, op, manner, batch, entering)
    if not operations:
        return None
    window, result = spatial(right, said, "kernel"), spatial(made, said, "output")
    leaving = right.shape[said["kernel_output_feature_dimension"]]
    taps, small = math.prod(window) * math.prod(result), min(leaving, entering) // RING_PIECES
    places = math.prod(window if is_gradient else result)
    has_gaps = math.prod(said.get("lhs_dilation", ())) > 1
    is_single = batch == 1 and manner.packs_all and not manner.apart_operations and math.prod(window) == 1
    turned = batch > 1 and batch_on_lanes(small, batch, NARROW_BITS)
    if is_gradient:
        turned = batch > 1 and not batch_on_lanes(batch, leaving // RING_PIECES, NARROW_BITS)
        streamed = RING_PIECES * ROWS if turned else 0
        operations *= 1 + GRADIENT_TAP * math.prod(result)
        entering = leaving = 1
    elif _leaves_in_pieces(graph, op):
        streamed = RING_PIECES * ROWS if turned else ROWS
    elif turned:
        streamed = GAPPED_ROWS if has_gaps else ROWS // RING_PIECES
    else:
        streamed = ROWS // RING_PIECES
    room = None if not turned or is_gradient or _leaves_in_pieces(graph, op) else RING_PIECES * LANES
    room = FEW if entering < FEW and not is_gradient else room
    passes = has_gaps and not manner.apart_operations and (manner.packs_all or not _leaves_in_pieces(graph, op))
    share = ONE_IMAGE if is_single else GAPS if passes else 1.0
    is_loaded = (
        passes and manner.packs_all and batch > 1 and not (turned or is_gradient or _leaves_in_pieces(graph, op))
    )
    if is_loaded:
        operations, share = GAPPED_OPERATIONS + GAPPED_TAP_OPERATIONS * math.prod(window), 1.0
    enters_turned = turned and not (is_gradient or has_gaps or _leaves_in_pieces(graph, op))
    return Windows(
        taps=taps,
        least=ENTERING_ROWS / max(math.prod(window), 1) if enters_turned else 0.0,
        streamed=streamed // 2 if has_gaps else streamed,
        entering=entering,
        leaving=leaving,
        room=room,
        registers=share * operations * places,
        loading=LOADINGS * manner.loading if is_loaded else 0.0,
    )


def _of_pictures(graph: Graph, op: Op, manner: Manner, batch: int, entering: int) -> Windows | None:
    """The same of so many pictures that they fill registers, convolved to so few features of each device that these
    have the batch on the lanes: whole registers of rows for both devices at each position, which share no depth.
    """
    leaving = graph.shape(op.operands[1])[op.attributes["kernel_output_feature_dimension"]]
    turns = batch_on_lanes(max(leaving // RING_PIECES, 1), batch, NARROW_BITS)
    if not manner.packs_all or entering >= ROWS or not turns:
        return None
    is_gradient = is_gradient_of_kernel(graph, op)
    right, made = graph.values[op.operands[1]], graph.values[op.results[0]]
    taps = math.prod(spatial(right, op.attributes, "kernel")) * math.prod(spatial(made, op.attributes, "output"))
    least = PICTURE_GRADIENT_ROWS if is_gradient else RING_PIECES * ROWS
    return Windows(taps=taps, streamed=0, entering=entering, leaving=leaving, least=least)


def _ring_operations(graph: Graph, op: Op, manner: Manner) -> float:
    """Vector operations at each place for both devices."""
    if is_gradient_of_kernel(graph, op):
        (value, image), *_ = images_of(graph, op)
        return manner.ring_gradient_operations if manner.packs_all or graph.shape(value)[image.batch] > 1 else 0.0
    return manner.ring_operations if _leaves_in_pieces(graph, op) else manner.summed_operations


def _leaves_in_pieces(graph: Graph, op: Op) -> bool:
    """Whether a turn makes two devices' features, and does not read them: what it makes is put into an image."""
    makers = {result: each for each in graph.ops for result in each.results}
    if any(value in makers and "step" in makers[value].attributes for value in op.operands):
        return False
    is_put = any(each.kind == UPDATE and op.results[0] in each.operands for each in graph.ops)
    (value, image), (second, other) = images_of(graph, op)
    return is_put or graph.shape(second)[other.features] < graph.shape(value)[image.features]
