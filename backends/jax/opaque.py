"""What of a step nothing can look into: kernels of its own, compiled by others than XLA."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jax.extend.core import JaxprEqn

from .trace import Traced, equations

CALLS = ("pallas_call", "ffi_call")
NOTE = (
    "{count} {kernels} of the step's own ({name}) {are} priced by the bytes that go in and out; what is computed inside"
    " is not counted."
)


def notes_on_kernels(traced: Traced) -> Iterator[str]:
    """A note for each kind of kernel that a step calls, however often it does."""
    called = Counter(e.primitive.name for e in equations(traced.jaxpr.jaxpr) if _is_opaque(e))
    for name, count in called.items():
        one = count == 1
        yield NOTE.format(count=count, kernels="kernel" if one else "kernels", name=name, are="is" if one else "are")


def _is_opaque(equation: JaxprEqn) -> bool:
    """Whether a call stays one; a Pallas kernel that is interpreted becomes plain operations."""
    return equation.primitive.name in CALLS and not equation.params.get("interpret")
