"""Floating-point operations of a compiled program's matrix products and convolutions.

The TPU compiler writes every matrix product as a convolution, batch dims as spatial ones, so that both are counted by
one rule: two operations for each pair of numbers that meet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .hlo import Instruction, Program
from .hlo_loops import Runs

_WINDOW = re.compile(r"\bwindow=\{([^}]*)\}")
_LABELS = re.compile(r"\bdim_labels=([\w?]+)_([\w?]+)->([\w?]+)")
_CONTRACTED = re.compile(r"\blhs_contracting_dims=\{([\d,]*)\}")


def matrix_flops(runs: Runs) -> int:
    """Operations of one step on one device, loops by their turns; those of matrix products and convolutions alone."""
    return sum(
        times * _flops(runs.program, name, instruction)
        for name, times in runs.times.items()
        if times
        for instruction in runs.program.computations[name].instructions.values()
        if instruction.opcode in ("dot", "convolution")
    )


def _flops(program: Program, name: str, instruction: Instruction) -> int:
    known = program.computations[name].instructions
    operands = [known[operand].shapes[0].dims for operand in instruction.operands[:2] if operand in known]
    if len(operands) < 2 or not instruction.shapes:
        return 0
    result = instruction.shapes[0].dims
    if instruction.opcode == "dot":
        contracted = _CONTRACTED.search(instruction.attributes)
        dims = [int(d) for d in contracted[1].split(",") if d] if contracted else []
        return 2 * math.prod(result) * math.prod(operands[0][d] for d in dims)
    return _convolution_flops(instruction.attributes, operands[0], operands[1], result)


def _convolution_flops(attributes: str, lhs: tuple[int, ...], rhs: tuple[int, ...], result: tuple[int, ...]) -> int:
    labels = _LABELS.search(attributes)
    if labels is None:
        return 0
    inputs, kernel, outputs = _by_label(labels[1], lhs), _by_label(labels[2], rhs), _by_label(labels[3], result)
    window = _WINDOW.search(attributes)
    spatial = sorted(label for label in outputs if label.isdigit())
    pairs = [
        _meeting(side, inputs[label], outputs[label])
        for label, side in zip(spatial, _sides(window[1] if window else "", len(spatial)), strict=True)
    ]
    groups = re.search(r"batch_group_count=(\d+)", attributes)
    batches = outputs.get("b", 1) if groups is None else inputs.get("b", 1) // int(groups[1])
    return 2 * batches * outputs.get("f", 1) * kernel.get("i", 1) * math.prod(pairs)


def _by_label(labels: str, dims: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(labels, dims, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A convolution's window along one spatial dim."""

    size: int = 1
    stride: int = 1
    pad_low: int = 0
    lhs_dilate: int = 1
    rhs_dilate: int = 1


def _sides(window: str, rank: int) -> list[Side]:
    said = dict(re.findall(r"(\w+)=(\S+)", window))
    return [Side(**_side(said, dim)) for dim in range(rank)]


def _side(said: Mapping[str, str], dim: int) -> dict[str, int]:
    words = {name: text.split("x")[dim] for name, text in said.items() if name != "rhs_reversal"}
    numbers = {
        name: int(word) for name, word in words.items() if name in ("size", "stride", "lhs_dilate", "rhs_dilate")
    }
    return numbers | ({"pad_low": int(words["pad"].partition("_")[0])} if "pad" in words else {})


def _meeting(side: Side, input_size: int, output_size: int) -> int:
    """How many pairs of an output position and a kernel position fall on a number of the input, not on padding."""
    at = np.arange(output_size)[:, None] * side.stride + np.arange(side.size) * side.rhs_dilate - side.pad_low
    inside = (at >= 0) & (at <= (input_size - 1) * side.lhs_dilate) & (at % side.lhs_dilate == 0)
    return int(inside.sum())
