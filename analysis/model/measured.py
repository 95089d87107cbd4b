"""Parameters of the models from a run: only from cases that were recorded to feed them.

Their uncertainty is the standard deviation between the run's processes; that of a saturated
bandwidth also holds how much it differs by the shape of the loop. With one process the first
part is unknown and counts as none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from analysis import frame as frames
from analysis.model.curve import theta_from_curve
from analysis.model.feeds import Source, feeding, sm_clock
from analysis.model.parameters import Parameters
from analysis.model.stream import Stream
from analysis.model.stream_fit import fit_stream
from analysis.model.turn import Turn, read_turn
from analysis.model.value import Value
from results.errors import UserError
from results.store import Recording, load

UPDATE_SHARE = 1.5
"""Bytes moved for each byte read by y <- a*x + y."""
KNEE = Value(0.95, 0.03, "", "H200: no loaded_latency in this run")
"""theta where a run has no loaded-latency curve. An H200 gave 0.95 to 0.97 with loads of 16 bytes
in the background; the recorded standard run gives 0.986, 1.3 sigma away."""


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
    each = [rows for _, rows in feeding(by_process).groupby("process")]
    source = Source(recording, feeding(table), each)
    persistent = _persistent(source)
    return Measured(persistent, _dispatched(source, persistent), read_turn(source, persistent))


def _persistent(source: Source) -> Parameters:
    device = source.recording.device
    sms = int(source.number("sms"))
    launch = source.value(_launch, "s", "launch: an empty kernel") or Value(0, 0, "s", "none")
    clock = source.value(sm_clock, "Hz", "occupancy calibration")
    read = fit_stream(source, "calibration", 1.0, launch.value, sms)
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
        theta=theta or KNEE,
        l1_latency=source.value(_chased(0, 64 << 10, "ca"), "cycle", "memory: chase in L1"),
        l2_latency=source.value(_chased(1 << 20, 2 << 20, "cg"), "cycle", "memory: chase in L2"),
        block_turnover=source.value(_turnover, "cycle", "schedule: block's end to successor")
        or Value(0, 0, "cycle", "not measured"),
        warp_start=source.value(_warp_start(clock.value, sms), "cycle", "launch: empty blocks")
        or Value(0, 0, "cycle", "not measured"),
        block_rate=source.value(_block_rate, "1/s", "launch: empty grids"),
        read=read,
        update=fit_stream(source, "calibration_axpy", UPDATE_SHARE, launch.value, sms),
        launch=launch,
    )


def _dispatched(source: Source, persistent: Parameters) -> Parameters:
    """The same, but memory delivers what the best library kernel gets out of it."""
    update = persistent.update
    best = source.value(_best_peer, "B/s", "axpy: CUDA C with 16-byte accesses")
    if update is None or best is None:
        return persistent
    spread = max(best.uncertainty, update.latency.uncertainty)
    return replace(persistent, update=replace(update, bandwidth=replace(best, uncertainty=spread)))


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
