"""``meshwright translate``: translates lines of text with what a run has learnt."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from .command import YES, Command, json_option, plan_argument, process_option
from .plan_file import load, machine_of, prepare_together
from .streams import native_output_on_stderr, write, write_json


def run(arguments: argparse.Namespace) -> int:
    """Translates lines of text, each by itself, into as many lines."""
    plan = load(arguments.plan)
    texts = arguments.text if arguments.text else _lines()
    speaks = prepare_together(machine_of(plan), arguments.process)
    from ..backends.jax.decoding.translate import translate

    with native_output_on_stderr() if arguments.process else nullcontext():
        told = translate(
            plan,
            texts,
            folder=arguments.folder,
            beams=arguments.beams,
            max_tokens=arguments.max_tokens,
            length_penalty=arguments.length_penalty,
        )
    if not speaks:
        return YES
    if arguments.json:
        pairs = zip(texts, told, strict=True)
        write_json("translate", translations=[{"source": text, **found.as_json()} for text, found in pairs])
    else:
        write("".join(f"{found.text}\n" for found in told))
    return YES


def _lines() -> list[str]:
    from ..dsl.text import MAX_BYTES, decode

    return decode(sys.stdin.buffer.read(MAX_BYTES + 1) if sys.stdin else b"", "<stdin>").splitlines()


def _arguments(parser: argparse.ArgumentParser) -> None:
    plan_argument(parser)
    parser.add_argument("--from", dest="folder", metavar="DIR", required=True, help="what 'run --save DIR' kept")
    parser.add_argument(
        "--text", action="append", metavar="TEXT", help="a text; may be repeated (default: the standard input's lines)"
    )
    parser.add_argument("--beams", type=int, default=4, metavar="K", help="hypotheses kept; 1 is greedy (default: 4)")
    parser.add_argument(
        "--max-tokens", type=int, metavar="N", help="tokens of a translation, its end included (the length of a row)"
    )
    parser.add_argument(
        "--length-penalty", type=float, default=0.6, metavar="A", help="more favours longer translations (0.6)"
    )
    process_option(parser)
    json_option(parser)


COMMAND = Command(
    name="translate",
    summary="translate text with what a run has learnt",
    arguments=_arguments,
    run=run,
)
