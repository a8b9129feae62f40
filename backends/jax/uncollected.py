"""Work that makes many objects, of which few are left or all."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without Python's search for cycles: a price leaves none, and a traced step is kept. Each makes so much that all
    of JAX's objects would be looked through several times. What was made counts as old afterwards, or all of it were
    looked through at once.
    """
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
