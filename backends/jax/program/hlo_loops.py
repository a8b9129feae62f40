"""How often each part of a compiled program runs: loops by their turns, called computations by their callers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from .hlo import Computation, Instruction, Program

_PASSED_ON = ("copy", "convert", "bitcast", "copy-start", "copy-done", "reshape", "optimization-barrier")
_EXECUTED = ("calls", "async_computation", "true_computation", "false_computation", "branch_computations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A computation called by an instruction of another, ``turns`` times each time that one runs."""

    caller: str
    instruction: Instruction
    callee: str
    turns: int


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The calls of a program, and how often each of its computations runs in one step."""

    program: Program

    @cached_property
    def calls(self) -> Mapping[str, tuple[Call, ...]]:
        """The calls that each computation makes."""
        return {name: tuple(_calls(self.program, c)) for name, c in self.program.computations.items()}

    @cached_property
    def callers(self) -> Mapping[str, tuple[Call, ...]]:
        """The calls that reach each computation."""
        reaching: dict[str, list[Call]] = {name: [] for name in self.program.computations}
        for call in (call for made in self.calls.values() for call in made):
            reaching[call.callee].append(call)
        return {name: tuple(calls) for name, calls in reaching.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The computations that run, each before those that it calls."""
        done: dict[str, None] = {}
        stack = [(self.program.entry, False)]
        while stack:
            name, left = stack.pop()
            if left:
                done[name] = None
            elif name not in done:
                stack.append((name, True))
                stack.extend((call.callee, False) for call in self.calls[name] if call.callee not in done)
        return tuple(reversed(done))

    @cached_property
    def times(self) -> Mapping[str, int]:
        """How often each computation that runs does so in one step; every branch of a conditional counts as taken."""
        times = dict.fromkeys(self.order, 0)
        times[self.program.entry] = 1
        for name in self.order:
            for call in self.calls[name]:
                times[call.callee] += times[name] * call.turns
        return times

    @cached_property
    def estimated_cycles(self) -> int | None:
        """The compiler's cycles of one step: loops by their turns, of a conditional the longest branch.

        None where the compiler estimates nothing, as for CPUs.
        """
        spent: dict[str, int] = {}
        for name in reversed(self.order):
            spent[name] = self._own_cycles(name, spent)
        said = any(i.estimated_cycles is not None for i in self.instructions())
        return spent[self.program.entry] if said else None

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of the computations that run, once."""
        for name in self.order:
            yield from self.program.computations[name].instructions.values()

    def _own_cycles(self, name: str, spent: Mapping[str, int]) -> int:
        below: dict[str, list[int]] = {}
        for call in self.calls[name]:
            below.setdefault(call.instruction.name, []).append(call.turns * spent[call.callee])
        total = 0
        for instruction in self.program.computations[name].instructions.values():
            inner = below.get(instruction.name, [])
            within = max(inner, default=0) if instruction.opcode == "conditional" else sum(inner)
            said = instruction.estimated_cycles
            total += within if said is None else said
        return total


def trip_count(program: Program, caller: Computation, loop: Instruction) -> int | None:
    """How often a ``while`` turns: as the compiler says, or from its counter's start, step and bound.

    None where the bound is not a constant.
    """
    if loop.known_trip_count is not None:
        return loop.known_trip_count
    condition = program.computations[loop.called["condition"][0]]
    compared = _comparison(program, condition)
    if compared is None:
        return None
    direction, counter, bound = compared
    position = _position(condition, counter)
    limit = _value(condition, bound, lambda at: _initial(caller, loop, at))
    if position is None or limit is None:
        return None
    start = _initial(caller, loop, position) or 0
    step = _step(program.computations[loop.called["body"][0]], position) or 1
    distance = {"LT": limit - start, "LE": limit - start + 1, "GT": start - limit, "GE": start - limit + 1}
    return max(0, -(-distance[direction] // abs(step))) if direction in distance else None


def _calls(program: Program, computation: Computation) -> Iterator[Call]:
    for instruction in computation.instructions.values():
        if instruction.opcode == "while":
            turns = trip_count(program, computation, instruction)
            yield from _made(program, computation, instruction, "body", 1 if turns is None else turns)
        elif instruction.opcode == "call":
            yield from _made(program, computation, instruction, "to_apply", 1)
        elif instruction.opcode in ("fusion", "async-start", "conditional"):
            for how in _EXECUTED:
                yield from _made(program, computation, instruction, how, 1)


def _made(program: Program, caller: Computation, instruction: Instruction, how: str, turns: int) -> Iterator[Call]:
    for callee in instruction.called.get(how, ()):
        if callee in program.computations:
            yield Call(caller=caller.name, instruction=instruction, callee=callee, turns=turns)


def _comparison(program: Program, condition: Computation) -> tuple[str, str, str] | None:
    """Direction, counter and bound of the comparison that a loop's condition returns; also from within a fusion."""
    root = condition.root
    if root is None:
        return None
    if root.opcode == "compare":
        return root.attribute("direction") or "", root.operands[0], root.operands[1]
    inner = program.computations.get(next(iter(root.called.get("calls", ())), ""))
    if root.opcode != "fusion" or inner is None or inner.root is None or inner.root.opcode != "compare":
        return None
    outer = [_argument(inner, root, name) for name in inner.root.operands]
    if outer[0] is None or outer[1] is None:
        return None
    return inner.root.attribute("direction") or "", outer[0], outer[1]


def _argument(inner: Computation, fusion: Instruction, name: str) -> str | None:
    """The operand of a fusion that the parameter with this name stands for."""
    parameter = inner.instructions[name]
    return fusion.operands[int(parameter.literal)] if parameter.opcode == "parameter" else None


def _position(computation: Computation, name: str) -> int | None:
    """Which element of the loop's state an instruction is, looking through copies."""
    found = _origin(computation, name)
    if found is None or found.opcode != "get-tuple-element":
        return None
    return int(found.attribute("index") or 0)


def _origin(computation: Computation, name: str) -> Instruction | None:
    found = computation.instructions.get(name)
    while found is not None and found.opcode in _PASSED_ON:
        found = computation.instructions.get(found.operands[0])
    return found


def _value(computation: Computation, name: str, of_state: Callable[[int], int | None] | None = None) -> int | None:
    """The whole number that an instruction is; ``of_state`` gives it for an element of the loop's state."""
    found = _origin(computation, name)
    if found is None:
        return None
    if found.opcode == "constant":
        return int(found.literal) if found.literal.lstrip("-").isdigit() else None
    if found.opcode == "get-tuple-element" and of_state is not None:
        return of_state(int(found.attribute("index") or 0))
    return None


def _initial(caller: Computation, loop: Instruction, position: int) -> int | None:
    """The number that an element of a loop's state begins as, if it is a constant."""
    state = _origin(caller, loop.operands[0])
    if state is None or state.opcode != "tuple":
        return None
    return _value(caller, state.operands[position])


def _step(body: Computation, position: int) -> int | None:
    """What a turn adds to an element of the loop's state."""
    root = body.root
    after = _origin(body, root.operands[position]) if root is not None and root.opcode == "tuple" else None
    if after is None or after.opcode not in ("add", "subtract"):
        return None
    return next((value for name in after.operands if (value := _value(body, name)) is not None), None)
