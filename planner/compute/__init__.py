"""What running a kernel takes: seconds on a chip, from a formula and a table learned from the compiler.

``work`` counts what there is to do, ``cycles`` says what that takes, ``price`` adds what a whole step knows besides:
what is at hand (``residence``, ``loops``) and what the TPU compiler does ``besides``: copies in other layouts
(``copies``), convolutions (``images``).
"""

from .calibration import Calibration, dump, load, shipped
from .price import KernelPrice, price
from .speed import speed_of

__all__ = ["Calibration", "KernelPrice", "dump", "load", "price", "shipped", "speed_of"]
