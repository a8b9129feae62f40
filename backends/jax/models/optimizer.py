"""Adafactor as GShard used it (appendix A.2; Shazeer and Stern 2018), from Optax's parts.

A stacked parameter (dims L, and E of experts) is a stack of separate variables: second moments are factored, updates
clipped and scaled within each, by mapping Optax's transformations over the stack. Optax alone would factor the two
largest dims, which may be E, and clip a whole stack by one number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .parameters import Parameter, Params, Table, flatten, nest

OptState = dict[str, Any]
"""``count``: steps taken, int32. ``v_row``, ``v_col``: factored second moments, ``v``: whole ones. Each mirrors the
parameters' tree and holds only what it needs."""

_MOMENTS = ("v_row", "v_col", "v")
_Moments = dict[str, jax.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adafactor:
    """β1 = 0; β2 = min(0.99, 1 - t^-0.8); updates clipped to RMS 1 and scaled by each variable's RMS.

    The learning rate is ``learning_rate``/sqrt(max(t, ``warmup_steps``)) (A.2: 1.0 with square root decay after 10k).
    Second moments of variables with two dims of at least ``factor_from`` are factored.
    """

    table: Table
    learning_rate: float = 1.0
    warmup_steps: int = 10000
    factor_from: int = 128

    def init(self, params: Params) -> OptState:
        """The state before the first step."""
        flat = flatten(params)
        moments = {path: self._initial(parameter, flat[path]) for path, parameter in self.table.items()}
        return _state(jnp.zeros((), jnp.int32), moments)

    def update(self, gradients: Params, state: OptState, params: Params) -> tuple[Params, OptState]:
        """The parameters and the state after a step, t = ``count`` + 1."""
        flat_gradients, flat_params = flatten(gradients), flatten(params)
        moments = _by_path(state)
        rate = self.learning_rate_at(state["count"])
        new_params, new_moments = {}, {}
        for path, parameter in self.table.items():
            step = self._step_of(parameter, state["count"])
            change, new_moments[path] = step(flat_gradients[path], moments[path], flat_params[path])
            new_params[path] = flat_params[path] - rate * change
        return nest(new_params), _state(state["count"] + 1, new_moments)

    def learning_rate_at(self, count: jax.Array) -> jax.Array:
        """The learning rate of the step after ``count`` steps."""
        return self.learning_rate * jax.lax.rsqrt(jnp.maximum(count + 1, self.warmup_steps).astype(jnp.float32))

    def _initial(self, parameter: Parameter, value: jax.Array) -> _Moments:
        moments = jax.eval_shape(self._moments_of_one, _variable(parameter))
        stack = value.shape[: parameter.stacked]
        return {name: jnp.zeros((*stack, *m.shape), m.dtype) for name, m in moments.items()}

    def _moments_of_one(self, variable: jax.Array) -> _Moments:
        return _needed(variable.shape, self._rms().init(variable))

    def _step_of(self, parameter: Parameter, count: jax.Array) -> Callable[..., tuple[jax.Array, _Moments]]:
        """The step of one variable, mapped over the parameter's stack."""

        def step(gradient: jax.Array, moments: _Moments, value: jax.Array) -> tuple[jax.Array, _Moments]:
            return self._step_of_one(count, gradient, moments, value)

        for _ in range(parameter.stacked):
            step = jax.vmap(step)
        return step

    def _step_of_one(
        self, count: jax.Array, gradient: jax.Array, moments: _Moments, value: jax.Array
    ) -> tuple[jax.Array, _Moments]:
        gradient = gradient.astype(value.dtype)
        absent = jnp.zeros((1,), value.dtype)  # what Optax holds in the place of a moment that is not needed
        before = optax.FactoredState(count=count, **{name: moments.get(name, absent) for name in _MOMENTS})
        change, after = self._rms().update(gradient, before, value)
        for part in (optax.clip_by_block_rms(1.0), optax.scale_by_param_block_rms()):
            change, _ = part.update(change, part.init(value), value)
        return change, {name: getattr(after, name) for name in moments}

    def _rms(self) -> optax.GradientTransformation:
        return optax.scale_by_factored_rms(min_dim_size_to_factor=self.factor_from, decay_rate_fn=second_moment_decay)


def second_moment_decay(count: Any, exponent: Any) -> jax.Array:
    """β2 of the step after ``count`` steps: min(0.99, 1 - t^-0.8) (A.2)."""
    return jnp.minimum(0.99, 1.0 - (jnp.asarray(count) + 1.0) ** -exponent)


def _variable(parameter: Parameter) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(parameter.shape[parameter.stacked :], jnp.float32)


def _needed(shape: tuple[int, ...], state: Any) -> _Moments:
    """The moments of a variable without Optax's placeholders: either the factored ones or the whole one."""
    whole = state.v.shape == shape and state.v_row.shape == (1,)
    return {"v": state.v} if whole else {"v_row": state.v_row, "v_col": state.v_col}


def _state(count: jax.Array, moments: dict[str, _Moments]) -> OptState:
    trees = {name: nest({path: m[name] for path, m in moments.items() if name in m}) for name in _MOMENTS}
    return {"count": count, **{name: tree for name, tree in trees.items() if tree}}


def _by_path(state: OptState) -> dict[str, _Moments]:
    moments: dict[str, _Moments] = {}
    for name in _MOMENTS:
        for path, moment in flatten(state.get(name, {})).items():
            moments.setdefault(path, {})[name] = moment
    return moments
