"""What loops only read of a step's arguments: it is cut before a loop and not in it, for propagation opens it there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .wires import Port, Wiring


def forbid_cuts(wiring: Wiring, source: Port, ports: Sequence[Port]) -> None:
    """Forbids those that share what such a value is brought into to read it cut further than it lies: it would be cut
    so for all, before the loop, and gathered of that on every turn for those that read it otherwise.
    """
    for port in ports if source.node in wiring.opened and not wiring.strategies.prices.pricing.counted else ():
        further = [
            [own != lies and wiring.reshards.extends(own, lies) for own in port.layouts] for lies in source.layouts
        ]
        wiring.hand_on(source, port, np.where(further, np.inf, 0.0))
