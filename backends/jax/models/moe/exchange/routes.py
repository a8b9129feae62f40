"""Ways from device to device inside a manual region: what each device sends to the experts' owners, and back.

Dims: E experts with C slots for each of G groups, model dim M; W devices, each of which owns E/W experts and has sent
for G/W groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from . import Exchanged

Run = Callable[[Any], Any]
"""What a device does with what arrives there; the same structure in and out."""


class Route(Protocol):
    """Takes what a device sent to where its experts are, runs there, and takes the results back."""

    @property
    def refuses(self) -> bool:
        """Whether some rows may find no room."""
        ...

    def __call__(self, run: Run, sent: Any) -> Exchanged:
        """On one device: ``run`` of what arrives, back in the order of ``sent``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct:
    """One all-to-all over the owners' axes, major first.

    What arrives is [E/W, G, C, M]: an expert's tokens from all devices are rows of one product, whose shape depends on
    G, not on W (Tutel's flexible all-to-all, (E, dC, M) to (dE, C, M), section 3.3).
    """

    axes: tuple[str, ...]

    @property
    def refuses(self) -> bool:
        """Nothing."""
        return False

    def __call__(self, run: Run, sent: jax.Array) -> Exchanged:
        """There and back; nothing is refused."""
        arrived = jax.lax.all_to_all(sent, self.axes, split_axis=0, concat_axis=1, tiled=True)
        said = run(arrived)
        returned = jax.lax.all_to_all(said, self.axes, split_axis=1, concat_axis=0, tiled=True)
        return Exchanged(returned, jnp.int32(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLevel:
    """Tutel's two-dimensional hierarchical all-to-all (2DH, section 3.4, Algorithm 2): over ``inner``, then ``outer``.

    What goes to one device of each inner group is first brought together (a stride copy) and sent within the group, so
    that what then goes from group to group are fewer and larger messages: one for each group in place of one for each
    device.
    """

    outer: str
    inner: str
    outer_size: int
    inner_size: int

    @property
    def refuses(self) -> bool:
        """Nothing."""
        return False

    def __call__(self, run: Run, sent: jax.Array) -> Exchanged:
        """There and back; nothing is refused."""
        E, G, C, M = sent.shape
        O, I = self.outer_size, self.inner_size  # noqa: E741
        own = E // (O * I)
        by_inner = jnp.moveaxis(sent.reshape(O, I, own, G, C, M), 1, 0)  # stride copy: [I to, O to, ...]
        within = self._all_to_all(by_inner, self.inner)  # [I from, O to, ...]
        by_outer = jnp.moveaxis(within, 1, 0)  # stride copy: [O to, I from, ...]
        across = self._all_to_all(by_outer, self.outer)  # [O from, I from, own, G, C, M]
        arrived = jnp.moveaxis(across, 2, 0).reshape(own, O * I * G, C, M)
        said = run(arrived)
        across = jnp.moveaxis(said.reshape(own, O, I, G, C, -1), 0, 2)  # [O to, I to, own, ...]
        by_outer = self._all_to_all(across, self.outer)  # [O from, I to, ...]
        within = jnp.moveaxis(by_outer, 1, 0)  # stride copy: [I to, O from, ...]
        by_inner = self._all_to_all(within, self.inner)  # [I from, O from, ...]
        returned = jnp.moveaxis(by_inner, 1, 0).reshape(E, G, C, -1)
        return Exchanged(returned, jnp.int32(0))

    @staticmethod
    def _all_to_all(x: jax.Array, axis: str) -> jax.Array:
        return jax.lax.all_to_all(x, axis, split_axis=0, concat_axis=0, tiled=True)  # type: ignore[no-any-return]
