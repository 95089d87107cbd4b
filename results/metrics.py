"""Every metric, defined once: unit, which way is better, description, how it is derived.

bench's progress line and analysis use the same definitions. Statistics are derived here, when a
record is read; a record stores samples only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from results.schema import Case


@dataclass(frozen=True)
class Context:
    """What a derivation may look at: one case of one process, its device and its peers."""

    case: Case
    device: Mapping[str, Any]
    peer_seconds: float | None = None
    """Median time of the best peer that does the same work in the same process, s."""

    @property
    def seconds(self) -> float | None:
        samples = self.case.samples
        return median(samples.time_s) if samples and samples.time_s else None

    @property
    def clock(self) -> float | None:
        samples = self.case.samples
        return median(samples.sm_clock_hz) if samples and samples.sm_clock_hz else None

    def number(self, field: str) -> float | None:
        """A field of the device's snapshot, None where it is not a number."""
        value = self.device.get(field)
        return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True)
class Metric:
    """One quantity. `derive` is None where the kernel itself measures it."""

    name: str
    unit: str
    better: Literal["higher", "lower"] | None
    description: str
    derive: Callable[[Context], float | None] | None = None
    vector: bool = False
    """True where a list in the record is one reading over threads, blocks or SMs; otherwise a
    list holds one entry a sample, and its median is the value."""


def _bandwidth(context: Context) -> float | None:
    work, seconds = context.case.work, context.seconds
    if work is None or not seconds or not work.bytes_read + work.bytes_written:
        return None
    return (work.bytes_read + work.bytes_written) / seconds


def _bandwidth_of_peak(context: Context) -> float | None:
    bandwidth, peak = _bandwidth(context), context.number("memory_bandwidth_peak")
    if bandwidth is None or not peak or context.case.cache_resident:
        return None
    return bandwidth / peak


def _utilisation(context: Context) -> float | None:
    bandwidth = context.case.metrics.get("load_bandwidth")
    peak = context.number("memory_bandwidth_peak")
    return scalar(bandwidth) / peak if bandwidth is not None and peak else None


def _operations_per_second(context: Context) -> float | None:
    work, seconds = context.case.work, context.seconds
    return work.operations / seconds if work and work.operations and seconds else None


def _ratio_to_peer(context: Context) -> float | None:
    seconds = context.seconds
    if context.case.peer or not seconds or not context.peer_seconds:
        return None
    return context.peer_seconds / seconds


def _latency_seconds(context: Context) -> float | None:
    cycles = context.case.metrics.get("latency_cycles")
    if cycles is None or context.clock is None:
        return None
    return scalar(cycles) / context.clock


def _occupancy(context: Context) -> float | None:
    launch, limit = context.case.launch, context.number("max_threads_per_sm")
    if launch is None or launch.block is None or launch.blocks_per_sm is None or not limit:
        return None
    x, y, z = launch.block
    warps = -(-(x * y * z) // 32) * launch.blocks_per_sm
    return warps / (limit / 32)


DEFINED: tuple[Metric, ...] = (
    Metric("bandwidth", "B/s", "higher", "Declared bytes over median time", _bandwidth),
    Metric(
        "bandwidth_of_peak",
        "1",
        "higher",
        "Bandwidth over the device's peak (bus width × memory clock × 2)",
        _bandwidth_of_peak,
    ),
    Metric(
        "operations_per_second",
        "1/s",
        "higher",
        "Declared operations over median time",
        _operations_per_second,
    ),
    Metric(
        "ratio_to_peer",
        "1",
        "higher",
        "Median time of the best peer doing the same work over ours, same process",
        _ratio_to_peer,
    ),
    Metric("sm_clock", "Hz", None, "SM clock during the samples", lambda c: c.clock),
    Metric(
        "occupancy",
        "1",
        None,
        "Resident warps an SM over the most it holds, blocks by the driver",
        _occupancy,
    ),
    Metric("relative_error", "1", "lower", "Largest error against the float64 reference"),
    Metric("load_bandwidth", "B/s", None, "What load generators read while the probe ran"),
    Metric(
        "utilisation",
        "1",
        None,
        "load_bandwidth over the device's peak",
        _utilisation,
    ),
    Metric("latency_cycles", "cycle", "lower", "SM cycles from issue to use"),
    Metric(
        "latency_seconds",
        "s",
        "lower",
        "latency_cycles at the measured clock",
        _latency_seconds,
    ),
    Metric("operations_per_clock_per_sm", "1", "higher", "Results a clock an SM, read on the SM"),
    Metric("resident_blocks", "1", None, "Blocks seen resident on one SM at once, at most"),
    Metric(
        "batch_cycles",
        "cycle",
        "lower",
        "SM cycles from one batch of a warp's independent loads to its next, mean over blocks",
    ),
    Metric("loaded_bytes", "B", "lower", "Bytes that blocks load, each time counted"),
    *(
        Metric(f"driver_{name}", unit, None, f"Launches put to the driver: {what}", vector=True)
        for name, unit, what in (
            ("threads", "1", "threads a block"),
            ("registers", "1", "registers a thread"),
            ("static_smem", "B", "static shared memory a block"),
            ("dynamic_smem", "B", "dynamic shared memory a block"),
            ("blocks", "1", "its answer, resident blocks an SM"),
        )
    ),
    Metric("lane_differs", "1", None, "Share of threads with %laneid other than linear mod 32"),
    Metric("slot_differs", "1", None, "Share of threads with %warpid other than linear / 32"),
    Metric("warps_per_block", "1", None, "Warp slots that one block was seen in, at most"),
    Metric("sms_per_block", "1", None, "SMs that one block was seen on, at most"),
    Metric("sms_per_slot", "1", None, "SMs on which one %warpid was seen, at most"),
    Metric("warp_slots", "1", None, "%nwarpid: bound of the warp slot numbers"),
    Metric("thread_slot", "1", None, "%warpid of each thread, block by block", vector=True),
    Metric("thread_lane", "1", None, "%laneid of each thread, block by block", vector=True),
    Metric("thread_sm", "1", None, "%smid of each thread, block by block", vector=True),
    Metric("slot_block", "1", None, "Block in each warp slot of one SM, -1: none", vector=True),
    Metric("slot_warp", "1", None, "Its warp in that block, -1: none", vector=True),
    Metric("block_start", "s", None, "Start of each block after the first one's", vector=True),
    Metric("block_stop", "s", None, "End of each block, on the same clock", vector=True),
    Metric("block_left", "s", None, "When all warps but one had left the block", vector=True),
    Metric("block_latency", "cycle", "lower", "SM cycles a load, block by block", vector=True),
    Metric("block_sm", "1", None, "%smid of each block", vector=True),
    Metric("block_slot", "1", None, "%warpid of each block's first warp", vector=True),
    Metric("refill_cycles", "cycle", None, "SM cycles from a block's end to its successor"),
    Metric("sms_used", "1", None, "SMs on which a block of the launch was seen"),
    Metric("foreign_values", "1", None, "Words of shared memory that another block wrote"),
    Metric("shared_addresses", "1", None, "Addresses at which blocks saw one shared array"),
    Metric("sm_group", "1", None, "Group of each SM by shared clusters, -1: none", vector=True),
    Metric("sm_groups", "1", None, "Groups of SMs that clusters had joined by then"),
    Metric("host_seconds", "s", None, "Host time until a launch has returned"),
    Metric("roundtrip_seconds", "s", None, "Host time of a launch and a synchronisation"),
    Metric("branch_cycles", "cycle", "lower", "SM cycles until all paths of a branch ended"),
    Metric("overlap_cycles", "cycle", None, "SM cycles that both sides of a branch were under way"),
    Metric("arrivals", "1", None, "Different clocks at which lanes came to P after the branch"),
    Metric("statement_clock", "cycle", None, "Clock of each lane at each statement", vector=True),
    Metric("statement_mask", "1", None, "Active lanes at each statement", vector=True),
    Metric("completed_lanes", "1", "higher", "Lanes that got what they waited for"),
    Metric("handover_cycles", "cycle", "lower", "SM cycles from one lane to the one that waits"),
    Metric("wait_cycles", "cycle", "lower", "SM cycles until the last lane ended"),
    Metric("hung", "1", "lower", "1: it never ended, and its process was killed"),
    Metric("mask_seen", "1", None, "activemask of each lane at each point", vector=True),
    Metric(
        "mask_deviations",
        "1",
        "lower",
        "Share of lanes that saw another mask than the branch says, point by point",
        vector=True,
    ),
    Metric("winner", "1", None, "Thread whose write stayed, trial by trial", vector=True),
    Metric("access_cycles", "cycle", "lower", "SM cycles from one access of a warp to the next"),
    Metric("kept_share", "1", "higher", "Share of the increments that were not lost"),
    Metric("error_code", "1", None, "CUresult of the call, 0: success"),
    Metric("error_codes", "1", None, "CUresult of each call in turn, 0: success", vector=True),
    Metric(
        "lost_share",
        "1",
        "lower",
        "Share of the exact sum that the result lacks",
    ),
    # Judged by no direction: beyond the resident blocks a barrier over the grid must end so.
    Metric(
        "gave_up",
        "1",
        None,
        "Who waited in vain until its time was over: threads; at a grid's barrier their share",
    ),
    Metric("max_active_clusters", "1", None, "Clusters resident at once, by the driver"),
    Metric("bytes_per_clock_per_sm", "B", "higher", "Bytes a clock that one SM reads"),
    Metric("wrong_reads", "1", "lower", "Reads of another thread's value that found a wrong one"),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in DEFINED}


def scalar(value: float | list[float]) -> float:
    """One number for a reading: itself, or the median over samples."""
    return median(value) if isinstance(value, list) else value


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def pretty(value: float, unit: str) -> str:
    """`4.35 TB/s`, `1.755 GHz`, `4.01 cycles`, `0.9041`: four digits, for people."""
    if unit in ("1", "cycle"):
        return f"{value:.4g}" + (" cycles" if unit == "cycle" else "")
    unit = unit.removeprefix("1")  # 42.4 T/s for operations
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value / 1e-9:.4g} n{unit}" if value else f"0 {unit}"


def derive(cases: Iterable[Case], device: Mapping[str, Any]) -> list[dict[str, float]]:
    """Every metric of every case of one process, in the cases' order.

    Peers are matched here: a peer competes with a case where it did the same work and all of its
    parameters are the case's too.
    """
    cases = list(cases)
    peers = [case for case in cases if case.peer and case.status == "ok"]
    rows = []
    for case in cases:
        context = Context(case, device, _best_peer(case, peers, device))
        row = {}
        for metric in METRICS.values():
            reading = case.metrics.get(metric.name)
            if reading is not None and not metric.vector and reading != []:
                row[metric.name] = scalar(reading)
            elif metric.derive and (value := metric.derive(context)) is not None:
                row[metric.name] = value
        rows.append(row)
    return rows


def _best_peer(case: Case, peers: list[Case], device: Mapping[str, Any]) -> float | None:
    if case.work is None:
        return None
    times = [
        seconds
        for peer in peers
        if peer.family == case.family
        and peer.work == case.work
        and peer.params.items() <= case.params.items()
        and (seconds := Context(peer, device).seconds)
    ]
    return min(times, default=None)
