"""What bytes are for. The names of kinds stand here and nowhere else."""

from __future__ import annotations

from ..graph import Graph
from ..kernels import Kernel, Program
from ..kinds import KINDS

WEIGHTS = "weights"
OPTIMISER_STATE = "optimiser state"
BATCH = "batch"
GRADIENTS = "gradients"
SAVED = "saved activations"
TRANSIENTS = "transients"
COLLECTIVES = "collectives' buffers"
GAPS = "gaps between tensors"
PADDING = "tile padding"
RESULTS = "results"
TEMPORARIES = "temporaries"
CODE = "program code"
ALIASED = "aliased"

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"

_STATE_NAMES = frozenset({"mu", "nu", "m", "v", "momentum"})
_NESTED_STATE_NAMES = frozenset({"mu", "nu", "momentum"})


def argument_kind(path: str, returned: bool, dtype: str = "float32") -> str:
    """What an argument is for: batch if it does not come back or is a mask, which nothing learns; else optimiser state,
    by its name, or weights.
    """
    if not returned or dtype == "bool":
        return BATCH
    first, second = [*path.split("/"), ""][:2]
    named = first.startswith("opt") or first in _STATE_NAMES
    nested = first not in ("params", "weights") and (second.startswith("opt") or second in _NESTED_STATE_NAMES)
    return OPTIMISER_STATE if named or nested else WEIGHTS


def phase(scope: str | None) -> str:
    """Which part of a training step an operation belongs to, by JAX's name stack; all else is the update."""
    if scope is None:
        return UPDATE
    if "transpose(" in scope:
        return BACKWARD
    return FORWARD if "jvp(" in scope else UPDATE


def kernel_phase(graph: Graph, kernel: Kernel) -> str:
    """The phase of a kernel: that of its last operation that has a name."""
    for op in reversed(kernel.ops):
        if graph.ops[op].origin.scope:
            return phase(graph.ops[op].origin.scope)
    return UPDATE


def temporary_kinds(program: Program, weights: frozenset[tuple[int, ...]]) -> dict[int, str]:
    """What each value that a program makes is for.

    A gradient has the shape of a weight, is made in the backward pass or in the update (an optimiser's collectives
    stand there), and is read by the update. A saved activation is made in the forward pass and read in the backward. A
    collective's buffer is what else a collective makes, or only collectives read. The rest are transients.
    """
    graph = program.graph
    phases = [kernel_phase(graph, kernel) for kernel in program.kernels]
    readers: dict[int, set[str]] = {}
    for kernel, part in zip(program.kernels, phases, strict=True):
        part = COLLECTIVES if _is_collective(graph, kernel) else part
        for value in kernel.reads:
            readers.setdefault(value, set()).add(part)
    kinds = {}
    for kernel, part in zip(program.kernels, phases, strict=True):
        for value in kernel.writes:
            kinds[value] = _kind(graph, kernel, part, readers.get(value, set()), graph.shape(value) in weights)
    return kinds


def _kind(graph: Graph, kernel: Kernel, made: str, read: set[str], weight_shaped: bool) -> str:
    collective = _is_collective(graph, kernel)
    if weight_shaped and made != FORWARD and read & {UPDATE, COLLECTIVES}:
        return GRADIENTS
    if collective or read == {COLLECTIVES}:
        return COLLECTIVES
    return SAVED if made == FORWARD and BACKWARD in read else TRANSIENTS


def _is_collective(graph: Graph, kernel: Kernel) -> bool:
    return graph.ops[kernel.ops[-1]].kind in KINDS
