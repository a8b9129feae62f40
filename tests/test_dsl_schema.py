"""The JSON schema is in step with the reader: what one takes the other takes, up to what no schema can say."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from meshwright.dsl.document import Document
from meshwright.dsl.errors import PlanError
from meshwright.dsl.reader import loads
from meshwright.dsl.schema import json_schema

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

LEGAL = [
    "mesh: auto",
    "mesh: {x: 4, y: auto, z: {size: auto, over: [y, 'x:4']}}",
    "name: a\nmodel: a.b:c\nwith: {a: [1, {b: null}]}",
    "topology: v3:32x32",
    "topology: 4*v5e:16x16",
    "topology: {name: 'v5e:16x16', num_slices: 4}",
    "tensors:",
    "tensors: {'**': replicate}",
    "tensors: {a: E@x+y!pad ... M, b: auto, c: infer, d: like params/a}",
    "tensors: {a: {split: {dim: 0, axis: x}}, b: {split: [{dim: -1, axis: [x, y], pad: true}]}}",
    "tensors: {a: {shard: {device_assignment: [[0, 1], [2, 3]]}}}",
    "remat: dots",
    "remat: {save: [a]}",
    "limits: {hbm: 15.5 GiB}",
    "limits: {hbm: 16000000000}",
    "result: {status: optimal, step_time_s: 1, gap: 0.1, peak_bytes: {w: 1}, seed: 0, versions: {a: b}, pins: [a]}",
    "result: {status: a, fingerprint: {arguments: {p: {tensors: 1, elements: 2, digest: a}}, dims: {E: 8}}}",
]
ILLEGAL = [
    "meshwright: 2",
    "nmae: a",
    "name:",
    "name: 3",
    "model: a.b",
    "with: [a]",
    "topology: v3",
    "topology: {name: '2*v3:8x8'}",
    "topology: {name: 'v3:8x8', slices: 2}",
    "mesh: {}",
    "mesh: {x: 0}",
    "mesh: {'a b': 1}",
    "mesh: {x: {over: []}}",
    "mesh: manual",
    "tensors: {a: E@}",
    "tensors: {a: '@x'}",
    "tensors: {a: E!pad}",
    "tensors: {a: 3}",
    "tensors: {a: {split: {dim: 0}}}",
    "tensors: {a: {split: {dim: a, axis: x}}}",
    "tensors: {a: {splt: {dim: 0, axis: x}}}",
    "tensors: {a: {shard: {device_assignment: []}}}",
    "remat: some",
    "remat: {save: []}",
    "limits: {hbm: 15}",
    "limits: {hbm: 15 gib}",
    "limits: {ram: 15 GiB}",
    "result: {gap: 1}",
    "result: {status: a, gap: -1}",
    "result: {status: a, fingerprint: {dims: {E: -1}}}",
]


def document(text: str) -> str:
    return text if text.startswith("meshwright") else f"meshwright: 1\n{text}\n"


def as_json(text: str) -> Any:
    return yaml.safe_load(text)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", LEGAL)
def test_both_take_what_is_legal(text: str) -> None:
    loads(document(text))
    assert [e.message for e in VALIDATOR.iter_errors(as_json(document(text)))] == []


@pytest.mark.parametrize("text", ILLEGAL)
def test_both_refuse_what_is_not(text: str) -> None:
    with pytest.raises(PlanError):
        loads(document(text))
    assert list(VALIDATOR.iter_errors(as_json(document(text))))


@pytest.mark.parametrize("path", sorted(files("meshwright.plans").glob("*.yaml")), ids=lambda path: path.stem)  # type: ignore[attr-defined]
def test_the_shipped_plans_are_legal_to_both(path: Any) -> None:
    loads(path.read_text())
    assert [e.message for e in VALIDATOR.iter_errors(as_json(path.read_text()))] == []


def test_the_schema_has_every_key_and_says_what_each_is_for() -> None:
    fields = {field.alias or name for name, field in Document.model_fields.items()}
    assert set(SCHEMA["properties"]) == fields
    forms = [SCHEMA, *SCHEMA["$defs"].values()]
    for form in forms:
        assert form["additionalProperties"] is False
        assert all(key.get("description") for key in form["properties"].values())
