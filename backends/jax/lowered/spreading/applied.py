"""What constraints do to what they read before layouts are propagated (``apply_sharding_constraints.cc``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....planner.graph import Graph
from .entered import EDGE, LOOP, rooms
from .network import CONSTRAINT
from .rounds import Layouts
from .uses import Changing, Uses


def applied(
    graph: Graph, uses: Uses, arguments: Sequence[int], constraints: Mapping[int, int], layouts: Layouts
) -> tuple[list[int], Changing]:
    """The layouts of a graph's values before propagation, and what reads another value then.

    They are those of its arguments and of what its constraints make (``constraints``, by value), which a constraint
    gives to what it reads, where no other says otherwise: what reads a loop's values reads the constraint instead,
    which then stands behind them. What stands behind a row of constraints, one of the other, reads the last of them.
    """
    found, changing = [0] * len(graph.values), Changing(uses)
    handed = {value: place for place, op in enumerate(graph.ops) if op.kind in (LOOP, EDGE) for value in op.results}
    for value, place in handed.items():
        if graph.ops[place].kind == EDGE:
            changing.turn(value)
    for value, number in zip(graph.arguments, arguments, strict=True):
        found[value] = number
    for value, number in constraints.items():
        found[value] = number
    makes = {place: op.results[0] for place, op in enumerate(graph.ops) if op.kind == CONSTRAINT} if constraints else {}
    room = rooms(graph) if handed and makes else [0] * len(graph.ops)
    for place, made in makes.items():
        (value,) = graph.ops[place].operands
        value = changing.operands.get((place, 0), value)
        last = None if found[value] else _last(place, value, makes, changing)
        if last is not None:
            for use in list(changing.of(value)):
                if use[0] != place and last < use[0] < len(graph.ops) and room[use[0]] == room[last]:
                    changing.move(use, value, makes[last])
        number = constraints[made]
        asked = {constraints[makes[user]] for user, _ in changing.of(value) if user in makes}
        if found[value] or asked != {number} or not all(closed for _, closed in layouts.of(number) or ()):
            continue
        if value not in handed:
            found[value] = number
            continue
        changing.behind.append((place, handed[value]))
        for use in list(changing.of(value)):
            if use[0] != place:
                changing.move(use, value, made)
    return found, changing


def _last(place: int, value: int, makes: Mapping[int, int], changing: Changing) -> int | None:
    """The last of a row of constraints that begins here, each alone in reading the one before; None if it is one."""
    if any(user in makes and user != place for user, _ in changing.of(value)):
        return None
    last = place
    while len(uses := changing.of(makes[last])) == 1 and uses[0][0] in makes:
        last = uses[0][0]
    return None if last == place or any(user in makes for user, _ in changing.of(makes[last])) else last
