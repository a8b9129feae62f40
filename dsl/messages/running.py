"""MW5xx: running and data."""

from __future__ import annotations

from .text import Text

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
        "A step to run takes (*state, batch) and returns (*state, metrics), the state in the shapes that it came in, "
        "the metrics a mapping with 'loss' in it.",
    ),
    "MW510": Text(
        "What '{part}' gives is not what the step was planned for: {differences}.",
        "Let it give pytrees of the structure, shapes and types of the step's abstract arguments.",
    ),
    "MW511": Text("The metrics cannot be written to {path}: {reason}.", "Give --metrics a file that can be written."),
    "MW512": Text("{option} is {value}.", "Give a whole number from {least} to {most}."),
    "MW513": Text(
        "'batches' ended after {given} {split} batches; {wanted} are needed.",
        "Let it go on without end (itertools.cycle repeats a finite set).",
    ),
    "MW514": Text(
        "What 'evaluate' of {model} returns has no 'loss'.", "Return a mapping of metrics with 'loss' in it."
    ),
    "MW515": Text(
        "'{part}' of {model} fails: {reason}.",
        "It is called as init(seed), batches(seed, split) or evaluate(*state, batch); mend it in the model's module.",
    ),
    "MW516": Text(
        "No state of a run is kept in {folder}: {reason}.",
        "Keep one first: meshwright run PLAN --save {folder}",
    ),
    "MW517": Text(
        "What is kept in {folder} cannot be read: {reason}.",
        "Delete that folder and run again, or give the folder of another run.",
    ),
    "MW518": Text(
        "What is kept in {folder} is of another model than the plan's: {differences}.",
        "Give the plan that it was kept under ({plan}), or one with the same model and settings.",
    ),
    "MW519": Text(
        "{folder} keeps a run already, after step {step}.",
        "Go on with it (--resume {folder}), give --save another folder, or delete that one.",
    ),
    "MW520": Text("The run's state cannot be kept in {folder}: {reason}.", "Give --save a folder that can be written."),
    "MW521": Text(
        "What is kept in {folder} was learnt with another {side} vocabulary than the one here ({kept}, not {here}).",
        "Use the versions of pycountry and sentencepiece that it was learnt with ({versions}), or run again.",
    ),
    "MW522": Text(
        "The model {model} can be trained but not translate with.",
        "Return mw.Workload(..., translation=lambda: Translation(...)); meshwright.backends.jax.models:gshard does.",
    ),
    "MW523": Text(
        "Longer than a row of {length} tokens: line {lines}.",
        "Shorten or split these lines, or train with more 'length' under 'with:'.",
    ),
    "MW524": Text("{option} is {value}.", "Give a number from {least} to {most}."),
    "MW525": Text("{option} is of no use without {needed}.", "Give {needed} too, or leave {option} out."),
    "MW526": Text("The scores in {path} cannot be read: {reason}.", "Give what another run wrote with --metrics."),
    "MW527": Text(
        "Keeping a run's state needs the package orbax-checkpoint: {reason}.",
        "Install it with: pip install 'meshwright[data]'",
    ),
    "MW528": Text(
        "'{text}' does not say which process this is.",
        "Write I/N@HOST:PORT, the I-th of N processes (from 0) and where process 0 listens: 0/2@10.0.0.1:1234; "
        "or 'auto' where JAX can find it out (TPU pods, SLURM, Open MPI, Kubernetes).",
    ),
    "MW529": Text(
        "{devices} simulated devices do not divide over {processes} processes.",
        "Start as many processes as divide the plan's devices, each with --process I/N@HOST:PORT.",
    ),
    "MW530": Text(
        "The processes do not find each other: {reason}.",
        "Start every one of them, with the same N and the address of process 0, which all hosts must reach.",
    ),
}
