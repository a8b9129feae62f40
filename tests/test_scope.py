"""Where in the model an operation stands."""

from __future__ import annotations

import pytest
from meshwright.planner.estimate.scope import layer_of, phase_of
from meshwright.planner.graph import Origin


@pytest.mark.parametrize(
    ("scope", "layer"),
    [
        ("jit(step)/jvp(encoder)/layer_3/attention/dot_general", "encoder/layer_3/attention"),
        ("jit(step)/transpose(jvp(encoder))/layer_3/dot_general", "encoder/layer_3"),
        ("jit(step)/jvp()/while/body/closed_call/checkpoint/mlp/add", "mlp"),
        ("jit(step)/transpose(jvp(while))/body/closed_call/checkpoint/rematted_computation/mlp/add", "mlp"),
        ("jit(step)/jvp(btm,mnd->btnd)/dot_general", "model.py:7"),
        ("jit(step)/jvp()/dot_general", "model.py:7"),
        ("add_any", "model.py:7"),
        (None, "model.py:7"),
    ],
)
def test_the_layer_is_the_scope_that_the_model_names_else_the_line(scope: str | None, layer: str) -> None:
    assert layer_of(Origin(source="model.py:7", scope=scope)) == layer


def test_without_a_line_the_function_is_named() -> None:
    assert layer_of(Origin(scope="jit(step)/jvp(jit(log_softmax))/sub")) == "log_softmax"
    assert layer_of(Origin()) == "(not said)"


@pytest.mark.parametrize(
    ("scope", "phase"),
    [
        ("jit(step)/jvp(a)/add", "forward"),
        ("jit(step)/transpose(jvp(a))/add", "backward"),
        ("jit(step)/transpose(jvp(a))/checkpoint/rematted_computation/add", "recomputed"),
        ("jit(step)/mul", "update"),
        (None, "update"),
    ],
)
def test_the_phase_of_a_training_step(scope: str | None, phase: str) -> None:
    assert phase_of(Origin(scope=scope)) == phase
