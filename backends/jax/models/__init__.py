"""Models whose layout is worth planning: GShard's MoE Transformer family, one MoE layer alone, and a convolutional net
split in space."""

from __future__ import annotations

from .conv_net import conv_net
from .family import gshard
from .moe_step import moe_step

__all__ = ["conv_net", "gshard", "moe_step"]
