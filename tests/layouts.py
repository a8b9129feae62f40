"""Assertions on what a planned step gives and where it lies."""

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


def assert_close(actual, expected, tolerance=1e-5):
    """Equal to ``tolerance`` of each tensor's largest entry."""
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        a, e = np.asarray(a, np.float64), np.asarray(e, np.float64)
        scale = max(float(np.abs(e).max(initial=0)), 1e-30)
        np.testing.assert_allclose(a / scale, e / scale, rtol=0, atol=tolerance)


def assert_layouts(fast, compiled):
    """Every argument and result that the plan splits lies, in the compiled program, as the plan says."""
    traced = fast.traced
    inputs = jax.tree.leaves(compiled.input_shardings[0], is_leaf=lambda x: x is None)
    outputs = jax.tree.leaves(compiled.output_shardings)
    checked = 0
    for tensors, shardings in ((traced.arguments, inputs), (traced.results, outputs)):
        for tensor, sharding in zip(tensors, shardings, strict=True):
            layout = fast.layouts.of(tensor)
            if layout.how == "split" and sharding is not None:
                wanted = NamedSharding(fast.mesh, PartitionSpec(*(axes or None for axes in layout.axes)))
                assert sharding.is_equivalent_to(wanted, len(tensor.shape)), tensor
                checked += 1
    assert checked
