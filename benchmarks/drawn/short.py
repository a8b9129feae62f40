"""A short step as it is drawn, operation by operation: a chain with branches, its gradient, or an update of state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Of = Callable[..., Array]
"""What an operation makes of the values that it reads."""
LARGEST, SMALLEST = 1 << 22, 1 << 6
"""How many numbers a value has at most, and at least."""
SIZES = (256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class Operation:
    """One of a step: ``reads`` are the numbers of the values that it reads."""

    name: str
    of: Of
    reads: tuple[int, ...]


@dataclass(slots=True)
class Drawing:
    """A step as far as it is drawn: ``values`` are all that it has, the ``arguments`` among them by their numbers."""

    draw: Random
    dtype: Any
    values: list[jax.ShapeDtypeStruct] = field(default_factory=list)
    arguments: list[int] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    def argument(self, shape: Sequence[int], dtype: Any = None) -> int:
        self.values.append(jax.ShapeDtypeStruct(tuple(shape), dtype or self.dtype))
        self.arguments.append(len(self.values) - 1)
        return self.arguments[-1]

    def whole_numbers(self, *shape: int) -> int:
        return self.argument(shape, jnp.int32)

    def add(self, name: str, of: Of, *reads: int) -> bool:
        """Whether the operation is of a size to go on with."""
        made = jax.eval_shape(of, *(self.values[number] for number in reads))
        if not SMALLEST <= made.size <= LARGEST or not 1 <= made.ndim <= 4:
            return False
        self.values.append(jax.ShapeDtypeStruct(made.shape, made.dtype))
        self.operations.append(Operation(name, of, reads))
        return True

    @property
    def args(self) -> tuple[Any, ...]:
        """The step's arguments, abstract."""
        return tuple(self.values[number] for number in self.arguments)


@dataclass(frozen=True, slots=True)
class Step:
    """``run`` is the step, of abstract ``args``."""

    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]


def ran(drawing: Drawing, args: Sequence[Array]) -> list[Array]:
    """Every value of the step."""
    found: dict[int, Array] = dict(zip(drawing.arguments, args, strict=True))
    made = iter(drawing.operations)
    for number in range(len(drawing.values)):
        if number not in found:
            operation = next(made)
            found[number] = operation.of(*(found[each] for each in operation.reads))
    return [found[number] for number in range(len(drawing.values))]


def plain(drawing: Drawing, has_two: bool) -> Callable[..., Any]:
    """The step that returns what was made last, or something before that besides."""
    computed = [number for number in range(len(drawing.values)) if number not in drawing.arguments]
    beside = drawing.draw.choice(computed)

    def step(*args: Array) -> Any:
        values = ran(drawing, args)
        return (values[-1], values[beside]) if has_two and beside != computed[-1] else values[-1]

    return step


def gradient(drawing: Drawing) -> Callable[..., Any]:
    """Of the mean of squares by all arguments that have fractions."""
    split = [jnp.issubdtype(drawing.values[n].dtype, jnp.floating) for n in drawing.arguments]
    wanted = tuple(position for position, is_wanted in enumerate(split) if is_wanted)

    def loss(*args: Array) -> Array:
        return jnp.mean(ran(drawing, args)[-1].astype(jnp.float32) ** 2)

    return jax.value_and_grad(loss, argnums=wanted)


def updated(drawing: Drawing) -> Callable[..., Any]:
    """The next value of a state, of itself and what was made last."""

    def step(state: Array, *args: Array) -> Array:
        return (0.9 * state + ran(drawing, args)[-1]).astype(state.dtype)

    return step
