"""Lets what is sent in chunks travel while others are computed, on TPUs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType

import jax
from jax.extend.core import ClosedJaxpr

from .trace import equations

BESIDE = "All-to-alls of chunks may run beside products: compiled with xla_tpu_enable_async_all_to_all."
OPTIONS: Mapping[str, str] = MappingProxyType({"xla_tpu_enable_async_all_to_all": "true"})
"""Options of libtpu 0.0.51, without which it runs no all-to-all beside anything."""
SCOPE = "meshwright.in_chunks"


def overlapped() -> AbstractContextManager[None]:
    """Around the exchange of one chunk among several: the operations inside ask that it may overlap with others."""
    return jax.named_scope(SCOPE)


def compiler_options(closed: ClosedJaxpr) -> Mapping[str, str]:
    """The TPU compiler's options that a step needs: none where nothing is sent in chunks."""
    stacks = {equation.source_info.name_stack for equation in equations(closed.jaxpr)}
    return OPTIONS if any(part.name == SCOPE for stack in stacks for part in stack.stack) else {}
