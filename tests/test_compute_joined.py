"""What putting arrays together takes, and what is written of it: microseconds and bytes as the TPU compiler says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from small_steps import shape

F32, BF16 = jnp.float32, jnp.bfloat16
TOPOLOGY = {"v3": "v3:2x2", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
MIB = 2**20


def priced(chip: str, step: Callable[..., Any], *args: Any) -> tuple[float, float]:
    """Microseconds of a step that each device does whole, and the MiB of a device."""
    mesh = f"{{x: {8 if chip == 'v3' else 4}}}"
    plan = mw.loads(f"meshwright: 1\ntopology: {TOPOLOGY[chip]}\nmesh: {mesh}\ntensors:\n  '**': replicate\n")
    found = mw.estimate(plan, step, args)
    return found.compute_s * 1e6, found.peak_bytes / MIB


def along_lanes(*parts: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.concatenate(parts, 1))


def along_rows(*parts: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.concatenate(parts, 0))


def read_twice(*parts: jax.Array) -> tuple[jax.Array, jax.Array]:
    whole = jnp.concatenate(parts, 0)
    return whole.sum(-1), (whole * whole).sum(0)


@pytest.mark.parametrize(
    ("chip", "step", "parts", "of", "dtype", "compiled"),
    [
        ("v3", along_lanes, 2, (4096, 2048), F32, 402.1),
        ("v3", along_lanes, 4, (4096, 1024), F32, 560.5),
        ("v3", along_lanes, 2, (4096, 2048), BF16, 363.3),
        ("v5e", along_lanes, 2, (4096, 2048), F32, 261.5),
        ("v5e", along_lanes, 4, (4096, 1024), F32, 358.5),
        ("v5e", along_lanes, 2, (4096, 2048), BF16, 225.9),
        ("v5e", along_rows, 2, (1024, 8192), F32, 262.4),
        ("v5e", along_rows, 3, (1024, 8192), F32, 487.7),
        ("v5p", along_lanes, 2, (4096, 2048), F32, 87.9),
        ("v5p", along_rows, 3, (1024, 8192), F32, 167.9),
        ("v6e", along_lanes, 4, (4096, 1024), F32, 165.1),
        ("v6e", along_lanes, 2, (4096, 2048), BF16, 113.1),
        ("v6e", along_rows, 3, (1024, 8192), F32, 224.5),
    ],
)
def test_what_one_reads_it_pads_and_takes_the_larger_of_and_nothing_whole_is_written(
    chip: str, step: Callable[..., Any], parts: int, of: tuple[int, int], dtype: Any, compiled: float
) -> None:
    given = [shape(*of, dtype=dtype)] * parts
    took_us, held = priced(chip, step, *given)
    assert took_us == pytest.approx(compiled, rel=0.06)
    in_all = 2 * parts * of[0] * of[1] * jnp.dtype(dtype).itemsize / MIB
    assert held == pytest.approx(in_all, rel=0.01)  # the arguments and the result alone, compiled too


@pytest.mark.parametrize(
    ("chip", "dtype", "compiled", "compiled_mib"),
    [
        ("v3", F32, 644.4, 128.2),
        ("v3", BF16, 566.5, 64.4),
        ("v5e", F32, 319.7, 64.3),
        ("v5e", BF16, 313.9, 32.2),
        ("v5p", F32, 138.4, 128.3),
        ("v6e", BF16, 134.5, 32.2),
    ],
)
def test_rows_of_whole_tiles_that_several_read_are_written_to_their_places(
    chip: str, dtype: Any, compiled: float, compiled_mib: float
) -> None:
    took_us, held = priced(chip, read_twice, *[shape(1024, 8192, dtype=dtype)] * 2)
    assert took_us == pytest.approx(compiled, rel=0.06)
    assert held == pytest.approx(compiled_mib, rel=0.01)


@pytest.mark.parametrize(("chip", "compiled_mib"), [("v3", 64.4), ("v5e", 64.2), ("v5p", 64.4), ("v6e", 64.2)])
def test_several_put_columns_together_that_begin_within_a_tile(chip: str, compiled_mib: float) -> None:
    """A queue of keys beside the one that is right, as contrastive losses have them: never written."""

    def losses(right: jax.Array, others: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(jnp.concatenate([right, others], 1), -1)

    _, held = priced(chip, losses, shape(256, 1), shape(256, 65536))
    assert held == pytest.approx(compiled_mib, rel=0.02)
