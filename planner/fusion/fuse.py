"""A graph of one device as a program of kernels.

The rules are those that the TPU compiler's own programs follow; what each one says stands where it is applied.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import is_

from ..cut_images import cut_convolutions, smallest_whole
from ..forms import Form, Forms
from ..graph import Graph, Op
from ..kernels import Kernel, Program
from .before_loops import with_roundings_before_loops
from .group import Group, groups
from .interleaved import with_sums_apart
from .joint import joint_sums
from .libraries import closed
from .masks import IsMask, is_packed_mask
from .merge import Merging
from .narrow import narrow
from .nature import AFTER, APART, BEHIND
from .normed import with_norms_written
from .parts import NO_PARTS, parts
from .pieces import COMPARE, in_pieces
from .put_together import with_images_put_together
from .simplify import simplify
from .uses import Uses, read_uses
from .windows_moved import with_windows_moved
from .written import NEAR_BYTES, written_ops

ORDERING = frozenset({AFTER, APART, BEHIND})


def fuse(
    graph: Graph,
    *,
    is_mask: IsMask = is_packed_mask,
    near_bytes: int = NEAR_BYTES,
    is_split: bool = True,
    cuts_parts: bool = False,
    repeats_scores: str = "wide",
    is_gpu: bool = False,
    pads: bool = True,
    offloads: bool = False,
    forms: Forms | None = None,
) -> Program:
    """The kernels in which a device computes a graph, its own shapes in it, and their order.

    The program's graph has the same values by the same numbers; operations that the compiler drops are gone from it,
    and what only products read is bfloat16. A kernel of nothing but reshapes and transposes costs nothing: what it
    writes is what it reads under another shape. ``is_mask`` says which operations leave masks of bits; ``near_bytes``
    what a chip keeps in memory of its own (``Chip.buffer_vmem_bytes``), ``is_split`` whether the graph is one device's:
    then operations of their own round before loops what these only round, and put images in parts together for norms.
    ``cuts_parts`` says whether each product of a batch cuts its part out of what others sent for itself,
    ``repeats_scores`` what ``Chip.repeats_scores`` says. On a GPU (``is_gpu``) nothing is left as bits, kept near or
    made narrow, and libraries multiply (``libraries``). Readers put arrays together (``pads``) on TPUs.
    Kernels have the form that ``forms`` knows them by.
    """
    simple = simplify(graph, rounds=not is_gpu)
    if is_gpu:
        return _program(simple, _is_none, 0, forms, simple.mesh, cuts_parts=False, repeats_scores="all", is_gpu=True)
    cut = cut_convolutions(simple, smallest_whole(keeps_near=near_bytes > 0))
    singles = near_bytes <= 0
    simple = with_norms_written(simple, cut) if cut else simple
    if is_split:
        simple = with_images_put_together(simple, cut, singles=singles) if cut else simple
        simple = with_windows_moved(with_roundings_before_loops(simple))
    return _program(
        simple,
        is_mask,
        near_bytes,
        forms,
        simple.mesh,
        cuts_parts=cuts_parts,
        repeats_scores=repeats_scores,
        is_gpu=False,
        pads=pads,
        offloads=offloads,
    )


def _is_none(graph: Graph, uses: Uses, op: Op) -> bool:
    return False


def _program(
    graph: Graph,
    is_mask: IsMask,
    near_bytes: int,
    forms: Forms | None,
    mesh: Mapping[str, int],
    *,
    cuts_parts: bool,
    repeats_scores: str,
    is_gpu: bool,
    pads: bool = False,
    offloads: bool = False,
) -> Program:
    uses = read_uses(graph)
    joint = joint_sums(graph, uses.makers, mesh, offloads=offloads)
    masks = frozenset([number for number, op in enumerate(graph.ops) if is_mask(graph, uses, op)])
    shared = NO_PARTS if is_gpu else parts(graph, uses)
    pieces = set[int]() if is_gpu or near_bytes else in_pieces(graph, uses)
    held = pieces.union(shared)
    written, closed_ops = written_ops(
        graph,
        uses,
        masks,
        held,
        near_bytes=near_bytes,
        cuts_parts=cuts_parts,
        repeats_scores=repeats_scores,
        is_gpu=is_gpu,
        pads=pads,
    )
    alone = masks.union(number for number in pieces if graph.ops[number].kind == COMPARE)
    found = groups(graph, uses, written, alone, shared, closed=closed_ops, is_gpu=is_gpu)
    packed = frozenset(value for number in masks for value in graph.ops[number].operands)
    closing = list(map(closed, found)) if is_gpu else with_sums_apart(graph, uses, found)
    merged = Merging(graph, uses, closing, by_rows=is_gpu, packed=packed, joint=joint).run()
    graph = graph if is_gpu else narrow(graph, uses, masks - _compared_apart(graph, masks, merged), shared)
    wanted = uses.results.union(*(group.reads for group in merged))
    ordered = _in_order(graph, merged)
    barred = any(BEHIND in op.attributes for op in graph.ops)
    bare = _without_waits(graph)
    inner = partial(
        _program,
        is_mask=is_mask,
        near_bytes=near_bytes,
        forms=forms,
        mesh=mesh,
        cuts_parts=cuts_parts,
        repeats_scores=repeats_scores,
        is_gpu=is_gpu,
        pads=pads,
        offloads=offloads,
    )
    form_of = None if forms is None else partial(forms.of, bare)
    kernels = tuple([_kernel(graph, wanted, group, inner, form_of, barred) for group in ordered])
    if any(group.waits for group in ordered):
        kernels = tuple(_with_waits(graph, ordered, kernels))
    return Program(graph=bare, kernels=kernels, joint=joint)


def _compared_apart(graph: Graph, masks: frozenset[int], found: Sequence[Group]) -> set[int]:
    """The masks of what products of matrices make whose kernels leave something else as large beside that: these make
    no bits, and the kernel that does reads all that they made (convolutions round it all the same, seen on v3).
    """
    apart = set[int]()
    for group in found if masks else ():
        multiplies = len(group.roots) > 1 and any(graph.ops[number].kind == "dot_general" for number in group.ops)
        made = [graph.ops[root].results[0] for root in group.roots] if multiplies else []
        shapes = [graph.shape(value) for value in made]
        several = {value for value, shape in zip(made, shapes, strict=True) if shapes.count(shape) > 1}
        apart |= {number for number in masks if not several.isdisjoint(graph.ops[number].operands)}
    return apart


def _with_waits(graph: Graph, ordered: Sequence[Group], kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """The kernels with what they wait for, each kernel waited for by the first value that it writes."""
    written = {
        value: kernel.writes[0]
        for group, kernel in zip(ordered, kernels, strict=True)
        for root in group.roots
        for value in graph.ops[root].results
    }
    for group, kernel in zip(ordered, kernels, strict=True):
        waits = {written[value] for value in group.waits if value in written}.difference(kernel.writes)
        yield replace(kernel, waits=tuple(sorted(waits))) if waits else kernel


def _without_waits(graph: Graph) -> Graph:
    """The graph without what only its kernels' order needed."""

    def bare(op: Op) -> Op:
        bodies = tuple(map(_without_waits, op.bodies))
        if not ORDERING.isdisjoint(op.attributes):
            said = {name: given for name, given in op.attributes.items() if name not in ORDERING}
            return replace(op, bodies=bodies, attributes=said)
        return op if all(map(is_, bodies, op.bodies)) else replace(op, bodies=bodies)

    ops = tuple([bare(op) if op.bodies or not ORDERING.isdisjoint(op.attributes) else op for op in graph.ops])
    return graph if all(map(is_, ops, graph.ops)) else replace(graph, ops=ops)


def _kernel(
    graph: Graph,
    wanted: frozenset[int],
    group: Group,
    inside: Callable[[Graph], Program],
    form_of: Callable[[Sequence[int], Sequence[int], Sequence[int]], Form] | None,
    barred: bool,
) -> Kernel:
    """The kernel of a group; ``inside`` gives the program of a body, ``form_of`` the form of a kernel without; and
    ``barred`` says that something in the graph is read behind a barrier.
    """
    ops, reads = tuple(sorted(group.ops)), tuple(sorted(group.reads))
    bodies = tuple(map(inside, graph.ops[ops[-1]].bodies))
    made = tuple([value for root in sorted(group.roots) for value in graph.ops[root].results])
    writes = tuple([value for value in made if value in wanted]) or made
    behind: tuple[tuple[int, tuple[int, ...]], ...] = ()
    if barred:
        said = (pair for number in ops for pair in graph.ops[number].attributes.get(BEHIND, ()))
        behind = tuple({value: taken for value, taken in said if value in group.reads}.items())
    form = None if bodies or form_of is None else form_of(ops, reads, writes)
    return Kernel(ops=ops, reads=reads, writes=writes, bodies=bodies, behind=behind, form=form)


def _in_order(graph: Graph, found: list[Group]) -> list[Group]:
    """The groups so that each comes after what it reads, otherwise as their operations stand."""
    maker = {v: n for n, group in enumerate(found) for root in group.roots for v in graph.ops[root].results}
    needs = [{maker[v] for v in (*group.reads, *group.waits) if v in maker} - {n} for n, group in enumerate(found)]
    readers: list[list[int]] = [[] for _ in found]
    for number, sources in enumerate(needs):
        for source in sources:
            readers[source].append(number)
    missing = [len(sources) for sources in needs]
    ready = [(max(group.roots), n) for n, group in enumerate(found) if not missing[n]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, number = heapq.heappop(ready)
        ordered.append(found[number])
        for reader in readers[number]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (max(found[reader].roots), reader))
    return ordered
