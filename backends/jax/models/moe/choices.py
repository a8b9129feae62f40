"""What a plan can say of MoE layers: the settings, and the layer's parts that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from .capacity import Capacity, sizes_below, slots_of
from .dispatch import Dispatch
from .dispatch.einsum import EinsumDispatch
from .dispatch.index import IndexDispatch
from .dispatch.sorted import SortedDispatch
from .exchange.choices import ExchangeChoices
from .experts import FeedForward
from .gates import Gate
from .gates.expert_choice import BatchwiseGate, ExpertChoiceGate
from .gates.hierarchical import HierarchicalGate
from .gates.noisy_top_k import NoisyTopKGate
from .gates.router import Router
from .gates.top_k import TopKGate
from .published import BASE, PUBLISHED
from .routing import Rules
from .settings import MoeSettings

SYSTEMS = tuple(dict.fromkeys(name for systems in PUBLISHED.values() for name in systems))


def one_of(default: str | None, *choices: str) -> Any:
    """A field whose value is one of some words."""
    return field(default=default, metadata={"choices": choices})


def at_least(default: float | None, least: float, below: float | None = None) -> Any:
    """A field with a lower bound, and perhaps one that it stays below."""
    bounds = {"least": least} if below is None else {"least": least, "below": below}
    return field(default=default, metadata=bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeChoices(ExchangeChoices):
    """The settings of MoE layers. Those that are null are what ``gate`` has in the code or paper of ``published``."""

    gate: str = one_of("gshard", *PUBLISHED)
    published: str = one_of("paper", *SYSTEMS)
    """Whose version of the gate."""
    decoder_gate: str | None = one_of(None, *PUBLISHED)
    """The decoder's gate, as its paper has it, where it is not the encoder's."""
    top_k: int | None = at_least(None, 1)
    """K, experts of a token; of an expert-choice gate, on average."""
    sets: int | None = at_least(None, 1)
    """A, sets of experts of a hierarchical gate. Default: the root of E, or the next divisor below."""
    capacity: int | None = at_least(None, 1)
    """C, slots of an expert for a group. Default: by ``capacity_rule``, GShard's 2S/E (section 2.2)."""
    capacity_rule: str | None = one_of(None, "gshard", "switch", "tutel", "flaxformer", "lingvo", "mtf", "fastmoe")
    capacity_factor: float | None = at_least(None, 0)
    capacity_mode: str = one_of("fixed", "fixed", "automatic", "bounded")
    """Whether C is fixed, or found anew each step: without limit, so that nothing is dropped, or up to what it would be
    fixed (Tutel's three modes)."""
    order: str | None = one_of(None, "choice", "token", "score")
    """Who comes first where slots are few; ``score`` is batch-prioritised routing."""
    normalise: str | None = one_of(None, "before", "after", "never")
    """When a token's gates are made to sum to one: before what overflows is dropped, after, or never."""
    random_routing: bool = True
    """Whether second choices are dropped at random, with a gate that does so."""
    random_threshold: float | None = at_least(None, 0)
    """A second choice is kept with chance gate/threshold: 0.5 in GShard."""
    uniform_steps: int = at_least(0, 0)
    """Steps at the beginning in which tokens go round the experts in turn, as GShard's authors have it while the
    learning rate warms up (their talk on it, not the paper)."""
    jitter: float | None = at_least(None, 0, 1)
    jitter_on: str | None = one_of(None, "input", "logits")
    router_dtype: str = one_of("float32", "float32", "bfloat16")
    dispatch: str = one_of("einsum", "einsum", "index", "sorted")
    """How tokens reach the experts: products with one-hot masks, by index, or sorted by expert (dropless, with
    ``capacity_mode: automatic``)."""
    kernel: str = one_of("auto", "auto", "ragged_dot", "megablox", "blocks")
    """What computes the experts' products of sorted tokens."""
    fill_to: int = at_least(1, 1)
    """Sorted tokens of each expert are filled up to a multiple of this."""
    expert_dropout: float = at_least(0.0, 0, 1)
    """Rate of the dropout of experts' hidden values; 0.4 in Switch's fine-tuning."""
    aux_weight: float | None = at_least(None, 0)
    """k of L = nll + k·aux (section 2.2). Default: 0.01·E², for the paper prints no k, and Lingvo weighs by 0.01 an
    auxiliary loss that is E² times the paper's, 1 where the experts' loads are equal; so does Switch (equation 4)."""
    importance_weight: float = at_least(0.1, 0)
    """Of a noisy gate's loss on importance (Shazeer et al. 2017, Table 6)."""
    load_weight: float = at_least(0.1, 0)
    """Of its loss on load."""
    z_weight: float = at_least(0.0, 0)
    """Of the z-loss, which is there if this is above zero; 0.001 in ST-MoE."""

    def said(self, name: str) -> Any:
        """A setting as it stands, or as the published gate has it."""
        own = getattr(self, name, None)
        return {**BASE, **PUBLISHED[self.gate].get(self.published, {})}[name] if own is None else own

    def loss_weights(self, experts: int) -> dict[str, float]:
        """The weight of each auxiliary loss by its name."""
        balance = 0.01 * experts**2 if self.aux_weight is None else self.aux_weight
        return {
            "balance": balance,
            "second_place": balance / 2,
            "importance": self.importance_weight,
            "load": self.load_weight,
            "z": self.z_weight,
            "batchwise": 1.0,
        }

    def slots(self, experts: int, group_tokens: int) -> Fraction | int:
        """C by the rule, or as it stands; a fraction where GShard's rule gives one."""
        if self.capacity is not None:
            return self.capacity
        return slots_of(
            self.said("capacity_rule"),
            self.said("capacity_factor"),
            group_tokens=group_tokens,
            choices=self.said("top_k"),
            experts=experts,
        )

    def capacity_of(self, experts: int, group_tokens: int) -> Capacity:
        """The slots of an expert for a group, in the mode that is asked for."""
        bound = group_tokens if self.capacity_mode == "automatic" else int(self.slots(experts, group_tokens))
        if self.capacity_mode == "fixed" or self.dispatch == "sorted":
            return Capacity(slots=bound)
        balanced = math.ceil(self.said("top_k") * group_tokens / experts)
        return Capacity(slots=bound, smaller=sizes_below(bound, balanced))

    def settings(self, experts: int, groups: int, group_tokens: int) -> MoeSettings:
        """The layer's parts."""
        return MoeSettings(
            experts=experts,
            groups=groups,
            capacity=self.capacity_of(experts, group_tokens),
            gate=self.made_gate(experts),
            dispatch=self._dispatch(),
            exchange=self.made_exchange(self.dispatch),
            work=FeedForward(dropout=self.expert_dropout, kernel=self.kernel),  # type: ignore[arg-type]
        )

    def made_gate(self, experts: int) -> Gate:
        """The gate itself."""
        router = Router(jitter=self.said("jitter"), jitter_on=self.said("jitter_on"), dtype=self.router_dtype)  # type: ignore[arg-type]
        noise = {"noise_floor": self.said("noise_floor"), "unbiased": self.said("unbiased")}
        match self.gate:
            case "noisy_top_k":
                return NoisyTopKGate(rules=self._rules(), router=router, z=self.z_weight > 0, **noise)
            case "hierarchical":
                return HierarchicalGate(sets=self.set_count(experts), rules=self._rules(), router=router, **noise)
            case "expert_choice":
                return ExpertChoiceGate(router=router, z=self.z_weight > 0)
            case "batchwise":
                return BatchwiseGate(choices=self.said("top_k"), router=router)
        return TopKGate(
            rules=self._rules(),
            router=router,
            z=self.z_weight > 0,
            **{name: self.said(name) for name in ("counted", "second_place", "sampled", "uniform")},
        )

    def set_count(self, experts: int) -> int:
        """A, where the gate is hierarchical."""
        return self.sets or max(a for a in range(1, math.isqrt(experts) + 1) if experts % a == 0)

    def _rules(self) -> Rules:
        threshold = self.said("random_threshold")
        return Rules(
            choices=self.said("top_k"),
            order=self.said("order"),
            normalise=self.said("normalise"),
            threshold=threshold if threshold and self.random_routing else None,
            lost_slots=self.said("lost_slots"),
            dropped_uses_slot=self.said("dropped_uses_slot"),
        )

    def _dispatch(self) -> Dispatch:
        if self.dispatch == "sorted":
            return SortedDispatch(multiple=self.fill_to)
        return IndexDispatch() if self.dispatch == "index" else EinsumDispatch()
