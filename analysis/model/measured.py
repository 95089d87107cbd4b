"""Parameters of the models from a run: only from cases that were recorded to feed them.

Their uncertainty is the standard deviation between the run's processes; that of a saturated
bandwidth also holds how much it differs by the shape of the loop. With one process the first
part is unknown and counts as none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median, pstdev, stdev

import pandas as pd

from analysis import frame as frames
from analysis.model.parameters import SCHEDULERS, Parameters
from analysis.model.stream import LINE, Stream
from analysis.model.value import Value
from results.errors import UserError
from results.store import Recording, load

FEEDS = frozenset(
    {
        ("occupancy", "calibration"),
        ("occupancy", "calibration_axpy"),
        ("mixed", "calibration"),
        ("loaded_latency", "probe"),
        ("memory", "chase"),
        ("launch", "numba"),
        ("launch", "blocks"),
        ("schedule", "timeline"),
        ("instruction", "streams"),
        ("axpy", "cuda_float4"),
    }
)
"""(family, kernel) of everything that is read here. None of it is ever scored."""
SATURATED = 2.5
"""Times its unloaded time that a batch takes where memory is taken to be full."""
NEARLY_FULL = 0.97
"""Utilisation beyond which a point of the curve says more of the capacity than of the wait."""
UPDATE_SHARE = 1.5
"""Bytes moved for each byte read by y <- a*x + y."""


@dataclass(frozen=True)
class Turn:
    """The loop of one load and its arithmetic: latency by level, and issue slots."""

    parameters: Parameters
    """Latencies of a whole turn without its FMAs, which the loop's own instructions lengthen."""
    slots: float
    """Issue slots of a turn besides the FMAs."""
    fma_slots: float
    """Issue slots of an FMA of this chain: 2 where its operands share a register bank."""
    rhythm: Value
    """theta of the issue port for warps that come round in step: those that wait for L1."""


@dataclass(frozen=True)
class Measured:
    """One GPU by what its loops do: memory answers each of them otherwise."""

    persistent: Parameters
    """Resident warps walk through memory."""
    dispatched: Parameters
    """Blocks come one after another, and read memory in that order."""
    turn: Turn | None
    """None: the run has no mixed family."""


def measure(
    run: frames.RunLike,
    table: pd.DataFrame | None = None,
    by_process: pd.DataFrame | None = None,
) -> Measured:
    """The parameters of a run; its frame and its processes, where they are known already.

    Raises:
        UserError: the run cannot be read, or lacks the calibration of the occupancy family.
    """
    recording = run if isinstance(run, Recording) else load(run)
    table = frames.frame(recording) if table is None else table
    by_process = frames.processes(recording) if by_process is None else by_process
    each = [rows for _, rows in _feeding(by_process).groupby("process")]
    source = _Source(recording, _feeding(table), each)
    persistent = _persistent(source)
    return Measured(persistent, _dispatched(source, persistent), _turn(source, persistent))


def _feeding(table: pd.DataFrame) -> pd.DataFrame:
    names = pd.MultiIndex.from_frame(table[["family", "kernel"]])
    rows = table[names.isin(FEEDS) & (table["status"] == "ok")]
    # what other kernels alone have is left out here, once, and not at each look
    kept = [name for name in rows if name in frames.RESERVED or rows[name].notna().any()]
    return rows[kept]


@dataclass(frozen=True)
class _Source:
    """A run's feeding cases: merged over processes, and process by process."""

    recording: Recording
    table: pd.DataFrame
    each: list[pd.DataFrame]

    def number(self, field: str) -> float:
        value = self.recording.device.get(field)
        if not isinstance(value, int | float):
            raise UserError(f"{self.recording.name} does not know its GPU's {field}: record again")
        return float(value)

    def value(
        self, of: Callable[[pd.DataFrame], float | None], unit: str, source: str
    ) -> Value | None:
        """`of` the merged table, with its spread over processes. None: it has no such cases."""
        centre = of(self.table)
        if centre is None:
            return None
        return Value(float(centre), _spread([of(rows) for rows in self.each]), unit, source)


def _spread(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return stdev(known) / median(known) if len(known) > 1 else 0.0


def _persistent(source: _Source) -> Parameters:
    device = source.recording.device
    sms = int(source.number("sms"))
    launch = source.value(_launch, "s", "launch: an empty kernel") or Value(0, 0, "s", "none")
    clock = source.value(_clock, "Hz", "occupancy calibration")
    read = _stream(source, "calibration", 1.0, launch.value, sms)
    if clock is None or read is None:
        raise UserError(
            f"{source.recording.name} has no calibration for the model: record the family "
            "occupancy (python -m bench run --family occupancy)"
        )
    chased = source.value(_chased(1 << 30, None), "cycle", "memory: chase through 1 GiB or more")
    theta = source.value(_theta(read), "", "loaded_latency: the fitted knee")
    return Parameters(
        gpu=str(device.get("name", "GPU")),
        cc=str(device.get("cc")),
        sms=sms,
        max_warps=int(source.number("max_threads_per_sm")) // 32,
        clock=clock,
        dram_latency=chased or read.latency,
        dram_bandwidth=read.bandwidth,
        theta=theta or Value(0.95, 0.03, "", "H200: no loaded_latency in this run"),
        l1_latency=source.value(_chased(0, 64 << 10, "ca"), "cycle", "memory: chase in L1"),
        l2_latency=source.value(_chased(1 << 20, 2 << 20, "cg"), "cycle", "memory: chase in L2"),
        block_turnover=source.value(_turnover, "cycle", "schedule: block's end to successor")
        or Value(0, 0, "cycle", "not measured"),
        warp_start=source.value(_warp_start(clock.value, sms), "cycle", "launch: empty blocks")
        or Value(0, 0, "cycle", "not measured"),
        block_rate=source.value(_block_rate, "1/s", "launch: empty grids"),
        read=read,
        update=_stream(source, "calibration_axpy", UPDATE_SHARE, launch.value, sms),
        launch=launch,
    )


def _dispatched(source: _Source, persistent: Parameters) -> Parameters:
    """The same, but memory delivers what the best library kernel gets out of it."""
    update = persistent.update
    best = source.value(_best_peer, "B/s", "axpy: CUDA C with 16-byte accesses")
    if update is None or best is None:
        return persistent
    spread = max(best.uncertainty, update.latency.uncertainty)
    return replace(persistent, update=replace(update, bandwidth=replace(best, uncertainty=spread)))


def _turn(source: _Source, persistent: Parameters) -> Turn | None:
    latencies = {
        level: source.value(_turn_time(level, persistent), "cycle", f"mixed calibration in {level}")
        for level in ("l1", "l2", "dram")
    }
    l1, l2, dram = latencies.values()
    few = source.value(_full(persistent, most=False), "slot", "mixed calibration")
    each = source.value(_fma_slots(persistent), "slot", "mixed calibration") or source.value(
        _chain_slots(persistent), "slot", "instruction: one chain a warp"
    )
    rhythm = source.value(_rhythm(persistent), "", "mixed calibration where it just fills an SM")
    if not (l1 and l2 and dram and few and each and persistent.read):
        return None
    rows = _in_l1(source.table, persistent)
    slots = few.value - each.value * float(rows["extra_fma"].min())
    read = replace(persistent.read, latency=dram, batch=((1.0, 1.0),))
    parameters = replace(persistent, l1_latency=l1, l2_latency=l2, dram_latency=dram, read=read)
    return Turn(parameters, max(1.0, slots), each.value, rhythm or persistent.theta_issue)


def _stream(source: _Source, kernel: str, moved: float, launch: float, sms: int) -> Stream | None:
    """DRAM's answer from one calibration kernel; `moved` bytes for each byte read."""
    if (fit := _fit(source.table, kernel, moved, launch, sms)) is None:
        return None
    fits = [_fit(rows, kernel, moved, launch, sms) for rows in source.each]
    latency = _spread([one.latency if one else None for one in fits])
    between = _spread([one.bandwidth if one else None for one in fits])
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
    clock = _clock(table)
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


def _clock(table: pd.DataFrame) -> float | None:
    clocks = frames.only(table, "occupancy", "calibration")["sm_clock"].dropna()
    return float(clocks.median()) if len(clocks) else None


def _launch(table: pd.DataFrame) -> float | None:
    rows = frames.only(table, "launch", "numba")
    seconds = rows["median_seconds"].dropna()
    return float(seconds.median()) if len(seconds) else None


def _chased(
    least: int, most: int | None, cache: str = "cg"
) -> Callable[[pd.DataFrame], float | None]:
    def of(table: pd.DataFrame) -> float | None:
        rows = frames.only(table, "memory", "chase")
        if rows.empty:
            return None
        rows = rows[(rows["cache"] == cache) & (rows["bytes"] >= least)]
        if most is not None:
            rows = rows[rows["bytes"] <= most]
        return float(rows["latency_cycles"].median()) if len(rows) else None

    return of


def _theta(read: Stream) -> Callable[[pd.DataFrame], float | None]:
    from analysis.model.curve import theta_from_curve

    def of(table: pd.DataFrame) -> float | None:
        rows = frames.only(table, "loaded_latency", "probe")
        if rows.empty:
            return None
        rho = (rows["load_bandwidth"] / read.bandwidth.value).tolist()
        try:
            return theta_from_curve(rho, rows["latency_cycles"].tolist()).theta.value
        except ValueError:
            return None

    return of


def _turnover(table: pd.DataFrame) -> float | None:
    rows = frames.only(table, "schedule", "timeline")
    if rows.empty or "refill_cycles" not in rows:
        return None
    return float(rows["refill_cycles"].median())


def _block_rate(table: pd.DataFrame) -> float | None:
    """Blocks of one warp that start a second."""
    return _started(table, 32)


def _warp_start(clock: float, sms: int) -> Callable[[pd.DataFrame], float | None]:
    """Cycles a warp in which an SM starts the largest blocks."""

    def of(table: pd.DataFrame) -> float | None:
        rate = _started(table, 1024)
        return None if rate is None else clock * sms / rate / (1024 / 32)

    return of


def _started(table: pd.DataFrame, block: int) -> float | None:
    """Empty blocks a second, between the two largest grids."""
    rows = frames.only(table, "launch", "blocks")
    if rows.empty:
        return None
    rows = rows[rows["block"] == block].sort_values("grid")
    if len(rows) < 2:
        return None
    small, large = rows.iloc[-2], rows.iloc[-1]
    return float(
        (large["grid"] - small["grid"]) / (large["median_seconds"] - small["median_seconds"])
    )


def _best_peer(table: pd.DataFrame) -> float | None:
    rows = frames.only(table, "axpy", "cuda_float4")
    return float(rows["bandwidth"].max()) if len(rows) else None


def _full(parameters: Parameters, most: bool) -> Callable[[pd.DataFrame], float | None]:
    """Issue slots of a turn of the full SM with the most, or the fewest, FMAs; data in L1."""

    def of(table: pd.DataFrame) -> float | None:
        rows = _in_l1(table, parameters)
        if rows.empty:
            return None
        rows = rows[rows["warps"] == rows["warps"].max()].sort_values("extra_fma")
        return float(parameters.issue_rate.value / rows.iloc[-1 if most else 0]["rate"])

    return of


def _fma_slots(parameters: Parameters) -> Callable[[pd.DataFrame], float | None]:
    """Issue slots of one FMA of the chain: between few and many of them, on a full SM."""

    def of(table: pd.DataFrame) -> float | None:
        rows = _in_l1(table, parameters)
        few, many = (_full(parameters, most)(table) for most in (False, True))
        if few is None or many is None or rows["extra_fma"].nunique() < 2:
            return None
        return (many - few) / float(rows["extra_fma"].max() - rows["extra_fma"].min())

    return of


def _chain_slots(parameters: Parameters) -> Callable[[pd.DataFrame], float | None]:
    """The same from one chain a warp and many warps, where the calibration has one count alone."""

    def of(table: pd.DataFrame) -> float | None:
        rows = frames.only(table, "instruction", "streams")
        if rows.empty:
            return None
        rows = rows[(rows["op"] == "fma.f32") & (rows["ilp"] == 1)]
        most = rows["operations_per_clock_per_sm"].max()
        return float(parameters.issue_rate.value * 32 / most) if len(rows) else None

    return of


def _rhythm(parameters: Parameters) -> Callable[[pd.DataFrame], float | None]:
    """theta_issue from so many warps that just fill the SM, where a queue shows most.

    n warps take T = n/X cycles a turn, T0 alone, and each keeps its scheduler for S of them:
    T - T0 = (1 - theta)*S*rho/(1 - rho).
    """

    def of(table: pd.DataFrame) -> float | None:
        rows = _in_l1(table, parameters)
        alone = _turn_time("l1", parameters)(table)
        if rows.empty or alone is None:
            return None
        if rows["extra_fma"].nunique() < 2:
            return None
        rows = rows[rows["extra_fma"] == rows["extra_fma"].max()].sort_values("warps")
        corner, full = rows.iloc[0], rows.iloc[-1]
        rho = corner["rate"] / full["rate"]
        if not 0 < rho < 1:
            return None
        chain = corner["extra_fma"] * parameters.arithmetic_latency.value
        wait = corner["warps"] / corner["rate"] - alone - chain
        theta = 1 - wait * full["rate"] / SCHEDULERS * (1 - rho) / rho
        return float(min(1.0, max(0.0, theta)))

    return of


def _in_l1(table: pd.DataFrame, parameters: Parameters) -> pd.DataFrame:
    """The mixed calibration in L1 with `rate`, warp-loads a clock and SM."""
    rows = frames.only(table, "mixed", "calibration")
    if rows.empty:
        return rows
    rows = rows[rows["level"] == "l1"]
    loads = rows["work"].map(lambda work: work["bytes_read"]) / LINE / parameters.sms
    seconds = rows["median_seconds"] - parameters.launch.value
    return rows.assign(rate=loads / seconds / parameters.clock.value)


def _turn_time(level: str, parameters: Parameters) -> Callable[[pd.DataFrame], float | None]:
    """Cycles of a turn of few warps less its chain of FMAs."""

    def of(table: pd.DataFrame) -> float | None:
        rows = frames.only(table, "mixed", "calibration")
        if rows.empty:
            return None
        rows = rows[rows["level"] == level].sort_values("warps")
        if rows.empty:
            return None
        row = rows.iloc[0]
        loads = row["work"]["bytes_read"] / LINE / parameters.sms / row["warps"]
        seconds = row["median_seconds"] - parameters.launch.value
        chain = row["extra_fma"] * parameters.arithmetic_latency.value
        return float(seconds * parameters.clock.value / loads - chain)

    return of
