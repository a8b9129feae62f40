"""``meshwright schema``: the JSON schema of plans."""

from __future__ import annotations

import argparse
import json

from .command import YES, Command, no_arguments
from .streams import write


def run(arguments: argparse.Namespace) -> int:
    """Prints the JSON schema of plans."""
    from ..dsl.schema import json_schema

    write(json.dumps(json_schema(), indent=2) + "\n")
    return YES


COMMAND = Command(name="schema", summary="print the JSON schema of plans", arguments=no_arguments, run=run)
