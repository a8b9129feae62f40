"""MW55x, MW56x: searching a plan, asking what a choice is for."""

from __future__ import annotations

from .text import Text

SEARCHING: dict[str, Text] = {
    "MW550": Text(
        "The search needs a machine: neither the call nor the plan names a topology.",
        "Say which, such as --topology v5e:4x4, or topology='v5e:4x4', or 'topology: v5e:4x4' in the plan.",
    ),
    "MW551": Text(
        "No mesh of {topology} satisfies the pin '{pin}': {reason}",
        "Change that pin, or leave it to the planner: '{pin}: auto'.",
    ),
    "MW552": Text(
        "Each pin can be satisfied on some mesh of {topology}, but no mesh satisfies all of them: {pins}.",
        "Leave one of them to the planner: 'auto'.",
    ),
    "MW553": Text("{option} is {value}.", "Give {expected}."),
    "MW554": Text(
        "The mesh is written as '{text}'.",
        "Write axes and sizes, major first: x=4,y=8; 'auto' leaves a size to the planner.",
    ),
    "MW555": Text(
        "{path} is the file that the search was given, which it never touches.", "Give -o another file to write."
    ),
    "MW556": Text(
        "The setting is written as '{text}'.", "Write name=value: --set layers=36, for each setting of the model."
    ),
    "MW557": Text(
        "The pins and the model name {count} axes ({axes}), more than the mesh of {topology} can have.",
        "Name at most {most}, or give the mesh.",
    ),
    "MW558": Text(
        "{what} is neither a plan nor the name of a model.",
        "Give a plan file, or package.module:callable, which returns (step, abstract arguments).",
    ),
    "MW559": Text("The plan cannot be written to {path}: {reason}.", "Give -o a file that can be written."),
    "MW560": Text(
        "What is to be forced is written as '{text}'.",
        "Write TENSOR=ASSIGNMENT: --why 'params/w=_@data _', the tensor by its path or a pattern.",
    ),
    "MW561": Text(
        "'{text}' forces no layout.", "Say one: a word a dim ('_@data _'), 'replicate', or 'infer' for propagation."
    ),
    "MW562": Text("'{pattern}' is forced twice.", "Force one layout at a time."),
    "MW563": Text(
        "The plan leaves {holes} to the planner: there are no choices yet to give a reason for.",
        "Let 'meshwright search' complete it, and explain what that writes.",
    ),
    "MW564": Text(
        "{option} says nothing beside --why, which compares plans.", "Leave {option} out, or ask without --why."
    ),
    "MW565": Text(
        "The plan leaves {settings} to the search: there is no one step yet.",
        "Let 'meshwright search' complete the plan, or give each a value.",
    ),
    "MW566": Text(
        "{name} is auto, and {model} names no values for it.",
        "List them, {name}: {{auto: [...]}}, or give it one.{may}",
    ),
    "MW567": Text(
        "{model} refuses every combination of values for {settings} ({count}); the first: {reason}",
        "Change what else the plan says of them, or list other values: {{auto: [...]}}.",
    ),
    "MW568": Text(
        "The values of {settings} make more than {most} combinations.",
        "Give some of them a value, or list fewer: {{auto: [...]}}.",
    ),
    "MW569": Text(
        "The plan has no table of what is best by {name}: {has}.",
        "Search it with '{name}: auto' among its settings.",
    ),
    "MW570": Text(
        "The plan's table ends at {name} {most}; {value} is asked for.",
        "Search again with larger values, {name}: {{auto: [...]}}, or ask for {most}.",
    ),
    "MW572": Text(
        "The plan leaves {settings} open, and the step that is given is of one choice already.",
        "Give each the value that the step was made with, or let search_plan make the steps of the plan's model.",
    ),
    "MW571": Text(
        "The values of {name}, by which a table is made, are to be numbers; there is {value}.",
        "List numbers: {name}: {{auto: [1.0, 2.0]}}.",
    ),
    "MW573": Text(
        "The model declares choices (mw.choices) that cannot be used: {what} is {got}.",
        "Let the declaration say {wanted}.",
    ),
    "MW574": Text("The plan is asked for at {name} {value}, which is no number.", "Give a number."),
    "MW575": Text("The table has two entries for {when}.", "Keep one of them."),
    "MW576": Text(
        "No mesh of {topology} has axes as they are said: {axes}. Its devices lie along {dims}.",
        "Give sizes whose product is {count}, each of parts of these dims, or leave more to the planner: 'auto'.",
    ),
    "MW577": Text("The setting '{name}' is given more than one value: {values}.", "Keep one of them."),
}
