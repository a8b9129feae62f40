"""Steps drawn by seed: training steps with plans as teams write them (``steps``) and what the TPU compiler made of each
(``compiled.jsonl``), and short ones of operations of all sorts (``operations``, ``short``).
"""


def span(text: str) -> range:
    """Seeds: ``7`` or ``40-59``, both ends with it."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
