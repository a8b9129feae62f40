"""What does not go together in the settings of the exchange."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ......dsl.errors import Problem, listing, problem, suggest
from .choices import BY_HAND, ExchangeChoices

if TYPE_CHECKING:
    from ...config import TransformerConfig

_IN_REGIONS = ("exchange_axes", "exchange_bound", "token_axes", "hidden_axes", "expert_shards")


def exchange_problems(config: TransformerConfig) -> list[Problem]:
    """Settings without meaning (MW612), an open mesh (MW615), axes that it has not (MW616), one axis for two levels
    (MW619), what cannot lie evenly (MW617), devices that no axes have (MW618)."""
    if config.exchange not in BY_HAND:
        return [*_without_region(config)]
    found = [*_with_region(config)]
    if config.plan_mesh is None:
        return [*found, problem("MW615", setting="exchange", exchange=config.exchange)]
    found += [*_unknown_axes(config, dict(config.plan_mesh))]
    return found or [*_shards(config), *_uneven(config, dict(config.plan_mesh))]


def _without_region(config: TransformerConfig) -> Iterator[Problem]:
    for name in _IN_REGIONS:
        if getattr(config, name) is not None:
            yield _meaningless(name, config, f"exchange: {config.exchange}", "exchange: manual")
    if config.exchange_chunks > 1 and config.dispatch == "sorted":
        yield _meaningless("exchange_chunks", config, "dispatch: sorted", "dispatch: index")


def _with_region(config: TransformerConfig) -> Iterator[Problem]:
    by_rows = config.dispatch == "sorted"
    if config.exchange == "hierarchical" and len(config.owner_axes) != 2:
        yield problem("MW619", setting="exchange_axes", axes="+".join(config.owner_axes), count=len(config.owner_axes))
    if config.exchange_bound is not None and not by_rows:
        yield _meaningless("exchange_bound", config, f"dispatch: {config.dispatch}", "dispatch: sorted")
    if config.exchange_chunks > 1 and by_rows:
        yield _meaningless("exchange_chunks", config, "dispatch: sorted", "dispatch: index")
    if config.expert_shards == 0:
        for name, said in (("exchange_chunks", config.exchange_chunks > 1), ("exchange_bound", config.exchange_bound)):
            if said:
                yield _meaningless(name, config, "expert_shards: 0", "expert_shards: 1")


def _meaningless(name: str, config: ExchangeChoices, beside: str, legal: str) -> Problem:
    return problem("MW612", setting=name, value=getattr(config, name), beside=beside, legal=legal)


def _unknown_axes(config: TransformerConfig, sizes: dict[str, int]) -> Iterator[Problem]:
    seen: list[str] = []
    said = {"exchange_axes": config.owner_axes, "token_axes": config.replica_axes, "hidden_axes": _hidden(config)}
    for setting, axes in said.items():
        told: dict[str, Any] = {"setting": setting, "axes": "+".join(axes), "mesh": listing([*sizes]) or "no axis"}
        for axis in axes:
            if axis not in sizes:
                yield problem("MW616", **told, why=f"has no axis {axis}", remedy=suggest(axis, [*sizes]))
            elif axis in seen:
                yield problem("MW616", **told, why=f"gives {axis} once", remedy=f"Name {axis} once.")
            seen.append(axis)


def _hidden(config: TransformerConfig) -> list[str]:
    return [axis.strip() for axis in (config.hidden_axes or "").split("+") if axis.strip()]


def _shards(config: TransformerConfig) -> Iterator[Problem]:
    if config.sharing() is None:
        sizes = [*config.hidden_sizes.values()]
        legal = sorted({0, *(math.prod(sizes[i:]) for i in range(len(sizes) + 1))})
        axes = ", ".join(f"{axis}={size}" for axis, size in config.hidden_sizes.items()) or "no axes"
        told: dict[str, Any] = {"setting": "expert_shards", "shards": config.expert_shards, "axes": axes}
        yield problem("MW618", **told, legal=", ".join(map(str, legal)))


def _uneven(config: TransformerConfig, sizes: dict[str, int]) -> Iterator[Problem]:
    owners, hidden = config.owner_axes, tuple(_hidden(config))
    for setting, what, count, axes in (
        ("experts", "experts", config.experts, owners),
        ("groups", "groups", config.group_count, (*config.replica_axes, *owners, *hidden)),
        ("hidden_dim", "values of the hidden dim", config.hidden_dim, hidden),
    ):
        devices = math.prod(sizes[axis] for axis in axes)
        if count % devices:
            told: dict[str, Any] = {"setting": setting, "count": count, "what": what, "devices": devices}
            below = count // devices * devices
            legal = ", ".join(str(n) for n in (below, below + devices) if n)
            yield problem("MW617", **told, axes="+".join(axes), nearest=legal)
