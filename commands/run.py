"""``meshwright run``: trains the plan's model on the devices that are here."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext, redirect_stdout

from .command import Command, json_option, plan_argument, process_option
from .plan_file import load, machine_of, prepare_together
from .streams import native_output_on_stderr, write_json


def run(arguments: argparse.Namespace) -> int:
    """Trains the plan's model on the devices that are here."""
    plan = load(arguments.plan)
    speaks = prepare_together(machine_of(plan), arguments.process)
    from ..backends.jax.training.options import PAIRS_A_LANGUAGE
    from ..backends.jax.training.train import run as train
    from ..run_display import RunDisplay

    native = native_output_on_stderr() if arguments.process else nullcontext()
    with native, RunDisplay(speaks=speaks) as display, redirect_stdout(sys.stderr):
        summary = train(
            plan,
            steps=arguments.steps,
            seed=arguments.seed,
            metrics_path=arguments.metrics,
            eval_every=arguments.eval_every,
            save=arguments.save,
            save_every=arguments.save_every,
            resume=arguments.resume,
            score=arguments.eval,
            pairs_a_language=PAIRS_A_LANGUAGE if arguments.eval_pairs is None else arguments.eval_pairs,
            against=arguments.against,
            on_record=[display],
        )
    if arguments.json and speaks:
        write_json("run", **summary.as_json())
    return summary.exit_code


def _arguments(parser: argparse.ArgumentParser) -> None:
    plan_argument(parser)
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="steps to take (default: 100)")
    parser.add_argument("--seed", type=int, metavar="S", help="of the first weights and of the data (0)")
    parser.add_argument("--metrics", metavar="FILE", help="write every step's figures, a line of JSON each")
    parser.add_argument("--eval-every", type=int, metavar="N", help="held-out loss every N steps, not at the ends only")
    parser.add_argument("--save", metavar="DIR", help="keep the state in this folder at the end")
    parser.add_argument("--save-every", type=int, metavar="N", help="and every N steps; the newest alone stays")
    parser.add_argument(
        "--resume", metavar="DIR", help="go on from what this folder keeps, under any plan of its model"
    )
    parser.add_argument(
        "--eval", action="store_true", help="translate held-out text at the end: BLEU, chrF by language"
    )
    parser.add_argument("--eval-pairs", type=int, metavar="N", help="held-out pairs of a language, at most (40)")
    parser.add_argument("--against", metavar="FILE", help="another run's --metrics with scores, to compare with")
    process_option(parser)
    json_option(parser)


COMMAND = Command(
    name="run",
    summary="train the plan's model on the devices that are here",
    arguments=_arguments,
    run=run,
)
