"""Where a series of runs changed its level: ruptures' KernelCPD, and why it and no other.

`python -m analysis.change_points` sets the candidates side by side on simulated steps; the numbers
are in docs/verdict.md.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

SHORTEST = 3
"""Runs a level has to last: one odd run is no change, two may share a cause that has gone."""
NEEDED = 2 * SHORTEST
"""Runs without which a series has no two levels."""
PENALTY = 6.0
"""A further level has to take away this many sigma^2 ln(n) of squared residuals. 2 is the Bayesian
information criterion's for one series; 6 is for hundreds of series with runs that are disturbed."""
LEAST = 0.005
"""Smallest step between two levels that is worth a line. Half of what a verdict calls a change:
a step of 1% has to be found, and half of its estimates are under 1%."""
ODD = 4.0
"""A run this many sigma from the median of itself and its neighbours is replaced by that median:
fewer than SHORTEST runs in a row are no level, however far off they are."""
FINEST = 1e-5
"""Noise is taken to be at least this, relative: records hold whole nanoseconds."""

Candidate = Callable[[Any, float], list[int]]
"""A search: signal of shape (n, 1) and penalty -> indices."""


def noise(logs: Sequence[float]) -> float:
    """Standard deviation of the noise, from the median absolute step between neighbours.

    For normal noise median |step| = 0.6745 sqrt(2) sigma; a few changes of level hardly move it.
    """
    steps = [abs(b - a) for a, b in pairwise(logs)]
    return max(FINEST, median(steps) / (0.6745 * math.sqrt(2))) if steps else FINEST


def change_points(values: Sequence[float], least: float = LEAST) -> list[int]:
    """Indices at which a new level begins, in order.

    Args:
        values: one positive number a run, in time.
        least: smallest relative difference between the medians of neighbouring levels.
    """
    # Levels cannot be further apart than the values are: most series end here.
    if len(values) < NEEDED or max(values) / min(values) - 1 < least:
        return []
    logs = [math.log(value) for value in values]
    return _points(_kernel, logs, least)


def _kernel(signal: Any, penalty: float) -> list[int]:
    """Exact least squares with a penalty a level (PELT, in C)."""
    from ruptures import KernelCPD

    return KernelCPD(kernel="linear", min_size=SHORTEST).fit(signal).predict(pen=penalty)[:-1]


def _points(search: Candidate, logs: Sequence[float], least: float = LEAST) -> list[int]:
    width = noise(logs)
    signal = _without_odd_runs(logs, width).reshape(-1, 1)
    penalty = PENALTY * width**2 * math.log(len(logs))
    points = sorted(int(point) for point in search(signal, penalty))
    return _material(logs, points, math.log1p(least))


def _without_odd_runs(logs: Sequence[float], width: float) -> Any:
    """Hampel's filter: a level of SHORTEST runs passes unchanged, fewer odd runs do not."""
    import numpy as np

    values = np.asarray(logs)
    reach = SHORTEST - 1
    around = np.lib.stride_tricks.sliding_window_view(
        np.pad(values, reach, mode="reflect"), 2 * reach + 1
    )
    middle = np.median(around, axis=1)
    return np.where(np.abs(values - middle) <= ODD * width, values, middle)


def _material(logs: Sequence[float], points: list[int], least: float) -> list[int]:
    """The points whose levels' medians are apart by `least`, the smallest dropped first.

    Least squares are moved by one odd run; medians are not.
    """
    points = list(points)
    while points:
        edges = [0, *points, len(logs)]
        levels = [median(logs[a:b]) for a, b in pairwise(edges)]
        steps = [abs(b - a) for a, b in pairwise(levels)]
        smallest = min(range(len(steps)), key=steps.__getitem__)
        if steps[smallest] >= least:
            break
        del points[smallest]
    return points


def candidates() -> dict[str, Candidate]:
    """Name -> search; each takes a signal of shape (n, 1) and the penalty."""
    import ruptures as rpt

    def search(make: Callable[[], Any]) -> Candidate:
        return lambda signal, penalty: make().fit(signal).predict(pen=penalty)[:-1]

    l2: dict[str, Any] = {"model": "l2", "min_size": SHORTEST, "jump": 1}
    return {
        "KernelCPD linear": _kernel,
        "Pelt l2": search(lambda: rpt.Pelt(**l2)),
        "Pelt l1": search(lambda: rpt.Pelt(**{**l2, "model": "l1"})),
        "Binseg l2": search(lambda: rpt.Binseg(**l2)),
        "BottomUp l2": search(lambda: rpt.BottomUp(**l2)),
        "Window l2, 10": search(lambda: rpt.Window(width=10, **l2)),
    }


STEPS = (0.01, 0.02, 0.05)
NOISES = (0.001, 0.003, 0.005)
RUNS = 60


def comparison(series: int = 40, runs: int = 1000, seed: int = 1) -> str:
    """The candidates as a table: share of steps found within one run of the place, share of series
    without a step in which one is found, and milliseconds for one series of `runs`.

    Each series has RUNS runs, one in 50 of them disturbed by 3%, and at most one step at a random
    place. Odd runs and immaterial points are filtered alike for every candidate.
    """
    import numpy as np

    heads = [f"{step:.0%}/{width:.1%}" for step in STEPS for width in NOISES]
    lines = [
        "found, step/noise  " + " ".join(f"{head:>8}" for head in heads) + "    false       ms"
    ]
    for name, search in candidates().items():
        cells, wrong = [], 0
        generator = np.random.default_rng(seed)  # the same series for every candidate
        for step in STEPS:
            for width in NOISES:
                found = 0
                for _ in range(series):
                    place = int(generator.integers(5, RUNS - 5))
                    logs = _disturbed(generator, RUNS, width)
                    logs[place:] += math.log1p(step)
                    found += any(abs(point - place) <= 1 for point in _points(search, logs))
                cells.append(f"{found / series:8.0%}")
        for width in NOISES:
            flat = [_disturbed(generator, RUNS, width) for _ in range(series)]
            wrong += sum(bool(_points(search, logs)) for logs in flat)
        lines.append(
            f"{name:<18} {' '.join(cells)} {wrong / series / len(NOISES):8.1%} "
            f"{_milliseconds(search, runs):8.0f}"
        )
    return "\n".join(lines)


def _disturbed(generator: Any, count: int, width: float) -> Any:
    logs = width * generator.standard_normal(count)
    logs[generator.random(count) < 0.02] += 0.03
    return logs


def _milliseconds(search: Candidate, runs: int) -> float:
    """Time for one series of so many runs with a step."""
    import numpy as np

    logs = 0.003 * np.random.default_rng(0).standard_normal(runs)
    logs[runs // 2 :] += math.log1p(0.02)
    begin = time.perf_counter()
    _points(search, logs.tolist())
    return 1e3 * (time.perf_counter() - begin)


if __name__ == "__main__":
    print(comparison())
    sys.exit(0)
