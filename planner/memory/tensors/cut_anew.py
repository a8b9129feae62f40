"""Few images that a convolution cuts anew, since its windows begin at other places than the parts that they lie in.

A convolution whose windows move on by several places wants parts of as many as these begin at; those of one before that
moves on by one hold margins besides, and are put together and cut again. What it reads is written twice for that in
bfloat16, beside what else is kept: once for it, and once for the gradient of its kernel, which reads it whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from ...cut_images import SMALLEST_WITHOUT_VMEM, cut_anew, cut_convolutions, share_read, with_margins
from ...graph import Value
from ...image_sources import of_arguments
from ...images import CONVOLUTION, images_of, is_gradient_of_kernel, is_of_one_place
from ...kernels import Program
from .convolved import FEW_FEATURES
from .taken_in_pieces import NARROW, Alone, Beside


def copies_cut_anew(
    program: Program, smallest: int, sources: Mapping[int, int], laid: Callable[[Value], int]
) -> Iterator[Beside]:
    """What lies beside such images, ``sources`` being what they are computed of: both copies until they are read, and
    meanwhile what is put together of each. An image that lies in bfloat16 itself is the one for the gradient.
    """
    graph = program.graph
    images, margins = cut_anew(graph, smallest), with_margins(graph, cut_convolutions(graph, smallest))
    makers = {value: point for point, kernel in enumerate(program.kernels) for value in kernel.writes}
    for point, kernel in enumerate(program.kernels) if images else ():
        for op in [graph.ops[number] for number in kernel.ops]:
            if op.kind != CONVOLUTION or op.operands[0] not in images:
                continue
            value = op.operands[0]
            while value not in makers and value in sources:
                value = sources[value]
            if value in makers:
                copy = replace(graph.values[value], dtype=NARROW)
                num_bytes = int(laid(copy) * margins.get(copy.shape, 1.0))
                is_itself = value == op.operands[0] and graph.values[value] == copy
                if not (is_itself and is_gradient_of_kernel(graph, op)):
                    yield Beside(value, (makers[value], point), num_bytes)
                yield Beside(value, (point, point), num_bytes)


def given_parts(program: Program, smallest: int, laid: Callable[[Value], int]) -> Iterator[Beside]:
    """The parts, with margins, of images that a step is given, while a convolution of several places reads them.

    Seen on v5p, v5e and v6e; not looked for where only single images are cut.
    """
    graph = program.graph
    cut = cut_convolutions(graph, smallest) if smallest > SMALLEST_WITHOUT_VMEM else {}
    given = of_arguments(graph) if cut else set[int]()
    for point, kernel in enumerate(program.kernels) if cut else ():
        for op in [cut[made] for number in kernel.ops for made in graph.ops[number].results if made in cut]:
            (value, image), *_ = images_of(graph, op)
            if value in given and graph.shape(value)[image.features] >= FEW_FEATURES and not is_of_one_place(graph, op):
                num_bytes = laid(replace(graph.values[value], dtype=NARROW))
                yield Alone(value, (point, point), int(num_bytes * share_read(graph, op)))
