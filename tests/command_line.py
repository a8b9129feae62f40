"""The command line as tests call it."""

from meshwright import cli

LEGAL = "meshwright: 1\nmesh: {x: 4}\ntensors:\n  params/**: M@x\n"
"""A plan that is legal and complete."""


def run(*arguments: object) -> int:
    """The exit code."""
    return cli.main([str(a) for a in arguments])
