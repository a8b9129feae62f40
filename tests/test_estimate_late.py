"""What an estimate works out only when it is looked at is, to who looks, a plain dictionary or tuple like any other."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
import yaml
from meshwright.planner.estimate.figures import Estimate
from meshwright.planner.estimate.late import late, may_be_late

PLAN = "meshwright: 1\ntopology: v5e:2x2\nmesh: {a: 2, b: 2}\ntensors:\n  '**': replicate\n"
READS: dict[str, Callable[[Estimate], Any]] = {
    "asdict": asdict,
    "replace": lambda made: replace(made, peak_bytes=1),
    "pickle": lambda made: pickle.dumps(made),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "repr": repr,
    "as_json": lambda made: made.as_json(),
}


@pytest.fixture
def estimate() -> Estimate:
    """One that nobody has looked at."""

    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return w - x @ w

    held = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return mw.estimate(mw.loads(PLAN), step, (held, held))


def test_what_is_live_by_kind_is_a_dictionary(estimate: Estimate) -> None:
    by_kind = estimate.memory.by_kind
    assert type(by_kind) is dict
    assert by_kind["weights"] == 64 * 64 * 4
    assert json.loads(json.dumps(by_kind)) == yaml.safe_load(yaml.safe_dump(by_kind)) == by_kind
    assert by_kind | {} == by_kind.copy() == estimate.bytes_by_kind
    assert estimate.memory.by_kind is by_kind
    assert sum(by_kind.values()) == estimate.memory.peak_bytes


def test_tensors_points_and_axes_are_tuples(estimate: Estimate) -> None:
    for shown in (estimate.tensors, estimate.axes, estimate.memory.tensors, estimate.memory.timeline):
        assert type(shown) is tuple
        assert shown + shown[:0] == shown
    assert hash(estimate.tensors) == hash(tuple(estimate.tensors))
    assert [tensor.path for tensor in estimate.tensors] == ["w", "x", "out"]
    assert [axis.name for axis in estimate.axes] == ["a", "b"]


def test_an_estimate_as_a_dictionary_is_one_all_through(estimate: Estimate) -> None:
    memory = asdict(estimate.memory)
    assert [tensor["name"] for tensor in memory["tensors"]] == [tensor.name for tensor in estimate.memory.tensors]
    whole = asdict(estimate)
    assert whole["memory"] == memory
    assert whole["tensors"][0]["path"] == "w"
    assert whole["axes"][1]["name"] == "b"
    json.dumps(whole)


@pytest.mark.parametrize("how", READS)
def test_whichever_way_an_estimate_is_first_looked_at_it_is_the_same(estimate: Estimate, how: str) -> None:
    READS[how](estimate)
    known = pickle.loads(pickle.dumps(estimate))
    assert known == estimate
    assert [tensor.path for tensor in known.tensors] == ["w", "x", "out"]
    assert type(known.memory.by_kind) is dict
    assert len(known.memory.timeline) == len(estimate.memory.timeline) > 0


@may_be_late("shown")
@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One value that may be late, one that may not."""

    shown: tuple[str, ...] = ()
    number: int = 0


def test_it_is_worked_out_once_and_not_before_it_is_looked_at() -> None:
    asked: list[int] = []

    def work_out() -> tuple[str, ...]:
        asked.append(1)
        return ("a", "b")

    holder = Holder(shown=late(work_out))
    other = replace(Holder(), number=3)
    assert not asked
    assert other == Holder(number=3)
    assert [field.name for field in fields(Holder)] == ["shown", "number"]
    assert holder.shown == ("a", "b")
    assert type(holder.shown) is tuple
    assert holder == Holder(shown=("a", "b"))
    assert hash(holder) == hash(Holder(shown=("a", "b")))
    assert repr(holder) == repr(Holder(shown=("a", "b")))
    assert asked == [1]
    with pytest.raises(FrozenInstanceError):
        holder.shown = ()  # type: ignore[misc]


def test_what_cannot_be_worked_out_says_so_every_time() -> None:
    def work_out() -> tuple[str, ...]:
        raise RuntimeError("no such thing")

    holder = Holder(shown=late(work_out))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such thing"):
            _ = holder.shown
