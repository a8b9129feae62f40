"""What a plan can say of the exchange, and the exchange that follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import Exchange
from .annotated import AnnotatedExchange
from .manual import ManualExchange
from .routes import Direct, Route, TwoLevel
from .sharing import Sharing, shared
from .uneven import Uneven
from .uneven_levels import UnevenLevels

DEFAULT_AXES = "expert"
BY_HAND = ("manual", "hierarchical")


def _setting(default: Any, **legal: Any) -> Any:
    return field(default=default, metadata=legal)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeChoices:
    """The settings of the exchange."""

    exchange: str = _setting("annotated", choices=("annotated", *BY_HAND))
    """How tokens travel to their experts: by the plan's layouts, or in a region written for one device, with one
    all-to-all (of exactly the tokens, where the dispatch is sorted) or one in two levels (Tutel's 2DH)."""
    exchange_axes: str | None = None
    """The mesh axes that experts lie over in the region, major first: ``expert``, or ``outer+inner``."""
    exchange_chunks: int = _setting(1, least=1)
    """Chunks of the slots that travel and are computed in turn (Tutel's pipelining degree)."""
    exchange_bound: float | None = _setting(None, least=0)
    """Room for sorted tokens that arrive at a device, as a multiple of those that it sends. What finds none is dropped,
    and reported. Default: enough for any."""
    token_axes: str | None = None
    """The mesh axes that tokens alone lie over in the region, major first, such as ``data``: all experts are at each of
    their places, and experts' gradients are summed over them."""
    hidden_axes: str | None = None
    """The mesh axes that the hidden dim of each expert lies over in the region, major first."""
    expert_shards: int | None = _setting(None, least=0)
    """r, devices that split one expert's product: the minor ``hidden_axes``. Along the others its weights are gathered;
    0 gathers the weights of all experts, and no token travels (Tutel section 3.2). Default: all ``hidden_axes``."""
    plan_mesh: tuple[tuple[str, int], ...] | None = None
    """The plan's mesh, size by axis, major first; None where it is open. No setting: the plan has it."""

    @property
    def owner_axes(self) -> tuple[str, ...]:
        """The axes that experts lie over, major first."""
        return _axes(self.exchange_axes or DEFAULT_AXES)

    @property
    def replica_axes(self) -> tuple[str, ...]:
        """The axes that tokens alone lie over, major first."""
        return _axes(self.token_axes or "")

    @property
    def hidden_sizes(self) -> dict[str, int]:
        """The sizes of the axes that the hidden dim lies over."""
        sizes = dict(self.plan_mesh or ())
        return {axis: sizes[axis] for axis in _axes(self.hidden_axes or "")}

    def sharing(self) -> Sharing | None:
        """How devices share an expert; None where ``expert_shards`` is no product of minor hidden axes."""
        return shared(self.hidden_sizes, self.expert_shards)

    def made_exchange(self, dispatch: str) -> Exchange:
        """The exchange of what a dispatch, by its name, sends. The settings are checked."""
        if self.exchange not in BY_HAND:
            return AnnotatedExchange(chunks=self.exchange_chunks)
        return ManualExchange(
            mesh=self.plan_mesh or (),
            owners=self.owner_axes,
            route=None if self.expert_shards == 0 else self._route(dict(self.plan_mesh or ()), dispatch),
            sharing=self.sharing() or Sharing(),
            replicas=self.replica_axes,
            chunks=self.exchange_chunks,
        )

    def _route(self, sizes: Mapping[str, int], dispatch: str) -> Route:
        axes, bound, by_rows = self.owner_axes, self.exchange_bound, dispatch == "sorted"
        if self.exchange == "hierarchical":
            (outer, inner), (outer_size, inner_size) = axes, (sizes[axis] for axis in axes)
            levels = TwoLevel(outer=outer, inner=inner, outer_size=outer_size, inner_size=inner_size)
            return UnevenLevels(levels=levels, bound=bound) if by_rows else levels
        if by_rows:
            return Uneven(axes=axes, devices=math.prod(sizes[axis] for axis in axes), bound=bound)
        return Direct(axes=axes)


def _axes(named: str) -> tuple[str, ...]:
    return tuple(axis.strip() for axis in named.split("+") if axis.strip())
