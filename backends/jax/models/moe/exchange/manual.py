"""The exchange by hand: a region written for one device, over the axes that experts and their tokens lie over.

GShard's mix of manual and automatic partitioning (section 3.3.3): the region's other axes stay the compiler's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from ..dispatch.sorted import Sorted
from ..routing import Params
from . import Exchanged, Work
from .chunked import in_chunks
from .routes import Route
from .sharing import Sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualExchange:
    """Tokens lie over ``replicas``, ``owners`` and the axes of ``sharing``, experts over ``owners``; ``route`` brings
    them together. Each place along ``replicas`` has all experts, whose gradients are summed over them.

    What ``work`` computes is one device's. Its dropout draws from a key of the device's own.
    """

    mesh: tuple[tuple[str, int], ...]
    """The plan's mesh: size by axis, major first."""
    owners: tuple[str, ...]
    """The axes that experts lie over, major first."""
    route: Route | None
    """None where the experts come to the tokens: r = 0, weights gathered (data parallelism)."""
    sharing: Sharing = field(default_factory=Sharing)
    replicas: tuple[str, ...] = ()
    chunks: int = 1
    """Chunks of the slots that are exchanged and computed in turn; ``Sorted`` tokens go as one."""

    @property
    def axes(self) -> tuple[str, ...]:
        """The region's axes, which G lies over."""
        return (*self.replicas, *self.owners, *self.sharing.axes)

    def __call__(self, work: Work, params: Params, sent: Any, *, key: jax.Array | None) -> Exchanged:
        """What the experts say, from one device to another and back."""

        def on_one_device(params: Params, sent: Any, key: jax.Array | None) -> Exchanged:
            own = None if key is None else jax.random.fold_in(key, jax.lax.axis_index(self.axes))
            found = self._on_one_device(work, params, sent, own)
            return found._replace(refused=found.refused[None])

        tokens = self._tokens(sent)
        region = jax.shard_map(
            on_one_device,
            mesh=self._mesh(),
            axis_names=set(self.axes),
            in_specs=(self._weights(params), tokens, PartitionSpec()),
            out_specs=Exchanged(tokens, PartitionSpec(self.axes)),  # type: ignore[arg-type]
            check_vma=False,  # loops over blocks of rows begin with zeros, which vary over no axis
        )
        found: Exchanged = region(params, sent, key)
        refuses = self.route is not None and self.route.refuses
        return found._replace(refused=found.refused.sum() if refuses else jax.numpy.int32(0))

    def _mesh(self) -> AbstractMesh:
        sizes, names = tuple(size for _, size in self.mesh), tuple(name for name, _ in self.mesh)
        return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(names))

    def _on_one_device(self, work: Work, params: Params, sent: Any, key: jax.Array | None) -> Exchanged:
        route = self.route
        if route is None:
            weights = self.sharing.all_weights(params, self.owners)
            return Exchanged(work(weights, sent, key), jax.numpy.int32(0))
        weights = self.sharing.weights(params)

        def way(sent: Any, key: jax.Array | None) -> Exchanged:
            return route(lambda arrived: self.sharing.run(lambda x: work(weights, x, key), arrived), sent)

        return in_chunks(way, sent, key, chunks=self.chunks)

    def _tokens(self, sent: Any) -> Any:
        """G is split over all of the region's axes."""
        if isinstance(sent, Sorted):
            return jax.tree.map(lambda _: PartitionSpec(self.axes), sent)
        return PartitionSpec(None, self.axes)

    def _weights(self, params: Params) -> Any:
        """E is split over the owners, H over the axes that share an expert."""
        dims = self.sharing.dims(params)
        if dims is None:
            return PartitionSpec(self.owners)
        return {name: self._weight(dim) for name, dim in dims.items()}

    def _weight(self, hidden_dim: int | None) -> PartitionSpec:
        if hidden_dim is None:
            return PartitionSpec(self.owners)
        return PartitionSpec(self.owners, *[None] * (hidden_dim - 1), self.sharing.axes)
