"""A step's operations as a network that layouts spread over."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from operator import itemgetter

from .....planner.graph import Factors, Graph, Op
from .entered import EDGE, FLOW, Flow
from .rounds import Layouts, Network, Told
from .rule import BACKWARD, BOTH, FORWARD, NONE, Rule
from .uses import Uses

CONSTRAINT = "sharding_constraint"
_ELEMENTWISE = (
    "abs add and atan2 cbrt ceil clamp compare complex convert cosine count_leading_zeros divide erf erf_inv erfc "
    "exponential exponential_minus_one floor imag is_finite log log_plus_one logistic maximum minimum multiply negate "
    "not or popcnt power real reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left "
    "shift_right_arithmetic shift_right_logical sign sine sqrt subtract tan tanh xor"
)
_OTHERS = (
    "cholesky concatenate constant convolution dot_general fft gather iota pad ragged_dot reduce reduce_window reverse "
    "rng_bit_generator scatter select_and_scatter slice sort top_k triangular_solve"
)
ELEMENTWISE = frozenset({CONSTRAINT, *_ELEMENTWISE.split()})
"""What Shardy counts as working number by number."""
PASSED = ELEMENTWISE | {"reshape", "transpose"}
PARTS = frozenset({"dynamic_slice", "dynamic_update_slice"})
BROADCAST = "broadcast_in_dim"
KNOWN = PASSED | PARTS | FLOW | {BROADCAST, *_OTHERS.split()}
ROUNDS = 5
Rounds = tuple[Told, ...]


class Rules:
    """What is known of the rules of a draft's operations, whatever the plan."""

    def __init__(self) -> None:
        self.layouts = Layouts()
        self._told: dict[tuple[object, ...], Told] = {}
        self._rounds: dict[tuple[object, ...], Rounds] = {}
        self._identities: dict[tuple[tuple[int, ...], int], Factors] = {}
        self._edges: dict[tuple[tuple[int, ...], int], Rounds] = {}
        self._begins: dict[int, list[int]] = {}
        self._leaving: dict[tuple[int, ...], Told] = {}

    def rounds(self, op: Op, alone: bool) -> Rounds:
        """What an operation is told in each round; ``alone`` says that nothing else reads what it does."""
        key = op.kind, id(op.factors), alone
        found = self._rounds.get(key)
        if found is None:
            factors = op.factors or Factors(sizes=(), operands=(), results=())
            rule = Rule(factors=_of_any_size(factors), elementwise=op.kind in ELEMENTWISE)
            found = self._rounds[key] = tuple([self._of(rule, each) for each in directions(op.kind, factors, alone)])
        return found

    def beginning(self, told: Sequence[Rounds]) -> list[list[int]]:
        """By round the operations that are told something that they were not in the one before, of those told so."""
        found: list[list[int]] = [[] for _ in range(ROUNDS)]
        for node, rounds in enumerate(told):
            begins = self._begins.get(id(rounds))  # which are kept, so that no others have their ``id``
            if begins is None:
                begins = self._begins[id(rounds)] = _new(rounds)
            for number in begins:
                found[number].append(node)
        return found

    def leaving(self, shape: tuple[int, ...]) -> Told:
        """What a value of this shape that a step returns and the result are told."""
        found = self._leaving.get(shape)
        if found is None:
            rule = Rule(factors=_of_any_size(self.identity(shape)), elementwise=False)
            found = self._leaving[shape] = self._of(rule, (BOTH,) * len(shape))
        return found

    def edge(self, shape: tuple[int, ...], sources: int) -> Rounds:
        """What is told of a value of this shape that comes from so many ``sources``: all of them and it, at once."""
        key = shape, sources
        found = self._edges.get(key)
        if found is None:
            rule = Rule(factors=_of_any_size(self.identity(shape, sources)), elementwise=False)
            found = self._edges[key] = (self._of(rule, (BOTH,) * len(shape)),) * ROUNDS
        return found

    def identity(self, shape: tuple[int, ...], operands: int = 1) -> Factors:
        """The rule of what gives back a tensor of this shape, each of so many operands if they are the same."""
        key = shape, operands
        if key not in self._identities:
            dims = tuple([(dim,) for dim in range(len(shape))])
            self._identities[key] = Factors(sizes=shape, operands=(dims,) * operands, results=(dims,))
        return self._identities[key]

    def _of(self, rule: Rule, ways: tuple[int, ...]) -> Told:
        key = rule, ways
        if key not in self._told:
            self._told[key] = Told(rule, ways, self.layouts)
        return self._told[key]


def _of_any_size(own: Factors) -> Factors:
    """The same rule for tensors of all sizes, where each dim is a factor, and all tensors have the same."""
    (row, *others) = (*own.operands, *own.results) or ((),)
    if any(len(dim) != 1 for dim in row) or any(other != row for other in others):
        return own
    return replace(own, sizes=(1,) * len(own.sizes))


def is_known(graph: Graph) -> bool:
    """Whether it is known how Shardy takes all operations of a graph."""
    return not graph.nesting and graph.kinds <= KNOWN


def network(graph: Graph, uses: Uses, rules: Rules) -> Network:
    """The network of a graph of known operations, which read its values as ``uses`` say."""
    ranked = [bool(value.shape) for value in graph.values]
    single = [len(of) == 1 or not is_ranked for of, is_ranked in zip(uses, ranked, strict=True)]
    flow, node_of = Flow(graph), [-1] * (len(graph.ops) + 1)
    told, values = list[Rounds](), list[tuple[int, ...]]()
    touched: list[list[int]] = [[] for _ in uses]
    for place, op in enumerate(graph.ops):
        tensors = flow.tensors(op) if op.kind == EDGE else op.operands + op.results
        has_rule = op.factors is not None or op.kind == EDGE
        if has_rule and sum([ranked[value] for value in tensors]) > 1:
            node_of[place] = len(told)
            for value in op.results:
                touched[value].append(len(told))
            values.append(tensors)
            told.append(
                rules.edge(graph.values[tensors[-1]].shape, len(tensors) - 1)
                if op.kind == EDGE
                else rules.rounds(op, all(map(single.__getitem__, op.operands)))
            )
    for tell, of in zip(touched, uses, strict=True):
        tell += [node for node in map(node_of.__getitem__, flow.readers(of)) if node >= 0]
    if flow.left:
        values = [tuple([flow.left.get(value, value) for value in each]) for each in values]
        for turning, left in flow.left.items():
            touched[left] = touched[turning] + touched[left]
    return Network(
        values=tuple(values),
        told=tuple(zip(*told, strict=True)) or ((),) * ROUNDS,
        touched=tuple(map(tuple, touched)),
        returned=graph.results,
        leaving=tuple([rules.leaving(graph.values[value].shape) for value in graph.results]),
        takes=tuple([itemgetter(*each) for each in values]),
        begins=tuple(map(tuple, rules.beginning(told))),
        left=flow.left,
    )


def _new(rounds: Rounds) -> list[int]:
    """The rounds in which an operation is told what it was not in the one before."""
    return [
        number
        for number, each in enumerate(rounds)
        if any(each.directions) and not (number and each is rounds[number - 1])
    ]


def directions(kind: str, own: Factors, alone: bool) -> tuple[tuple[int, ...], ...]:
    """In which direction each factor of an operation goes, by round (``op_priority_propagation.cc``)."""
    special, blocked = {*own.reduction, *own.replicated, *own.permutation}, frozenset(own.blocked)

    def all_go(way: int, besides: AbstractSet[int] = frozenset()) -> tuple[int, ...]:
        return tuple([NONE if factor in blocked or factor in besides else way for factor in range(len(own.sizes))])

    none, both = all_go(NONE), all_go(BOTH)
    if kind == BROADCAST:
        return none, none, all_go(BACKWARD, special), all_go(BACKWARD), both
    if kind in PASSED:
        return both if alone else none, both, both, both, both
    if kind in PARTS:
        forth = all_go(FORWARD)
        through = tuple([FORWARD if way and factor in special else way for factor, way in enumerate(both)])
        return forth if alone else none, forth, through, both, both
    return none, none, all_go(BOTH, special), both, both
