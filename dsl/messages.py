"""Every text that Meshwright says of something wrong, by its stable code.

``message`` says what is wrong, with the numbers; ``remedy`` says what to do now. Codes are never used again for
something else. MW0xx: the file. MW1xx: assignments against tensors. MW2xx: mesh, topology and device order.
MW3xx: workloads and applying. MW4xx: compiling and verifying. MW5xx: running and data. MW6xx: models.
"""

from __future__ import annotations

from typing import NamedTuple


class Text(NamedTuple):
    """A message and its remedy, with ``{names}`` for the numbers."""

    message: str
    remedy: str = ""


# MW0xx: the file
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
    "MW026": Text("'{text}' is {amount} bytes, which is no whole number.", "Round it, or use a smaller unit."),
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
    "MW060": Text("There are {more} more problems.", "Mend these first."),
    "MW062": Text("The file cannot be written: {reason}.", "Choose another path, or make its folder writable."),
    "MW070": Text("Both plans are to be read from the standard input.", "Give a file for one of them."),
    "MW061": Text(
        "{what} cannot be written to a plan: {reason}.",
        "Use texts, finite 64-bit numbers, true, false, null, lists, and mappings with words as keys.",
    ),
}

# MW1xx: assignments against tensors
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
        "Write one word a dim, or '...' for dims that are left alone.",
    ),
    "MW105": Text(
        "Dim {dim} of {tensor} has size {size}, which {parts} ({axes}) does not divide: remainder {remainder}.",
        "Size {size} divides over {choices}. Or make the size {nearest}, or say that it may be padded: '{padded}'.",
    ),
    "MW106": Text("The mesh has no axis '{axis}'.", "{suggestion}"),
    "MW108": Text(
        "The dim '{dim}' has size {size} in {tensor} and size {other_size} in {other}.",
        "One name is one dim: rename one of them, or use '...' or 'split: {{dim: 0, axis: ...}}', which name no dims.",
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

# MW2xx: mesh, topology and device order
MACHINE: dict[str, Text] = {
    "MW202": Text("No chip is called '{kind}'.", "{choices}"),
    "MW203": Text(
        "Topology {topology} has {dims} dims; this kind has {wanted} ({names}).", "Nearest legal choices: {choices}."
    ),
    "MW204": Text("There is no {topology}: {rule}.", "Nearest legal choices: {choices}."),
    "MW205": Text(
        "Topology {topology} asks for several slices; a machine of {kind} is one.", "Write {one}; slices are for TPUs."
    ),
    "MW206": Text(
        "Topology {topology} has {devices} devices; a plan lays out at most {most}.",
        "Take fewer chips or fewer slices.",
    ),
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

# MW3xx: workloads and applying
WORKLOAD: dict[str, Text] = {
    "MW301": Text(
        "The plan names no model.", "Add 'model: package.module:callable', or pass the step and its arguments."
    ),
    "MW302": Text(
        "The step has an argument called {name}, which the plan language keeps for results and tagged values.",
        "Rename the argument; tensor paths begin with it.",
    ),
    "MW303": Text(
        "The plan still has holes: {holes}.",
        "Give each an assignment, or 'infer' to leave it to the compiler's propagation; applying needs a complete plan.",
    ),
    "MW304": Text(
        "The plan says 'remat: {policy}', but the step marks no block that could be rematerialised.",
        "Wrap the model's blocks in meshwright.remat, or remove 'remat' from the plan.",
    ),
    "MW305": Text(
        "The mesh ({mesh}) has {mesh_devices} devices, but {devices} are given.",
        "Change the mesh, or give as many devices as it has.",
    ),
    "MW307": Text(
        "The plan was made for another workload: {changed}.",
        "Plan again for this workload, or remove the plan's 'result' block to use its assignments as they are.",
    ),
    "MW308": Text(
        "The step was applied to other arguments than it is called with: {changed}.",
        "Call it with arguments of the shapes and dtypes that it was applied to, or apply the plan to the new ones.",
    ),
    "MW309": Text(
        "It cannot be told which argument of the step this state is: {candidates} fit it differently.",
        "Say it: place(plan, state, name='params'), or pass the step and its arguments.",
    ),
    "MW310": Text(
        "{state} cannot be placed: {reason}.",
        "Pass the step and its arguments too: place(plan, state, step, args).",
    ),
    "MW311": Text(
        "The model '{model}' cannot be imported: {reason}.",
        "Write 'package.module:callable'; the module is looked for in the working directory too.",
    ),
    "MW312": Text("The model '{model}' has no setting '{name}'.", "{suggestion}"),
    "MW313": Text(
        "The model '{model}' fails with these settings: {reason}.", "Change 'with:' to what the model takes."
    ),
    "MW314": Text(
        "The model '{model}' returns {got}, not a step function and its abstract arguments.",
        "Return (step, args), or meshwright.Workload(step, args, init=..., batches=...).",
    ),
    "MW315": Text("Tracing the step fails: {reason}.", "The step must be a JAX function of the pytrees it is given."),
    "MW316": Text(
        "'{path}' is inside a manual region over {manual}, and its assignment splits it over {axes}.",
        "Leave the manual region's own axes out of the assignment of values inside it.",
    ),
}

# MW4xx: compiling and verifying
COMPILING: dict[str, Text] = {
    "MW401": Text(
        "Topology {topology} needs {devices} CPU devices; JAX has {here} here.",
        "Set XLA_FLAGS=--xla_force_host_platform_device_count={devices} before JAX starts.",
    ),
    "MW402": Text(
        "Topology {topology} needs {devices} GPUs; JAX has {here} here, and only a GPU's machine compiles for it.",
        "Run this on that machine, or take a TPU topology, which is compiled ahead of time, or cpu:{devices}.",
    ),
    "MW403": Text(
        "Topology {topology} needs the TPU compiler (libtpu), which is not installed.",
        'pip install "meshwright[tpu]" (no TPU is needed to compile for one).',
    ),
    "MW404": Text("The TPU compiler refuses the topology {topology}: {reason}", "Take another size of the machine."),
    "MW405": Text(
        "The program does not compile for {topology}: {reason}",
        "Another layout of the tensors named there, or another topology, may compile.",
    ),
}

# MW5xx: running and data
RUNNING: dict[str, Text] = {
    "MW501": Text(
        "Training on real text needs the package {package}: {reason}.",
        "Install it with: pip install 'meshwright[data]'",
    ),
    "MW502": Text(
        "A {side} vocabulary of {pieces} pieces holds too little of any language.",
        "Ask for {fewest} or more ({side}_vocab under 'with:').",
    ),
    "MW503": Text(
        "The vocabulary cannot be kept in {folder}: {reason}.",
        "Set MESHWRIGHT_CACHE to a folder that can be written.",
    ),
    "MW504": Text("The vocabulary in {path} cannot be read: {reason}.", "Delete that file; it is built anew."),
    "MW505": Text(
        "None of {pairs} pairs fits a row of {length} tokens.",
        "Give rows more length ('length' under 'with:'), or ask for larger vocabularies, whose pieces are longer.",
    ),
    "MW506": Text("There is no split '{split}'.", "Legal here: train, held-out."),
    "MW507": Text(
        "The plan is for {topology} ({wanted} devices); JAX finds {here} here.",
        "Run it on that machine, write a plan for this one ('topology: cpu:8' simulates 8 devices), "
        "or ask the compiler without the machine: meshwright verify PLAN",
    ),
    "MW508": Text(
        "The model {model} can be planned and verified but not run: it does not say {missing}.",
        "Return mw.Workload(step, args, init=lambda seed: (params, opt), batches=lambda seed, split: iterator), where "
        "'init' gives one pytree for each argument but the last, and 'batches' NumPy pytrees for the last.",
    ),
    "MW509": Text(
        "The step of {model} cannot be repeated: {reason}.",
        "A step to run takes (*state, batch) and returns (*state, metrics), the state in the shapes that it came in and "
        "the metrics a mapping with 'loss' in it.",
    ),
    "MW510": Text(
        "What '{part}' gives is not what the step was planned for: {differences}.",
        "Let it give pytrees of the structure, shapes and types of the step's abstract arguments.",
    ),
    "MW511": Text("The metrics cannot be written to {path}: {reason}.", "Give --metrics a file that can be written."),
    "MW512": Text("{option} is {value}.", "Give a whole number of at least {least}."),
    "MW513": Text(
        "'batches' ended after {given} {split} batches; {wanted} are needed.",
        "Let it go on without end (itertools.cycle repeats a finite set).",
    ),
    "MW514": Text(
        "What 'evaluate' of {model} returns has no 'loss'.", "Return a mapping of metrics with 'loss' in it."
    ),
}

# MW6xx: models
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

MESSAGES: dict[str, Text] = {**FILE, **ASSIGNMENTS, **MACHINE, **WORKLOAD, **COMPILING, **RUNNING, **MODELS}
