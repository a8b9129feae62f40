"""MLIR's passes over a module."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import passmanager


def run_passes(passes: str, module: Any) -> None:
    """Runs passes over a module, in place. That it is valid is not looked at again after each, which takes longer than
    they.
    """
    manager = passmanager.PassManager.parse(f"builtin.module({passes})")
    manager.enable_verifier(False)
    manager.run(module)
