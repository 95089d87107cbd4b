"""When to stop sampling: the only statistics that the measuring side does."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import median

from results.schema import MAXIMUM_SAMPLES, Stop


@dataclass(frozen=True)
class Rule:
    """Limits of one case."""

    precision: float = 0.001
    """Half-width of the median's 95% interval, relative, at which sampling ends."""
    least: int = 11
    """Samples before any rule but the wall clock may end it."""
    most: int = MAXIMUM_SAMPLES
    seconds: float = 0.3
    """Wall-clock limit of one case, s."""

    def stop(self, times: list[float], elapsed: float) -> Stop | None:
        """Why to stop now, or None to go on.

        Args:
            times: clean samples so far, s.
            elapsed: wall clock since this case's first sample, s.
        """
        if len(times) >= self.most:
            return "samples"
        if len(times) >= self.least:
            width = half_width(times)
            if width <= self.precision:
                return "precision"
            if len(times) >= 4 * self.least and width > 0.9 * half_width(times[: len(times) // 2]):
                # Twice the samples should have narrowed it by 1/sqrt(2): this noise does not
                # average out (drift, two modes), and more of the same would not help.
                return "plateau"
        return "time" if elapsed >= self.seconds else None


RULES = {
    "quick": Rule(precision=0.005, least=5, seconds=0.1),
    "standard": Rule(precision=0.002, least=11, seconds=0.3),
    "full": Rule(precision=0.001, least=21, seconds=2.0),
}
"""How hard each profile tries."""
PROFILES = tuple(RULES)


def half_width(times: list[float]) -> float:
    """Half-width of the distribution-free 95% interval of the median, over the median.

    Order statistics n/2 -+ 1.96 sqrt(n)/2 bound the median (binomial, normal approximation;
    Le Boudec, Performance Evaluation, 2010, appendix A).
    """
    ordered = sorted(times)
    n = len(ordered)
    reach = 1.96 * sqrt(n) / 2
    low = ordered[max(0, int(n / 2 - reach))]
    high = ordered[min(n - 1, int(n / 2 + reach))]
    return (high - low) / 2 / median(ordered) if ordered[-1] > 0 else 0.0
