"""Where in the model an operation stands, read off JAX's name stack and its source line."""

from __future__ import annotations

import re
from functools import lru_cache

from ..graph import Origin

FORWARD, BACKWARD, RECOMPUTED, UPDATE = "forward", "backward", "recomputed", "update"
PHASES = (FORWARD, BACKWARD, RECOMPUTED, UPDATE)
NOWHERE = "(not said)"

_WRAPPERS = re.compile(r"^(?:transpose|jvp|vmap|remat|checkpoint|custom_jvp|custom_vjp|pmap|shard_map)\((.*)\)$")
_MADE_BY_JAX = frozenset(
    {"while", "body", "cond", "closed_call", "checkpoint", "remat", "remat2", "rematted_computation", "branch"}
    | {"core_call", "pjit", "custom_jvp_call", "custom_vjp_call", "shard_map", "scan"}
)


def phase_of(origin: Origin) -> str:
    """Which part of a training step an operation belongs to, as far as its name stack says."""
    scope = origin.scope or ""
    if "rematted_computation" in scope:
        return RECOMPUTED
    if "transpose(" in scope:
        return BACKWARD
    return FORWARD if "jvp(" in scope else UPDATE


@lru_cache(maxsize=4096)
def layer_of(origin: Origin) -> str:
    """The part of the model: the named scopes around an operation, else its source line, else the function's name."""
    parts = [_unwrapped(part) for part in _parts(origin.scope or "")[:-1]]
    named = [part for part in parts if part and _is_name(part)]
    if named:
        return "/".join(named)
    if origin.source:
        return short_source(origin.source)
    return next((part[4:-1] for part in reversed(parts[1:]) if part.startswith("jit(")), NOWHERE)


def short_source(source: str) -> str:
    """A source line by its file and folder alone: ``models/transformer.py:35``."""
    return "/".join(source.split("/")[-2:])


def _parts(scope: str) -> list[str]:
    """The segments between the slashes that stand in no bracket."""
    parts, depth = [""], 0
    for character in scope:
        depth += (character == "(") - (character == ")")
        if character == "/" and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _unwrapped(part: str) -> str:
    """What a transformation was applied to: ``layer0`` of ``transpose(jvp(layer0))``."""
    while (found := _WRAPPERS.match(part)) is not None:
        part = found[1]
    return part


def _is_name(part: str) -> bool:
    """Whether a segment is a scope that the model names, not one of JAX's own or the formula of an einsum."""
    return part not in _MADE_BY_JAX and not part.startswith(("jit(", "branch_")) and "->" not in part
