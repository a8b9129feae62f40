"""Tutel's adaptive parallelism: the r that the search chooses for each capacity factor, and exhaustive evaluation.

    python benchmarks/adaptive.py [TOPOLOGY ...]

One MoE layer's training step (``meshwright.backends.jax.models:moe_step``) on 16 devices with 4 experts, so that four
devices share one: its hidden dim lies over two axes of 2, whatever r is. The sizes are those of Tutel's evaluation
(Hwang et al. 2023, section 5: D = H = 2048, two choices, up to 16384 tokens a device), and of a larger expert. Of its
Tables 3 and 4 only r = 0 (data parallelism: what travels is the parameters P) and r from 1 to 4 (tokens travel, C_g·r,
and P/(E·r)) can be best; the last column is where these formulas are least, by bytes alone. The plan with its open
settings goes to ``mw.search_plan``; each r is priced besides by ``mw.estimate`` of the plan that has it. Predicted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import meshwright as mw
from meshwright.backends.jax.models import moe_step
from rich.console import Console
from rich.table import Table

TOPOLOGIES = ("v5e:4x4", "v5p:2x2x4", "h100:8x2")
MESH = {"expert": 4, "a": 2, "b": 2}
EXPERTS, DEVICES, CHOICES, WORD = 4, 16, 2, 2
SHARDS = (0, 1, 2, 4)
FACTORS = (1.0, 2.0, 4.0)
PLAN = """
meshwright: 1
model: meshwright.backends.jax.models:moe_step
with: {{{settings}, expert_shards: {shards}, capacity_factor: {factor}}}
topology: {topology}
mesh: {{expert: 4, a: 2, b: 2}}
tensors:
  params/wi: E@expert M H@a+b
  params/wo: E@expert H@a+b M
  params/wg: replicate
  x:         B@expert+a+b T M
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Tokens of a device, D and H."""

    tokens: int
    dim: int
    hidden: int

    @property
    def settings(self) -> dict[str, Any]:
        """The model's settings, one row and one group a device."""
        sizes = {"experts": EXPERTS, "model_dim": self.dim, "hidden_dim": self.hidden}
        rows = {"batch": DEVICES, "groups": DEVICES, "length": self.tokens}
        how = {"activations": "bfloat16", "dispatch": "index", "exchange": "manual", "hidden_axes": "a+b"}
        return {**sizes, **rows, **how}

    def plan(self, topology: str, shards: object, factor: object) -> str:
        """The plan's text; ``shards`` and ``factor`` as a plan has them."""
        settings = ", ".join(f"{name}: {value}" for name, value in self.settings.items())
        return PLAN.format(settings=settings, topology=topology, shards=shards, factor=factor)

    def fewest_bytes(self, factor: float) -> int:
        """The r at which Tutel's formulas give the fewest bytes of a device (Tables 3 and 4)."""
        parameters = 2 * EXPERTS * self.dim * self.hidden * WORD
        gathered = CHOICES * factor * self.tokens * self.dim * WORD
        costs = {0: float(parameters)}
        costs |= {r: gathered * r + (parameters / (EXPERTS * r) if r < DEVICES // EXPERTS else 0) for r in SHARDS[1:]}
        return min(costs, key=lambda r: costs[r])


SIZES = (
    Size(tokens=64, dim=2048, hidden=2048),
    Size(tokens=512, dim=2048, hidden=2048),
    Size(tokens=4096, dim=2048, hidden=2048),
    Size(tokens=16384, dim=2048, hidden=2048),
    Size(tokens=512, dim=2048, hidden=16384),
    Size(tokens=4096, dim=2048, hidden=16384),
)


def main() -> None:
    console = Console(width=max(130, Console().width))
    for topology in sys.argv[1:] or TOPOLOGIES:
        shown = Table(title=f"{topology}: a layer's step in ms by r; predicted", title_justify="left")
        for head in (
            "tokens",
            "D x H",
            "factor",
            *(f"r = {r}" for r in SHARDS),
            "chosen",
            "exhaustive",
            "fewest bytes",
        ):
            shown.add_column(head, justify="right")
        rows = [row for size in SIZES for row in rows_of(size, topology)]
        for row in rows:
            shown.add_row(*row.cells)
        console.print(shown)
        agree = sum(row.chosen == row.exhaustive for row in rows)
        console.print(f"{agree} of {len(rows)} choices equal exhaustive evaluation", highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A capacity factor: what each r takes, and what was chosen."""

    size: Size
    factor: float
    seconds: dict[int, float]
    chosen: int

    @property
    def exhaustive(self) -> int:
        """The best r."""
        return min(self.seconds, key=lambda r: self.seconds[r])

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        times = [f"{1e3 * self.seconds[r]:.3f}" for r in SHARDS]
        told = [str(self.chosen), str(self.exhaustive), str(self.size.fewest_bytes(self.factor))]
        return [str(self.size.tokens), f"{self.size.dim} x {self.size.hidden}", f"{self.factor:g}", *times, *told]


def rows_of(size: Size, topology: str) -> Iterator[Row]:
    """What the search's table has for each factor, and what each r is priced alone."""
    asked = mw.loads(size.plan(topology, "auto", f"{{auto: {list(FACTORS)}}}"))
    plan = mw.search_plan(asked, time_limit_s=3600).plan
    if plan is None:
        raise SystemExit(f"nothing fits {topology}")
    for factor in FACTORS:
        chosen = mw.adapt(plan, capacity_factor=factor).settings["expert_shards"]
        yield Row(
            size=size, factor=factor, seconds={r: seconds(size, topology, r, factor) for r in SHARDS}, chosen=chosen
        )


def seconds(size: Size, topology: str, shards: int, factor: float) -> float:
    """What a step takes with one r, by the estimate alone."""
    step, args = moe_step(**size.settings, expert_shards=shards, capacity_factor=factor, plan_mesh=MESH)
    return mw.estimate(mw.loads(size.plan(topology, shards, factor)), step, args).step_time_s


if __name__ == "__main__":
    main()
