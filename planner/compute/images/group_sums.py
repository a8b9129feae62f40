"""What sums over groups of an image's features take besides, as group normalisation has them.

Each feature is summed as it lies, then a kernel of its own adds up those of each group; what is known of a group is
spread over its features by another before images are read with it (v3, v4, v5e, v5p and v6e). Where that wastes less
the batch lies on the lanes in these, and they are copied on their way (v5p: 32 groups of four features of 8 images). In
a vector memory that keeps values (v5e, v6e) such copies take nothing, nor does spreading what lies upright.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...fusion.nature import BROADCAST, REDUCE
from ...graph import Graph, Op
from ...images import Image
from ...kernels import Kernel
from ..coefficients import Coefficients
from ..cycles import cycles_of
from ..work import LANES, LOOP, REGISTER_ELEMENTS, SUBLANES, WORD_BYTES, Work

Shape = tuple[int, ...]


class GroupSums:
    """The groups of a graph's images, ``parted`` shapes with the whole ones, as its kernels are gone through."""

    def __init__(
        self, graph: Graph, parted: Mapping[Shape, Shape], images: Mapping[Shape, Image], of: Coefficients
    ) -> None:
        self._graph, self._of = graph, of
        self._takes = {shape: self._cycles_of(shape, images[whole]) for shape, whole in parted.items()}
        self._spread = set[int]()

    def extra_cycles(self, kernel: Kernel) -> float:
        """What adding up groups behind a kernel takes, and spreading over their features what it is the first to read
        of them.
        """
        return sum(self._of_op(self._graph.ops[number]) for number in kernel.ops) if self._takes else 0.0

    def _of_op(self, op: Op) -> float:
        if op.kind == REDUCE:
            return self._takes.get(self._graph.shape(op.operands[0]), (0.0, 0.0))[0]
        if op.kind != BROADCAST or op.operands[0] in self._spread:
            return 0.0
        took = self._takes.get(self._graph.shape(op.results[0]), (0.0, 0.0))[1]
        if not took or self._graph.values[op.operands[0]].num_elements == 1:
            return 0.0
        self._spread.add(op.operands[0])
        return took

    def _cycles_of(self, shape: Shape, image: Image) -> tuple[float, float]:
        """What kernels take that add up and that spread, with their copies."""
        batch, groups, features = shape[image.batch], shape[image.features], shape[image.features + 1]
        upright = batch * -(-groups // SUBLANES) * -(-features // LANES)
        across = groups * (-(-features // SUBLANES) if features >= SUBLANES else features / SUBLANES)
        across *= -(-batch // LANES)
        num_bytes = int(min(upright, across) * REGISTER_ELEMENTS * WORD_BYTES)
        work = Work(kind=LOOP, reads=(num_bytes,), writes=(num_bytes,), space_bytes=num_bytes, single=True)
        took = cycles_of(work, (False,), (False,), LANES, self._of).total
        if self._of.carried_bytes:
            return took, 0.0 if upright <= across else took
        took *= 1 if upright <= across else 2
        return took, took
