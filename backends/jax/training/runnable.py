"""What has to hold before a plan runs: devices that are here, a workload with data, a step that can be repeated."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from ....dsl.errors import PlanError, listing, problem
from ....dsl.plan import Plan, Topology
from ....planner.topology import Machine, physical
from ..apply import Applied, apply
from ..planned import edge_shardings
from ..shardings import default_devices
from ..workload import PyTree, Workload
from .feed import differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A step compiled under a plan, and where its arguments lie. Called with a state and a batch, both placed."""

    executable: Any
    state_shardings: tuple[PyTree, ...]
    batch_shardings: PyTree
    compile_time_s: float
    state_keeps_layout: bool

    def __call__(self, state: Sequence[PyTree], batch: PyTree) -> tuple[tuple[PyTree, ...], Mapping[str, Any]]:
        """The next state and the metrics. ``state`` is donated: its memory is used again."""
        *following, metrics = self.executable(*state, batch)
        if not self.state_keeps_layout:
            following = jax.device_put(following, list(self.state_shardings))
        return tuple(following), metrics


def local_devices(plan: Plan) -> tuple[Any, ...]:
    """The devices of the plan's topology in the order of their numbers.

    Raises ``PlanError`` (MW507) where they are not attached to this process or its peers.
    """
    if plan.topology is None:
        return tuple(jax.devices())
    machine = physical(plan.topology)
    if machine.platform == "tpu" and not _may_have_tpu():
        raise _not_here(plan.topology, machine, "no TPU")
    here = jax.devices()
    if here[0].platform == machine.platform and len(here) >= machine.num_devices:
        devices = default_devices(plan)
        if set(devices) <= set(here):  # for a TPU that is not here they are the compiler's
            return devices
    raise _not_here(plan.topology, machine, f"{len(here)} x {here[0].device_kind}")


def _may_have_tpu() -> bool:
    """Whether it is worth asking JAX for a TPU: where there is none, libtpu says so at length on stderr."""
    return "JAX_PLATFORMS" in os.environ or any([*Path("/dev").glob("accel*"), *Path("/dev").glob("vfio/*")])


def _not_here(topology: Topology, machine: Machine, here: str) -> PlanError:
    numbers: dict[str, Any] = {"topology": topology, "wanted": machine.num_devices, "here": here}
    return PlanError([problem("MW507", topology.place, **numbers)])


def require_runnable(plan: Plan, workload: Workload) -> None:
    """Raises ``PlanError`` (MW508) for a workload that says neither how it begins nor what it learns from."""
    needs = {"how its state begins (init)": workload.init, "what it learns from (batches)": workload.batches}
    missing = [what for what, given in needs.items() if given is None]
    if missing:
        raise PlanError([problem("MW508", plan.places.get("model"), model=plan.model, missing=" nor ".join(missing))])


def compile_step(plan: Plan, workload: Workload, devices: Sequence[Any]) -> Compiled:
    """The workload's step under the plan, its state donated.

    Raises ``PlanError`` (MW509) for a step whose results cannot be its next arguments, and all that ``apply`` raises.
    """
    began_s = time.perf_counter()
    num_state = len(workload.args) - 1
    fast = apply(plan, workload.step, workload.args, devices, donate_argnums=range(num_state))
    _require_repeatable(plan, workload, jax.tree.unflatten(fast.traced.out_tree, fast.traced.jaxpr.out_avals))
    executable = fast.lower(*workload.args).compile()
    *state, batch = where_arguments_lie(fast, executable)
    return Compiled(
        executable=executable,
        state_shardings=tuple(state),
        batch_shardings=batch,
        compile_time_s=time.perf_counter() - began_s,
        state_keeps_layout=_same_layout(state, executable.output_shardings[:num_state], workload.args),
    )


def where_arguments_lie(fast: Applied, executable: Any) -> tuple[PyTree, ...]:
    """The sharding of every argument; those that the step does not use, which JAX leaves out, lie as planned."""
    compiled = jax.tree.leaves(executable.input_shardings[0], is_leaf=lambda sharding: sharding is None)
    planned = edge_shardings(fast.layouts, fast.placed, fast.traced.arguments)
    whole = NamedSharding(fast.mesh, PartitionSpec())
    shardings: tuple[PyTree, ...] = jax.tree.unflatten(
        fast.traced.in_tree, [used or plan or whole for used, plan in zip(compiled, planned, strict=True)]
    )
    return shardings


def _require_repeatable(plan: Plan, workload: Workload, results: Any) -> None:
    reason = _not_repeatable(workload.args, results)
    if reason:
        raise PlanError([problem("MW509", plan.places.get("model"), model=plan.model, reason=reason)])


def _not_repeatable(args: Sequence[PyTree], results: Any) -> str:
    """Why these results cannot be a next state and metrics; empty if they can."""
    if not isinstance(results, (tuple, list)) or len(results) != len(args):
        count = len(results) if isinstance(results, (tuple, list)) else 1
        return f"it takes {len(args)} arguments and returns {count} results"
    if not isinstance(results[-1], Mapping) or "loss" not in results[-1]:
        return "its last result is no mapping with 'loss' in it"
    loss = results[-1]["loss"]
    shape = getattr(loss, "shape", None)
    if shape != ():
        return f"its loss is a {type(loss).__name__ if shape is None else f'tensor of shape {shape}'}, not a scalar"
    return listing(differences(tuple(args[:-1]), tuple(results[:-1])))


def _same_layout(given: Sequence[Any], returned: Sequence[Any], args: Sequence[PyTree]) -> bool:
    pairs = zip(*(jax.tree.leaves(tree) for tree in (list(given), list(returned), list(args[:-1]))), strict=True)
    return all(a.is_equivalent_to(b, len(leaf.shape)) for a, b, leaf in pairs)
