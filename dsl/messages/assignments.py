"""MW1xx: assignments against tensors."""

from __future__ import annotations

from .text import Text

ASSIGNMENTS: dict[str, Text] = {
    "MW101": Text("The pattern '{pattern}' matches no tensor.", "{suggestion}"),
    "MW102": Text(
        "The rule '{pattern}' decides nothing: earlier rules take all {count} tensors that it matches: {earlier}.",
        "Move it above '{first}', or remove it.",
    ),
    "MW103": Text(
        "No rule assigns {tensors}.",
        "Add a line such as '{line}' under 'tensors', or '\"**\": auto' at its end to leave the rest to the planner.",
    ),
    "MW104": Text(
        "{tensor} has {rank} dims; the notation names {named} ({dims}).",
        "Write one word a dim, or '...' for dims that are left alone.{hint}",
    ),
    "MW105": Text(
        "Dim {dim} of {tensor} has size {size}, which {parts} ({axes}) does not divide: remainder {remainder}.",
        "Size {size} divides over {choices}. Or make the size {nearest}, or say that it may be padded: '{padded}'.",
    ),
    "MW106": Text("The mesh has no axis '{axis}'.", "{suggestion}"),
    "MW108": Text(
        "The dim '{dim}' has size {size} in {tensor} and size {other_size} in {other}.",
        "One name is one dim: rename one of them, or use '_', '...' or 'split: {{dim: 0, axis: ...}}'.",
    ),
    "MW109": Text("{tensor} has no dim {dim}; it has {rank} dims.", "Legal positions: {legal}."),
    "MW110": Text(
        "Dim {dim} of {tensor} is split twice: it is also dim {position}.",
        "Name each dim once; join its axes with '+'.",
    ),
    "MW111": Text(
        "{tensor} has {rank} dims; the device assignment is {depth} deep.",
        "Nest its lists as deep as the tensor has dims; a list of one entry leaves a dim whole.",
    ),
    "MW112": Text(
        "Dim {dim} of {tensor} has size {size}, which the device assignment's {parts} parts do not divide: "
        "remainder {remainder}.",
        "Give that dim of the device assignment a length that divides {size}.",
    ),
    "MW113": Text(
        "The device assignment of {tensor} has {count} devices; the mesh has {devices}, numbered 0 to {last}. "
        "Missing: {missing}. Unknown: {unknown}.",
        "Name every device of the mesh once.",
    ),
    "MW114": Text(
        "{tensor} has no counterpart under '{target}', where there is {known}.",
        "Write a rule of its own above this one: '{path}: replicate'.",
    ),
    "MW115": Text(
        "{tensor} cannot be like {source}: its dims are not that tensor's, nor what is left when some are dropped.",
        "Write a rule of its own above '{pattern}': '{path}: replicate'.",
    ),
    "MW116": Text("'like' runs in a circle: {cycle}.", "Give one of them an assignment of its own."),
    "MW120": Text(
        "No rule uses the mesh axis '{axis}' (size {size}).",
        "Tensors are replicated over it unless the compiler infers otherwise.",
    ),
    "MW117": Text("The remat policy keeps '{name}', which the model does not tag.", "{suggestion}"),
    "MW122": Text(
        "The plan does not fit: the step's arguments alone take {total} bytes of a device, {excess} more than the "
        "{limit} that it may use. By argument: {arguments}.",
        "Split the largest over more axes, or use more devices, or raise 'limits: {{hbm: ...}}' if the chip has more.",
    ),
    "MW121": Text(
        "Dim {dim} of {tensor} is padded from {size} to {padded} ({parts} parts of {part}): {waste} of {padded} are "
        "padding.",
    ),
}
