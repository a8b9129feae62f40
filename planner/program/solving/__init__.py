"""Rounds of solving a program and pricing what it finds, what that teaches, solutions that fit, and solutions as layouts."""
