"""MW65x to MW67x: logical axis rules, read and written."""

from __future__ import annotations

from .text import Text

CONVERTING: dict[str, Text] = {
    "MW650": Text(
        "{what} is {got}.",
        "Write {expected}.",
    ),
    "MW651": Text(
        "There are no logical axis rules here.",
        "Give a list of pairs such as [[embed, [fsdp]], [mlp, tensor]], or a mapping with the key logical_axis_rules.",
    ),
    "MW652": Text(
        "The rule of '{name}' names the axis '{axis}', which the mesh does not have.",
        "{suggestion}",
    ),
    "MW653": Text(
        "The rule of '{name}' names the axis '{axis}' twice.",
        "Name it once; an axis can split a dim only once.",
    ),
    "MW654": Text(
        "{tensor} has {dims} dims, but {count} logical names: {names}.",
        "Give it at most a name for each dim, null for a dim without one.",
    ),
    "MW655": Text(
        "{tensor} has the logical name '{name}' twice, which Flax refuses.",
        "Give the two dims names of their own.",
    ),
    "MW656": Text(
        "Dims {first} and {second} of {tensor} would both be split over the axis '{axis}'.",
        "Flax NNX applies each name's last rule whatever else is taken; change the rules of {names}.",
    ),
    "MW657": Text(
        "The name '{name}' of {tensor} has no rule and is no axis of the mesh either.",
        "{suggestion}",
    ),
    "MW658": Text(
        "{tensor} has {what}, which a plan cannot follow.",
        "Name its dims in the file for --names instead.",
    ),
    "MW659": Text(
        "The model's tensors carry no logical names, and no file names any.",
        "Give arguments whose leaves keep Flax's metadata (LogicallyPartitioned boxes, Variables with out_sharding), or"
        " --names FILE with lines such as 'params/**/wi/kernel: [embed, mlp]'.",
    ),
    "MW660": Text(
        "{field} is {value}, but {topology} has {count} {what}.",
        "Make the product of the {kind}_*_parallelism fields {count}, or let one of them be -1.",
    ),
    "MW661": Text("{first} and {second} are both -1.", "Let only one of them fill what is left."),
    "MW662": Text(
        "{field} is {value}, and without a topology nothing says which slices there are.",
        "Give --topology, such as {value}*v5e:16x16.",
    ),
    "MW663": Text(
        "The axis '{axis}' lies both across slices ({dcn}) and inside them ({ici}), and is not the first.",
        "Put it first in mesh_axes, or let another axis cross the slices alone.",
    ),
    "MW665": Text(
        "{option} says nothing here: the input is {what}.",
        "{remedy}",
    ),
    "MW666": Text(
        "{field} is {value}, but the mesh has no axis '{axis}'.",
        "{suggestion}",
    ),
    "MW670": Text(
        "{tensor} is split ({layout}) but has no logical names, so no rule can say it.",
        "Name its dims in the file for --names, such as '{path}: [{example}]'.",
    ),
    "MW671": Text(
        "Dim {dim} of {tensor} is split over {axes} but has no logical name.",
        "Give the dim a name, or leave it whole.",
    ),
    "MW672": Text(
        "'{name}' is {first} in {tensor}, but {second} in {other}: no order of rules says both.",
        "Lay both out alike, or give the two dims logical names of their own.",
    ),
    "MW673": Text(
        "{tensor} is {what}, which no rule can say.",
        "Rules split dims over axes and nothing else; give it a plain layout.",
    ),
    "MW674": Text(
        "The mesh has {what}, which rules cannot leave open.",
        "Write the sizes, or complete the plan with 'meshwright search' first.",
    ),
    "MW675": Text(
        "MaxText has no axis '{axis}'.",
        "{suggestion}",
    ),
    "MW676": Text(
        "The mesh's axes lie across the {slices} slices in a way that dcn_*_parallelism cannot say: {found}.",
        "Let whole axes, or the major part of an axis, lie over the dim 'slice'.",
    ),
    "MW677": Text(
        "The plan names no model, and none is given: nothing says which logical names its tensors have.",
        "Give --model package.module:callable.",
    ),
    "MW680": Text(
        "Tensors under '{head}' that have no logical names: {count}; the plan leaves them open ('{line}').",
        "Write their layout there, name their dims in the file for --names, or let 'meshwright search' choose.",
    ),
    "MW681": Text("Axes of one device are left out: {axes}.", ""),
    "MW682": Text("The file builds on {base}, which is not read.", "Give the file that results, with every field."),
    "MW683": Text("Rules cannot say {what}; the plan's is not in the file.", ""),
    "MW684": Text(
        "{count} rules name nothing in this model: {names}.",
        "",
    ),
}
