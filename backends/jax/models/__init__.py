"""Models whose layout is worth planning: GShard's MoE Transformer family, and a convolutional net split in space."""

from __future__ import annotations

from .conv_net import conv_net
from .family import gshard

__all__ = ["conv_net", "gshard"]
