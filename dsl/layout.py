"""The layout that one assignment gives to one tensor: ranks, divisibility, the axes of each dim."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from .errors import Problem, Severity, listing, problem, shorten
from .long_forms import assignment_shape, device_numbers
from .notation import NAMELESS, WORDS
from .plan import Assignment, Auto, Dim, Dims, Infer, Like, Mesh, Place, Replicate, Rest, Shard, Split
from .records import record
from .tensors import Layout, Tensor

Axes = tuple[tuple[str, ...], ...]


@record(frozen=True, slots=True, kw_only=True)
class Given:
    """What an assignment gives a tensor: its layout (None where it cannot have one), its named dims, the problems."""

    layout: Layout | None
    names: Mapping[str, int]
    problems: tuple[Problem, ...] = ()


def give(mesh: Mesh, assignment: Assignment, tensor: Tensor, place: Place | None, others: int = 0) -> Given:
    """What ``assignment`` gives ``tensor`` on ``mesh``; ``others`` more tensors of its shape are assigned with it.

    ``like`` depends on other tensors and is the caller's to follow.
    """
    subject = _Subject(mesh=mesh, tensor=tensor, place=place, others=others)
    if isinstance(assignment, Dims):
        return _dims(subject, assignment)
    if isinstance(assignment, Split):
        return _split(subject, assignment)
    if isinstance(assignment, Shard):
        return _shard(subject, assignment)
    return Given(layout=_unconditional(assignment, tensor), names={})


@record(frozen=True, slots=True, kw_only=True)
class _Subject:
    """The tensor that is assigned, and what its problems need to say."""

    mesh: Mesh
    tensor: Tensor
    place: Place | None
    others: int

    def __str__(self) -> str:
        more = f" (and {self.others} more of this shape)" if self.others else ""
        return f"{shorten(str(self.tensor), limit=160)}{more}"

    def problem(self, code: str, severity: Severity = "error", **numbers: object) -> Problem:
        """A problem of this tensor's."""
        return problem(code, self.place, severity=severity, tensor=str(self), **numbers)


def _unconditional(assignment: Replicate | Auto | Infer | Like, tensor: Tensor) -> Layout | None:
    if isinstance(assignment, Replicate):
        return replicated(tensor.shape)
    if isinstance(assignment, Auto):
        return Layout(how="auto")
    return Layout(how="infer") if isinstance(assignment, Infer) else None


def replicated(shape: Sequence[int]) -> Layout:
    """The layout of a tensor that every device holds whole."""
    return Layout(axes=((),) * len(shape))


def _dims(subject: _Subject, written: Dims) -> Given:
    shape = subject.tensor.shape
    named = sum(isinstance(dim, Dim) for dim in written.dims)
    spare = len(shape) - named
    has_rest = named < len(written.dims)
    if spare < 0 or (spare and not has_rest):
        dims = listing([dim.name for dim in written.dims if isinstance(dim, Dim)])
        at_least = "at least " if has_rest else ""
        hint = _misspelt(written)
        found = subject.problem("MW104", rank=len(shape), named=f"{at_least}{named}", dims=dims, hint=hint)
        return Given(layout=None, names={}, problems=(found,))
    dims_in_full: list[Dim | None] = []
    for dim in written.dims:
        dims_in_full += [None] * spare if isinstance(dim, Rest) else [dim]
    called = [dim.name if dim and dim.name != NAMELESS else None for dim in dims_in_full]
    labels = [name or str(i) for i, name in enumerate(called)]
    names = {name: size for name, size in zip(called, shape, strict=True) if name}
    axes = tuple(dim.axes if dim else () for dim in dims_in_full)
    padded = frozenset(i for i, dim in enumerate(dims_in_full) if dim and dim.pad)
    return _divided(subject, axes, padded, labels, names)


def _misspelt(written: Dims) -> str:
    """What a single word without axes may have been meant to be."""
    alone = written.dims[0] if len(written.dims) == 1 else None
    name = alone.name if isinstance(alone, Dim) and not alone.axes else ""
    near = difflib.get_close_matches(name, WORDS, n=1, cutoff=0.75)
    return f" Did you mean '{near[0]}'?" if near else ""


def _split(subject: _Subject, written: Split) -> Given:
    rank = len(subject.tensor.shape)
    axes: list[tuple[str, ...]] = [()] * rank
    padded = set()
    problems = []
    for split in written.splits:
        position = split.dim + rank if split.dim < 0 else split.dim
        if not 0 <= position < rank:
            problems.append(subject.problem("MW109", dim=split.dim, rank=rank, legal=_positions(rank)))
        elif axes[position]:
            problems.append(subject.problem("MW110", dim=split.dim, position=position))
        else:
            axes[position] = split.axes
            padded |= {position} if split.pad else set()
    if problems:
        return Given(layout=None, names={}, problems=tuple(problems))
    return _divided(subject, tuple(axes), frozenset(padded), [str(i) for i in range(rank)], {})


def _positions(rank: int) -> str:
    return f"{-rank} to {rank - 1}" if rank else "none, for it has no dims: write 'replicate'"


def _divided(
    subject: _Subject, axes: Axes, padded: frozenset[int], labels: Sequence[str], names: Mapping[str, int]
) -> Given:
    """The layout with these axes, if every dim divides or is padded."""
    problems = []
    for i, size in enumerate(subject.tensor.shape):
        parts = partitions(subject.mesh, axes[i])
        if parts is None or size % parts == 0:
            continue
        if i in padded:
            problems.append(_padding(subject, labels[i], size, parts))
        else:
            problems.append(_indivisible(subject, axes, i, labels[i], parts))
    failed = any(p.severity == "error" for p in problems)
    layout = None if failed else Layout(axes=axes, padded=padded)
    return Given(layout=layout, names=names, problems=tuple(problems))


def partitions(mesh: Mesh, axes: Sequence[str]) -> int | None:
    """Into how many parts these axes split a dim; None where a size is not known yet, or an axis unknown."""
    sizes = [mesh.sizes.get(axis) for axis in axes]
    return None if None in sizes else math.prod(size for size in sizes if size is not None)


def num_devices(mesh: Mesh) -> int | None:
    """How many devices the mesh has; None where the planner is to decide."""
    return partitions(mesh, [axis.name for axis in mesh.axes]) if mesh.axes else None


def _padding(subject: _Subject, label: str, size: int, parts: int) -> Problem:
    part = -(-size // parts)
    return subject.problem(
        "MW121", "note", dim=label, size=size, parts=parts, padded=part * parts, part=part, waste=part * parts - size
    )


def _indivisible(subject: _Subject, axes: Axes, i: int, label: str, parts: int) -> Problem:
    """The problem of a dim that does not divide, with what would."""
    size = subject.tensor.shape[i]
    taken = {axis for j, others in enumerate(axes) if j != i for axis in others}
    below = size - size % parts
    nearest = [str(n) for n in (below, below + parts) if n]
    return subject.problem(
        "MW105",
        dim=label,
        size=size,
        axes=_product(subject.mesh, axes[i]),
        parts=parts,
        remainder=size % parts,
        choices=listing(list(_choices(subject.mesh, size, taken)) or ["no axis"], limit=4),
        nearest=" or ".join(nearest),
        padded=f"{NAMELESS if label == str(i) else label}@{'+'.join(axes[i])}!pad",
    )


def _product(mesh: Mesh, axes: Sequence[str]) -> str:
    return " * ".join(f"{axis}={mesh.sizes[axis]}" for axis in axes)


def _choices(mesh: Mesh, size: int, taken: set[str]) -> Iterator[str]:
    """The axes, alone or two together, over which a dim of this size can be split; the most parts first."""
    free = [axis for axis in mesh.sizes if axis not in taken]
    found = []
    for chosen in (*((a,) for a in free), *combinations(free, 2)):
        parts = partitions(mesh, chosen)
        if parts and parts > 1 and size % parts == 0:
            found.append((-parts, f"@{'+'.join(chosen)} ({parts})"))
    return (text for _, text in sorted(found))


def _shard(subject: _Subject, written: Shard) -> Given:
    """The layout of an explicit device assignment: as deep as the tensor, every device of the mesh once."""
    shape = assignment_shape(written.device_assignment)
    if len(shape) != len(subject.tensor.shape):
        found = subject.problem("MW111", rank=len(subject.tensor.shape), depth=len(shape))
        return Given(layout=None, names={}, problems=(found,))
    problems = [
        subject.problem("MW112", dim=i, size=size, parts=parts, remainder=size % parts)
        for i, (size, parts) in enumerate(zip(subject.tensor.shape, shape, strict=True))
        if size % parts
    ]
    numbers = device_numbers(written.device_assignment)
    devices = num_devices(subject.mesh)
    if devices is not None and set(numbers) != set(range(devices)):
        problems.append(
            subject.problem(
                "MW113",
                count=len(numbers),
                devices=devices,
                last=devices - 1,
                missing=listing(sorted(set(range(devices)) - set(numbers)) or ["none"]),
                unknown=listing(sorted(set(numbers) - set(range(devices))) or ["none"]),
            )
        )
    layout = None if problems else Layout(how="assigned", device_assignment=written.device_assignment)
    return Given(layout=layout, names={}, problems=tuple(problems))
