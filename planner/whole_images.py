"""Images that loops take or make whole while a kernel goes round, of a shape that others take in pieces.

What is taken in pieces of few features lies with its batch on the lanes (``taken_in_pieces``), and so does what is
computed of it number by number. A convolution that reads all of an image has it as it fills lanes best: as a copy,
which is all that is kept where no one else reads the image. What loops add up lies so too, until something reads it.
"""

from __future__ import annotations

from collections.abc import Mapping

from .fusion.nature import ELEMENTWISE
from .graph import Graph, Op
from .image_pieces import NARROW_BITS, pieces_of, turned_shapes
from .images import CONVOLUTION, Image, batch_on_lanes, convolves, images_of
from .kernels import Program


def taken_whole(graph: Graph) -> dict[int, Image]:
    """The values that loops of several turns convolve whole, with their features on the lanes, of shapes whose batch
    lies there elsewhere; with the dims of each.
    """
    turned = turned_shapes(graph) if convolves(graph) else frozenset[tuple[int, ...]]()
    found: dict[int, Image] = {}
    for loop in graph.nesting if turned else ():
        for value, image in read_whole(loop).items():
            shape = graph.shape(value)
            if shape in turned and not batch_on_lanes(shape[image.features], shape[image.batch], NARROW_BITS):
                found[value] = image
    return found


def kept_whole(program: Program) -> dict[int, Image]:
    """Those of them that nothing else reads: only the copy is kept."""
    graph, found = program.graph, taken_whole(program.graph)
    others = set(graph.results)
    for op in graph.ops if found else ():
        whole = read_whole(op)
        others.update(value for value in op.operands if value not in whole or op.operands.count(value) > 1)
    made = {value for kernel in program.kernels if not kernel.bodies for value in kernel.writes}
    return {value: image for value, image in found.items() if value in made - others}


def added_whole(graph: Graph) -> dict[int, Image]:
    """What loops of several turns add up of such a shape, and what they begin with, with the dims of each."""
    turned = turned_shapes(graph) if convolves(graph) else frozenset[tuple[int, ...]]()
    found: dict[int, Image] = {}
    for loop in graph.nesting if turned else ():
        for body in loop.bodies[:1] if loop.turns else ():
            made, cut = made_whole(body), {piece.whole for piece in pieces_of(body)}
            carried = zip(loop.operands, body.arguments, body.results, loop.results, strict=False)
            for begun, argument, inner, result in carried:
                if inner in made and graph.shape(result) in turned:
                    found[result] = made[inner]
                    if argument not in cut and loop.operands.count(begun) == 1:
                        found[begun] = made[inner]
    return found


def made_whole(body: Graph) -> dict[int, Image]:
    """The images that convolutions of a loop's body make whole, and what is computed of them number by number."""
    found = {
        value: image
        for op in body.of_kind(CONVOLUTION)
        for value, image in images_of(body, op)
        if value in op.results and not batch_on_lanes(*_features_and_batch(body, value, image), NARROW_BITS)
    }
    for op in body.ops if found else ():
        if op.kind in ELEMENTWISE:
            of = [found[value] for value in op.operands if value in found]
            found.update(dict.fromkeys(op.results, of[0]) if of else {})
    return found


def read_whole(loop: Op) -> Mapping[int, Image]:
    """The operands of a loop of several turns that convolutions read whole, rounded at most."""
    found: dict[int, Image] = {}
    for body in loop.bodies[:1] if loop.turns else ():
        given = dict(zip(body.arguments, loop.operands, strict=False))
        for op in body.ops:
            if op.kind == "convert" and op.operands[0] in given:
                given[op.results[0]] = given[op.operands[0]]
        cut = {given.get(piece.whole) for piece in pieces_of(body)}
        for op in body.ops:
            for value, image in images_of(body, op) if op.kind == CONVOLUTION else ():
                if value in given and given[value] not in cut:
                    found[given[value]] = image
    return found


def _features_and_batch(body: Graph, value: int, image: Image) -> tuple[int, int]:
    shape = body.shape(value)
    return shape[image.features], shape[image.batch]
