"""Compiled programs read as data: instructions, shapes, sources, loops."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from meshwright.backends.jax.program.hlo import Program, Shape, parse
from meshwright.backends.jax.program.hlo_flops import matrix_flops
from meshwright.backends.jax.program.hlo_loops import Runs, trip_count
from meshwright.backends.jax.program.hlo_source import SourceTable, read_source_table

PROGRAM = """HloModule jit_step, is_scheduled=true, num_partitions=8

FileNames
1 "/home/me/model.py"
2 "/usr/lib/site-packages/jax/_src/lax.py"

FunctionNames
1 "loss"

FileLocations
1 {file_name_id=1 function_name_id=1 line=32 end_line=32 column=8 end_column=8}
2 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=8 end_column=8}
3 {file_name_id=2 function_name_id=1 line=9 end_line=9 column=8 end_column=8}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}


%fused (p.0: f32[8]) -> f32[8] {
  %p.0 = f32[8]{0:T(256)} parameter(0)
  ROOT %n = f32[8]{0:T(256)} negate(%p.0), backend_config={"window_config":{"estimated_cycles":"1000"}}
}

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[]{:T(256)}, f32[8]{0:T(8,128)S(1)}) parameter(0)
  %i = s32[]{:T(256)} get-tuple-element(%s), index=0
  %one = s32[]{:T(256)} constant(STEP)
  %next = s32[]{:T(256)} add(%i, %one)
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="jit(step)/while/body/neg" stack_frame_id=3}, \
backend_config={"window_config":{"estimated_cycles":"70"}}
  %z = f32[8]{0} fusion(%y), kind=kLoop, calls=%fused
  ROOT %t = (s32[]{:T(256)}, f32[8]{0}) tuple(%next, /*index=1*/%z)
}

%condition (s.1: (s32[], f32[8])) -> pred[] {
  %s.1 = (s32[]{:T(256)}, f32[8]{0}) parameter(0)
  %i.1 = s32[]{:T(256)} get-tuple-element(%s.1), index=0
  %n.1 = s32[]{:T(256)} constant(BOUND)
  ROOT %lt = pred[]{:T(1024)} compare(%i.1, %n.1), direction=DIRECTION
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %zero = s32[]{:T(256)} constant(START)
  %c = s32[]{:T(256)} copy(%zero)
  %state = (s32[]{:T(256)}, f32[8]{0}) tuple(%c, %a)
  %loop = (s32[]{:T(256)}, f32[8]{0}) while(%state), condition=%condition, body=%body
  ROOT %out = f32[8]{0} get-tuple-element(%loop), index=1
}
"""


def program(start: int = 0, step: int = 1, bound: int = 6, direction: str = "LT") -> Program:
    text = PROGRAM.replace("START", str(start)).replace("STEP", str(step))
    return parse(text.replace("BOUND", str(bound)).replace("DIRECTION", direction))


def test_instructions_are_read_with_names_shapes_and_operands() -> None:
    read = program()
    body = read.computations["body"].instructions
    assert (read.name, read.entry, read.num_partitions) == ("jit_step", "main", 8)
    assert body["t"].is_root
    assert body["t"].operands == ("next", "z")
    assert body["s"].shapes == (Shape(dtype="s32", dims=()), Shape(dtype="f32", dims=(8,)))
    assert body["s"].num_bytes == 36
    assert body["y"].called == {"calls": ("fused",)}
    assert body["y"].estimated_cycles == 70
    assert body["y"].op_name == "jit(step)/while/body/neg"
    assert read.operand_bytes("body", body["y"]) == 32


@pytest.mark.parametrize(
    ("dtype", "num_bytes"),
    [("f32", 48), ("bf16", 24), ("pred", 12), ("f8e4m3fn", 12), ("s4", 6), ("c64", 96), ("c128", 192), ("token", 0)],
)
def test_bytes_follow_the_dtype(dtype: str, num_bytes: int) -> None:
    assert Shape(dtype=dtype, dims=(3, 4)).num_bytes == num_bytes


@pytest.mark.parametrize(
    ("said", "turns"),
    [
        ({}, 6),
        ({"bound": 0}, 0),
        ({"start": 2}, 4),
        ({"step": 4}, 2),
        ({"direction": "LE"}, 7),
        ({"start": 9, "step": -3, "bound": 0, "direction": "GT"}, 3),
        ({"start": 9, "step": -3, "bound": 0, "direction": "GE"}, 4),
        ({"direction": "NE"}, None),
    ],
)
def test_turns_follow_from_start_step_and_bound(said: dict[str, int], turns: int | None) -> None:
    read = program(**said)
    main = read.computations["main"]
    assert trip_count(read, main, main.instructions["loop"]) == turns


def test_a_loop_weighs_by_its_turns_and_a_fusion_by_its_own_cycles() -> None:
    runs = Runs(program=program(bound=5))
    assert runs.times == {"main": 1, "body": 5, "fused": 10}
    assert runs.estimated_cycles == 5 * (70 + 1000)


def test_a_bound_carried_in_the_loop_state_is_found() -> None:
    text = PROGRAM.replace("START", "0").replace("STEP", "1").replace("DIRECTION", "LT")
    text = text.replace("constant(BOUND)", "get-tuple-element(%s.1), index=2")
    text = text.replace("tuple(%c, %a)", "tuple(%c, %a, %bound)")
    text = text.replace("  %c = ", "  %bound = s32[] constant(11)\n  %c = ")
    read = parse(text)
    assert Runs(program=read).times["body"] == 11


def test_of_a_conditional_the_longest_branch_counts() -> None:
    text = PROGRAM.replace("START", "0").replace("STEP", "1").replace("BOUND", "2").replace("DIRECTION", "LT")
    text = text.replace(
        "  ROOT %out",
        "  %w = f32[8]{0} conditional(%zero, %a, %a), branch_computations={%fused, %other}\n  ROOT %out",
    )
    text = text.replace(
        "%body (s",
        '%other (p.9: f32[8]) -> f32[8] {\n  ROOT %p.9 = f32[8] parameter(0), metadata={op_name="x"}\n}\n\n%body (s',
    )
    assert Runs(program=parse(text)).estimated_cycles == 2 * 1070 + 1000


def test_the_source_is_the_users_line_nearest_to_the_operation() -> None:
    read = program()
    attributes = read.computations["body"].instructions["y"].attributes
    assert [str(place) for place in read.sources.stack(attributes)] == [
        "/usr/lib/site-packages/jax/_src/lax.py:9",
        "/home/me/model.py:7",
        "/home/me/model.py:32",
    ]
    assert str(read.sources.user_line(attributes)) == "/home/me/model.py:7"


def test_older_texts_have_the_source_in_the_metadata() -> None:
    found = SourceTable().user_line('metadata={op_name="jit(f)/dot" source_file="/me/a.py" source_line=3}')
    assert str(found) == "/me/a.py:3"


def test_models_of_meshwright_are_models_its_machinery_is_not() -> None:
    root = Path(__file__).parents[1] / "backends" / "jax"
    files = [root / "models" / "moe" / "layer.py", root / "apply.py"]
    lines = ["FileNames", *(f'{i} "{file}"' for i, file in enumerate(files, 1)), "", "FileLocations"]
    lines += [f"{i} {{file_name_id={i} line={i}}}" for i in (1, 2)]
    lines += ["", "StackFrames", "1 {file_location_id=1}", "2 {file_location_id=2 parent_frame_id=1}"]
    assert str(read_source_table(lines).user_line("stack_frame_id=2")) == f"{files[0]}:1"


def test_a_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="ENTRY"):
        parse("HloModule nothing")


def test_matrix_flops_of_the_local_compiler_count_turns() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda y, _: (y @ x, None), x, None, length=7)[0]

    compiled = jax.jit(step).lower(jax.ShapeDtypeStruct((64, 64), jnp.float32)).compile()
    assert matrix_flops(Runs(program=parse(compiled.as_text()))) == 7 * 2 * 64**3


@pytest.mark.parametrize(
    ("line", "flops"),
    [
        ("f32[4,16] convolution(%a, %b), dim_labels=bf_io->bf", 2 * 4 * 8 * 16),
        (
            "f32[1,5,5,2] convolution(%c, %d), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
            2 * 2 * 3 * 13**2,
        ),
        (  # three products in a batch, as the TPU compiler writes them
            "f32[3,4,2] convolution(%e, %f), window={size=3 stride=2 pad=0_0 lhs_dilate=3}, dim_labels=0bf_0io->0bf",
            3 * 2 * 4 * 5 * 2,
        ),
    ],
)
def test_convolutions_count_the_pairs_that_meet(line: str, flops: int) -> None:
    shapes = {"a": "4,8", "b": "8,16", "c": "1,5,5,3", "d": "3,3,3,2", "e": "3,4,5", "f": "3,5,2"}
    rows = [f"  %{name} = f32[{dims}] parameter(0)" for name, dims in shapes.items()]
    text = "\n".join(["HloModule m", "ENTRY %main (a: f32[]) -> f32[] {", *rows, f"  ROOT %r = {line}", "}"])
    assert matrix_flops(Runs(program=parse(text))) == flops


def test_a_large_text_is_read_in_linear_time() -> None:
    computation = PROGRAM[PROGRAM.index("%body") : PROGRAM.index("%condition")]
    head, entry = PROGRAM.split("%body (s", 1)[0], PROGRAM[PROGRAM.index("ENTRY") :]
    text = head + "".join(computation.replace("%body", f"%body{i}") for i in range(10_000)) + entry
    begin = time.process_time()
    assert len(parse(text).computations) == 10_002
    assert time.process_time() - begin < 5


def test_the_largest_number_there_is_is_no_estimate() -> None:
    """Of a fused softmax compiled for v5p: cycles that overflowed."""
    text = PROGRAM.replace('"estimated_cycles":"70"', f'"estimated_cycles":"{2**63 - 1}"')
    assert parse(text).computations["body"].instructions["y"].estimated_cycles is None
