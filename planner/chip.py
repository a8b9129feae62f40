"""What a catalogue says of one kind of chip: the shape of an entry of ``chips.yaml``, whose head explains it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MIB = 2**20

Count = Annotated[int, Field(ge=1, le=2**20)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Delay = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]
Precision = Literal["default", "high", "highest"]
NAMES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16", "s8": "int8", "u8": "int8"}
"""The compiler's names of dtypes, and the catalogue's."""
FLOATS, INTEGERS = ("float4", "float8", "float16", "float32", "float64"), ("int4", "int8", "int16", "int32")


NODE = "node"
"""The dim along which the data-centre network joins devices."""


def _dtype(name: str) -> str:
    if name.partition("_")[0] not in ("bfloat16", "tfloat32", *FLOATS, *INTEGERS):
        raise PydanticCustomError("dtype", "a dtype is bfloat16, tfloat32, float4 to float64 or int4 to int32")
    return name


Dtype = Annotated[str, AfterValidator(_dtype)]


class Entry(BaseModel):
    """A mapping whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Hbm(Entry):
    """Memory of one device, in MiB: what is soldered on, and what the compiler gives a program."""

    physical: Count
    usable: Count | None = None


class MatrixUnit(Entry):
    """The matrix units of one device: ``count`` squares of ``edge`` times ``edge`` multiply-adds."""

    edge: Count
    count: Count


class FetchedIn(Entry):
    """The pieces in which arrays are fetched into vector memory: of ``piece_mib`` each, or ``most`` of those along the
    first dim, of an array of ``least_mib``.
    """

    piece_mib: Count | None = None
    most: Count = 1
    least_mib: Count = 1

    def pieces(self, shape: Sequence[int], num_bytes: int) -> int:
        """How many pieces an array is fetched in."""
        if self.piece_mib is not None:
            piece_bytes = self.piece_mib * MIB
            return -(-num_bytes // piece_bytes) if num_bytes >= 2 * piece_bytes else 1
        return min(self.most, *shape[:1]) if num_bytes >= self.least_mib * MIB and shape else 1


class WholeProduct(Entry):
    """A product of what lies in vector memory is one window up to so many ``rows`` that squares of weights take, and
    below this result in float32; if it is ``rounded`` or added up as it is made, too.
    """

    rows: Count
    result_mib: Count
    rounded: bool

    @property
    def result_bytes(self) -> int:
        """Bytes of the result."""
        return self.result_mib * MIB


class Tile(Entry):
    """What the two minor dims of an array are padded to: lanes, and sublanes by the bits of the dtype."""

    lanes: Count
    sublanes: dict[Annotated[int, Field(strict=False)], Count]


class Passes(Entry):
    """How many passes of the matrix unit a product takes, by JAX's precision."""

    default: Count = 1
    high: Count
    highest: Count

    def of(self, precision: Precision) -> int:
        """The passes at one precision."""
        return {"default": self.default, "high": self.high, "highest": self.highest}[precision]


class Wraps(Entry):
    """Which torus dims join their ends, by one rule of three."""

    at_least: Count | None = None
    each: Count | None = None
    all_multiples_of: Count | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if sum(rule is not None for rule in (self.at_least, self.each, self.all_multiples_of)) > 1:
            raise PydanticCustomError("one_rule", "at_least, each and all_multiples_of exclude each other")
        return self

    def of(self, sizes: tuple[int, ...]) -> tuple[bool, ...]:
        """Whether each dim of a machine of these sizes joins its ends. Two positions are neighbours anyway."""
        if self.all_multiples_of:
            whole = all(size % self.all_multiples_of == 0 for size in sizes)
            return tuple(whole and size > 2 for size in sizes)
        least = self.each or self.at_least or 0
        return tuple(bool(least) and size >= max(3, least) and self.each in (None, size) for size in sizes)


class Ici(Entry):
    """The links of a torus: one link's bandwidth one way, the share of it that is had, a hop's latency."""

    link_gb_per_s: Amount
    efficiency: Share = 1.0
    hop_us: Delay
    wraps: Wraps = Wraps()


class Switch(Entry):
    """Devices that all reach each other at the same rate: one device's bandwidth one way, a step's latency."""

    device_gb_per_s: Amount
    efficiency: Share = 1.0
    hop_us: Delay


class Uplink(Entry):
    """The data-centre network between slices or nodes: a chip's share of its host's bandwidth, one way."""

    chip_gb_per_s: Amount
    efficiency: Share = 1.0
    latency_us: Delay
    message_us: Delay = 0.0


class Algorithm(Entry):
    """A way to run a collective over a switch: NCCL's form, latency + bytes / bandwidth (its ``tuning.cc``)."""

    name: Literal["ring", "tree", "nvls", "plain"]
    protocol: str
    base_us: Delay
    hop_us: Delay
    net_us: Delay
    bandwidth: Amount

    @property
    def rings(self) -> bool:
        """Whether all collectives can run so, gathers and all-to-alls too."""
        return self.name in ("ring", "plain")


class Measured(Entry):
    """What programs were measured to reach on one chip, as shares of what is published of it, and what starting takes.

    ``matrix`` by dtype; ``turned`` where both operands of a product lie with what they share outermost, as those of a
    weight's gradient do, if it is less; ``vector`` of the FLOP/s in float32, at one a number and operation.
    """

    matrix: dict[Dtype, Share]
    turned: dict[Dtype, Share] = Field(default_factory=dict)
    memory: Share
    vector: Share
    start_us: Delay
    product_start_us: Delay

    def share(self, dtype: str, *, is_turned: bool) -> Share:
        """The share of the peak of a dtype's products; bfloat16's of a dtype that was not measured."""
        shares = self.matrix | self.turned if is_turned else self.matrix
        return shares.get(dtype, self.matrix["bfloat16"])


class Chip(Entry):
    """One kind of chip: what ``chips.yaml`` says of it; that file's head explains the fields."""

    aliases: tuple[str, ...] = Field(default=(), strict=False)
    platform: Literal["tpu", "gpu", "cpu"]
    jax_kind: str
    dims: tuple[str, ...] = Field(min_length=1, max_length=3, strict=False)
    order: tuple[str, ...] = Field(default=(), strict=False)
    optional_dims: Annotated[int, Field(ge=0, le=2)] = 0
    cores: Count = 1
    host: tuple[Count, ...] = Field(default=(), strict=False)
    largest: tuple[Count, ...] = Field(default=(), strict=False)
    largest_chips: Count | None = None
    hbm_mib: Hbm | None = None
    clock_mhz: Count | None = None
    offloads_collectives: bool = False
    offloads_gathers: bool = False
    peak_tflops: dict[Dtype, Amount] = Field(default_factory=dict)
    passes: dict[Dtype, Passes] = Field(default_factory=dict)
    hbm_gb_per_s: Amount | None = None
    matrix_unit: MatrixUnit | None = None
    tile: Tile | None = None
    vmem_mib: Count | None = None
    buffer_vmem_mib: Count | None = None
    buffer_vmem_most_mib: Count | None = None
    longest_stay_us: Amount | None = None
    whole_image_loops: bool = False
    put_in_turn_window: int = 0
    product_code_kib: Count = 350
    wide_product_code: Annotated[float, Field(ge=1, le=10)] = 1.0
    whole_product: WholeProduct | None = None
    gathers_into_vmem: bool = True
    gathers_beside_products: bool = False
    repeats_scores: Literal["none", "wide", "all"] = "wide"
    pipelines_attention: bool = False
    products_into_vmem: bool = True
    fetched_in: FetchedIn | None = None
    ici: Ici | None = None
    core_link: Switch | None = None
    switch: Switch | None = None
    uplink: Uplink | None = None
    algorithms: tuple[Algorithm, ...] = Field(default=(), strict=False)
    measured: Measured | None = None
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        for said in (self.host, self.largest):
            if said and len(said) != len(self.dims):
                raise PydanticCustomError("one_a_dim", "host and largest have one entry a dim")
        if self.order and sorted(self.order) != sorted(self.dims):
            raise PydanticCustomError("same_dims", "order names the same dims as dims")
        if len(set(self.dims) | {"core", "slice"}) != len(self.dims) + 2:
            raise PydanticCustomError("unlike_dims", "dims have unlike names, and none is 'core' or 'slice'")
        if (self.ici is None) == (self.switch is None):
            both = "not in both" if self.ici else "and one of them says at what rate its devices reach each other"
            raise PydanticCustomError("one_fabric", f"a chip stands in a torus (ici) or on a switch, {both}")
        if NODE in self.dims and self.uplink is None:
            raise PydanticCustomError("uplink", "where there are nodes, uplink says at what rate they reach each other")
        if self.algorithms and not any(algorithm.rings for algorithm in self.algorithms):
            raise PydanticCustomError("ring", "one of the algorithms is a ring or plain: gathers know no other")
        return self

    @property
    def hbm_bytes(self) -> int | None:
        """Bytes of a device's memory that a program may use; None for a CPU, whose memory is the host's."""
        return (self.hbm_mib.usable or self.hbm_mib.physical) * MIB if self.hbm_mib else None

    @property
    def hbm_physical_bytes(self) -> int | None:
        """Bytes of a device's memory."""
        return self.hbm_mib.physical * MIB if self.hbm_mib else None

    @property
    def hbm_bytes_per_s(self) -> float | None:
        """Bandwidth of a device's memory."""
        return self.hbm_gb_per_s * 1e9 / self.cores if self.hbm_gb_per_s else None

    @property
    def clock_hz(self) -> float | None:
        """Clock of the compiler's cycles, in Hz; None where it is not known."""
        return self.clock_mhz * 1e6 if self.clock_mhz else None

    @property
    def vmem_bytes(self) -> int | None:
        """Bytes of a device's vector memory."""
        return self.vmem_mib * MIB if self.vmem_mib else None

    @property
    def buffer_vmem_bytes(self) -> int:
        """Bytes of a device's fast memory that the compiler fills with temporaries, on average."""
        return (self.buffer_vmem_mib or 0) * MIB

    @property
    def buffer_vmem_most_bytes(self) -> int:
        """Bytes of it that are filled at most."""
        return (self.buffer_vmem_most_mib or self.buffer_vmem_mib or 0) * MIB

    @property
    def slices(self) -> bool:
        """Whether several of its machines may be joined by the data-centre network (``4*v5e:16x16``)."""
        return self.platform == "tpu" and self.uplink is not None

    def peak_flops_per_s(self, dtype: str, precision: Precision = "default") -> float | None:
        """FLOP/s of a device's matrix units on this dtype, by either name; None where the catalogue has none.

        A dtype that the units multiply in several bfloat16 passes has that share of bfloat16's rate. float32 is
        multiplied as tfloat32 where the units do that, unless its highest precision is asked for
        (``jax.lax.Precision``).
        """
        dtype = NAMES.get(dtype, dtype)
        if dtype in self.passes and "bfloat16" in self.peak_tflops:
            return self.peak_tflops["bfloat16"] * 1e12 / self.cores / self.passes[dtype].of(precision)
        dtype = self.multiplied(dtype, precision)
        peak = self.peak_tflops.get(dtype) or self.peak_tflops.get(dtype.partition("_")[0])
        return peak * 1e12 / self.cores if peak else None

    def multiplied(self, dtype: str, precision: Precision = "default") -> str:
        """The dtype, by its long name, that this one is multiplied as."""
        dtype = NAMES.get(dtype, dtype)
        rounds = dtype == "float32" and precision != "highest" and "tfloat32" in self.peak_tflops
        return "tfloat32" if rounds else dtype
