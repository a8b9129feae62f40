"""MLIR's passes over a module."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import passmanager


class Passes:
    """Passes over the modules of one context, set up once however many go through them: that takes as long as many do.

    That a module is valid is not looked at again after each pass, which takes longer than they.
    """

    def __init__(self) -> None:
        self._managers: dict[str, Any] = {}

    def run(self, passes: str, module: Any) -> None:
        """Runs passes over a module, in place."""
        manager = self._managers.get(passes)
        if manager is None:
            manager = self._managers[passes] = passmanager.PassManager.parse(f"builtin.module({passes})")
            manager.enable_verifier(False)
        manager.run(module)


def run_passes(passes: str, module: Any) -> None:
    """Runs passes over a module, in place, as no other module goes through them."""
    Passes().run(passes, module)
