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
FILE: dict[str, Text] = {}

# MW1xx: assignments against tensors
ASSIGNMENTS: dict[str, Text] = {}

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
    "MW306": Text(
        "The mesh says which physical dims an axis lies on ('over'), but the plan names no topology.",
        "Add 'topology: v3:4x4' or the like, or remove 'over'.",
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
        "The assignment of {path} needs a tensor that is not here: {reason}.",
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
    "MW405": Text("The program does not compile for {topology}: {reason}", "{remedy}"),
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
        "The plan is for {topology} ({wanted} devices); here there are {here}.",
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
