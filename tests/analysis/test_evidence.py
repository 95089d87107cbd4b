"""The rule that turns process medians into a verdict, on drawn noise of a known width."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from analysis.evidence import Suite, judge, noise_threshold, processes_for, spread

SUITE = Suite(500, 0)


def draws(sigma: float, count: int, seed: int) -> Iterator[list[float]]:
    generator = random.Random(seed)
    for _ in range(count):
        yield [generator.lognormvariate(0, sigma) for _ in range(5)]


def test_a_whole_suite_without_change_raises_no_alarm() -> None:
    """20,000 comparisons are 40 suites for each spread; far less than one alarm is expected."""
    for sigma in (0.001, 0.003):
        pairs = zip(draws(sigma, 20_000, 1), draws(sigma, 20_000, 2), strict=True)
        verdicts = [judge(base, new, SUITE).verdict for base, new in pairs]
        assert not {"SLOWER", "FASTER"} & set(verdicts)


def test_two_percent_is_found_at_a_spread_of_0_3_percent() -> None:
    pairs = zip(draws(0.003, 4000, 3), draws(0.003, 4000, 4), strict=True)
    found = [judge(base, [1.02 * v for v in new], SUITE).verdict for base, new in pairs]
    assert found.count("SLOWER") >= 0.95 * len(found)


def test_many_noisy_cases_cost_the_others_the_short_threshold() -> None:
    assert noise_threshold(0.004, 5, 5, Suite(500, 0)) < 0.02
    assert noise_threshold(0.004, 5, 5, Suite(500, 200)) > 0.02


def test_more_processes_see_less() -> None:
    thresholds = [noise_threshold(0.01, count, count, SUITE) for count in (5, 7, 10, 20)]
    assert thresholds == sorted(thresholds, reverse=True)
    needed = processes_for(0.01, SUITE)
    assert needed is not None
    assert noise_threshold(0.01, needed, needed, SUITE) <= 0.02
    assert noise_threshold(0.01, needed - 1, needed - 1, SUITE) > 0.02


def test_spread_is_pooled_within_the_sides() -> None:
    assert spread([1.0, 1.0], [2.0, 2.0]) == 0
    assert spread([1.0]) == 0
    assert spread([1.0, 1.02]) == pytest.approx(0.02 / 2**0.5, rel=0.02)
