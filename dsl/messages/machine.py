"""MW2xx: mesh, topology and device order."""

from __future__ import annotations

from .text import Text

MACHINE: dict[str, Text] = {
    "MW202": Text("No chip is called '{kind}'.", "{choices}"),
    "MW203": Text(
        "Topology {topology} has {dims} dims; this kind has {wanted} ({names}).", "Nearest legal choices: {choices}."
    ),
    "MW204": Text("There is no {topology}: {rule}.", "Nearest legal choices: {choices}."),
    "MW205": Text(
        "Topology {topology} asks for several slices; a machine of {kind} is one.",
        "Write {one}; slices are for TPUs, whose uplink joins them.",
    ),
    "MW206": Text(
        "Topology {topology} has {devices} devices; a plan lays out at most {most}.",
        "Take fewer chips or fewer slices.",
    ),
    "MW207": Text(
        "The machine's file {file} cannot be read: {reason}",
        "Put the file beside the plan, or name a chip of the catalogue, such as v3:32x32.",
    ),
    "MW208": Text("{what} {wrong}.", "{remedy}"),
    "MW210": Text(
        "The mesh has {product} devices ({sizes}); {topology} has {devices}.", "Nearest legal choices: {choices}."
    ),
    "MW211": Text(
        "The sizes given for the mesh ({sizes}) make {product}; {topology} has {devices} devices, no multiple of it.",
        "Take sizes whose product divides {devices}: the 'auto' axes share the rest.",
    ),
    "MW212": Text("Axis '{axis}' lies over '{dim}', which {topology} does not have (it has {dims}).", "{choices}"),
    "MW213": Text(
        "Axis '{axis}' takes {part} of dim '{dim}', which has {size}: {part} does not divide {size}.",
        "Take one of: {choices}.",
    ),
    "MW214": Text(
        "The axes take {taken} of dim '{dim}' together ({takers}); it has {size}.",
        "Take parts whose product divides {size}.",
    ),
    "MW215": Text(
        "Axis '{axis}' has size {size}, but lies over {over}, which is {product}.",
        "Make its size {product}, or take a part of a dim, such as {example}.",
    ),
    "MW216": Text(
        "How much axis '{axis}' takes of {dims} is not settled by the sizes.",
        "Say the part that it takes, such as {example}.",
    ),
    "MW217": Text(
        "The mesh leaves {left} of {topology} unused.",
        "Lay an axis over it, or make the axes' sizes fill the machine.",
    ),
    "MW218": Text(
        "Axis '{axis}' says where it lies ('over'), but the plan names no topology.", "Add 'topology: v3:32x32'."
    ),
    "MW219": Text("The mesh has {count}; {most} are the most.", "Take fewer."),
    "MW220": Text(
        "The device assignment of {what} is uneven: {detail}.",
        "Write nested lists of device numbers, one level a dim, each level of one length.",
    ),
    "MW221": Text(
        "The device assignment of {what} names {wrong}; the mesh has devices 0 to {last}.",
        "Use device numbers from 0 to {last}.",
    ),
    "MW222": Text("The device assignment of {what} names {wrong} more than once.", "Name every device exactly once."),
    "MW223": Text(
        "The device assignment of {what} names {named} devices; the mesh has {devices}.",
        "Name every device exactly once, or use 'split' over fewer axes, which keeps copies on the others.",
    ),
    "MW224": Text(
        "The device assignment of {what} is no order of axes of this mesh: {detail}.",
        "All tensors of a program share one device order: change the mesh's ('over'), or assign in a factor order of "
        "it, such as {example}.",
    ),
}
