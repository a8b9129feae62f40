"""The state of a run, kept on disk, so that it can go on or translate: under its own plan or another's layouts.

Written by Orbax: each process writes the shards that it has, nothing is gathered; what is being written becomes visible
whole or not at all. A folder keeps one state, the newest. Beside the tensors, which go by their paths, stands what the
run was (``about``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import jax

from ....dsl.errors import PlanError, listing, problem, raise_errors
from ....dsl.plan import Plan
from ..paths import leaf_paths
from ..workload import PyTree
from .feed import differing, forms

VERSION = 1
State = Mapping[str, PyTree]
"""Parts of a step's state by the names of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a folder keeps: the steps taken, and what the run was: seed, plan, vocabularies, the state's tensors."""

    folder: Path
    step: int
    about: Mapping[str, Any]


def require_free(folder: str | Path) -> None:
    """Raises ``PlanError`` (MW519) where the folder keeps a run."""
    with _manager(folder, "MW520") as manager:
        step = manager.latest_step() if Path(folder).is_dir() else None
    if step is not None:
        raise PlanError([problem("MW519", folder=folder, step=step)])


def keep(folder: str | Path, step: int, state: State, about: Mapping[str, Any]) -> None:
    """Writes the state after ``step`` steps in the place of what the folder kept before.

    Raises ``PlanError``: MW520 where it cannot be written, MW527 without Orbax.
    """
    args = _orbax().args
    parts = {f"state_{name}": args.StandardSave(_by_path(tree)) for name, tree in state.items() if _leaves(tree)}
    known = {**about, "version": VERSION, "state": _forms(state)}
    with _manager(folder, "MW520", create=True) as manager:
        manager.save(step, args=args.Composite(about=args.JsonSave(known), **parts))


def kept_in(folder: str | Path) -> Kept:
    """What the folder keeps. Raises ``PlanError``: MW516 where that is nothing, MW517 where it cannot be read."""
    if not Path(folder).is_dir():
        raise PlanError([problem("MW516", folder=folder, reason="there is no such folder")])
    args = _orbax().args
    with _manager(folder, "MW517") as manager:
        step = manager.latest_step()
        if step is None:
            raise PlanError([problem("MW516", folder=folder, reason="nothing in it is one")])
        about = manager.restore(step, args=args.Composite(about=args.JsonRestore()))["about"]
        if about["version"] != VERSION:
            raise ValueError(f"it is of version {about['version']}, not {VERSION}")
    return Kept(folder=Path(folder), step=step, about=about)


def require_same_model(plan: Plan, kept: Kept, expected: State) -> None:
    """Raises ``PlanError`` (MW518) where a tensor of these parts of the state was kept otherwise, or not at all."""
    wanted, every = _forms(expected), kept.about["state"]
    found = {path: form for path, form in every.items() if path.split("/")[0] in expected}
    told = differing(wanted, found)
    if told:
        numbers: dict[str, Any] = {
            "folder": kept.folder,
            "differences": listing(told),
            "plan": kept.about.get("file") or "its own",
        }
        raise PlanError([problem("MW518", plan.places.get("model"), **numbers)])


def require_same_vocabularies(kept: Kept, here: Mapping[str, str]) -> None:
    """Raises ``PlanError`` (MW521) for each side whose vocabulary was another; nothing where none was kept."""
    learnt = kept.about["vocabularies"]
    versions = listing([f"{name} {version}" for name, version in kept.about["versions"].items()])
    raise_errors(
        problem("MW521", folder=kept.folder, side=side, kept=learnt[side], here=here[side], versions=versions)
        for side in here
        if side in learnt and learnt[side] != here[side]
    )


def restore(kept: Kept, expected: State, shardings: State) -> dict[str, PyTree]:
    """These parts of the state, each tensor where its sharding says, whatever layout it was kept in.

    Raises ``PlanError`` (MW517) where they cannot be read.
    """
    args = _orbax().args
    with _manager(kept.folder, "MW517") as manager:
        wanted = {
            f"state_{name}": args.StandardRestore(_by_path(_placed(tree, shardings[name])))
            for name, tree in expected.items()
            if _leaves(tree)
        }
        found = manager.restore(kept.step, args=args.Composite(**wanted))
    return {name: _like(tree, found[f"state_{name}"] if _leaves(tree) else {}) for name, tree in expected.items()}


@contextmanager
def _manager(folder: str | Path, code: str, *, create: bool = False) -> Iterator[Any]:
    """Orbax's manager of the folder; what goes wrong inside is a problem with this code."""
    orbax = _orbax()
    options = orbax.CheckpointManagerOptions(max_to_keep=1, create=create, enable_async_checkpointing=False)
    try:
        if create:
            Path(folder).mkdir(parents=True, exist_ok=True)
        with orbax.CheckpointManager(Path(folder).absolute(), options=options) as manager:
            yield manager
    except (KeyboardInterrupt, PlanError):
        raise
    except Exception as error:  # Orbax's own: OSError, ValueError, KeyError and TensorStore's by what is wrong
        lines = str(getattr(error, "strerror", None) or error).strip().splitlines() or [type(error).__name__]
        raise PlanError([problem(code, folder=folder, reason=lines[0][:300].rstrip("."))]) from error


def _orbax() -> Any:
    try:
        return import_module("orbax.checkpoint")
    except ImportError as error:
        raise PlanError([problem("MW527", reason=error)]) from error


def _leaves(tree: PyTree) -> list[Any]:
    return jax.tree.leaves(tree)


def _by_path(tree: PyTree) -> dict[str, Any]:
    """A tree's arrays by path: of any pytree, kept and found again without its types."""
    return dict(zip(_keys(tree), _leaves(tree), strict=True))


def _keys(tree: PyTree) -> Sequence[str]:
    return [path or "value" for path in leaf_paths("", tree)]


def _like(tree: PyTree, found: Mapping[str, Any]) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(tree), [found[key] for key in _keys(tree)])


def _placed(tree: PyTree, shardings: PyTree) -> PyTree:
    return jax.tree.map(lambda x, to: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=to), tree, shardings)


def _forms(state: State) -> dict[str, str]:
    return {f"{name}/{path}".rstrip("/"): form for name, tree in state.items() for path, form in forms(tree)}
