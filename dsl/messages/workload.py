"""MW3xx: workloads and applying."""

from __future__ import annotations

from .text import Text

WORKLOAD: dict[str, Text] = {
    "MW301": Text(
        "The plan names no model.", "Add 'model: package.module:callable', or pass the step and its arguments."
    ),
    "MW302": Text(
        "The step has an argument called {name}, which the plan language keeps for results and a step's values.",
        "Rename the argument; tensor paths begin with it.",
    ),
    "MW303": Text(
        "The plan still has holes: {holes}.",
        "Give each an assignment, or 'infer' to leave it to the compiler; only a complete plan can be applied.",
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
        "Say it: place(plan, state, name='params'), or pass a dictionary of arguments by name.",
    ),
    "MW310": Text(
        "{state} cannot be placed: {reason}.",
        "Give it the shapes that the step's arguments have, and say which argument it is, place(plan, state, "
        "name='params'), or pass a dictionary of arguments by name.",
    ),
    "MW311": Text(
        "The model '{model}' cannot be imported: {reason}.",
        "Write 'package.module:callable'; the module is looked for in the working directory too.",
    ),
    "MW312": Text("The model '{model}' has no setting '{name}'.", "{suggestion}"),
    "MW313": Text(
        "The model '{model}' fails with these settings: {reason}.",
        "Change 'with:' to what the model takes, or mend the model.",
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
    "MW317": Text(
        "The step has static arguments, which are no tensors: it takes {given} values and traces {traced}.",
        "Bind them first: functools.partial(step, mode='train'), with the static arguments left out of 'args'.",
    ),
    "MW318": Text(
        "Some arguments lie elsewhere than on the plan's devices and mesh: {tensors}.",
        "Put them there first: place(plan, state, step, args); or pass arrays that are on no device yet.",
    ),
    "MW319": Text(
        "The devices given are not {count} different JAX devices.",
        "Give each device once, in the order of its number: jax.devices(), or topology('v3:4x4').devices().",
    ),
    "MW320": Text(
        "The step itself names the mesh {{{region}}}, in a shard_map or a sharding; the plan's is {{{mesh}}}.",
        "Give the plan the step's mesh, or take it out of the step: tag values, and let the plan say how they lie.",
    ),
    "MW321": Text(
        "The step itself names a mesh {{{mesh}}} of other devices than the plan's, or of these in another order.",
        "Give a shard_map the axes alone, mesh=jax.sharding.AbstractMesh({sizes}, {names}); the plan has the devices.",
    ),
    "MW322": Text(
        "The step names a mesh with explicit axes ({axes}): how its values are split is part of their types, which no "
        "plan changes.",
        "Give it axis_types=(jax.sharding.AxisType.Auto,) * {count}; else jax.make_mesh makes its axes explicit.",
    ),
}
