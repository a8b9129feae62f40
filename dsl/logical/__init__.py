"""Logical axis rules, as Flax and MaxText have them: read, applied as Flax applies them, made of plans, written."""
