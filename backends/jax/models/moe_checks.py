"""What does not go together in the settings of MoE layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....dsl.errors import Problem, problem
from .moe.choices import MoeChoices
from .moe.exchange.checks import exchange_problems
from .moe.grouped import TILE
from .moe.published import PUBLISHED

if TYPE_CHECKING:
    from .config import TransformerConfig

_BY_TOKENS = ("gshard", "switch", "top_k", "noisy_top_k", "hierarchical")
_SOFTMAX = ("gshard", "switch", "top_k")
_ONLY: dict[str, tuple[str, ...]] = {
    "sets": ("hierarchical",),
    "order": _BY_TOKENS,
    "normalise": _BY_TOKENS,
    "random_threshold": ("gshard", "top_k"),
    "aux_weight": _SOFTMAX,
    "uniform_steps": _SOFTMAX,
    "z_weight": (*_SOFTMAX, "noisy_top_k", "expert_choice"),
}
"""The gates with which a setting has a meaning; those that are not named have one with every gate."""
_FIXED_K = {"gshard": 2, "switch": 1}


def moe_problems(config: TransformerConfig) -> list[Problem]:
    """Gates that do not exist (MW609), choices that cannot be made (MW610), a decoder that would look ahead (MW611),
    settings without meaning (MW612), sets of experts (MW613), kernels (MW614), and what ``exchange_problems`` finds."""
    found = list(_version(config))
    if found:
        return found
    found = [*_counts(config), *_look_ahead(config), *_meaningless(config), *_sets(config), *_kernel(config)]
    return found + exchange_problems(config)


def formula_of(choices: MoeChoices) -> str:
    """The formula of the capacity as a user reads it."""
    rule, factor, top_k = (choices.said(name) for name in ("capacity_rule", "capacity_factor", "top_k"))
    return f"{top_k * factor:g}S/E" if rule == "gshard" else f"of rule {rule} with a factor of {factor:g}"


def _version(config: TransformerConfig) -> Iterator[Problem]:
    systems = PUBLISHED[config.gate]
    if config.published not in systems:
        yield problem(
            "MW609", setting="published", published=config.published, gate=config.gate, legal=", ".join(systems)
        )


def _counts(config: TransformerConfig) -> Iterator[Problem]:
    top_k, fixed = config.top_k, _FIXED_K.get(config.gate)
    if top_k is None:
        return
    if fixed is not None and top_k != fixed:
        yield problem("MW610", setting="top_k", top_k=top_k, why=f"gate {config.gate} has {fixed}", legal=fixed)
    elif top_k > config.experts:
        yield problem(
            "MW610", setting="top_k", top_k=top_k, why=f"there are {config.experts} experts", legal=config.experts
        )


def _look_ahead(config: TransformerConfig) -> Iterator[Problem]:
    gate = config.decoder_gate or config.gate
    if gate not in _BY_TOKENS:
        yield problem("MW611", setting="decoder_gate", gate=gate, legal=", ".join(_BY_TOKENS))


def _meaningless(config: TransformerConfig) -> Iterator[Problem]:
    for name, gates in _ONLY.items():
        if getattr(config, name) and config.gate not in gates:
            yield _without_meaning(name, config, f"gate: {config.gate}", f"gate: {' or '.join(gates)}")
    if config.uniform_steps and config.decoder_gate and config.decoder_gate not in _SOFTMAX:
        legal = f"decoder_gate: {' or '.join(_SOFTMAX)}"
        yield _without_meaning("uniform_steps", config, f"decoder_gate: {config.decoder_gate}", legal)
    if config.random_threshold and config.said("top_k") != 2:
        yield _without_meaning("random_threshold", config, f"top_k: {config.said('top_k')}", "top_k: 2")
    for name in ("capacity_rule", "capacity_factor"):
        if getattr(config, name) is not None and config.capacity is not None:
            yield _without_meaning(name, config, f"capacity: {config.capacity}", "capacity: null")
    for name in ("capacity", "capacity_rule", "capacity_factor"):
        if getattr(config, name) is not None and config.capacity_mode == "automatic":
            yield _without_meaning(name, config, "capacity_mode: automatic", "capacity_mode: fixed or bounded")
    for name, default in (("kernel", "auto"), ("fill_to", 1)):
        if getattr(config, name) != default and config.dispatch != "sorted":
            yield _without_meaning(name, config, f"dispatch: {config.dispatch}", "dispatch: sorted")


def _without_meaning(name: str, config: TransformerConfig, beside: str, legal: str) -> Problem:
    return problem("MW612", setting=name, value=getattr(config, name), beside=beside, legal=legal)


def _sets(config: TransformerConfig) -> Iterator[Problem]:
    if config.gate != "hierarchical":
        return
    sets, top_k = config.set_count(config.experts), config.said("top_k")
    told: dict[str, Any] = {"setting": "sets", "experts": config.experts, "sets": sets, "top_k": top_k}
    if config.experts % sets or top_k % 2 or sets < 2 or config.experts // sets < top_k // 2:
        legal = [
            a for a in range(2, config.experts + 1) if config.experts % a == 0 and config.experts // a >= top_k // 2
        ]
        yield problem("MW613", **told, legal=", ".join(map(str, legal[:8])) or "none")


def _kernel(config: TransformerConfig) -> Iterator[Problem]:
    if config.kernel == "megablox" and config.fill_to % TILE:
        yield problem("MW614", setting="fill_to", fill_to=config.fill_to, multiple=TILE)
