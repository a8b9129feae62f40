"""Meshwright: plans how large JAX models are laid out over pods, proves the plan against the real compiler, runs it.

Every name is imported when first used, so that importing the package costs nothing and brings no JAX.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends.jax.annotate import remat, replicate, shard, split, tag
    from .backends.jax.apply import apply
    from .backends.jax.declared import Choices, choices
    from .backends.jax.devices import topology
    from .backends.jax.estimate import estimate
    from .backends.jax.placing import place
    from .backends.jax.search import search
    from .backends.jax.search_settings import search_plan
    from .backends.jax.verify import verify
    from .backends.jax.workload import Workload
    from .dsl.adapt import adapt
    from .dsl.errors import PlanError, Problem
    from .dsl.plan import Plan
    from .dsl.reader import load, loads
    from .dsl.writer import dump, dumps

_HOMES = {
    "Choices": "backends.jax.declared",
    "Plan": "dsl.plan",
    "PlanError": "dsl.errors",
    "Problem": "dsl.errors",
    "Workload": "backends.jax.workload",
    "adapt": "dsl.adapt",
    "apply": "backends.jax.apply",
    "choices": "backends.jax.declared",
    "dump": "dsl.writer",
    "dumps": "dsl.writer",
    "estimate": "backends.jax.estimate",
    "load": "dsl.reader",
    "loads": "dsl.reader",
    "place": "backends.jax.placing",
    "remat": "backends.jax.annotate",
    "replicate": "backends.jax.annotate",
    "search": "backends.jax.search",
    "search_plan": "backends.jax.search_settings",
    "shard": "backends.jax.annotate",
    "split": "backends.jax.annotate",
    "tag": "backends.jax.annotate",
    "topology": "backends.jax.devices",
    "verify": "backends.jax.verify",
}

__all__ = [
    "Choices",
    "Plan",
    "PlanError",
    "Problem",
    "Workload",
    "adapt",
    "apply",
    "choices",
    "dump",
    "dumps",
    "estimate",
    "load",
    "loads",
    "place",
    "remat",
    "replicate",
    "search",
    "search_plan",
    "shard",
    "split",
    "tag",
    "topology",
    "verify",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'meshwright' has no attribute '{name}'")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
