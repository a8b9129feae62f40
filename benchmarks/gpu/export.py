"""Writes the programs as StableHLO that another JAX can run on a GPU: ``python benchmarks/gpu/export.py FOLDER``.

``FOLDER unseen`` writes the steps drawn by seed, else all others are written. One file a program and ``cases.json``.
Arguments are flat there; ``measure.py`` runs them, which needs JAX alone. An optimiser's state is drawn positive, since
roots are taken of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
from jax import export

sys.path.insert(0, str(Path(__file__).parent.parent))

from gpu.case import Case
from gpu.small import small
from gpu.unseen import unseen
from gpu.whole import whole


def written(case: Case, folder: Path, number: int, platform: str) -> dict[str, Any]:
    """The program as a file, and what is to be known of it."""
    leaves, tree = jax.tree.flatten(case.args)

    def flat(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(case.step(*jax.tree.unflatten(tree, leaves)))

    file = f"{number:03}.bin"
    (folder / file).write_bytes(export.export(jax.jit(flat), platforms=[platform])(*leaves).serialize())
    donated = len(jax.tree.leaves(case.args[: case.donated]))
    positive = list(range(len(jax.tree.leaves(case.args[:1])), donated))
    return {"name": case.name, "file": file, "high": case.high, "donated": donated, "positive": positive}


def main() -> None:
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    platform = next((word for word in words if word != "unseen"), "cuda")
    kinds = {"whole": unseen()} if "unseen" in words else {"small": small(), "whole": whole()}
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for kind, cases in kinds.items():
        for case in cases:
            found.append({"kind": kind, **written(case, folder, len(found), platform)})
            print(found[-1]["name"], flush=True)
    (folder / "cases.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
