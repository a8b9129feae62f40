"""The collectives of a compiled program: what each moves, how often, along which mesh axes, and who asked for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....planner.collectives import price
from ....planner.kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE, KINDS, RAGGED_ALL_TO_ALL, REDUCE_SCATTER
from ....planner.network import Network
from ....planner.placement import place
from ....planner.routing import permute
from .hlo import Instruction, Program
from .hlo_loops import Runs
from .hlo_origin import Origins
from .hlo_source import SourceLine
from .replica_groups import (
    AxisUse,
    axes_of_groups,
    axes_of_pairs,
    devices_of_a_slice,
    replica_groups,
    slices_joined,
    source_target_pairs,
)

_FUSED_REDUCE_SCATTER = "all-reduce-scatter"
_CHAIN_START = '"AsyncCollectiveStart"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of a compiled program.

    ``num_bytes`` is what one device holds of it each time it runs: the larger of its operands and its results, that is
    the gathered result of an all-gather, the unreduced operand of a reduce-scatter. ``times`` is how often it runs in a
    step, ``group_size`` how many devices it joins (two for a permute), ``across_slices`` whether it crosses the
    data-centre network, ``op_name`` JAX's name stack, ``source`` the line that asked for it. ``predicted_s`` is what
    the network model says that it takes each time; None where no machine is known.
    """

    kind: str
    name: str
    num_bytes: int
    times: int
    dtype: str
    group_size: int
    axes: tuple[AxisUse, ...]
    across_slices: bool
    op_name: str | None
    source: SourceLine | None
    predicted_s: float | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes over a whole step, a device."""
        return self.num_bytes * self.times

    def as_json(self) -> dict[str, Any]:
        """The collective as plain JSON values."""
        return {
            "kind": self.kind,
            "name": self.name,
            "bytes": self.num_bytes,
            "times": self.times,
            "total_bytes": self.total_bytes,
            "dtype": self.dtype,
            "group_size": self.group_size,
            "across_slices": self.across_slices,
            "axes": [{"name": a.name, "extent": a.extent, "size": a.size} for a in self.axes],
            "op_name": self.op_name,
            "source": str(self.source) if self.source else None,
            "predicted_s": self.predicted_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joined:
    """The devices that a collective joins: ``groups`` of positions in the mesh, or a permute's ``pairs`` of them."""

    axes: tuple[AxisUse, ...]
    group_size: int
    groups: np.ndarray | None = None
    pairs: np.ndarray | None = None


def collectives(
    runs: Runs, mesh: Mapping[str, int], slices: np.ndarray | None = None, network: Network | None = None
) -> tuple[Collective, ...]:
    """Every collective that a step runs, in program order; ``mesh`` is its axes' sizes, major first.

    ``network``, the mesh on its machine, predicts what each takes.

    ``slices``, (slices, devices of each), are the positions in the mesh's flat order of each slice's devices: a machine
    of several slices runs one program a slice. An asynchronous collective counts once, wherever its parts stand. Those
    that join one device alone are left out.
    """
    reader = _Reader(runs=runs, mesh=mesh, slices=slices, network=network, origins=Origins(runs=runs))
    found = (reader.collective(name, i) for name, i in _instructions(runs))
    return tuple(collective for collective in found if collective.group_size > 1)


def total_bytes_by_kind(listed: Iterable[Collective]) -> dict[str, int]:
    """Bytes of a step, a device, by kind; kinds that do not occur are left out."""
    totals: dict[str, int] = {}
    for collective in listed:
        totals[collective.kind] = totals.get(collective.kind, 0) + collective.total_bytes
    return {kind: totals[kind] for kind in KINDS if kind in totals}


def _instructions(runs: Runs) -> Iterator[tuple[str, Instruction]]:
    """The instructions that begin a collective, each with its computation's name."""
    begins = {name for name in runs.order if _begins_chain(runs.program, name)}
    begun = {_chain(i) for name in begins for i in runs.program.computations[name].instructions.values()} - {None}
    for name in runs.order:
        if not runs.times[name]:
            continue
        for instruction in runs.program.computations[name].instructions.values():
            continued = name not in begins and _chain(instruction) in begun
            if _kind(name, instruction) and not continued:
                yield name, instruction


def _chain(instruction: Instruction) -> tuple[str, str] | None:
    """What the parts of one collective have in common that the TPU compiler spreads over several fusions."""
    if _base(instruction.opcode) not in KINDS:
        return None
    chain = re.search(r'chain_id="(\d+)"', instruction.attributes)
    channel = re.search(r"channel_id=(\d+)", instruction.attributes)
    return (chain[1], channel[1]) if chain and channel else None


def _begins_chain(program: Program, name: str) -> bool:
    root = program.computations[name].root
    return root is not None and _CHAIN_START in root.attributes


def _base(opcode: str) -> str:
    return opcode.removesuffix("-start")


def _kind(computation: str, instruction: Instruction) -> str | None:
    """Its kind, None for what is no collective. A fused reduce-scatter of the TPU compiler holds an all-reduce."""
    base = _transfer(instruction) or _base(instruction.opcode)
    if base == ALL_REDUCE and computation.startswith(_FUSED_REDUCE_SCATTER):
        return REDUCE_SCATTER
    return base if base in KINDS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """A program, the mesh it runs on, and where its operations come from."""

    runs: Runs
    mesh: Mapping[str, int]
    slices: np.ndarray | None
    network: Network | None
    origins: Origins

    def collective(self, name: str, instruction: Instruction) -> Collective:
        """The collective that this instruction of this computation begins."""
        kind = _kind(name, instruction) or instruction.opcode
        joined = self._joined(instruction)
        num_bytes = _bytes(self.runs.program, name, instruction)
        origin = self.origins.of(name, instruction, made_for_users=kind not in (ALL_REDUCE, REDUCE_SCATTER))
        attributes = origin.attributes if origin else ""
        return Collective(
            kind=kind,
            name=instruction.name,
            num_bytes=num_bytes,
            times=self.runs.times[name],
            dtype=next((shape.dtype for shape in instruction.shapes), ""),
            group_size=joined.group_size,
            axes=joined.axes,
            across_slices=_transfer(instruction) is not None,
            op_name=instruction.op_name or (origin.op_name if origin else None),
            source=self.runs.program.sources.user_line(attributes),
            predicted_s=self._predicted_s(kind, num_bytes, joined),
        )

    def _joined(self, instruction: Instruction) -> _Joined:
        """The devices that it joins, and along which axes."""
        if _transfer(instruction) is not None:
            return self._joined_slices(slices_joined(instruction.attributes), instruction.attributes)
        pairs = source_target_pairs(instruction.attributes)
        if pairs is not None:
            moved = self._in_mesh(pairs[pairs[:, 0] != pairs[:, 1]])
            return _Joined(axes=axes_of_pairs(moved, self.mesh), group_size=2 if len(moved) else 1, pairs=moved)
        groups = replica_groups(instruction.attributes, self.runs.program.num_partitions)
        if groups is None:
            return _Joined(axes=(), group_size=self.runs.program.num_partitions)
        groups = self._in_mesh(groups)
        return _Joined(axes=axes_of_groups(groups, self.mesh), group_size=groups.shape[1], groups=groups)

    def _joined_slices(self, joined: tuple[int, ...], attributes: str) -> _Joined:
        """A transfer between slices joins one device of each, or all of them, as an all-to-all over more axes does."""
        if self.slices is None or not joined:
            return _Joined(axes=(), group_size=max(2, len(joined)))
        if devices_of_a_slice(attributes) == self.slices.shape[1] > 1:
            whole = self.slices[list(joined)].reshape(1, -1)
            return _Joined(axes=axes_of_groups(whole, self.mesh), group_size=whole.size, groups=whole)
        groups = self.slices[list(joined)].T
        return _Joined(axes=axes_of_groups(groups[:1], self.mesh), group_size=len(joined), groups=groups)

    def _predicted_s(self, kind: str, num_bytes: int, joined: _Joined) -> float | None:
        """What the network model says that it takes; None where the machine or the devices are not known."""
        if self.network is None:
            return None
        machine, pairs, groups = self.network.machine, joined.pairs, joined.groups
        if groups is not None and kind != COLLECTIVE_PERMUTE:
            return price(kind, num_bytes, place(machine, self.network.at(groups))).total_s
        if pairs is None and groups is not None:
            pairs = groups[:, :2]
        return permute(machine, self.network.at(pairs), num_bytes).total_s if pairs is not None else None

    def _in_mesh(self, positions: np.ndarray) -> np.ndarray:
        """Positions in the whole mesh for those in the program, which is one slice's where there are several."""
        one_slice = self.slices is not None and self.runs.program.num_partitions == self.slices.shape[1]
        return np.asarray(self.slices[0][positions]) if one_slice and self.slices is not None else positions


def _transfer(instruction: Instruction) -> str | None:
    """The kind of a transfer between slices, which the TPU compiler writes as a send to the host; else None."""
    if instruction.opcode != "send":
        return None
    said = re.search(r'_xla_megascale_transfer_type="(\w+)"', instruction.attributes)
    if said is None:
        return None
    kind = said[1].lower().replace("_", "-")
    return kind if kind in KINDS else COLLECTIVE_PERMUTE


def _bytes(program: Program, computation: str, instruction: Instruction) -> int:
    """The larger of operands and results. What a start returns holds its operands (and counters) beside its results.

    Of an uneven all-to-all it is the smaller of the rows there and the room for those that arrive, its first operands.
    A sum may round its operands as it sends them.
    """
    if instruction.opcode == ALL_REDUCE:
        return instruction.num_bytes
    if instruction.opcode.startswith(RAGGED_ALL_TO_ALL):
        known = program.computations[computation].instructions
        return min(known[name].num_bytes for name in instruction.operands[:2])
    operands = program.operand_bytes(computation, instruction)
    if _transfer(instruction) is not None:
        return max(operands, _received(program, computation, instruction))
    if instruction.opcode == f"{COLLECTIVE_PERMUTE}-start":
        return operands
    if instruction.opcode == f"{ALL_GATHER}-start":
        return max(operands, instruction.num_bytes - operands)
    return max(operands, instruction.num_bytes)


def _received(program: Program, computation: str, send: Instruction) -> int:
    """Bytes of the receive that belongs to a send between slices."""
    meeting = re.search(r'_xla_host_transfer_rendezvous="[^"]*"', send.attributes)
    receives = (i for i in program.computations[computation].instructions.values() if i.opcode == "recv")
    return next((i.shapes[0].num_bytes for i in receives if meeting and meeting[0] in i.attributes), 0)
