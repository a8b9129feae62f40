"""The parts of a Transformer and an MoE layer, told apart by the function of the model that asked for an operation."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from types import FunctionType, ModuleType

from meshwright.backends.jax.models import layers
from meshwright.backends.jax.models.moe import experts, layer, report, routing
from meshwright.backends.jax.models.moe.dispatch import einsum
from meshwright.backends.jax.models.moe.gates import losses, router, top_k

GATES = (einsum, layer, losses, report, router, routing, top_k)
"""What decides where a token goes, and says what was decided."""

FFN, PROJECTIONS, ATTENTION, EXPERTS = "dense feed-forward", "projections", "attention", "experts' feed-forward"
EINSUMS, GATING, EXCHANGE = "gate einsums", "gating: cumsum, argmax, one-hot", "dispatch and combine"
REST, SUMS = "norms, residuals", "statistics' all-reduces"
PARTS = (FFN, PROJECTIONS, ATTENTION, EXPERTS, EINSUMS, GATING, EXCHANGE, REST, SUMS)


def part_of(source: str | None, scope: str | None) -> str:
    """The part of the layers that an operation belongs to, by its source line and its name stack."""
    function = asked_by(source or "")
    if function == "feed_forward":
        return FFN
    if (source or "").rpartition(":")[0] == experts.__file__:
        return EXPERTS
    if function == "attention":
        return PROJECTIONS if any(word in (scope or "") for word in ("MND", "NDM")) else ATTENTION
    if function == "segment_mask":
        return ATTENTION
    if function in ("dispatch", "combine") or "GSM,ME" in (scope or ""):
        return EINSUMS
    return GATING if function in gating() else REST


def asked_by(source: str) -> str:
    """The function of the models that a source line (``.../experts.py:62``) stands in; the empty string for another."""
    file, _, line = source.rpartition(":")
    for name, path, first, last in functions():
        if file == path and first <= int(line) < last:
            return name
    return ""


@cache
def functions() -> tuple[tuple[str, str, int, int], ...]:
    """The models' functions: name, file, first line and the one after the last."""
    return tuple(_functions((layers, experts, *GATES)))


def _functions(modules: Iterable[ModuleType]) -> Iterator[tuple[str, str, int, int]]:
    for module in modules:
        for name, function in _made_in(module):
            lines, first = inspect.getsourcelines(function)
            yield name, str(module.__file__), first, first + len(lines)


def _made_in(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The functions of a module, those of its classes too."""
    for owner in (module, *(c for _, c in inspect.getmembers(module, inspect.isclass))):
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            if function.__module__ == module.__name__ and function.__code__.co_filename == module.__file__:
                yield name, function


@cache
def gating() -> frozenset[str]:
    return frozenset(name for module in GATES for name, _ in _made_in(module))
