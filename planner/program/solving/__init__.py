"""Rounds of solving a program and pricing what it finds; what that teaches, what fits, a solution as layouts."""
