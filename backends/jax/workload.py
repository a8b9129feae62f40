"""A workload: a step function and its abstract arguments, and what the plan language sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

PyTree = Any
Step = Callable[..., Any]


def arguments_of(args: Sequence[PyTree]) -> tuple[PyTree, ...]:
    """A step's arguments, each a pytree. Raises ``TypeError`` for what is one pytree, or none."""
    if not isinstance(args, tuple | list):
        raise TypeError(f"args are a tuple with a step's arguments, not {type(args).__name__}: (args,) where it is one")
    return tuple(args)


class Workload(tuple[Step, tuple[PyTree, ...]]):
    """A step and its abstract arguments, ``(step, args)``, with what ``meshwright run`` needs besides.

    ``step(*state, batch)`` returns ``(*state, metrics)``; ``metrics`` is a mapping of scalars with ``loss`` in it.
    ``init(seed)`` gives the concrete state, one pytree for each argument but the last.
    ``batches(seed, split)`` gives host batches (NumPy pytrees shaped as the last argument) without end;
    ``split`` is ``"train"`` or ``"held-out"``.
    ``evaluate(*state, batch)`` returns metrics alone, nothing learnt and nothing dropped at random: for held-out text.
    ``translation()`` says how it translates (``decoding.translation.Translation``), where it does.
    """

    init: Callable[[int], tuple[PyTree, ...]] | None
    batches: Callable[[int, str], Iterator[PyTree]] | None
    evaluate: Callable[..., Mapping[str, PyTree]] | None
    translation: Callable[[], Any] | None

    def __new__(
        cls,
        step: Step,
        args: tuple[PyTree, ...],
        *,
        init: Callable[[int], tuple[PyTree, ...]] | None = None,
        batches: Callable[[int, str], Iterator[PyTree]] | None = None,
        evaluate: Callable[..., Mapping[str, PyTree]] | None = None,
        translation: Callable[[], Any] | None = None,
    ) -> Workload:
        """A workload of ``step`` on ``args``."""
        self = super().__new__(cls, (step, args))
        self.init = init
        self.batches = batches
        self.evaluate = evaluate
        self.translation = translation
        return self

    @property
    def step(self) -> Step:
        """The step function."""
        return self[0]

    @property
    def args(self) -> tuple[PyTree, ...]:
        """Its abstract arguments: a tuple of pytrees of ``jax.ShapeDtypeStruct``."""
        return self[1]

    @property
    def donated(self) -> tuple[int, ...] | None:
        """The arguments that a training run donates: the state. None where the workload says nothing of running."""
        return tuple(range(len(self.args) - 1)) if self.batches else None
