"""The shape of a plan file, as pydantic models: what keys there are, what each may hold, and what to say of it.

They stand at the file boundary only: ``validation.py`` turns their errors into problems, ``reader.py`` their values
into a ``Plan``, ``schema.py`` themselves into the JSON schema that editors use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from . import long_forms
from .errors import FlawError, flaw
from .machine import MACHINE, OVER, TOPOLOGY, scan_machine, scan_over, scan_topology
from .notation import NAME, NOTATION, check_name, scan
from .open_settings import AUTO, check_setting
from .patterns import check_pattern
from .units import BYTES, MAX_BYTES, MIN_PLAIN_BYTES, parse_bytes, plain_bytes

V = TypeVar("V")
W = TypeVar("W")

MAX_SIZE = 2**20  # devices along one axis
MODEL = rf"^{NAME}(\.{NAME})*:{NAME}(\.{NAME})*$"


def checked(parse: Callable[[V], W]) -> AfterValidator:
    """A validator that parses a value and hands on the flaws that ``parse`` raises."""

    def validate(value: V) -> W:
        try:
            return parse(value)
        except FlawError as error:
            raise PydanticCustomError("flaws", "flaws", {"flaws": error.flaws}) from None

    return AfterValidator(validate)


def text_schema(pattern: str, description: str) -> WithJsonSchema:
    """The JSON schema of a text with a syntax of its own."""
    return WithJsonSchema({"type": "string", "pattern": pattern, "description": description})


def kind_of(value: object) -> str:
    """The tag that tells a union's members apart by what YAML they are."""
    if isinstance(value, dict):
        return "mapping"
    if isinstance(value, list):
        return "list"
    if isinstance(value, bool) or value is None:
        return "nothing"
    return "text" if isinstance(value, str) else "number"


def long_form_of(value: object) -> str:
    """The tag of an assignment: its notation's, or the long form's own key."""
    if isinstance(value, dict):
        return next((f"{form} form" for form in ("split", "shard") if form in value), "mapping")
    return kind_of(value)


def _not_empty(text: str) -> str:
    if not text.strip():
        raise flaw("MW022")
    return text


def _version(number: int) -> int:
    if number != 1:
        raise flaw("MW016", got=number)
    return number


def _split_axes(text: str) -> tuple[str, ...]:
    return long_forms.axes(text.split("+"))


Word = Annotated[str, checked(_not_empty), WithJsonSchema({"type": "string", "pattern": r"\S"})]
AxisName = Annotated[str, checked(check_name), WithJsonSchema({"type": "string", "pattern": f"^{NAME}$"})]
PatternText = Annotated[str, checked(check_pattern), WithJsonSchema({"type": "string", "minLength": 1})]
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Count = Annotated[int, Field(ge=0)]
Setting = Annotated[
    Any,
    checked(check_setting),
    WithJsonSchema(
        {
            "description": "A value; or auto, or {auto: [1, 2, 4]}: the search decides.",
            "anyOf": [
                {
                    "type": "object",
                    "properties": {AUTO: {"type": "array", "minItems": 1, "uniqueItems": True}},
                    "required": [AUTO],
                    "additionalProperties": False,
                },
                {"not": {"type": "object", "required": [AUTO], "maxProperties": 1}},
            ],
        }
    ),
]
OverText = Annotated[str, checked(scan_over), text_schema(OVER, "A physical dim, or part of one: y, or x:4.")]


class Form(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class TopologyForm(Form):
    """The long form of a topology."""

    name: Annotated[str, checked(scan_machine), text_schema(MACHINE, "The machine, such as v5e:16x16.")]
    """The machine of one slice, such as v5e:16x16."""
    num_slices: Size = 1
    """How many such slices a data-centre network joins."""


class AxisForm(Form):
    """The long form of a mesh axis."""

    size: Annotated[
        Annotated[Size, Tag("number")] | Annotated[Literal["auto"], Tag("text")], Discriminator(kind_of)
    ] = "auto"
    """How many devices lie along the axis, or auto: the planner decides."""
    over: Annotated[list[OverText], checked(long_forms.over), Field(min_length=1)] | None = None
    """The physical dims of the topology that the axis lies on, major first: [y], or [y, "x:4"] for part of x."""


class SplitDimForm(Form):
    """One dim of a split."""

    dim: int
    """The dim's position, from 0; negative from the end."""
    axis: Annotated[
        Annotated[
            str,
            checked(_split_axes),
            text_schema(rf"^{NAME}(\+{NAME})*$", "An axis, or several joined by +."),
            Tag("text"),
        ]
        | Annotated[list[AxisName], checked(long_forms.axes), Field(min_length=1), Tag("list")],
        Discriminator(kind_of),
    ]
    """The mesh axis that the dim is split over, or several, major first: data+model, or [data, model]."""
    pad: bool = False
    """Whether the dim may be padded up to a multiple of the axes' sizes."""


class SplitForm(Form):
    """GShard's split: dims named by position."""

    split: Annotated[
        Annotated[SplitDimForm, Tag("mapping")]
        | Annotated[list[SplitDimForm], checked(long_forms.splits), Field(min_length=1), Tag("list")],
        Discriminator(kind_of),
    ]
    """The dims to split: {dim: 0, axis: expert}, or a list of such."""


class DevicesForm(Form):
    """The value of shard."""

    device_assignment: Annotated[list[Any], checked(long_forms.device_assignment), Field(min_length=1)]
    """Device numbers in nested lists, as deep as the tensor has dims, one number a partition."""


class ShardForm(Form):
    """GShard's shard: an explicit device assignment (appendix A.3)."""

    shard: DevicesForm
    """An array of device numbers, one a partition."""


class SaveForm(Form):
    """Remat that keeps the named values."""

    save: Annotated[list[Word], checked(long_forms.distinct), Field(min_length=1)]
    """The tagged values to keep for the backward pass."""


class LimitsForm(Form):
    """What a device may use."""

    hbm: (
        Annotated[
            Annotated[
                int,
                checked(plain_bytes),
                WithJsonSchema({"type": "integer", "minimum": MIN_PLAIN_BYTES, "maximum": MAX_BYTES}),
                Tag("number"),
            ]
            | Annotated[
                str, checked(parse_bytes), text_schema(BYTES, "An amount with its unit, such as 15 GiB."), Tag("text")
            ],
            Discriminator(kind_of),
        ]
        | None
    ) = None
    """Memory of one device: 15 GiB, 512 MiB, 16 GB, or plain bytes."""


class ArgumentForm(Form):
    """What a plan remembers of one argument of the step."""

    tensors: Count
    """How many tensors the argument holds."""
    elements: Count
    """How many elements they have together."""
    digest: str
    """A digest of their paths, shapes and dtypes."""


class FingerprintForm(Form):
    """The workload that the plan was made for."""

    arguments: dict[Word, ArgumentForm] = Field(default_factory=dict)
    """One entry for each argument of the step."""
    dims: dict[AxisName, Count] = Field(default_factory=dict)
    """The sizes of the dims that the plan names."""


class AtRunTimeForm(Form):
    """The best settings at one value of a setting that may change at run time."""

    when: dict[Word, Any] = Field(min_length=1)
    """The setting that changes, and its value."""
    settings: dict[Word, Any] = Field(alias="with")
    """The settings that are best then."""
    step_time_s: float = Field(ge=0)
    """Predicted seconds of one step."""
    peak_bytes: Count
    """Predicted peak memory of one device in bytes."""
    without: list[Word] = Field(default_factory=list)
    """The patterns of computed values that the step then does not have."""


def _each_once(table: list[AtRunTimeForm]) -> list[AtRunTimeForm]:
    for number, entry in enumerate(table):
        if any(entry.when == other.when for other in table[:number]):
            raise flaw("MW575", when=", ".join(f"{name}: {amount}" for name, amount in entry.when.items()))
    return table


class ResultForm(Form):
    """What a search found."""

    status: Word
    """How the search ended: optimal, feasible, ..."""
    step_time_s: float | None = Field(default=None, ge=0)
    """Predicted seconds of one step."""
    bound_s: float | None = Field(default=None, ge=0)
    """No plan can take fewer seconds: the proven bound."""
    gap: float | None = Field(default=None, ge=0)
    """How far from the bound the plan can be at most, as a fraction of its step time."""
    peak_bytes: dict[Word, Count] = Field(default_factory=dict)
    """Predicted peak memory of one device in bytes, by kind."""
    seed: int | None = None
    """The solver's seed."""
    versions: dict[Word, str] = Field(default_factory=dict)
    """The software that the plan was made with."""
    pins: list[Word] = Field(default_factory=list)
    """The patterns that the user had assigned; search did not move them."""
    fingerprint: FingerprintForm | None = None
    """The workload that the plan was made for; applying it to another is an error."""
    at_run_time: Annotated[list[AtRunTimeForm], checked(_each_once)] = Field(default_factory=list)
    """The best of the settings that may change between steps, by what changes; the tensors lie as the plan says."""


AssignmentForm = Annotated[
    Annotated[
        str,
        checked(scan),
        text_schema(NOTATION, "One word a dim, @axis where it is split; or replicate, auto, infer, like PATH."),
        Tag("text"),
    ]
    | Annotated[SplitForm, Tag("split form")]
    | Annotated[ShardForm, Tag("shard form")],
    Discriminator(long_form_of),
]

MeshForm = Annotated[
    Annotated[Literal["auto"], Tag("text")]
    | Annotated[
        dict[
            AxisName,
            Annotated[
                Annotated[Size, Tag("number")]
                | Annotated[Literal["auto"], Tag("text")]
                | Annotated[AxisForm, Tag("mapping")],
                Discriminator(kind_of),
            ],
        ],
        Field(min_length=1),
        Tag("mapping"),
    ],
    Discriminator(kind_of),
]

RematForm = Annotated[
    Annotated[Literal["none", "full", "dots", "auto"], Tag("text")] | Annotated[SaveForm, Tag("mapping")],
    Discriminator(kind_of),
]


class Document(Form):
    """A Meshwright plan: how a JAX step is laid out over a pod."""

    meshwright: Annotated[int, checked(_version), WithJsonSchema({"const": 1, "type": "integer"})]
    """The version of the plan language: 1."""
    name: Word | None = None
    """A name for people."""
    model: (
        Annotated[
            str, checked(lambda text: long_forms.model(text, MODEL)), text_schema(MODEL, "package.module:callable")
        ]
        | None
    ) = None
    """What makes the step and its abstract arguments: package.module:callable."""
    settings: dict[Word, Setting] = Field(default_factory=dict, alias="with")
    """The model's keyword arguments; auto, or {auto: [1, 2, 4]}, leaves one to the search."""
    topology: (
        Annotated[
            Annotated[
                str,
                checked(scan_topology),
                text_schema(TOPOLOGY, "A machine: v3:32x32, h100:8x2, cpu:8, or 4*v5e:16x16 for four slices."),
                Tag("text"),
            ]
            | Annotated[TopologyForm, Tag("mapping")],
            Discriminator(kind_of),
        ]
        | None
    ) = None
    """The physical machine: v3:32x32, h100:8x2, cpu:8, or 4*v5e:16x16 for four slices."""
    mesh: MeshForm = "auto"
    """The logical axes laid over the machine, major first, or auto: the planner decides."""
    tensors: dict[PatternText, AssignmentForm] | None = None
    """Patterns of tensor paths and their assignments; the first pattern that matches wins."""
    remat: RematForm | None = None
    """Rematerialisation of the model's blocks: none, full, dots, auto, or {save: [names]}."""
    limits: LimitsForm | None = None
    """What a device may use."""
    result: ResultForm | None = None
    """What the search that wrote the plan found."""


FORMS: dict[tuple[str, ...], tuple[type[Form], ...]] = {
    (): (Document,),
    ("topology",): (TopologyForm,),
    ("mesh", "*"): (AxisForm,),
    ("tensors", "*"): (SplitForm, ShardForm),
    ("tensors", "*", "split"): (SplitDimForm,),
    ("tensors", "*", "split", "*"): (SplitDimForm,),
    ("tensors", "*", "shard"): (DevicesForm,),
    ("remat",): (SaveForm,),
    ("limits",): (LimitsForm,),
    ("result",): (ResultForm,),
    ("result", "at_run_time", "*"): (AtRunTimeForm,),
    ("result", "fingerprint"): (FingerprintForm,),
    ("result", "fingerprint", "arguments", "*"): (ArgumentForm,),
}
"""Where each form stands; ``*`` is a key that the user chooses, or a position."""


def legal_keys(path: tuple[str | int, ...]) -> list[str]:
    """The keys that a mapping at ``path`` may have."""
    for shape, forms in FORMS.items():
        if len(shape) == len(path) and all(a in ("*", b) for a, b in zip(shape, path, strict=True)):
            return [field.alias or name for form in forms for name, field in form.model_fields.items()]
    return []
