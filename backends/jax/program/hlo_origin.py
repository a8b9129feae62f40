"""Which instruction says where another comes from: itself, its caller, else a neighbour in the flow of data."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .hlo import Computation, Instruction
from .hlo_loops import Runs

_REACH = 64


@dataclass(frozen=True, kw_only=True)
class Origins:
    """The origins of a program's instructions. Passes of the compiler drop some instructions' metadata."""

    runs: Runs

    def of(self, computation: str, instruction: Instruction, *, made_for_users: bool) -> Instruction | None:
        """The instruction whose metadata names the source of this one; None if none near it has any.

        A fused or asynchronous instruction is its caller's. Where that says nothing, the nearest that uses the value
        speaks for it (``made_for_users``: a gather serves what reads it), or the nearest that makes it.
        """
        while not _says(instruction):
            caller = next(iter(self.runs.callers[computation]), None)
            if caller is None or caller.instruction.opcode in ("while", "conditional", "call"):
                break
            computation, instruction = caller.caller, caller.instruction
        if _says(instruction):
            return instruction
        near = self._near(computation, instruction, users=made_for_users)
        return near or self._near(computation, instruction, users=not made_for_users)

    def _near(self, computation: str, start: Instruction, *, users: bool) -> Instruction | None:
        body = self.runs.program.computations[computation]
        known = body.instructions
        seen, queue = {start.name}, deque([start.name])
        while queue and len(seen) < _REACH:
            name = queue.popleft()
            beyond = self._users[computation].get(name, ()) if users else _makers(body, known[name])
            for other in beyond:
                if other in known and other not in seen:
                    if _says(known[other]):
                        return known[other]
                    seen.add(other)
                    queue.append(other)
        return None

    @cached_property
    def _users(self) -> Mapping[str, Mapping[str, list[str]]]:
        """By computation and instruction, the instructions that use its value."""
        used: dict[str, dict[str, list[str]]] = {}
        for name, computation in self.runs.program.computations.items():
            users = used.setdefault(name, {})
            for instruction in computation.instructions.values():
                for operand in instruction.operands:
                    users.setdefault(operand, []).append(instruction.name)
        return used


def _makers(body: Computation, instruction: Instruction) -> tuple[str, ...]:
    """Its operands; for an element of a loop's state, what the turn before made of it."""
    root = body.root
    source = body.instructions.get(next(iter(instruction.operands), ""))
    if instruction.opcode != "get-tuple-element" or source is None or source.opcode != "parameter":
        return instruction.operands
    position = int(instruction.attribute("index") or 0)
    return root.operands[position : position + 1] if root is not None and root.opcode == "tuple" else ()


def _says(instruction: Instruction) -> bool:
    return "stack_frame_id=" in instruction.attributes or "source_file=" in instruction.attributes
