"""A step's operations as a network that layouts spread over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter

from .....planner.graph import Factors, Graph, Op
from .rounds import Layouts, Network, Told
from .rule import BACKWARD, BOTH, FORWARD, NONE, Rule

CONSTRAINT = "sharding_constraint"
ELEMENTWISE = frozenset(
    "abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide exponential "
    "exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate not or "
    "popcnt power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left "
    "shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor".split()
) | {CONSTRAINT}
"""What Shardy counts as working number by number."""
PASSED = ELEMENTWISE | {"reshape", "transpose"}
PARTS = frozenset({"dynamic_slice", "dynamic_update_slice"})
BROADCAST = "broadcast_in_dim"
OTHERS = frozenset(
    "cholesky concatenate constant convolution dot_general fft gather iota pad reduce reduce_window reverse "
    "rng_bit_generator scatter select_and_scatter slice triangular_solve".split()
)
KNOWN = PASSED | PARTS | OTHERS | {BROADCAST}
Rounds = tuple[Told, ...]


class Rules:
    """What is known of the rules of a draft's operations, whatever the plan."""

    def __init__(self) -> None:
        self.layouts = Layouts()
        self._told: dict[tuple[object, ...], Told] = {}
        self._rounds: dict[tuple[object, ...], Rounds] = {}

    def rounds(self, op: Op, factors: Factors, alone: bool) -> Rounds:
        """What an operation is told in each round; ``alone`` says that nothing else reads what it does."""
        key = op.kind, id(factors), alone
        found = self._rounds.get(key)
        if found is None:
            rule = Rule(factors=factors, elementwise=op.kind in ELEMENTWISE)
            found = self._rounds[key] = tuple([self._of(rule, each) for each in directions(op.kind, factors, alone)])
        return found

    def leaving(self, shape: tuple[int, ...]) -> Told:
        """What a value of this shape that a step returns and the result are told."""
        dims = tuple([(dim,) for dim in range(len(shape))])
        rule = Rule(factors=Factors(sizes=shape, operands=(dims,), results=(dims,)), elementwise=False)
        return self._of(rule, (BOTH,) * len(shape))

    def _of(self, rule: Rule, ways: tuple[int, ...]) -> Told:
        key = rule, ways
        if key not in self._told:
            self._told[key] = Told(rule, ways, self.layouts)
        return self._told[key]


def network(graph: Graph, rules: Rules) -> Network | None:
    """The network of a graph; None where it has operations of which it is not known how Shardy takes them."""
    if any(op.bodies or op.kind not in KNOWN for op in graph.ops):
        return None
    readers, times = defaultdict[int, list[int]](list), defaultdict[int, int](int)
    for value in graph.results:
        times[value] += 1
    nodes = []
    for op in graph.ops:
        for value in op.operands:
            times[value] += 1
        if op.factors is not None and len(op.operands) + len(op.results) > 1:
            for value in op.operands:
                readers[value].append(len(nodes))
            nodes.append(op)
    makers = {value: (node,) for node, op in enumerate(nodes) for value in op.results}
    told = []
    for op in nodes:
        alone = all([times[value] == 1 or not graph.values[value].shape for value in op.operands])
        told.append(rules.rounds(op, op.factors, alone))
    values = tuple([op.operands + op.results for op in nodes])
    rounds = tuple(zip(*told, strict=True))
    return Network(
        values=values,
        told=rounds,
        touched=tuple([(*makers.get(v, ()), *readers.get(v, ())[::-1]) for v in range(len(graph.values))]),
        returned=graph.results,
        leaving=tuple([rules.leaving(graph.values[value].shape) for value in graph.results]),
        takes=tuple([itemgetter(*each) for each in values]),
        begins=tuple(_begins(rounds)),
    )


def _begins(rounds: Sequence[Sequence[Told]]) -> list[tuple[int, ...]]:
    before: Sequence[Told | None] = [None] * len(rounds[0]) if rounds else ()
    found = []
    for told in rounds:
        changed = [n for n, (one, other) in enumerate(zip(before, told, strict=True)) if one is not other]
        found.append(tuple([n for n in changed if any(told[n].directions)]))
        before = told
    return found


def directions(kind: str, own: Factors, alone: bool) -> tuple[tuple[int, ...], ...]:
    """In which direction each factor of an operation goes, by round (``op_priority_propagation.cc``)."""
    count, special = len(own.sizes), {*own.reduction, *own.replicated, *own.permutation}
    through = tuple([NONE if factor in special else BOTH for factor in range(count)])
    none, both, back, forth = ((way,) * count for way in (NONE, BOTH, BACKWARD, FORWARD))
    if kind == BROADCAST:
        return none, none, tuple([way and BACKWARD for way in through]), back, both
    if kind in PASSED:
        return both if alone else none, both, both, both, both
    if kind in PARTS:
        return forth if alone else none, forth, tuple([way or FORWARD for way in through]), both, both
    return none, none, through, both, both
