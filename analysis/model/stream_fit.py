"""DRAM's answer to a load, fitted to one calibration kernel: capacity, unloaded times, stretch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median, pstdev

import pandas as pd

from analysis import frame as frames
from analysis.model.feeds import Source, sm_clock, spread
from analysis.model.stream import LINE, Stream
from analysis.model.value import Value

SATURATED = 2.5
"""Times its unloaded time that a batch takes where memory is taken to be full. By the law of the
wait that is a utilisation over 0.93 for any theta from 0.9 on, so that the capacity rests on what
was moved and little on theta: of the recorded H200, 2 to 4 instead give 4.38 to 4.43 TB/s for
reads and 3.95 to 4.01 for y <- a*x + y."""
NEARLY_FULL = 0.97
"""Utilisation beyond which a point of the curve says more of the capacity than of the wait: there
an error of 1% in the capacity changes 1 - rho by a third. Of the recorded H200, 0.96 to 0.99
give the same curve for reads."""


def fit_stream(source: Source, kernel: str, moved: float, launch: float, sms: int) -> Stream | None:
    """DRAM's answer from one calibration kernel. None: fewer than three points of one shape.

    moved: bytes for each byte read. launch: seconds of an empty kernel, taken off each time.
    """
    if (fit := _fit(source.table, kernel, moved, launch, sms)) is None:
        return None
    fits = [_fit(rows, kernel, moved, launch, sms) for rows in source.each]
    latency = spread([one.latency if one else None for one in fits])
    between = spread([one.bandwidth if one else None for one in fits])
    return Stream(
        Value(fit.bandwidth, (between**2 + fit.shapes**2) ** 0.5, "B/s", f"occupancy {kernel}"),
        Value(fit.latency, latency, "cycle", f"occupancy {kernel}"),
        fit.batch,
        fit.stretch,
    )


@dataclass(frozen=True)
class _Fit:
    latency: float
    bandwidth: float
    shapes: float
    batch: tuple[tuple[float, float], ...]
    stretch: tuple[tuple[float, float], ...]


def _fit(table: pd.DataFrame, kernel: str, moved: float, launch: float, sms: int) -> _Fit | None:
    """Batch time by lines and its stretch by load from (warps, loads, width) -> seconds.

    The combination with most numbers of warps gives the curve: its time at rho = 0 is where the
    line through its first two points begins. Another's unloaded time is what it took at its
    fewest warps, less the stretch at that load. The capacity is the median of what batches move
    that take SATURATED times as long as alone, and a little more than they reach, by the law
    s = (1 - theta*rho)/(1 - rho) through the curve's last point.
    """
    rows = frames.only(table, "occupancy", kernel)
    clock = sm_clock(table)
    if rows.empty or clock is None:
        return None
    seconds = rows["median_seconds"] - launch
    lines = rows["loads"] * rows["width"] / 4
    loads = rows["work"].map(lambda work: work["bytes_read"])
    rows = rows.assign(
        lines=lines,
        rate=moved * loads / seconds,
        cycles=seconds * clock * rows["warps"] * lines * LINE * sms / loads,
    ).sort_values("warps")
    shapes = [shape for _, shape in rows.groupby(["loads", "width"])]
    curve = max(shapes, key=len)
    if len(curve) < 3:
        return None
    first, second = curve.iloc[0], curve.iloc[1]
    slope = (second["cycles"] - first["cycles"]) / (second["rate"] - first["rate"])
    unloaded = float(first["cycles"] - max(slope, 0.0) * first["rate"])

    bandwidth, shape_spread = float(rows["rate"].max()), 0.0
    batch = {float(first["lines"]): unloaded}
    stretch: tuple[tuple[float, float], ...] = ()
    for _ in range(4):  # capacity, curve and unloaded times rest on each other; it settles at once
        stretch = _curve(curve, unloaded, bandwidth)
        seen = Stream(Value(bandwidth), Value(unloaded), stretch=stretch)
        for shape in shapes:
            least = shape.iloc[0]
            rho = min(float(least["rate"]) / bandwidth, NEARLY_FULL)
            if shape is not curve and rho < NEARLY_FULL:
                batch[float(least["lines"])] = float(least["cycles"]) / seen.slowdown(rho)
        known = Stream(Value(1.0), Value(1.0), tuple(sorted(batch.items())))
        times = rows["cycles"] / rows["lines"].map(known.batch_time)
        full = rows[times >= SATURATED]
        if full.empty:
            break
        knee = replace(seen, stretch=stretch).knee
        capacities = [
            rate * (time - knee) / (time - 1)
            for rate, time in zip(full["rate"], times[full.index], strict=True)
        ]
        bandwidth, shape_spread = median(capacities), pstdev(capacities) / median(capacities)
    least_lines = min(batch)
    latency = batch[least_lines]
    relative = tuple((k, time / latency) for k, time in sorted(batch.items()))
    return _Fit(latency, bandwidth, shape_spread, relative, stretch)


def _curve(
    curve: pd.DataFrame, unloaded: float, bandwidth: float
) -> tuple[tuple[float, float], ...]:
    """(rho, stretch) of the points below NEARLY_FULL, made to rise: noise does not lower a wait."""
    points: list[tuple[float, float]] = []
    most = 1.0
    for rate, cycles in zip(curve["rate"], curve["cycles"], strict=True):
        most = max(most, float(cycles) / unloaded)
        if rate < NEARLY_FULL * bandwidth and (not points or rate / bandwidth > points[-1][0]):
            points.append((float(rate) / bandwidth, most))
    return tuple(points)
