"""The JSON schema of plan files, made of the models that read them, with a sentence on each key for editors' hovers."""

from __future__ import annotations

from typing import Any

from .document import Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as plain JSON values."""
    generated = Document.model_json_schema(by_alias=True)
    schema: dict[str, Any] = {"$schema": DIALECT, **_tidy(generated)}
    tensors = schema["properties"]["tensors"]
    schema["properties"]["tensors"] = {**tensors, "type": ["object", "null"]}
    return {**schema, "title": "Meshwright plan"}


def _tidy(node: Any) -> Any:
    """Without what says nothing to a reader: titles, null defaults, and null as an alternative (no key may be null)."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "properties" in node:
        properties = {name: _tidy(value) for name, value in node["properties"].items()}
        node = {**node, "properties": properties}
        return {key: value if key == "properties" else _tidy(value) for key, value in node.items() if key != "title"}
    silent = [("default", None), ("title", node.get("title"))]
    kept = {key: _tidy(value) for key, value in node.items() if (key, value) not in silent}
    for pattern, value in kept.pop("patternProperties", {}).items():
        kept |= {"propertyNames": {"pattern": pattern}, "additionalProperties": value}
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del kept["anyOf"]
        return {**choices[0], **kept}
    return kept
