"""How DRAM answers one mix of reads and writes: what a calibration sweep showed, as a curve.

    T(k, rho) = T0(k) * s(rho)        k lines in flight a warp, rho = X/Xm

A batch ends with its slowest line, so that T0 grows with k; and all of it stretches with the load
by the same factor s. Where no curve was measured, s is the law (1 - theta*rho)/(1 - rho).
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from analysis.model.value import Value

LINE = 128  # bytes that L1 and L2 move as one: 32 lanes x 4 bytes

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Stream:
    """Measured points, joined by straight lines.

    latency: cycles of a batch of one line on an idle machine, elapsed, so that the wait for the
    slowest SM is in it. batch: (lines, batch time over latency), by growing lines. stretch:
    (rho, s) by growing rho below 1, s never falling; empty: no curve.
    """

    bandwidth: Value
    latency: Value
    batch: Points = ((1.0, 1.0),)
    stretch: Points = ()

    def batch_time(self, lines: float) -> float:
        """T0 in cycles; straight in log2(lines), and on with the last slope beyond the ends."""
        points = [(math.log2(k), ratio) for k, ratio in self.batch]
        return self.latency.value * _straight(points, math.log2(lines))

    def slowdown(self, rho: float) -> float:
        """s(rho) for 0 <= rho < 1: from 1 through the points, then by the law through the last.

        ValueError: no curve, or another rho.
        """
        if not self.stretch:
            raise ValueError("no curve was measured: use theta")
        if not 0 <= rho < 1:
            raise ValueError(f"a utilisation lies in 0 <= rho < 1, not {rho}")
        last, first = self.stretch[-1][0], self.stretch[0]
        if rho >= last:
            return (1 - self.knee * rho) / (1 - rho)
        if rho <= first[0]:
            return 1 + (first[1] - 1) * rho / first[0]
        return _straight(self.stretch, rho)

    @property
    def knee(self) -> float:
        """theta of the law s = (1 - theta*rho)/(1 - rho) through the curve's last point."""
        rho, most = self.stretch[-1]
        return min(1.0, (1 - most * (1 - rho)) / rho)

    def shifted(self) -> Iterator[tuple["Stream", "Stream"]]:
        """For each uncertain value, this stream with it one sigma lower and higher."""
        for name in ("bandwidth", "latency"):
            value = getattr(self, name)
            if value.uncertainty > 0:
                below, above = value.shifted(-1), value.shifted(+1)
                yield replace(self, **{name: below}), replace(self, **{name: above})


def _straight(points: Sequence[tuple[float, float]], x: float) -> float:
    """The y at x on straight lines through points by growing x, and beyond their ends."""
    if len(points) == 1:
        return points[0][1]
    place = bisect_left(points, x, 1, len(points) - 1, key=itemgetter(0))
    (x0, y0), (x1, y1) = points[place - 1], points[place]
    return y0 + (x - x0) * (y1 - y0) / (x1 - x0)
