"""What of a step is the same on every mesh, worked out once: its fused kernels, and what they are before layouts."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from ...compute.compared import COMPARE
from ...compute.copies.relaid import Copied, Relaid, renamed_copies
from ...compute.copies.rowwise import scattered
from ...compute.copies.turned import WIDE_EDGE, Turned
from ...compute.copies.updated import first_updates
from ...compute.loops import Staying, renamed, staying
from ...compute.residence import copied_results
from ...compute.speed import Speed
from ...fusion import fuse
from ...fusion.allocated import if_alone
from ...fusion.before_loops import narrow_stacks
from ...fusion.behind import At, Behind, Waits, behind
from ...fusion.narrow import NARROW, narrow, rounded_arguments
from ...fusion.nature import PRODUCTS
from ...fusion.simplify import simplify
from ...fusion.uses import Uses, read_uses
from ...fusion.written import NEAR_BYTES
from ...graph import Graph, Op, Value
from ...kernels import Kernel, Program
from ...lookups import GATHER, filled, tables_of
from ...memory import schedule
from ...partition.passes.accumulated import added_up
from .around import Around
from .blueprint import Blueprint, Padding, family_of, in_order_of_use, kernel_graph, name_of
from .cuts import Cuts, with_pins_apart
from .far import Far, far_of
from .fills import with_own_fills
from .known_images import KnownImages
from .least import least_seconds
from .padded import Padded, padded
from .passing import with_ends_apart, with_passing_apart
from .roles import with_roles_apart
from .slices import with_slices_apart
from .summed import every_image_summed
from .turns import put_of, with_turns_apart
from .twice import with_ends_of_copies, with_second_operands


@dataclass(slots=True, kw_only=True)
class Known:
    """What is known of steps. ``blueprints`` are those of kernels, by what they do, ``parts`` those of their
    parts, by their family.

    ``programs`` holds the steps' fused programs by their operations and what a chip keeps near, ``places`` which
    blueprint is a kernel's and the numbers that its values have in the whole. ``free`` are the kernels that only
    cut and put parts of stacks, copy and view, ``passing`` those that kernels of products compute in passing, by
    their ids, ``within`` products that are apart from what is computed after them along other loops, ``turned`` the
    values that some chips copy for a kernel, since a gradient lies transposed, ``alike`` those that they do where
    such parts of another are of their shape, ``relaid`` what a GPU copies for its products. ``least_s`` has what
    computing a step takes at least, by its operations' id and the number of devices, ``least_bytes`` what a device
    holds at least on any mesh. ``turning`` has of loops' bodies how often they turn, the operations that they add up
    (if over devices too, then once, behind the loop) with the dtype of the carry, and the values that vector memory
    holds throughout. ``convolving`` has of steps' arguments the first operation that convolves them, ``updating`` that
    which updates what steps are only lent, ``images`` what convolutions of a graph read and make, ``behind`` what
    operations of it read behind barriers, ``tables`` what meets tables of it that are scattered into, ``filled`` what
    scatters fill, ``summed`` images that what makes them adds up, ``put`` what loops' turns put into stacks,
    ``rounded`` what products make narrower than the step has it, ``padded`` what nothing but pads reads, ``far`` what
    products may read from the large memory, ``cuts`` the kernels that are cut at what plans pin.
    """

    blueprints: dict[Hashable, Blueprint] = field(default_factory=dict)
    parts: dict[Hashable, dict[Hashable, Blueprint]] = field(default_factory=dict)
    programs: list[tuple[tuple[Op, ...], Hashable, Program, tuple[Value, ...]]] = field(default_factory=list)
    cuts: Cuts = field(init=False)
    free: dict[int, Kernel] = field(default_factory=dict)
    passing: dict[int, Kernel] = field(default_factory=dict)
    ended: dict[int, tuple[Kernel, Kernel]] = field(default_factory=dict)
    within: dict[int, Kernel] = field(default_factory=dict)
    turned: dict[int, Sequence[int]] = field(default_factory=dict)
    alike: dict[int, Sequence[int]] = field(default_factory=dict)
    relaid: dict[int, Sequence[Copied]] = field(default_factory=dict)
    places: dict[int, tuple[Kernel, Blueprint, tuple[int, ...]]] = field(default_factory=dict)
    wholes: dict[tuple[int, int, str], Program] = field(default_factory=dict)
    turning: dict[int, tuple[Graph, int, Mapping[int, str], Sequence[Staying]]] = field(default_factory=dict)
    convolving: dict[int, tuple[Graph, Mapping[int, int]]] = field(default_factory=dict)
    updating: dict[int, tuple[Graph, Mapping[int, int]]] = field(default_factory=dict)
    images: KnownImages = field(default_factory=KnownImages)
    behind: dict[int, tuple[Graph, Mapping[At, Waits]]] = field(default_factory=dict)
    tables: dict[int, tuple[Graph, frozenset[int]]] = field(default_factory=dict)
    filled: dict[int, tuple[Graph, frozenset[int]]] = field(default_factory=dict)
    summed: dict[int, tuple[Graph, frozenset[int]]] = field(default_factory=dict)
    put: dict[int, tuple[Graph, frozenset[int]]] = field(default_factory=dict)
    rounded: dict[int, tuple[Graph, frozenset[int]]] = field(default_factory=dict)
    padded: dict[int, tuple[Graph, Mapping[int, Padded]]] = field(default_factory=dict)
    copies: dict[int, tuple[Graph, Mapping[int, int]]] = field(default_factory=dict)
    far: dict[int, tuple[Graph, Far]] = field(default_factory=dict)
    least_s: dict[tuple[int, int, int], float] = field(default_factory=dict)
    least_bytes: dict[tuple[int, int, bool], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cuts = Cuts(passing=self.passing)

    def program(
        self,
        graph: Graph,
        near_bytes: int = NEAR_BYTES,
        pins: Collection[str] = (),
        *,
        repeats_scores: str = "wide",
        is_gpu: bool = False,
        pads: bool = True,
    ) -> tuple[Program, tuple[Value, ...]]:
        """A step's fused program, its kernels in the order in which they are computed, and its values as the step has
        them: the program's are as narrow as what reads them allows. A chip keeps ``near_bytes`` in memory of its own
        (``repeats_scores`` is ``Chip``'s); kernels are cut at what has one of the paths of ``pins``.
        """
        paths = (
            frozenset(path for _, op, _ in graph.walk() for _, path in op.named if path in pins)
            if pins
            else frozenset()
        )
        key = near_bytes, paths, repeats_scores
        for ops, known, program, values in self.programs:
            if ops is graph.ops and known == key:
                return program, values
        made = fuse(
            graph,
            is_mask=_is_none,
            near_bytes=near_bytes,
            is_split=False,
            repeats_scores=repeats_scores,
            is_gpu=is_gpu,
            pads=pads,
        )
        fused = schedule(made)
        fused = fused if is_gpu else self._narrowed(fused)
        read = {value for _, value in behind(graph).reads}
        twice = with_second_operands(*with_own_fills(fused, simplify(graph, rounds=not is_gpu).values), read)
        twice = with_ends_of_copies(twice, read)
        self.copies[id(twice.program.graph)] = twice.program.graph, twice.copies
        self.free.update({id(kernel): kernel for kernel in twice.copying})
        apart = with_slices_apart(twice.program, self.free, read)
        apart = with_passing_apart(with_turns_apart(apart, self.free), self.passing)
        apart = with_pins_apart(apart, paths, self.cuts, self.free)
        apart = with_ends_apart(with_roles_apart(apart, self.within, self.cuts.seen), self.ended, self.cuts.first)
        program, values = apart, twice.values
        self.programs.append((graph.ops, key, program, values))
        self.wholes[id(graph.ops), near_bytes, repeats_scores] = fused
        self.images.wide[id(program.graph)] = program.graph, values
        self.convolving[id(program.graph)] = program.graph, _first_convolved(program)
        self.updating[id(program.graph)] = program.graph, first_updates(program)
        self._turn(program, values)
        if is_gpu:
            self._note_copies(program)
        self._note_barriers(program, behind(graph))
        return program, values

    def least_seconds(
        self,
        graph: Graph,
        speed: Speed,
        devices: int,
        near_bytes: int = NEAR_BYTES,
        *,
        repeats_scores: str = "wide",
        is_gpu: bool = False,
        pads: bool = True,
    ) -> float:
        """What computing a step takes at least on each of so many devices of one machine (``least``)."""
        self.program(graph, near_bytes, repeats_scores=repeats_scores, is_gpu=is_gpu, pads=pads)
        key = (id(graph.ops), near_bytes, devices)
        if key not in self.least_s:
            whole = self.wholes[id(graph.ops), near_bytes, repeats_scores]
            self.least_s[key] = least_seconds(whole, speed, devices)
        return self.least_s[key]

    def blueprint(self, graph: Graph, kernel: Kernel) -> tuple[Blueprint, tuple[int, ...]]:
        """A kernel's blueprint, and the numbers that its values have in the whole; alike kernels share one."""
        if id(kernel) not in self.places:
            ops = in_order_of_use(graph, kernel.ops)
            own, numbers = kernel_graph(graph, replace(kernel, ops=ops))
            own = if_alone(own)
            is_free = id(kernel) in self.free or self.is_passing(kernel)
            masks = self.images.masks_of(graph)
            inside = {place: masks[number] for place, number in enumerate(ops) if number in masks}
            made = {value for op in own.ops for value in op.results}
            handed = tuple(place for place, number in enumerate(numbers) if number in kernel.reads and place in made)
            _, seen = self.cuts.seen.get(id(kernel), (kernel, frozenset[int]()))
            told = tuple(place for place, number in enumerate(numbers) if number in seen)
            copied = self.turned.get(id(kernel), ())
            turned = tuple(place for place, number in enumerate(numbers) if number in copied)
            _, turns, summed, held = self.turning.get(id(graph), (graph, 1, {}, ()))
            behind = {place: summed[number] for place, number in enumerate(ops) if number in summed}
            turns, around = turns if behind else 1, self._around(graph, kernel, numbers, held)
            _, sums = self.rounded.get(id(graph), (graph, frozenset[int]()))
            rounded = frozenset(place for place, number in enumerate(numbers) if number in sums)
            padded = self._padded(graph, kernel, numbers)
            copied_of = self.copied_of(graph)
            place = {number: at for at, number in enumerate(numbers)}
            copies = tuple((at, place[copied_of[v]]) for v, at in place.items() if copied_of.get(v) in place)
            adding = tuple(behind.items()), turns
            known = (tuple(inside.items()), handed, told, turned, adding, rounded, around, padded, copies)
            found = self.blueprints.setdefault(
                (name_of(own), is_free, *known),
                Blueprint(
                    own=own,
                    is_free=is_free,
                    masks=inside,
                    handed=handed,
                    told=told,
                    turned=turned,
                    behind=behind,
                    turns=turns,
                    rounded_sums=rounded,
                    around=around,
                    padded=padded,
                    copies=copies if not is_free else (),
                    alike=self.parts.setdefault(family_of(own), {}),
                ),
            )
            self.places[id(kernel)] = (kernel, found, numbers)
        _, blueprint, numbers = self.places[id(kernel)]
        return blueprint, numbers

    def copied_of(self, graph: Graph) -> Mapping[int, int]:
        """The copies that products read of what they read twice, each with what it is of."""
        _, found = self.copies.get(id(graph), (graph, {}))
        return found

    def _around(self, graph: Graph, kernel: Kernel, numbers: Sequence[int], held: Sequence[Staying]) -> Around:
        """What is known of the values of a kernel, which have these ``numbers`` in the graph."""
        _, first = self.convolving.get(id(graph), (graph, {}))
        _, updating = self.updating.get(id(graph), (graph, {}))
        places = list(enumerate(numbers))
        _, put = self.put.get(id(graph), (graph, frozenset[int]()))
        _, known = self.tables.get(id(graph), (graph, frozenset[int]()))
        _, fills = self.filled.get(id(graph), (graph, frozenset[int]()))
        _, summed = self.summed.get(id(graph), (graph, frozenset[int]()))
        masked = self.images.masked(graph)
        _, far = self.far.get(id(graph), (graph, Far()))
        far = far if any(graph.ops[number].kind in PRODUCTS for number in kernel.ops) else Far()
        later = _copied_later(graph, kernel, known) if known else frozenset[int]()
        tables = frozenset(place for place, number in places if number in known or number in later)
        bare = graph.arguments if graph.ops[kernel.ops[-1]].kind == COMPARE else ()
        kept = set(graph.results) - copied_results(graph).keys()
        ends = {*graph.arguments, *graph.results} if tables else set[int]()
        return Around(
            given=frozenset(place for place, number in places if first.get(number) in kernel.ops),
            left=frozenset(place for place, number in places if number in kept or number in put),
            stays=renamed(held, numbers),
            images=tuple(self.images.among(graph, numbers).items()),
            tables=tables,
            edge=frozenset(place for place, number in places if number in ends),
            lent=frozenset(place for place, number in places if updating.get(number) in kernel.ops),
            filled=frozenset(place for place, number in places if number in fills),
            summed=frozenset(place for place, number in places if number in summed),
            cut=frozenset(place for place, number in places if number in far.cut),
            kept=frozenset(place for place, number in places if number in far.kept and number in kernel.reads),
            large=frozenset(place for place, number in places if number in far.large),
            bare=frozenset(place for place, number in places if number in bare),
            masked=tuple((place, masked[number]) for place, number in places if number in masked),
            relaid=renamed_copies(self.relaid.get(id(kernel), ()), numbers),
        )

    def _padded(self, graph: Graph, kernel: Kernel, numbers: Sequence[int]) -> tuple[Padding, ...]:
        """What it makes for pads alone, and what its own ones read."""
        _, found = self.padded.get(id(graph), (graph, dict[int, Padded]()))
        known = ((place, found[number]) for place, number in enumerate(numbers) if number in found)
        return tuple(Padding(place, of.shape, of.operations, of.is_light) for place, of in known)

    def _narrowed(self, program: Program) -> Program:
        """The program with values as narrow as they are where masks are left as bits."""
        stacks = narrow_stacks(program.graph)
        ops = program.graph.ops
        ends = {v for n, at in stacks.items() for p in at for v in (ops[n].operands[p], ops[n].results[p])}
        graph = _with_narrow(program.graph, ends)
        graph = narrow(graph, read_uses(graph), frozenset(self.images.masks_of(program.graph)))
        kernels = []
        for each in program.kernels:
            number = each.ops[-1] if each.bodies else -1
            turns = ops[number].turns if each.bodies else 0
            given = (_given_rounded(body, stacks.get(number, ())) if turns else body for body in each.bodies)
            kernels.append(replace(each, bodies=tuple(self._narrowed(body) for body in given)))
        return replace(program, graph=graph, kernels=tuple(kernels))

    def _turn(self, program: Program, values: Sequence[Value]) -> None:
        self.rounded[id(program.graph)] = program.graph, _rounded_sums(program.graph, values)
        turned, alike = (Turned(program.graph, WIDE_EDGE, shares=shares) for shares in (False, True))
        self.tables[id(program.graph)] = program.graph, _of_tables(program)
        self.filled[id(program.graph)] = program.graph, filled(program.graph)
        self.summed[id(program.graph)] = program.graph, every_image_summed(program)
        free = [each for each in program.kernels if id(each) in self.free]
        putting = (put_of(program.graph, each) for each in free)
        self.put[id(program.graph)] = program.graph, frozenset(value for values in putting for value in values)
        self.far[id(program.graph)] = program.graph, far_of(program.graph, free)
        self.padded[id(program.graph)] = program.graph, padded(program)
        for kernel in program.kernels:
            own = self.turned[id(kernel)] = turned.copied(kernel)
            self.alike[id(kernel)] = [value for value in alike.copied(kernel) if value not in own]
            op = program.graph.ops[kernel.ops[-1]]
            for body, wide in zip(kernel.bodies, op.bodies if kernel.bodies else (), strict=True):
                added = added_up(body.graph, len(op.results)) if op.kind == "while" else ()
                summed = {id(made): body.graph.values[body.graph.arguments[place]].dtype for made, place in added}
                numbers = {number: summed[id(own)] for number, own in enumerate(body.graph.ops) if id(own) in summed}
                held = tuple(staying(body)) if op.turns else ()
                self.turning[id(body.graph)] = body.graph, op.trips, numbers, held
                self._turn(body, wide.values)

    def _note_copies(self, program: Program) -> None:
        """Notes what a GPU's products read that is copied for them, in loops too."""
        relaid = Relaid(program.graph)
        for kernel in program.kernels:
            self.relaid[id(kernel)] = tuple(relaid.read_by(kernel))
            for body in kernel.bodies:
                self._note_copies(body)

    def _note_barriers(self, program: Program, found: Behind) -> None:
        self.behind[id(program.graph)] = program.graph, found.reads
        for kernel in program.kernels:
            made = program.graph.ops[kernel.ops[-1]].results
            for place, body in enumerate(kernel.bodies):
                inside = found.bodies.get((made[0], place)) if made else None
                if inside is not None:
                    self._note_barriers(body, inside)

    def read_behind(self, graph: Graph) -> Mapping[At, Waits]:
        """What operations of a program's graph read behind barriers, with what they wait for."""
        return self.behind[id(graph)][1] if id(graph) in self.behind else {}

    def is_passing(self, kernel: Kernel) -> bool:
        """Whether those that read what a kernel makes compute it in passing."""
        return id(kernel) in self.passing


def _rounded_sums(graph: Graph, values: Sequence[Value]) -> frozenset[int]:
    """What products make that is narrower than the step has it, whose ``values`` those are."""
    made = (op.results[0] for op in graph.ops if op.kind in PRODUCTS)
    return frozenset(value for value in made if graph.values[value].dtype != values[value].dtype)


def _given_rounded(body: Program, stacks: Sequence[int]) -> Program:
    """A loop's body that is given narrow what it only rounds: it is converted before the loop; and what it stacks up at
    these positions, for others to round.
    """
    graph = body.graph
    given = {graph.arguments[position] for position in (*rounded_arguments(graph), *stacks)}
    given.update(graph.results[position] for position in stacks)
    return replace(body, graph=_with_narrow(graph, given)) if given else body


def _with_narrow(graph: Graph, narrowed: AbstractSet[int]) -> Graph:
    values = (replace(v, dtype=NARROW) if number in narrowed else v for number, v in enumerate(graph.values))
    return replace(graph, values=tuple(values)) if narrowed else graph


def _of_tables(program: Program) -> frozenset[int]:
    """What is scattered into, and what kernels make of that in its shape."""
    graph = program.graph
    found = scattered(graph)
    for kernel in program.kernels if found else ():
        met = {graph.shape(value) for value in (*kernel.reads, *kernel.writes) if value in found}
        found.update(value for value in kernel.writes if graph.shape(value) in met)
    return frozenset(found)


def _copied_later(graph: Graph, kernel: Kernel, known: Collection[int]) -> frozenset[int]:
    """The step's arguments in which a kernel looks rows up, and which are updated by what is scattered: they are copied
    into rows for that, or lie so as they are given.
    """
    shapes = {graph.shape(value) for value in known}
    gathers = (graph.ops[number] for number in kernel.ops if graph.ops[number].kind == GATHER)
    given = (value for op in gathers for value in tables_of(op) if value in graph.arguments)
    return frozenset(value for value in given if graph.shape(value) in shapes)


def _first_convolved(program: Program) -> dict[int, int]:
    """By argument of a step, the first operation that convolves it."""
    found: dict[int, int] = {}
    arguments = frozenset(program.graph.arguments)
    for kernel in program.kernels:
        convolving = [number for number in kernel.ops if program.graph.ops[number].kind == "convolution"]
        for value in arguments.intersection(kernel.reads) if convolving else ():
            found.setdefault(value, convolving[0])
    return found


def _is_none(graph: Graph, uses: Uses, op: Op) -> bool:
    """No mask: which there are hangs on the shapes of what a device has."""
    return False
