"""Figure 8: where the time of a Transformer layer and an MoE layer goes, forward, against the roofline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from meshwright.dsl.machine import parse_topology
from meshwright.planner.topology import physical

from .breakdown import MACHINES, Breakdown, breakdown, compiled, peak
from .parts import ATTENTION, EINSUMS, EXCHANGE, EXPERTS, FFN, GATING, PARTS, PROJECTIONS, SUMS
from .record import Answer, Record
from .shown import Figure, figure, table

SHARES = {128: 0.16, 2048: 0.36}
"""Of dispatch and combine in the time of both layers, as the paper has them."""
SAID = {
    "device time, 2048 over 128": "1.7",
    "of the roofline at 128": "> 70 %",
    "of the roofline at 2048": "48 %",
    "dispatch and combine, 2048 over 128": "3.75",
    "its share at 128": "16 %",
    "its share at 2048": "36 %",
    "feed-forward and experts: of peak FLOP/s": "> 85 %",
    "projections: of peak FLOP/s": "> 85 %",
    "attention: of peak FLOP/s": "> 30 %",
    "gate einsums, 2048 over 128": "about 2",
    "gating's share at 128": "negligible",
    "gating's share at 2048": "< 10 %",
}
"""The paper's text, section 5.2."""


def figure_8(record: Record) -> Figure:
    found = {experts: breakdown(experts) for experts in MACHINES}
    answers = {e: answer for e in MACHINES if (answer := compiled(e, record)) is not None}
    return Figure(
        name="figure-8",
        tables=(times(found, answers), shares(found, answers)),
        words=tuple(words(found, answers)),
        draw=lambda canvas: draw(canvas, found, answers),
    )


def times(found: dict[int, Breakdown], answers: dict[int, Answer]) -> Any:
    heads = ("ms", *(f"{e}: {what}" for e in found for what in ("roofline", "predicted", "compiled")))
    rows = [
        (
            part,
            *(
                cell
                for experts, at in found.items()
                for cell in (
                    figure(at.roofline_s.get(part), ".3f", 1e3),
                    figure(at.predicted_s.get(part), ".3f", 1e3),
                    said(answers.get(experts), part),
                )
            ),
        )
        for part in PARTS
    ]
    totals = (
        cell
        for experts, at in found.items()
        for cell in (
            f"{sum(at.roofline_s.values()) * 1e3:.3f}",
            f"{at.total_s * 1e3:.3f}",
            said(answers.get(experts), None),
        )
    )
    title = "Figure 8: forward time of a Transformer and an MoE layer by number of experts, TPU v3"
    return table(title, heads, [*rows, ("in all (compiled: compute alone)", *totals)])


def said(answer: Answer | None, part: str | None) -> str:
    """The compiler's milliseconds of a part, or of all; it gives none to collectives."""
    if answer is None:
        return "not asked"
    by_part = answer["compute_s"]
    if part in (EXCHANGE, SUMS):
        return "-"
    return f"{(sum(by_part.values()) if part is None else by_part.get(part, 0)) * 1e3:.3f}"


def shares(found: dict[int, Breakdown], answers: dict[int, Answer]) -> Any:
    made = {e: found[e].as_compiled(answers[e]["compute_s"]) for e in found if e in answers}
    columns = [list(ratios(each)) if len(each) == len(found) else ["not asked"] * len(SAID) for each in (found, made)]
    heads = ("", "predicted", "compute compiled, network predicted", "paper, measured")
    rows = ((what, *figures, paper) for (what, paper), *figures in zip(SAID.items(), *columns, strict=True))
    return table("Figure 8: what the paper says of it", heads, rows)


def ratios(found: dict[int, Breakdown]) -> Iterator[str]:
    """The figures of ``SAID``, in its order."""
    small, large = found[min(found)], found[max(found)]
    yield f"{large.total_s / small.total_s:.2f}"
    yield from (f"{each.of_roofline:.0%}" for each in (small, large))
    yield f"{grown(found, EXCHANGE):.2f}"
    yield from (f"{each.share(EXCHANGE):.0%}" for each in (small, large))
    yield of_peak(small, (FFN, EXPERTS))
    yield of_peak(small, (PROJECTIONS,))
    yield of_peak(small, (ATTENTION,))
    yield f"{grown(found, EINSUMS):.2f}"
    yield from (f"{each.share(GATING):.1%}" for each in (small, large))


def of_peak(at: Breakdown, parts: Iterable[str]) -> str:
    named = list(parts)
    took_s = sum(at.predicted_s[part] for part in named)
    return f"{sum(at.flops[part] for part in named) / of_one_core() / took_s:.0%}"


def of_one_core() -> float:
    """FLOP/s of a TPU v3 core at its peak."""
    return peak(physical(parse_topology(MACHINES[min(MACHINES)])))


def grown(found: dict[int, Breakdown], part: str) -> float:
    return found[max(found)].predicted_s[part] / found[min(found)].predicted_s[part]


def words(found: dict[int, Breakdown], answers: dict[int, Answer]) -> Iterator[str]:
    """Where prediction and paper part, and by which part of the time."""
    small, large = found[min(found)], found[max(found)]
    added = {part: large.predicted_s.get(part, 0) - small.predicted_s.get(part, 0) for part in PARTS}
    most = sorted(added, key=lambda part: -added[part])[:2]
    yield (
        f"From 128 to 2048 experts {(large.total_s - small.total_s) * 1e3:.2f} ms are added: "
        + ", ".join(f"{added[part] * 1e3:.2f} by {part}" for part in most)
        + "."
    )
    lost = {part: at_s - small.roofline_s.get(part, 0) for part, at_s in small.predicted_s.items()}
    furthest = sorted(lost, key=lambda part: -lost[part])[:3]
    yield (
        "What keeps 128 experts from their roofline: "
        + ", ".join(f"{part} {lost[part] * 1e3:.2f} ms" for part in furthest)
        + "."
    )
    yield attention_words(small)
    yield from exchange_words(found)
    for experts, answer in answers.items():
        yield from beside_compiler(experts, found[experts], answer)
    yield "The picture of Figure 8 is not to be had: its milliseconds are not compared, only the text's ratios."


def attention_words(at: Breakdown) -> str:
    alone_s = at.products_s[ATTENTION]
    reached = at.flops[ATTENTION] / of_one_core() / alone_s
    return (
        f"Attention takes {at.predicted_s[ATTENTION] * 1e3:.2f} ms with its softmax; its products alone "
        f"{alone_s * 1e3:.2f}, at {reached:.0%} of the peak (paper > 30 %). They write and read scores of "
        "[2, 16, 1024, 1024], so that memory bounds them, here and in the paper, which prints no length of its rows."
    )


def exchange_words(found: dict[int, Breakdown]) -> Iterator[str]:
    """How much slower all-to-alls must have been for the paper's shares, and what else follows from that."""
    slower = {
        experts: share / (1 - share) * others_s(found[experts]) / found[experts].predicted_s[EXCHANGE]
        for experts, share in SHARES.items()
    }
    factor = math.prod(slower.values()) ** (1 / len(slower))
    took_s = {e: others_s(found[e]) + factor * found[e].predicted_s[EXCHANGE] for e in SHARES}
    of_roofline = " and ".join(f"{sum(found[e].roofline_s.values()) / took_s[e]:.0%}" for e in SHARES)
    yield (
        f"Dispatch and combine grow {grown(found, EXCHANGE):.2f} times (paper 3.75), by the root of 16: the bisection "
        f"of the torus. Their shares are the paper's ({' and '.join(f'{s:.0%}' for s in SHARES.values())}) if an "
        f"all-to-all took {' and '.join(f'{each:.1f}' for each in slower.values())} times what the network model gives "
        f"it. At {factor:.1f} times, device time grows {took_s[max(took_s)] / took_s[min(took_s)]:.2f} times (paper "
        f"1.7) and is {of_roofline} of the roofline (paper > 70 % and 48 %): model and paper part in the cost of an "
        "all-to-all, not in its growth."
    )
    if found[min(found)].exchanged == "bf16":
        yield (
            "Of that factor 2 is the dtype: today's compiler narrows tokens to bfloat16 before they travel, as only "
            "products of default precision read them; the paper's activations are float32. The rest, "
            f"{factor / 2:.1f}, is what its all-to-alls lost to the model's, which fill every link."
        )


def others_s(at: Breakdown) -> float:
    return at.total_s - at.predicted_s[EXCHANGE]


def beside_compiler(experts: int, at: Breakdown, answer: Answer) -> Iterator[str]:
    made = answer["compute_s"]
    compute_s = sum(s for part, s in at.predicted_s.items() if part not in (EXCHANGE, SUMS))
    total_s = sum(made.values())
    yield f"{experts} experts: compute {compute_s / total_s - 1:+.1%} of the compiler's {total_s * 1e3:.2f} ms."


def draw(canvas: Any, found: dict[int, Breakdown], answers: dict[int, Answer]) -> None:
    bars: dict[str, dict[str, float]] = {}
    for experts, at in found.items():
        bars[f"{experts}\nroofline"] = at.roofline_s
        bars[f"{experts}\npredicted"] = at.predicted_s
        if experts in answers:
            bars[f"{experts}\ncompiled*"] = at.as_compiled(answers[experts]["compute_s"]).predicted_s
    ax = canvas.subplots()
    floor = [0.0] * len(bars)
    for part in PARTS:
        heights = [seconds.get(part, 0) * 1e3 for seconds in bars.values()]
        ax.bar(list(bars), heights, bottom=floor, label=part)
        floor = [low + height for low, height in zip(floor, heights, strict=True)]
    ax.set(ylabel="ms", xlabel="experts (* compute compiled, network predicted)")
    ax.set_title("Figure 8: a Transformer and an MoE layer forward, TPU v3")
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
