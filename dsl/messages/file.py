"""MW0xx: the file, its YAML, its notation."""

from __future__ import annotations

from .text import Text

FILE: dict[str, Text] = {
    "MW001": Text(
        "The file cannot be read: {reason}.", "Give the path of a plan, or '-' to read one from the standard input."
    ),
    "MW002": Text("The file is not UTF-8: byte {byte} begins no character.", "Save the file as UTF-8."),
    "MW003": Text(
        "The character {character} cannot stand in a plan.", "Remove it, or write it as an escape in double quotes."
    ),
    "MW004": Text(
        "The file is larger than {most} KiB.",
        "A plan is a few lines; let patterns such as 'params/**' stand for many tensors.",
    ),
    "MW005": Text("Mappings and lists are nested more than {most} deep.", "No part of a plan needs to be so deep."),
    "MW006": Text(
        "The file holds more than {most} values.", "Let patterns such as 'params/**' stand for many tensors."
    ),
    "MW007": Text(
        "{what} stands here; a plan uses no anchors, aliases, tags or merges.",
        "Write the value out, or in quotes if the character belongs to it.",
    ),
    "MW008": Text(
        "A second document begins here.", "Keep one plan a file; remove the line '---' or '...' and what follows."
    ),
    "MW009": Text("A YAML directive stands here.", "Remove the line; a plan needs none."),
    "MW010": Text("The key '{key}' stands here for a second time; the first is in line {line}.", "Keep one of them."),
    "MW011": Text("'{key}' is not a key {where}.", "{suggestion}"),
    "MW012": Text("The key {key} is not a word.", "Write it in quotes if it is meant."),
    "MW013": Text(
        "This is not YAML: {reason}.",
        "Indent with spaces, close what is open, and quote what begins with one of * & ! % @ ` {{ [ or holds ': '.",
    ),
    "MW014": Text("The key '{key}' is missing {where}.", "Add it: {example}"),
    "MW015": Text("{what} must be {expected}, not {got}.", "{example}"),
    "MW016": Text("This plan is of version {got}; only version 1 is known.", "Write 'meshwright: 1'."),
    "MW017": Text("{what} has no value.", "Give it one, or remove the key."),
    "MW018": Text(
        "{text} is {old} to YAML 1.1 and {new} to YAML 1.2.",
        "Write '{text}' in quotes if it is a word; otherwise as a plain decimal number, true or false.",
    ),
    "MW019": Text("{text} is not a finite number.", "Write a number, or '{text}' in quotes if it is a word."),
    "MW020": Text(
        "The number {text} is too large (it has {digits} characters; 64 bits must hold it).",
        "Write a smaller one, or a text in quotes.",
    ),
    "MW021": Text("The plan is {got}; it must be a mapping.", "Begin with the line 'meshwright: 1'."),
    "MW022": Text("The text is empty.", "Write one, or remove the key."),
    "MW023": Text("'{text}' names no model.", "Write package.module:callable."),
    "MW024": Text("'{text}' is not an amount of memory.", "Write a number and its unit, such as 15 GiB."),
    "MW025": Text("'{text}' has {unit} where a unit must stand.", "{suggestion}"),
    "MW026": Text("'{text}' is {amount} bytes, which is no whole number.", "Write whole bytes."),
    "MW027": Text(
        "{amount} bytes is no amount that a device can have.", "Write an amount from 1 B to {most} B, such as 15 GiB."
    ),
    "MW028": Text(
        "'{text}' names no topology.", "Write the kind and its dims, such as v3:32x32, h100:8x2, cpu:8 or 4*v5e:16x16."
    ),
    "MW029": Text(
        "'{text}' has '{count}' where a count must stand.",
        "Write a whole number from 1 to 999999, such as in v3:32x32.",
    ),
    "MW030": Text(
        "'{text}' names no physical dim.",
        'Write the dim\'s name, such as y, or a part of it with its size, such as "x:4".',
    ),
    "MW031": Text(
        "Dim {dim} is split twice.", "Name each dim once; join its axes with '+', such as 'axis: data+model'."
    ),
    "MW032": Text("The axis lies on the physical dim '{name}' twice.", "Name each physical dim once."),
    "MW033": Text("'{name}' stands twice.", "Keep one of them."),
    "MW034": Text(
        "The device assignment is not a rectangular array (its first entries make it {shape}).",
        "Give every row the same length.",
    ),
    "MW035": Text(
        "The device assignment uses a device more than once: {devices}.", "Give every partition a device of its own."
    ),
    "MW036": Text("{number} is no device number.", "Devices are numbered from 0."),
    "MW037": Text("'{text}' says how many slices there are, and so does 'num_slices'.", "Say it once."),
    "MW040": Text("There is no assignment.", "Write one word a dim, such as 'E@expert C M', or 'replicate'."),
    "MW041": Text(
        "'{word}' is a word of the language and cannot name a dim.",
        "Write '{word}' alone, or give the dim another name.",
    ),
    "MW042": Text("'like' takes one path, not {count}.", "Write 'like params', or the path of a single tensor."),
    "MW043": Text(
        "'{target}' is no path: it has {character}.",
        "Write the path of a tensor, or its beginning, without wildcards: 'like params'.",
    ),
    "MW044": Text("A second '...' stands here.", "Keep one; the other dims need a name each."),
    "MW045": Text("The dim '{name}' stands twice in one tensor.", "Give each dim of a tensor a name of its own."),
    "MW046": Text(
        "The axis '{name}' is used twice in one tensor.", "Split one dim over it; an axis can split a tensor only once."
    ),
    "MW047": Text("'!{mark}' is no mark.", "Did you mean '!pad'?"),
    "MW048": Text(
        "The dim '{name}' is to be padded but is not split.",
        "Write the axis before the mark, such as '{name}@data!pad', or remove '!pad'.",
    ),
    "MW049": Text("A name is missing.", "Write dims as 'E', 'E@expert' or 'E@expert+data', without spaces inside."),
    "MW050": Text(
        "'{word}' is no name: '{character}' cannot stand here.",
        "Names have letters, digits and '_', and begin with no digit. '@' stands before the first axis, '+' before "
        "the others.",
    ),
    "MW052": Text("The pattern is {length} characters long; {most} are the most.", "Use wildcards."),
    "MW053": Text("The pattern '{text}' has an empty segment.", "Remove the '/' too many."),
    "MW054": Text(
        "In the pattern '{text}', '**' is only a part of the segment '{segment}'.",
        "Write '**' alone between slashes, or a single '*'.",
    ),
    "MW055": Text(
        "In the pattern '{text}', '{character}' has no counterpart.",
        "Write [ab] for characters, {{a,b}} for words, both within one segment; [[] stands for the character itself.",
    ),
    "MW056": Text(
        "The pattern '{text}' stands for {count} patterns; {most} are the most.", "Use fewer braces, or wildcards."
    ),
    "MW057": Text(
        "In the pattern '{text}', {chosen} stands for no character.",
        "Write the characters between the brackets, such as [io] or [a-f].",
    ),
    "MW058": Text(
        "'auto: {text}' names no values to choose from.",
        "List them, such as {{auto: [1, 2, 4]}}; or write auto alone, where the model names some.",
    ),
    "MW059": Text("The value {value} stands twice among those to choose from.", "Keep one of them."),
    "MW060": Text("There are {more} more problems.", "Mend these first."),
    "MW062": Text("The file cannot be written: {reason}.", "Choose another path, or make its folder writable."),
    "MW070": Text("Both plans are to be read from the standard input.", "Give a file for one of them."),
    "MW071": Text("The answer cannot be written: {reason}.", "Give the output room, or send it elsewhere."),
    "MW061": Text(
        "{what} cannot be written to a plan: {reason}.",
        "Use texts, finite 64-bit numbers, true, false, null, lists, and mappings with words as keys.",
    ),
}
