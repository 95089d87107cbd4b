"""What a model may know: the GPU (`Parameters`), the launch (`Workload`), and what follows at once.

Every parameter is measured by a benchmark of its own or quoted from a source; none is fitted to
a point that a model predicts. Latencies are in SM clocks, bandwidths in B/s of the whole chip,
throughputs in warp-loads per clock per SM: one warp-load is one load instruction of one warp.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from analysis.model.stream import LINE, Stream
from analysis.model.value import Value

__all__ = ["Parameters", "Value", "Workload"]

SCHEDULERS = 4  # an SM since Maxwell; each issues to at most one warp a clock

_ARITHMETIC = Value(4, 0, "cycle", "dependent FMA since Volta: published.csv")
_ISSUE = Value(4, 0, "instruction/clock/SM", "one a scheduler: programming guide")
_FMA = Value(4, 0, "warp-FMA/clock/SM", "128 FP32 lanes (cc 8.6, 8.9, 9.0): programming guide")
_RANDOM = Value(0.5, 0.3, "", "random arrivals: Pollaczek-Khinchine, see docs")
_NO_CYCLES = Value(0, 0, "cycle", "not measured")
_NO_SECONDS = Value(0, 0, "s", "not measured")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """One GPU as the models see it.

    A level's latency and bandwidth may be absent: a level without latency cannot serve a
    workload (`ValueError`), a level without bandwidth sets no limit.
    """

    gpu: str
    cc: str  # compute capability such as "9.0": the occupancy rules go by it
    sms: int
    max_warps: int  # resident per SM
    clock: Value  # Hz
    dram_latency: Value  # L0: cycles, unloaded, from a pointer chase
    dram_bandwidth: Value
    theta: Value  # knee of the loaded-latency curve, 0 < theta <= 1
    l2_latency: Value | None = None
    l2_bandwidth: Value | None = None
    l1_latency: Value | None = None
    l1_bandwidth: Value | None = None
    arithmetic_latency: Value = _ARITHMETIC
    issue_rate: Value = _ISSUE
    fma_rate: Value = _FMA
    load_issue: Value = _NO_CYCLES  # cost of each further load
    theta_issue: Value = _RANDOM
    block_turnover: Value = _NO_CYCLES  # a warp's slot between two blocks
    warp_start: Value = _NO_CYCLES  # from a block's first warp on an SM to each further one
    block_rate: Value | None = None  # blocks a second that the device starts; absent: no limit
    read: Stream | None = None  # DRAM, read only; absent: dram_latency, dram_bandwidth, theta
    update: Stream | None = None  # DRAM, a third of the traffic written; absent: as `read`
    launch: Value = _NO_SECONDS  # a launch of nothing

    def shifted(self) -> Iterator[tuple["Parameters", "Parameters"]]:
        """For each uncertain value, these parameters with it one sigma lower and higher."""
        for field in fields(self):
            quantity = getattr(self, field.name)
            pairs: Iterator[tuple[Any, Any]] = iter(())
            if isinstance(quantity, Stream):
                pairs = quantity.shifted()
            elif isinstance(quantity, Value) and quantity.uncertainty > 0:
                pairs = iter([(quantity.shifted(-1), quantity.shifted(+1))])
            for below, above in pairs:
                yield replace(self, **{field.name: below}), replace(self, **{field.name: above})

    def stream(self, workload: "Workload") -> Stream | None:
        """The measured answer of DRAM to this mix of reads and writes, if there is one."""
        return (self.update if workload.written > 0 else None) or self.read


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A launch as the models see it: each warp repeats a batch of loads, then arithmetic.

    `arithmetic` counts the floating-point instructions of a batch and `instructions` everything
    that it issues, loads and loop included; absent, they are `alpha` and `loads + arithmetic`.
    What neither L1 nor L2 serves comes from DRAM. A write is traffic but holds no warp:
    AXPY (y = a*x + y) has two loads of 128 bytes and writes 64 bytes a load.
    """

    warps: float  # n: resident per SM
    loads: int = 1  # m: independent, in flight together
    bytes: float = 128  # b: read by one warp-load, 32 lanes x width
    alpha: float = 0  # dependent arithmetic instructions a batch
    arithmetic: float | None = None
    instructions: float | None = None
    written: float = 0  # bytes written for each warp-load
    l1_share: float = 0
    l2_share: float = 0
    first: int | None = None  # of the loads, those that the arithmetic waits for; absent: all
    block_warps: int = 1  # warps of a block that lives for `batches`: their slots free together
    sms: int | None = None  # in use; absent: all
    batches: float = math.inf  # a warp's lifetime; 1 for one element a thread, inf for persistent

    def __post_init__(self) -> None:
        for name in ("warps", "loads", "bytes", "batches", "block_warps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")
        if self.sms is not None and self.sms < 1:
            raise ValueError(f"sms must be at least 1, not {self.sms}")
        for name in ("alpha", "arithmetic", "instructions", "written"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} cannot be negative: {getattr(self, name)}")
        if min(self.l1_share, self.l2_share) < 0 or self.l1_share + self.l2_share > 1 + 1e-9:
            raise ValueError("shares of L1 and L2 must be at least 0 and at most 1 together")

    @property
    def dram_share(self) -> float:
        return max(0.0, 1 - self.l1_share - self.l2_share)

    @property
    def fma(self) -> float:
        """Floating-point instructions a batch."""
        return self.alpha if self.arithmetic is None else self.arithmetic

    @property
    def issued(self) -> float:
        """Instructions of every kind a batch."""
        return self.loads + self.fma if self.instructions is None else self.instructions

    @property
    def lines(self) -> float:
        """128-byte lines of a batch: a warp-load of 16 bytes a lane is four of them."""
        return max(1.0, self.loads * self.bytes / LINE)

    @property
    def concurrency(self) -> float:
        """n*m: warp-loads that an SM may have in flight."""
        return self.warps * self.loads


@dataclass(frozen=True)
class Capacity:
    """The most that a resource lets through, in warp-loads per clock per SM."""

    throughput: float
    limiter: str  # 'bandwidth' | 'issue' | 'blocks'
    resource: str  # 'dram' | 'l2' | 'l1' | 'issue' | 'fma' | 'blocks'


def memory_latency(parameters: Parameters, workload: Workload) -> float:
    """L0 of one load in cycles: the mean over the levels that serve it.

    ValueError: no latency of such a level.
    """
    total = 0.0
    for level in ("l1", "l2", "dram"):
        share = getattr(workload, f"{level}_share")
        latency = getattr(parameters, f"{level}_latency")
        if share > 0:
            if latency is None:
                raise ValueError(f"{parameters.gpu}: no {level} latency among the parameters")
            total += share * latency.value
    return total


def batch_time(parameters: Parameters, workload: Workload, lines: float | None = None) -> float:
    """Cycles until the last load of a batch is there, on an idle machine.

    Where DRAM's answer was measured by lines in flight, that; else L0 + (m - 1)*(issue cost).
    """
    stream = parameters.stream(workload)
    if stream is None or workload.dram_share < 1:
        further = (workload.loads - 1) * parameters.load_issue.value
        return memory_latency(parameters, workload) + further
    return stream.batch_time(workload.lines if lines is None else lines)


def arithmetic_time(parameters: Parameters, workload: Workload) -> float:
    """Cycles that a warp alone spends on the arithmetic of a batch.

    The dependent chain takes alpha*l_a; independent instructions cannot be issued faster than
    one scheduler, and the FMA lanes behind it, accept them.
    """
    return max(
        workload.alpha * parameters.arithmetic_latency.value,
        (workload.issued - workload.loads) * SCHEDULERS / parameters.issue_rate.value,
        workload.fma * SCHEDULERS / parameters.fma_rate.value,
    )


def unloaded_time(parameters: Parameters, workload: Workload) -> float:
    """T0 = batch + alpha*l_a + (turnover + start of its warps + slowest warp)/batches, in cycles.

    Arithmetic that needs only the `first` loads runs while the others are under way. A block
    ends with its slowest warp: the batch of all its lines over that of one warp's.
    """
    batch = batch_time(parameters, workload)
    arithmetic = arithmetic_time(parameters, workload)
    alone = batch + arithmetic
    if workload.first is not None:
        share = workload.lines * workload.first / workload.loads
        alone = max(batch, batch_time(parameters, workload, share) + arithmetic)
    together = batch_time(parameters, workload, workload.lines * workload.block_warps) - batch
    starting = (workload.block_warps - 1) * parameters.warp_start.value
    turnover = parameters.block_turnover.value + starting
    return alone + (turnover + together) / workload.batches


def memory_capacity(parameters: Parameters, workload: Workload) -> Capacity:
    """Xm = BW/(f*SMs*b) of the level that binds; a level carries what it and those below serve.

    Writes pass through to DRAM.
    """
    sms = workload.sms or parameters.sms
    stream = parameters.stream(workload)
    read = {
        "l1": 1.0,
        "l2": workload.l2_share + workload.dram_share,
        "dram": workload.dram_share,
    }
    capacities = []
    for level, share in read.items():
        bandwidth = getattr(parameters, f"{level}_bandwidth")
        if level == "dram" and stream is not None:
            bandwidth = stream.bandwidth
        traffic = share * workload.bytes + workload.written
        if bandwidth is not None and traffic > 0:
            # L1 belongs to its SM, L2 and DRAM are shared by the SMs in use
            sharing = parameters.sms if level == "l1" else sms
            capacity = bandwidth.value / (parameters.clock.value * sharing * traffic)
            capacities.append(Capacity(capacity, "bandwidth", level))
    if not capacities:
        return Capacity(math.inf, "bandwidth", "l1")
    return min(capacities, key=lambda capacity: capacity.throughput)


def issue_capacity(parameters: Parameters, workload: Workload) -> Capacity:
    """Xi = I*m/instructions, or the same for the FMA lanes where those bind first."""
    issue = Capacity(
        parameters.issue_rate.value * workload.loads / max(workload.issued, 1e-12),
        "issue",
        "issue",
    )
    if workload.fma == 0:
        return issue
    fma = Capacity(parameters.fma_rate.value * workload.loads / workload.fma, "issue", "fma")
    return min(issue, fma, key=lambda capacity: capacity.throughput)


def block_capacity(parameters: Parameters, workload: Workload) -> Capacity:
    """Xb = rate*W*m*batches/(f*SMs): W warps a block, no more blocks than the device starts."""
    if parameters.block_rate is None or math.isinf(workload.batches):
        return Capacity(math.inf, "blocks", "blocks")
    loads = workload.block_warps * workload.loads * workload.batches
    clocks = parameters.clock.value * (workload.sms or parameters.sms)
    return Capacity(parameters.block_rate.value * loads / clocks, "blocks", "blocks")
