"""Tutel's r, priced: for each capacity factor, how many devices should split an expert's product.

    python benchmarks/expert_shards.py

A layer's exchange and experts with their gradient, 16 v5e, 4 experts, so that 4 devices share one: its hidden dim lies
over two axes of 2, always, whatever r is. r = 0 gathers all weights (data parallelism), 1 those of one expert, 2 half
of them, 4 nothing (Tutel section 3.2, Tables 3 and 4). Predicted by ``mw.estimate``; nothing is compiled or measured.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
from meshwright.backends.jax.models.moe.exchange.manual import ManualExchange
from meshwright.backends.jax.models.moe.exchange.routes import Direct
from meshwright.backends.jax.models.moe.exchange.sharing import Sharing, shared
from meshwright.backends.jax.models.moe.experts import FeedForward
from rich.console import Console
from rich.table import Table

PLAN = """
meshwright: 1
topology: v5e:4x4
mesh: {expert: 4, a: 2, b: 2}
tensors:
  params/wi: E@expert M H@a+b
  params/wo: E@expert H@a+b M
  sent: E G@expert+a+b C M
  out/0/wi: E@expert M H@a+b
  out/0/wo: E@expert H@a+b M
  out/1: E G@expert+a+b C M
"""
MESH = (("expert", 4), ("a", 2), ("b", 2))
EXPERTS, GROUPS, DIM, HIDDEN = 4, 16, 2048, 8192
SLOTS = (16, 64, 256, 1024, 4096)
"""C, slots of an expert for one device's tokens: the capacity factor times tokens over experts."""
SHARDS = (0, 1, 2, 4)


def main() -> None:
    title = "A layer's exchange and products, forward and backward, in ms by r; predicted for 16 v5e"
    shown = Table(title=title, title_justify="left")
    for head in ("slots", *(f"r = {r}" for r in SHARDS), "best r", "worst over best"):
        shown.add_column(head, justify="right")
    for slots in SLOTS:
        times = [seconds(slots, r) for r in SHARDS]
        best = SHARDS[times.index(min(times))]
        shown.add_row(
            str(slots), *(f"{1e3 * time:.3f}" for time in times), str(best), f"{max(times) / min(times):.2f}x"
        )
    Console(width=max(120, Console().width)).print(shown)


def seconds(slots: int, shards: int) -> float:
    """What the layer is predicted to take, nothing overlapped."""
    params = {
        "wi": jax.ShapeDtypeStruct((EXPERTS, DIM, HIDDEN), jnp.bfloat16),
        "wo": jax.ShapeDtypeStruct((EXPERTS, HIDDEN, DIM), jnp.bfloat16),
    }
    sent = jax.ShapeDtypeStruct((EXPERTS, GROUPS, slots, DIM), jnp.bfloat16)
    return mw.estimate(mw.loads(PLAN), step_of(shards), (params, sent)).step_time_s


def step_of(shards: int) -> Any:
    """The gradients of a layer whose experts ``shards`` devices split."""
    exchange = ManualExchange(
        mesh=MESH,
        owners=("expert",),
        route=None if shards == 0 else Direct(axes=("expert",)),
        sharing=shared({"a": 2, "b": 2}, shards) or Sharing(),
    )
    experts = FeedForward()

    def loss(params: dict[str, jax.Array], sent: jax.Array) -> jax.Array:
        said = exchange(lambda w, x, key: experts(w, x, key=key), params, sent, key=None).returned
        return jnp.sum(said.astype(jnp.float32) ** 2)

    def step(params: dict[str, jax.Array], sent: jax.Array) -> Any:
        return jax.grad(loss, (0, 1))(params, sent)

    return step


if __name__ == "__main__":
    main()
