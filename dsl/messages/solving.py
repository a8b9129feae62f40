"""MW8xx: problems for the solver."""

from __future__ import annotations

from .text import Text

SOLVING: dict[str, Text] = {
    "MW801": Text("The problem's file cannot be read: {reason}.", "Give a JSON file, or one compressed by gzip."),
    "MW802": Text("The problem's file is no JSON: {reason}.", "Write JSON with each key once and finite numbers."),
    "MW803": Text("{where} is missing.", "A problem has {keys}."),
    "MW804": Text("{where} is {got}.", "It must be {expected}."),
    "MW805": Text("{where} has {got} entries, but {other} has {wanted}.", "Give both as many."),
    "MW806": Text("{where} is unknown here.", "{suggestion}"),
    "MW807": Text(
        "{where} leads from node {first} to node {second}, but the nodes are 0 to {last} and the two must differ.",
        "Name two nodes; add the cost of an edge from a node to itself to the node's costs.",
    ),
    "MW808": Text(
        "{where} has {got} entries, but nodes {first} and {second} have {rows} and {columns} choices.",
        "Give {wanted} entries: the first node's choices times the second's, row by row.",
    ),
    "MW809": Text("{where} is [{begin}, {end}).", "Write [begin, end] with 0 <= begin <= end <= {most}."),
    "MW810": Text(
        "{where} adds up to {total} at most, more than can be added up exactly.", "Use larger units: below {most}."
    ),
    "MW811": Text("{more} more problems like these are not shown.", "Mend these first."),
    "MW812": Text("{option} is {value}.", "Give {expected}."),
    "MW813": Text("The solution cannot be written to {path}: {reason}.", "Give -o a file that can be written."),
    "MW814": Text(
        "The problem has {what}, which the contest's format cannot say.",
        "Write problems with whole costs, one piece of usage for each node and one limit.",
    ),
}
