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
        "The expert capacity {formula} is {capacity:.4g}, not a positive integer"
        " ({tokens} tokens in {groups} groups of S = {group_tokens}, E = {experts} experts).",
        "Set capacity, or one of the nearest legal groups: {nearest}.",
    ),
    "MW609": Text("There is no gate {gate} as in {published}.", "Gate {gate} is there as in: {legal}."),
    "MW610": Text("A token cannot choose {top_k} experts: {why}.", "top_k: {legal}, or another gate."),
    "MW611": Text(
        "Gate {gate} chooses tokens by all of their group, later ones too: a decoder would look ahead.",
        "Set decoder_gate to one of: {legal}.",
    ),
    "MW612": Text("{setting}: {value} has no meaning with {beside}.", "Leave it out, or set {legal}."),
    "MW613": Text(
        "{experts} experts in {sets} sets: a token cannot choose 2 sets and {top_k}/2 experts in each.",
        "Legal sets for these experts: {legal}; top_k must be even.",
    ),
    "MW614": Text(
        "Kernel megablox works on whole tiles; fill_to: {fill_to} is no multiple of {multiple}.",
        "Set fill_to: {multiple}.",
    ),
    "MW615": Text(
        "exchange: {exchange} is written for one device of a mesh, and the plan's mesh is open.",
        "Say mesh with every size, or exchange: annotated.",
    ),
    "MW616": Text("{setting}: {axes}: the mesh ({mesh}) {why}.", "{remedy}"),
    "MW617": Text(
        "{count} {what} cannot lie evenly over {devices} devices ({axes}), as the exchange by hand needs.",
        "Nearest legal {setting}: {nearest}.",
    ),
    "MW618": Text(
        "No {shards} devices can split an expert's product: the hidden dim lies over {axes}.",
        "Legal expert_shards: {legal} (0 gathers the weights); or cut a hidden axis in two.",
    ),
    "MW619": Text(
        "A hierarchical exchange goes over two axes; exchange_axes: {axes} has {count}.",
        "Write exchange_axes: OUTER+INNER, the axis of the nearest devices last.",
    ),
    "MW608": Text(
        "conv_net: an image dim of {value} ({name}) is not a multiple of {multiple}, which the stride and the pooling"
        " need.",
        "Nearest legal {name}: {nearest}.",
    ),
}
