"""What a collective takes, predicted from the network model, and what of the machine it waits for."""

from __future__ import annotations

from dataclasses import replace

from ..dsl.records import record


@record(frozen=True, slots=True, kw_only=True)
class Price:
    """Seconds of one collective, predicted.

    ``total_s`` is what it takes; ``latency_s`` is what it would take with no bytes, ``bandwidth_s`` what the bytes take
    at ``bottleneck``, the dim that is busiest. ``algorithm`` says how it is run.
    """

    total_s: float
    latency_s: float
    bandwidth_s: float
    algorithm: str
    bottleneck: str

    def times(self, count: float) -> Price:
        """The same ``count`` times, one after another."""
        return replace(
            self,
            total_s=self.total_s * count,
            latency_s=self.latency_s * count,
            bandwidth_s=self.bandwidth_s * count,
        )

    def named(self, algorithm: str) -> Price:
        """The same under another name."""
        return replace(self, algorithm=algorithm)


def free(algorithm: str = "none") -> Price:
    """Nothing moves."""
    return _priced(0.0, 0.0, 0.0, algorithm, "")


def hidden(algorithm: str, latency_s: float, bandwidth_s: float, bottleneck: str) -> Price:
    """A pipeline of hops, each of which takes its latency or its bytes' time, whichever is longer (scaling book)."""
    return _priced(max(latency_s, bandwidth_s), latency_s, bandwidth_s, algorithm, bottleneck)


def added(algorithm: str, latency_s: float, bandwidth_s: float, bottleneck: str) -> Price:
    """Latency, then bytes: NCCL's form."""
    return _priced(latency_s + bandwidth_s, latency_s, bandwidth_s, algorithm, bottleneck)


def at_once(*parts: Price) -> Price:
    """Parts that run at the same time on links of their own: the slowest decides."""
    slowest = max(parts, key=lambda part: part.total_s)
    return replace(slowest, latency_s=max(part.latency_s for part in parts))


def in_turn(algorithm: str, *parts: Price) -> Price:
    """Parts that run one after another."""
    total_s, latency_s, bandwidth_s = (
        sum(getattr(part, figure) for part in parts) for figure in ("total_s", "latency_s", "bandwidth_s")
    )
    slowest = max(parts, key=lambda part: part.total_s)
    return _priced(total_s, latency_s, bandwidth_s, algorithm, slowest.bottleneck)


def _priced(total_s: float, latency_s: float, bandwidth_s: float, algorithm: str, bottleneck: str) -> Price:
    return Price(
        total_s=total_s, latency_s=latency_s, bandwidth_s=bandwidth_s, algorithm=algorithm, bottleneck=bottleneck
    )
