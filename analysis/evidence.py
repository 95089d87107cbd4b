"""When two sides differ: the rule that turns process medians into SAME, FASTER, SLOWER, AMBIGUOUS.

The process is the unit of evidence: samples of one process share its memory placement, clock and
temperature. docs/verdict.md derives the constants; `python -m analysis.calibration` checks them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Verdict = Literal["SAME", "FASTER", "SLOWER", "AMBIGUOUS", "NO_DATA"]

MINIMUM = 5
"""Processes a side: with 4, two sides are apart by luck in 1 of 35 comparisons."""
FLOOR = 0.01
"""No change smaller than this is called one."""
PROMISE = 0.02
"""The change that a case has to be able to show; one too noisy for it is AMBIGUOUS."""
TIMER_TICK = 32e-9
"""Step of the timer behind CUDA events, s, seen as that of %globaltimer on an H200."""
FALSE_ALARMS = 0.01
"""Whole suites without a change in which one case or more may be called changed."""

QUIET = 0.0045
"""Pooled spread up to which a case counts as quiet: a true spread of 0.3% shows less in 98.5 of
100 comparisons of 5 processes with 5."""
QUIET_SLOPE = 1.75
NOISY_ALARMS = 7e-5
"""A case of any true spread looks quiet and passes the quiet line less often than this by chance
(the worst true spread is 1%, at 5 processes a side)."""
STEADY = 0.003
"""Between-process spread up to which the detection of PROMISE is promised."""
FURTHEST = 100
"""Processes a side beyond which more are no remedy."""


@dataclass(frozen=True)
class Suite:
    """What the rule needs to know of a whole comparison."""

    cases: int
    """Cases judged: each has a chance of a false alarm."""
    noisy: int
    """Those of them whose pooled spread is over QUIET."""

    @property
    def quiet(self) -> bool:
        """Whether so few cases are noisy that the quiet line keeps the promise on false alarms."""
        return self.noisy * NOISY_ALARMS <= FALSE_ALARMS / 2


@dataclass(frozen=True)
class Judgement:
    """What the evidence says of one case."""

    verdict: Verdict
    effect: float
    """NEW over BASE - 1, from the geometric means of the process medians."""
    threshold: float
    """The least |effect| that would be called a change."""
    spread: float
    """Between processes: pooled standard deviation of the logarithms of the process medians."""
    reason: str = ""


def spread(*sides: Sequence[float]) -> float:
    """Pooled standard deviation of ln(value) within the sides, with sum(n - 1) degrees of freedom.

    0 where no side has two values.
    """
    squares, freedom = 0.0, 0
    for side in sides:
        logs = [math.log(value) for value in side]
        mean = math.fsum(logs) / len(logs)
        squares += math.fsum((value - mean) ** 2 for value in logs)
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0


@lru_cache(maxsize=4096)
def student(bases: int, news: int, cases: int) -> float:
    """k of the threshold k x spread that holds for normal noise of any size.

    Two-sided Student test with Bonferroni's correction: k = t(n + m - 2, 1 - a/2) sqrt(1/n + 1/m)
    with a = FALSE_ALARMS / 2 / cases; the other half is the quiet line's.
    """
    from scipy.special import stdtrit

    tail = FALSE_ALARMS / 2 / cases / 2
    return float(-stdtrit(bases + news - 2, tail)) * math.sqrt(1 / bases + 1 / news)


def noise_threshold(width: float, bases: int, news: int, suite: Suite) -> float:
    """The effect that a case of pooled spread `width` cannot show by chance (before the ticks)."""
    bound = student(bases, news, suite.cases) * width
    if suite.quiet and width <= QUIET:
        bound = min(bound, FLOOR + QUIET_SLOPE * width)
    return max(FLOOR, bound)


def processes_for(width: float, suite: Suite) -> int | None:
    """Processes a side with which a spread of `width` resolves PROMISE; None over FURTHEST."""
    for count in range(MINIMUM, FURTHEST + 1):
        if noise_threshold(width, count, count, suite) <= PROMISE:
            return count
    return None


def judge(
    base: Sequence[float],
    new: Sequence[float],
    suite: Suite,
    *,
    better: Literal["lower", "higher"] = "lower",
    tick: float = 0.0,
) -> Judgement:
    """Compare the process medians of one case, all positive and in one unit.

    Args:
        base, new: one value a process.
        suite: the comparison that this case is a part of.
        better: which way the quantity improves.
        tick: step of the instrument, in the values' unit; two steps are the least change seen.
    """
    width = spread(base, new)
    low, high = _centre(base), _centre(new)
    effect = high / low - 1
    if min(len(base), len(new)) < MINIMUM:
        return Judgement("AMBIGUOUS", effect, math.inf, width, too_few(len(base), len(new)))
    noise = noise_threshold(width, len(base), len(new), suite)
    resolution = 2 * tick / min(low, high)
    threshold = max(noise, resolution)
    size = max(high / low, low / high) - 1
    apart = max(base) < min(new) or max(new) < min(base)

    def found(verdict: Verdict, reason: str = "") -> Judgement:
        return Judgement(verdict, effect, threshold, width, reason)

    if apart and size >= threshold:
        return found("SLOWER" if (high > low) == (better == "lower") else "FASTER")
    if noise > PROMISE:
        return found("AMBIGUOUS", _too_noisy(width, noise, len(base), len(new), suite))
    if size >= threshold:
        return found("AMBIGUOUS", "the change is large enough, but processes of both sides overlap")
    if apart and size >= max(FLOOR, resolution):
        reason = f"all processes apart, but by less than the {threshold:.1%} that the spread asks"
        return found("AMBIGUOUS", reason + "; more processes would settle it")
    return found("SAME")


def too_few(bases: int, news: int) -> str:
    """What would be needed where a side has fewer than MINIMUM processes."""
    sides = [f"{n} in {side}" for side, n in (("BASE", bases), ("NEW", news)) if n < MINIMUM]
    return (
        f"{' and '.join(sides)}: at least {MINIMUM} processes a side are needed; record with "
        f"--processes {MINIMUM}"
    )


def _too_noisy(width: float, noise: float, bases: int, news: int, suite: Suite) -> str:
    enough = processes_for(width, suite)
    if enough is None:
        remedy = (
            f"{FURTHEST} processes a side would not resolve {PROMISE:.0%}: find the disturbance"
        )
    else:
        # Where one side has as many already, it is the other that lacks them.
        where = "a side" if enough > max(bases, news) else "on each side"
        remedy = f"{enough} processes {where} would resolve {PROMISE:.0%}"
    return f"too noisy: spread {width:.2%} hides changes under {noise:.1%}; {remedy}"


def _centre(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))
