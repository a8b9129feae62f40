"""What the TPU compiler does besides what a kernel computes: it copies, turns, cuts and joins what kernels read and
make, and goes through it in ways of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import NamedTuple

from ..fusion.nature import SLICE, UPDATE
from ..graph import Op
from ..image_pieces import looped_images
from ..images import CONVOLUTION
from ..kernels import Kernel, Program
from .apart import Apart
from .batched import GROWING, grown, growth_of
from .compared import Masks
from .copies.batch_rows import BatchRows
from .copies.caches import few_rows, through_few_rows
from .copies.cut_across import cut_across
from .copies.cut_lanes import CutLanes
from .copies.cut_rows import CUT, CutRows
from .copies.few_rows import cut_for_products, lying_whole, tile_by_tile
from .copies.lookups import Lookups
from .copies.patches import Patches
from .copies.strided import rows_cycles, strided, turned_stacks
from .copies.turned import Turned
from .copies.turned_copies import Copies, copies_cycles, crossings
from .copies.updated import Updated, lent
from .cycles import cycles_of
from .images.convolved import Convolved
from .residence import Near
from .speed import Speed
from .work import FREE, Work

TRANSPOSE = "transpose"


class Beside(NamedTuple):
    """The ``work`` of a kernel as it is done and the ``cycles`` that it takes besides, a lookup's copies among them;
    what it has ``at_hand``. ``looks_up`` says that it takes these alone, as far as the compiler says, whose cycles are
    known whole where ``is_whole``, and ``is_counted`` that it has some that the compiler counts.
    """

    work: Work
    cycles: float
    at_hand: tuple[int, ...]
    looks_up: bool
    is_whole: bool
    is_counted: bool


class Besides:
    """The kernels of a program, or a loop's turn, in their order on a chip of this speed; ``apart`` from their step, or
    all of it. ``trips``, ``stacks``, ``tiled``, ``kinds`` and ``near`` are as in ``price_at``.
    """

    def __init__(
        self,
        program: Program,
        speed: Speed,
        step: Apart,
        *,
        apart: Apart | None,
        trips: int,
        stacks: frozenset[int],
        tiled: frozenset[int],
        kinds: frozenset[str],
        near: Near | None,
    ) -> None:
        graph, of, is_apart, is_tiled = program.graph, speed.coefficients, apart is not None, speed.edge > 1
        has_bodies = any(kernel.bodies for kernel in program.kernels)
        is_step = is_tiled and (bool(graph.names) or is_apart)
        self._graph, self._speed, self._stacks, self._tiled, self._near = graph, speed, stacks, tiled, near
        self._turned = Turned(graph, 0 if is_apart else speed.edge)
        self._lookups = Lookups(program, speed, step, kinds, apart=apart)
        self._convolved = None
        if step.images or CONVOLUTION in kinds or ("while" in kinds and looped_images(graph)):
            self._convolved = Convolved(
                graph,
                of,
                speed.edge,
                in_loop=trips > 0,
                given=step.given,
                known=step.images,
                across=step.across,
                places=step.cut,
                left=step.left if is_step and not is_apart else (),
            )
        borrowed = step.lent if is_apart or not graph.names else lent(graph)
        self._updated = Updated(graph, of, borrowed) if borrowed and is_tiled else None
        self._lying = strided(graph, step.given) if has_bodies else frozenset[int]()
        self._whole = lying_whole(graph, step.given, of) if is_tiled else frozenset[int]()
        self._patches = Patches(graph, of, apart=is_apart) if TRANSPOSE in kinds and is_tiled else None
        self._growth = growth_of(graph) if is_tiled and not kinds.isdisjoint(GROWING) else {}
        cuts_lanes = graph.names and is_tiled and not kinds.isdisjoint((SLICE, CUT))
        lanes = self._lanes = CutLanes(program, of, speed.edge) if cuts_lanes else None
        in_lanes = lanes.parts if lanes else ()
        cuts_rows = is_step and CUT in kinds
        tiles = CutRows(program, of, step.given, apart=is_apart, lanes=in_lanes) if cuts_rows else None
        self._tiles = tiles
        few = few_rows(graph, self._whole) if is_tiled else {}
        few = {value: times for value, times in few.items() if value not in tiles.wholes} if tiles and few else few
        self._laid = BatchRows(graph, of) if trips and is_tiled and UPDATE in kinds else None
        self._few = few | (self._laid.growth if self._laid else {})
        self._across = {} if is_apart or not (has_bodies and is_tiled) else cut_across(graph, of)
        self._masks = Masks(graph, step.packed, step.bare, is_apart=is_apart)

    def looped(self, op: Op) -> tuple[frozenset[int], frozenset[int]]:
        """Notes a loop: what its body reads a piece each turn of that does not lie by pieces, and what lies as it
        comes.
        """
        if self._convolved:
            self._convolved.looped(op)
        lying, whole = (turned_stacks(op, found) if op.turns else frozenset() for found in (self._lying, self._whole))
        return lying, whole

    def sent(self, op: Op, kernel: Kernel) -> None:
        """Notes a collective."""
        self._turned.copied(kernel)
        self._lookups.sent(kernel)
        if self._convolved:
            self._convolved.gathered(op)

    def of(self, kernel: Kernel, point: int, known: Work, more: float) -> Beside:
        """What there is besides the work that is known of a kernel, the ``point``-th of the program, and so many cycles
        more.
        """
        graph, speed, convolved = self._graph, self._speed, self._convolved
        turning, copied = self._turning(kernel)
        looked = self._lookups.of(kernel)
        more += turning
        more += self._updated.copies_cycles(kernel) if self._updated else 0.0
        if convolved:
            more += convolved.copies_cycles(
                kernel, None if self._near is None else partial(self._near.is_near, point=point)
            )
            more += convolved.grouped_cycles(kernel) + convolved.parts_cycles(kernel)
        more += rows_cycles(graph, kernel, self._stacks, speed.edge, speed.coefficients) if self._stacks else 0.0
        more += sum(self._across.get(value, 0.0) for value in kernel.writes) if self._across else 0.0
        patched = self._patches.copies_cycles(kernel) if self._patches else 0.0
        cut_out = cut_for_products(graph, kernel, self._tiled) if self._tiled else {}
        more += patched + sum(self._cycles(each, (False,), (True,)) for each in cut_out.values())
        work = speed.work(convolved.counted(kernel, known) if convolved else known)
        work, cutting, near_parts = self._gone_through(kernel, work)
        more += cutting + (self._laid.extra_cycles(kernel, work) if self._laid else 0.0)
        work = Work(kind=FREE) if looked.is_filled else work
        work, bits = self._masks.done(kernel, work)
        more += 0.0 if bits is None else self._cycles(bits, (), (False,))
        more += looked.cycles + looked.windows
        return Beside(
            work=work,
            cycles=more,
            at_hand=(*copied, *cut_out, *near_parts, *self._stacks.intersection(kernel.reads)),
            looks_up=more > 0 and self._lookups.is_last(kernel),
            is_whole=looked.windows > 0,
            is_counted=patched > 0,
        )

    def _turning(self, kernel: Kernel) -> tuple[float, tuple[int, ...]]:
        """The cycles of what is copied to lie otherwise, and which of that is at hand then."""
        sent = self._turned.sent(kernel)
        copied = (*self._turned.copied(kernel), *sent)
        if not copied:
            return 0.0, ()
        around = (*kernel.reads, *kernel.writes)
        copies = Copies.of(copied, (*kernel.writes, *sent), around, self._graph.values.__getitem__)
        at_hand = copied if crossings(copies.around, self._speed) == 1 else ()
        return copies_cycles(copies, self._speed), at_hand

    def _gone_through(self, kernel: Kernel, work: Work) -> tuple[Work, float, tuple[int, ...]]:
        """The work of a kernel that goes through rows and tiles as these lie, the cycles of cutting parts out for it,
        and which of these are at hand then.
        """
        graph, cutting, parts = self._graph, 0.0, tuple[int, ...]()
        work = grown(kernel, work, self._growth) if self._growth else work
        work = through_few_rows(graph, kernel, work, self._few) if self._few else work
        whole = self._tiled or self._whole
        work = tile_by_tile(graph, kernel, work, whole) if whole else work
        if self._lanes:
            cutting, near_parts = self._lanes.cycles(kernel)
            alone = cutting and self._lanes.only_cuts(kernel)
            work, parts = Work(kind=FREE) if alone else self._lanes.through_rows(kernel, work), (*near_parts,)
        if self._tiles:
            rows, near_parts = self._tiles.cycles(kernel)
            work = self._tiles.through_tiles(kernel, work, near_parts)
            cutting, parts = max(cutting, rows), (*parts, *near_parts)  # of what is cut along both one
        return work, cutting, parts

    def _cycles(self, work: Work, reads: Collection[bool], writes: Collection[bool]) -> float:
        return cycles_of(work, (*reads,), (*writes,), self._speed.edge, self._speed.coefficients).total
