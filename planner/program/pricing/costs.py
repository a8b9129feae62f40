"""Seconds of one kernel under a choice of layouts, by the same stages that price a whole step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...compute.copies.relaid import Copied, copy_cycles
from ...compute.copies.turned_copies import Copies, copies_seconds
from ...compute.single_ops import packing_seconds
from ...compute.speed import Speed
from ...compute.work import padded_bytes
from ...convolution_layout import convolution_layout, turns
from ...estimate.traffic import Tariff, axes_of, held_bytes
from ...fusion.masks import is_packed
from ...fusion.narrow import NARROW, WIDE
from ...fusion.nature import ELEMENTWISE
from ...graph import Op, Sharding, Value
from ...kinds import ALL_REDUCE, KINDS
from ...partition.layout import extends, local_shape
from ...topology import Machine
from ..step.around import Around
from ..step.blueprint import Blueprint, Padding
from ..step.fills import is_fill
from ..step.fused import Company, Fused, Part, fused
from ..step.pieces import Piece, Pieces
from ..step.seen import parts
from .begun import begun_seconds
from .choices import Choice, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What prices kernels: a machine, the speed of its chips and what its network takes for a mesh; how many
    ``convolutions`` the step has, and whether layouts only say how many ways dims are split (``counted``).
    """

    machine: Machine
    speed: Speed
    tariff: Tariff
    mesh: Mapping[str, int]
    convolutions: int = 0
    counted: bool = False
    said: dict[Sharding, Sharding] = field(default_factory=dict)

    def lies(self, layout: Sharding) -> Sharding:
        """How a value is said to lie to other kernels that has a layout in one."""
        if not self.counted:
            return layout
        if layout not in self.said:
            self.said[layout] = counted(layout, self.mesh)
        return self.said[layout]

    def pieces(self) -> Pieces:
        """Where the pieces of this mesh are kept."""
        return Pieces(machine=self.machine, tariff=self.tariff, mesh=self.mesh)


class Sum(NamedTuple):
    """What devices along ``axes`` add up for all of them to have it: so many bytes on each, where each is left a part
    ``whole_bytes``, which are not rounded; a part along one of the ``dims``.
    """

    axes: tuple[str, ...]
    num_bytes: int
    whole_bytes: int
    dims: frozenset[int]


@dataclass(slots=True, kw_only=True)
class Costs:
    """What the choices of one kernel take. Operations that ask other devices are partitioned one by one; what they
    become is fused with the others, once for all choices for which it differs in nothing but shapes. The kernel that
    makes what is ``beside`` leaves as many numbers more, in the dtype that is said.
    """

    blueprint: Blueprint
    pricing: Pricing
    pieces: Pieces
    parts: dict[tuple[int, Sharding], tuple[int, ...]] = field(default_factory=dict)
    held: dict[tuple[int, Sharding, str], Value] = field(default_factory=dict)
    asked: dict[tuple[int, tuple[Sharding, ...]], Piece] = field(default_factory=dict)
    computed: dict[Choice, float] = field(default_factory=dict)
    beside: tuple[tuple[int, str], ...] = ()

    def seconds(self, choice: Choice) -> float:
        """What one run takes on each device, computing and its collectives; no computing for one in passing, nor for
        one that leaves nothing, as calls back to the host do.
        """
        found = self._pieces(choice)
        collectives_s = self._all_asking_s(found)
        if not self.blueprint.own.results:
            return collectives_s
        if self.is_passed(choice):
            return collectives_s + (self._packing_s(choice) if self.blueprint.masks else 0.0)
        return collectives_s + self.computing_s(choice)

    def deterred_s(self, choice: Choice) -> float:
        """What is to keep a search from convolutions that have to be computed otherwise: about what that takes more."""
        turns = self._turns(choice)
        return self.computing_s(choice) * (turns - 1) if turns > 1 and not self.is_passed(choice) else 0.0

    @property
    def is_sending_all(self) -> bool:
        """Whether nothing counts but what is sent."""
        return self.blueprint.is_free or not self.blueprint.own.results

    def sent_in_all_s(self, choice: Choice) -> float:
        """What the collectives of one run take."""
        return self._all_asking_s(self._pieces(choice))

    def multiplying_s(self, choice: Choice) -> float:
        """What plain products take at least that are computed whatever it is handed: what is laid out anew after it was
        added up may be cut before.
        """
        speed, total = self.pricing.speed, 0.0
        sizes = [size for size in self.pricing.mesh.values() if size > 1]
        for product, loops in self.blueprint.multiplied:
            squares = speed.product(product).padded(speed.edge)
            ways = zip(sizes, choice.splits, strict=True)
            shares = (size for size, split in ways for loop in (split.loop, split.then) if loop in loops)
            total += squares / math.prod(shares)
        return total * speed.coefficients.multiply_add_cycles / speed.clock_hz

    def rounding_saves_s(self, choice: Choice, value: int) -> float:
        """What its products take less at most that read a value rounded to half its bytes."""
        speed, form = self.pricing.speed, self.blueprint.nest.form_of[value]
        part = Value(self._shape(value, form, choice.layouts[form]), NARROW)
        less_s = padded_bytes(part) * speed.coefficients.byte_cycles / speed.clock_hz
        return max(min(less_s, self.computing_s(choice) - self.multiplying_s(choice)), 0.0)

    def _all_asking_s(self, found: Mapping[int, Piece]) -> float:
        return sum(self._asking_s(number, piece) for number, piece in found.items())

    def is_passed(self, choice: Choice) -> bool:
        """Whether what reads what it makes computes that in passing."""
        results = self.blueprint.own.results
        is_selected = any(each.value in results for each in self._selected(choice))
        return self.blueprint.is_free or is_selected or self.is_view(choice)

    def is_view(self, choice: Choice) -> bool:
        """Whether it does nothing but spread what a device has of a value over nothing."""
        return self.blueprint.spread is not None and self.is_viewed(choice, *self.blueprint.spread)

    def is_viewed(self, choice: Choice, value: int, made: int) -> bool:
        """Whether a device spreads what it has of a value over nothing: other devices have the rest."""
        form_of = self.blueprint.nest.form_of
        shapes = [self._shape(each, form_of[each], choice.layouts[form_of[each]]) for each in (value, made)]
        return math.prod(shapes[0]) == math.prod(shapes[1])

    def read_s(self, choice: Choice, value: int) -> float:
        """What reading a device's part of a value takes."""
        form, speed, own = self.blueprint.nest.form_of[value], self.pricing.speed, self.blueprint.own.values[value]
        part = Value(self._shape(value, form, choice.layouts[form]), own.dtype)
        return padded_bytes(part) * speed.coefficients.byte_cycles / speed.clock_hz

    def copying_s(self, choice: Choice, copied: Copied) -> float:
        """What copying takes that a product needs of a device's part of what it reads."""
        form, speed, own = self.blueprint.nest.form_of[copied.value], self.pricing.speed, self.blueprint.own
        shape = self._shape(copied.value, form, choice.layouts[form])
        part = Value(shape, own.values[copied.value].dtype)
        return copy_cycles(part, speed.coefficients) / speed.clock_hz if copied.is_copied(shape) else 0.0

    def _selected(self, choice: Choice) -> frozenset[Padding]:
        """Which of what only pads read are padded across devices, each of which then only selects what it keeps of its
        part: what reads that computes it in passing.
        """
        nest, mesh, found = self.blueprint.nest, self.pricing.mesh, set[Padding]()
        for each in self.blueprint.padded:
            layout = choice.layouts[form := nest.form_of[each.value]]
            if self._shape(each.value, form, layout) == local_shape(each.whole, layout, mesh):
                found.add(each)
        return frozenset(found)

    def _asking_s(self, number: int, piece: Piece) -> float:
        """What one run's share of an operation's collectives takes: behind a loop comes its last sum, and no sum before
        that of which each device is left a part (gradients of cells, compiled for v4 and v5e).
        """
        if not self._is_behind(number, piece):
            return piece.collectives_s
        return piece.collectives_s - piece.last_s * (1 - 1 / self.blueprint.turns)

    def _is_behind(self, number: int, piece: Piece) -> bool:
        """Whether what an operation adds up over devices is added up once, behind the loop."""
        return number in self.blueprint.behind and piece.graph.ops[-1].kind == ALL_REDUCE

    def brought_s(self, choice: Choice, value: int, layout: Sharding) -> tuple[float, float]:
        """What one run takes where what makes a value leaves it in another layout than the choice has it in, and what
        more where it has to be written so: what is simply computed is computed where it is read as it lies.
        """
        number = next(at for at, op in enumerate(self.blueprint.own.ops) if value in op.results)
        lies = tuple([layout if place == value else choice.layouts[form] for place, form in self._around(number)])
        piece = self._piece_of(number, lies)
        others = {at: each for at, each in self._pieces(choice).items() if at != number}
        found = dict(sorted((others | ({} if piece.plain else {number: piece})).items()))
        collectives_s = self._all_asking_s(found)
        whole_s = collectives_s + self._computing(choice, found, (value, layout))
        if self.blueprint.own.ops[number].kind not in ELEMENTWISE or value in self.blueprint.around.left:
            return whole_s, 0.0
        passed_s = min(self.seconds(choice) + self._asking_s(number, piece), whole_s)
        return passed_s, whole_s - passed_s

    def _around(self, number: int) -> list[tuple[int, int]]:
        """The values of an operation, operands then results, with their forms."""
        op, nest = self.blueprint.own.ops[number], self.blueprint.nest
        return [(value, nest.form_of[value]) for value in dict.fromkeys((*op.operands, *op.results))]

    def computing_s(self, choice: Choice) -> float:
        """What computing takes, be the kernel free or not."""
        found = self.computed.get(choice)
        if found is None:
            found = self.computed[choice] = self._computing(choice, self._pieces(choice))
        return found

    def sum_of(self, number: int, choice: Choice) -> Sum | None:
        """What an operation leaves on all devices of what these add up, if that is the last that it does."""
        piece = self._piece(number, choice) if number in choice.asking else None
        return None if piece is None or piece.graph.ops[-1].kind != ALL_REDUCE else self._sum(piece)

    def each_turn(self, number: int, choice: Choice) -> tuple[float, Sum | None]:
        """What one run takes more where what an operation adds up is added up over devices in every turn, and not
        behind the loop, with what it adds up then; nothing where it is not behind.
        """
        behind = self._piece(number, choice) if number in choice.asking else None
        if behind is None or not self._is_behind(number, behind):
            return 0.0, None
        alone = self.blueprint.alone(number)
        piece = self.pieces.of(alone, tuple([choice.layouts[form] for form in alone.forms]))
        return max(piece.collectives_s - self._asking_s(number, behind), 0.0), self._sum(piece)

    def _sum(self, piece: Piece) -> Sum:
        graph = piece.graph
        op = graph.ops[-1]
        held = held_bytes(graph, op, is_tpu=self.pricing.tariff.is_tpu)
        whole_bytes = sum(graph.values[value].num_bytes for value in op.operands)
        return Sum(axes_of(op), held, whole_bytes, piece.kept)

    def sent_s(self, number: int, choice: Choice) -> float:
        """What an operation takes that neighbours send each other for it."""
        piece = self._piece(number, choice) if number in choice.asking else None
        return 0.0 if piece is None else piece.permutes_s

    def _pieces(self, choice: Choice) -> dict[int, Piece]:
        found = {number: self._piece(number, choice) for number in choice.asking}
        return {number: piece for number, piece in found.items() if not piece.plain}

    def _computing(
        self, choice: Choice, pieces: Mapping[int, Piece], left: tuple[int, Sharding] | None = None
    ) -> float:
        """What computing takes; of what is ``left`` in another layout than the choice has, the value and that."""
        nest = self.blueprint.nest
        found = {number: piece for number, piece in pieces.items() if not self._is_behind(number, piece)}
        masks, wide = self.masks(choice), self._wide(choice)

        def part(value: int, dtype: str) -> Value:
            form = nest.form_of[value]
            layout = choice.layouts[form] if left is None or left[0] != value else left[1]
            dtype = WIDE if value in wide and dtype == NARROW else dtype
            found = self.held.get((form, layout, dtype))
            if found is None:
                found = self.held[form, layout, dtype] = Value(self._shape(value, form, layout), dtype)
            return found

        taken = tuple(_taken(part, op) for op in self.blueprint.lookups)
        is_once = self._reads_once(choice)
        packed = self._packed(choice, masks) if masks else masks
        key = (masks, wide, packed, taken, is_once, *((number, piece.form) for number, piece in found.items()))
        near_bytes, is_gpu = self.pricing.machine.chip.buffer_vmem_bytes, self._is_gpu
        pads = self.pricing.machine.platform == "tpu"

        def fuse(own: Blueprint, around: Around) -> Fused:
            whole = own.once if is_once else own.own
            return fused(whole, part, found, nest.form_of, masks, near_bytes, around, is_gpu=is_gpu, pads=pads)

        becomes = self.blueprint.becomes(key, packed, fuse)
        passing = self._selected(choice) if self.blueprint.padded else frozenset[Padding]()
        if self.blueprint.copies and not (is_once or near_bytes or is_gpu):
            passing |= self._cut_in_passing(choice)
        beside = {value: Value(part(value, dtype).shape, dtype) for value, dtype in self.beside}
        company = Company(passing=passing, beside=beside)
        took_s = becomes.seconds(part, found, self.pricing.speed, company)
        took_s += begun_seconds(self.blueprint.own, self.blueprint.around.filled, part, self.pricing.speed)
        return took_s + self._turning(part) if self.blueprint.turned else took_s

    def _reads_once(self, choice: Choice) -> bool:
        """Whether what it reads twice lies alike, or is cut in passing for what comes after its products."""
        form_of, multiplied = self.blueprint.nest.form_of, self.blueprint.multiplied_copies

        def is_alike(copy: int, of: int) -> bool:
            own, lies = choice.layouts[form_of[copy]], choice.layouts[form_of[of]]
            return own == lies or (copy not in multiplied and extends(own, lies))

        return bool(self.blueprint.copies) and all(is_alike(copy, of) for copy, of in self.blueprint.copies)

    def _cut_in_passing(self, choice: Choice) -> frozenset[Padding]:
        """What its products read that it cuts out of what else it reads, which chips read once that keep nothing near
        from kernel to kernel (seen on v3).
        """
        form_of, multiplied = self.blueprint.nest.form_of, self.blueprint.multiplied_copies
        lies = (
            (copy, choice.layouts[form_of[copy]], choice.layouts[form_of[of]]) for copy, of in self.blueprint.copies
        )
        cut = (copy for copy, own, whole in lies if copy in multiplied and extends(own, whole))
        return frozenset(Padding(value=copy, whole=(), operations=0.0, is_light=True) for copy in cut)

    def _turns(self, choice: Choice) -> int:
        """How often its convolutions are computed, about."""
        if not self.blueprint.convolutions:
            return 1
        used = [axis for axis, size in self.pricing.mesh.items() if size > 1]
        own, form_of = self.blueprint.own, self.blueprint.nest.form_of
        found = 1
        for op in self.blueprint.convolutions:
            left, right, result = (*op.operands[:2], *op.results)
            lies = convolution_layout(op, *(choice.layouts[form_of[value]] for value in (left, right, result)))
            found *= turns(op, own.shape(right), own.shape(result), lies, used, self.pricing.convolutions)
        return found

    def _turning(self, part: Part) -> float:
        """What copies take that come of a gradient that lies transposed."""
        own = self.blueprint.own
        around = dict.fromkeys((*own.arguments, *own.results))
        copies = Copies.of(self.blueprint.turned, own.results, around, lambda v: part(v, own.values[v].dtype))
        return copies_seconds(copies, self.pricing.speed)

    @property
    def _is_gpu(self) -> bool:
        return self.pricing.machine.platform == "gpu"

    def is_received(self, number: int, choice: Choice) -> bool:
        """Whether what an operation leaves is what devices sent each other."""
        return number in choice.asking and self._piece(number, choice).graph.ops[-1].kind in KINDS

    def masks(self, choice: Choice) -> frozenset[int]:
        """The masks that are left as bits, each written before what reads it."""
        if not self.blueprint.masks or self._is_gpu:
            return frozenset()
        own, form_of = self.blueprint.own, self.blueprint.nest.form_of
        made = ((own.ops[number].results[0], along) for number, along in self.blueprint.masks.items())
        forms = ((value, form_of[value], along) for value, along in made)
        return frozenset(
            value for value, form, along in forms if is_packed(self._shape(value, form, choice.layouts[form]), along)
        )

    def _wide(self, choice: Choice) -> frozenset[int]:
        """What is not rounded, as no bits are left of it."""
        form_of, masked = self.blueprint.nest.form_of, self.blueprint.around.masked
        shapes = ((v, self._shape(v, form_of[v], choice.layouts[form_of[v]]), along) for v, along in masked)
        return frozenset(value for value, shape, along in shapes if not is_packed(shape, along))

    def _packed(self, choice: Choice, masks: frozenset[int]) -> frozenset[int]:
        """What kernels of their own make bits of: images that devices share by rows, which convolutions write both as
        they are and above zero, for neighbours to be sent rows of that.
        """
        own, form_of = self.blueprint.own, self.blueprint.nest.form_of
        made = ((own.ops[number], along) for number, along in self.blueprint.masks.items())
        images = ((op, choice.layouts[form_of[op.results[0]]], along) for op, along in made if op.results[0] in masks)
        found = (op.operands for op, layout, along in images if any(layout[dim] for dim in along))
        filled = {op.results[0] for op in own.ops if is_fill(own, op)}
        arrays = frozenset(v for values in found for v in values if own.values[v].num_elements > 1)
        return arrays - filled - self.blueprint.around.summed

    def _packing_s(self, choice: Choice) -> float:
        """What kernels of their own take that make bits of what this one, in passing, compares."""
        own, form_of, images = self.blueprint.own, self.blueprint.nest.form_of, dict(self.blueprint.around.images)
        shapes = {
            v: self._shape(v, form_of[v], choice.layouts[form_of[v]]) for v in self._packed(choice, self.masks(choice))
        }
        lie = parts(images, shapes)
        held = (Value(shape, own.values[value].dtype) for value, shape in shapes.items())
        return sum(packing_seconds(each, lie, self.pricing.speed) for each in held)

    def _piece(self, number: int, choice: Choice) -> Piece:
        alone = self.blueprint.alone(number)
        layouts = tuple([choice.layouts[form] for form in alone.forms])
        found = self.asked.get((number, layouts))
        if found is None:
            found = self.asked[number, layouts] = self._piece_of(number, layouts)
        return found

    def _piece_of(self, number: int, layouts: Sequence[Sharding]) -> Piece:
        """What an operation becomes; what is added up behind a loop is so as that carries it."""
        piece = self.pieces.of(self.blueprint.alone(number), layouts)
        return self.pieces.of(self.blueprint.alone_behind(number), layouts) if self._is_behind(number, piece) else piece

    def _shape(self, value: int, form: int, layout: Sharding) -> tuple[int, ...]:
        if (form, layout) not in self.parts:
            self.parts[form, layout] = local_shape(self.blueprint.own.values[value].shape, layout, self.pricing.mesh)
        return self.parts[form, layout]


def _taken(part: Part, op: Op) -> float:
    """How much a device looks up of what it has of a table: so much of that is read."""
    table, rows = (part(value, "f32").num_elements for value in (op.operands[0], op.results[0]))
    return rows / max(table, 1)
