"""What a model says of its own values: names for the plan (``tag``), blocks to rematerialise (``remat``), and GShard's
three verbs in place (``replicate``, ``split``, ``shard``: section 3.2 and appendix A.3).

Each is the identity until a plan is applied; then a name stands for the layout that the plan gives it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax._src.lib.mlir.dialects import sdy  # type: ignore[attr-defined]
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ...dsl.plan import Assignment, DeviceAssignment, Remat, Replicate, Shard, Split, SplitDim
from .paths import segments

T = TypeVar("T")
P = ParamSpec("P")

COMPUTES_NOTHING = frozenset({"none", "auto"})
"""Remat policies under which a step is traced as without one."""

mark_p = Primitive("meshwright_mark")
"""Identity on one array. Parameters: ``name`` (of a tagged value) and ``assignment`` (given in place), or None."""

barrier_p = Primitive("meshwright_propagation_barrier")
"""Identity on one array. Parameter ``allowed``: ``forward`` or ``backward``."""

remat_context = jax.make_user_context(default_value=None)
"""The ``Remat`` of the plan whose step is being traced. JAX's caches see it, so no trace is used under another plan.
Or the ``Marks`` of a step that is traced without one.
"""


class Marks:
    """Whether ``remat`` marks a block of a step that is traced with these in the place of a policy.

    Each is a policy of its own to JAX's caches, so that all of the step is traced.
    """

    seen = False


def tag(x: T, name: str) -> T:
    """Names a value, so that a plan can assign it as ``acts/<name>``, forward and gradient alike.

    ``x`` is an array, or a pytree whose arrays are named ``<name>/<path>``. The name is also a
    ``checkpoint_name``, which ``remat: {save: [<name>]}`` keeps. Under ``vmap`` the mapped dim stands first; inside
    ``scan`` the plan sees one turn's value.
    """

    def mark(path: Any, leaf: Any) -> Any:
        full = "/".join([name, *segments(path)])
        return mark_p.bind(checkpoint_name(leaf, full), name=full, assignment=None)

    return jax.tree_util.tree_map_with_path(mark, x)  # type: ignore[no-any-return]


def replicate(x: T) -> T:
    """GShard's ``replicate``: every device holds the whole of each array in ``x`` (section 3.2)."""
    return _assign(x, Replicate())


def split(x: T, dim: int, axis: str | Sequence[str], *, pad: bool = False) -> T:
    """GShard's ``split``: dim ``dim`` of each array in ``x`` is split over ``axis``, or several, major first.

    ``pad`` allows a size that the axis does not divide (section 3.2).
    """
    axes = (axis,) if isinstance(axis, str) else tuple(axis)
    return _assign(x, Split(splits=(SplitDim(dim=dim, axes=axes, pad=pad),)))


def shard(x: T, device_assignment: Any) -> T:
    """GShard's ``shard``: an array of device numbers, one a partition, of the tensor's rank (appendix A.3)."""
    return _assign(x, Shard(device_assignment=_nested(device_assignment)))


def remat(fun: Callable[P, T], *, prevent_cse: bool = True) -> Callable[P, T]:
    """Marks a block whose values the plan's ``remat:`` policy may recompute in the backward pass.

    The identity where the plan says ``none``, or no plan is applied. ``prevent_cse=False`` suits the body of a scan,
    as in ``jax.checkpoint``.
    """

    @functools.wraps(fun)
    def block(*args: P.args, **kwargs: P.kwargs) -> T:
        policy: Remat | Marks | None = remat_context.value
        if isinstance(policy, Marks):
            policy.seen = True
            return fun(*args, **kwargs)
        if policy is None or policy.policy in COMPUTES_NOTHING:
            return fun(*args, **kwargs)
        checkpointed = jax.checkpoint(fun, prevent_cse=prevent_cse, policy=_saveable(policy))
        return checkpointed(*args, **kwargs)  # type: ignore[no-any-return]

    return block


def propagation_barrier(x: jax.Array, *, allowed: Literal["forward", "backward"]) -> jax.Array:
    """The identity, through which Shardy's propagation spreads layouts one way only; its gradient's, the other way.

    ``forward``: what computes ``x`` is laid out by its own operands, never by what is asked of ``x`` further on. So a
    reshard stands exactly here: GShard's "execute the einsum locally, then reshard" (section 3.3.2).
    """
    return barrier_p.bind(x, allowed=allowed)  # type: ignore[no-any-return]


def _saveable(remat: Remat) -> Callable[..., Any]:
    policies = jax.checkpoint_policies
    if remat.policy == "save":
        return policies.save_only_these_names(*remat.names)  # type: ignore[no-any-return]
    return policies.dots_saveable if remat.policy == "dots" else policies.nothing_saveable  # type: ignore[no-any-return]


def _assign(x: T, assignment: Assignment) -> T:
    return jax.tree.map(lambda leaf: mark_p.bind(leaf, name=None, assignment=assignment), x)  # type: ignore[no-any-return]


def _nested(assignment: Any) -> DeviceAssignment:
    values = assignment.tolist() if hasattr(assignment, "tolist") else assignment
    return tuple(_nested(v) if isinstance(v, (list, tuple)) or hasattr(v, "tolist") else int(v) for v in values)


def _batched(args: Sequence[Any], dims: Sequence[Any], *, name: str | None, assignment: Assignment | None) -> Any:
    x = jnp.moveaxis(args[0], dims[0], 0)
    return mark_p.bind(x, name=name, assignment=_under_vmap(assignment)), 0


def _under_vmap(assignment: Assignment | None) -> Assignment | None:
    """The same assignment with the mapped dim, left alone, before the others."""
    if isinstance(assignment, Split):
        moved = (SplitDim(dim=s.dim + (s.dim >= 0), axes=s.axes, pad=s.pad) for s in assignment.splits)
        return Split(splits=tuple(moved))
    if isinstance(assignment, Shard):
        return Shard(device_assignment=(assignment.device_assignment,))
    return assignment


mark_p.def_impl(lambda x, **_: x)
mark_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(mark_p, lambda _ctx, x, **_: [x])
ad.deflinear2(mark_p, lambda cotangent, _x, **params: [mark_p.bind(cotangent, **params)])
batching.primitive_batchers[mark_p] = _batched


def _lower_barrier(_context: Any, x: Any, *, allowed: str) -> Any:
    directions = {"forward": 1, "backward": 2}  # sdy's PropagationDirection
    return [sdy.PropagationBarrierOp(x, directions[allowed]).result]


def _opposite(allowed: str) -> str:
    return "backward" if allowed == "forward" else "forward"


barrier_p.def_impl(lambda x, **_: x)
barrier_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(barrier_p, _lower_barrier)
ad.deflinear2(barrier_p, lambda cotangent, _x, *, allowed: [barrier_p.bind(cotangent, allowed=_opposite(allowed))])
batching.defvectorized(barrier_p)
