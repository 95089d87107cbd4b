"""What a run says of each case, process by process: the numbers that verdict and history judge.

A case is judged on what its kernel measured inside itself, where it did (cycles, results a clock),
else on device time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from results.metrics import METRICS, scalar
from results.schema import Case, Scalar, key
from results.store import Recording

Key = tuple[str, str, tuple[tuple[str, Scalar], ...]]

BESIDE = {"batch_cycles"}
"""Read in kernels whose device time is what counts, for it makes their bandwidth: a mean over the
blocks leaves out what the last of them cost. On an H200 it rose by 0.8% where time rose by 2.5%."""
GATED = [
    metric
    for metric in METRICS.values()
    if metric.derive is None
    and metric.better
    and not metric.vector
    and metric.name not in BESIDE
    and (metric.unit == "cycle" or metric.name == "operations_per_clock_per_sm")
]
"""Times and rates read inside the kernel, so that neither launch nor clock is in them: preferred
to device time. What else a kernel reads (bytes, errors, ids) says what it did, not how fast."""
TRAFFIC_SHARE = 0.5
"""A case whose declared DRAM traffic fills less of its time than this at the memory's peak is
bound by what runs at the SM clock."""


@dataclass(frozen=True)
class Quantity:
    """What a case is compared in. Two sides that differ here measured different things."""

    name: str
    unit: str
    better: Literal["lower", "higher"]
    cache: str | None
    work: tuple[int, int, int] | None


@dataclass(frozen=True)
class Reading:
    """One case in one process: its number and what explains it."""

    quantity: Quantity
    value: float
    clock: float | None
    """Median SM clock, Hz, of a case that is bound by it; None elsewhere."""
    code: str | None
    launch: tuple[Any, ...]


@dataclass
class Side:
    """One case on one side, all processes."""

    readings: list[Reading] = field(default_factory=list)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    """Status -> reasons of the processes in which the case was not ok."""
    started: str = ""
    """When the first of its processes started."""

    @property
    def processes(self) -> int:
        return len(self.readings) + sum(map(len, self.reasons.values()))


def label(family: str, kernel: str, params: dict[str, Scalar]) -> str:
    """`axpy/vector[block=256,n=1024]`: the name of a case in text, JUnit and `accept --case`."""
    inner = ",".join(f"{name}={params[name]}" for name in sorted(params))
    return f"{family}/{kernel}[{inner}]" if inner else f"{family}/{kernel}"


def sides(recording: Recording) -> dict[Key, Side]:
    """Every case of a run with its processes. The self-check in each family's file is no case."""
    found: dict[Key, Side] = {}
    for file in recording.files:
        for case in file.cases:
            if case.family != file.run.family:
                continue
            side = found.setdefault(key(case), Side(started=file.run.started))
            side.started = min(side.started, file.run.started)
            if case.status != "ok":
                side.reasons.setdefault(case.status, []).append(case.reason or "no reason given")
            elif (reading := read(case, file.run.device)) is not None:
                side.readings.append(reading)
            else:
                side.reasons.setdefault("without a number", []).append("nothing to compare")
    return found


def read(case: Case, device: dict[str, Any]) -> Reading | None:
    """The number that an ok case is judged on; None where it has none over zero."""
    samples, work, launch = case.samples, case.work, case.launch
    shape = (launch.grid, launch.block, launch.dynamic_smem, launch.cluster) if launch else ()
    code = launch.code if launch else None
    declared = (work.bytes_read, work.bytes_written, work.operations) if work else None
    cache = samples.cache if samples else None
    for metric in GATED:
        value = case.metrics.get(metric.name)
        if value and (number := scalar(value)) > 0 and metric.better:
            quantity = Quantity(metric.name, metric.unit, metric.better, cache, declared)
            return Reading(quantity, number, None, code, shape)
    if samples is None or not samples.time_s or (seconds := median(samples.time_s)) <= 0:
        return None
    quantity = Quantity("time", "s", "lower", cache, declared)
    clocks = samples.sm_clock_hz
    clock = median(clocks) if clocks and clock_bound(case, seconds, device) else None
    return Reading(quantity, seconds, clock, code, shape)


def clock_bound(case: Case, seconds: float, device: dict[str, Any]) -> bool:
    """Whether a case computes, and its DRAM traffic at the memory's peak leaves most time free."""
    peak = device.get("memory_bandwidth_peak")
    if case.work is None or not case.work.operations:
        return False
    moved = 0 if case.cache_resident else case.work.bytes_read + case.work.bytes_written
    if not moved:
        return True
    if not isinstance(peak, int | float) or not peak:
        return False
    return bool(moved / peak < TRAFFIC_SHARE * seconds)
