"""MW6xx: the models that ship."""

from __future__ import annotations

from .text import Text

MODELS: dict[str, Text] = {
    "MW601": Text("{model} has no setting '{name}'.", "{suggestion}"),
    "MW602": Text(
        "{model}: {name} is {value} ({given}); it must be {expected}.",
        "Write it as {expected}, e.g. {name}: {example}.",
    ),
    "MW603": Text("{model}: {name} is {value}; it must be {bound}.", "The default is {example}."),
    "MW604": Text("The family has no member '{name}'.", "{suggestion}"),
    "MW605": Text(
        "{layers} layers cannot be halved into an encoder and a decoder of whole {blocks}: {layers} is not a multiple"
        " of {multiple}.",
        "Nearest legal layers: {nearest}.",
    ),
    "MW606": Text(
        "{groups} groups do not divide the batch's {tokens} tokens ({batch} rows of {length}).",
        "Nearest legal groups: {nearest}.",
    ),
    "MW607": Text(
        "The expert capacity 2S/E is 2*{group_tokens}/{experts} = {capacity:.4g}, not a positive integer"
        " ({tokens} tokens in {groups} groups of {group_tokens}, {experts} experts).",
        "Set capacity, or one of the nearest legal groups: {nearest}.",
    ),
    "MW608": Text(
        "conv_net: an image dim of {value} ({name}) is not a multiple of {multiple}, which the stride and the pooling"
        " need.",
        "Nearest legal {name}: {nearest}.",
    ),
}
