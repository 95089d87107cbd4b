"""Each model beside the measured cases of a run: which cases, as what workload, and how far off.

What feeds the parameters (`feeds.FEEDS`) and what is scored (`SCORED`) have no kernel in
common, so that no parameter can have seen a point that it predicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import pandas as pd

from analysis import frame as frames
from analysis.model import MODELS
from analysis.model.measured import Measured, measure
from analysis.model.parameters import (
    Parameters,
    Workload,
    block_capacity,
    issue_capacity,
    memory_capacity,
)
from analysis.model.waves import grid_time
from analysis.readings import label
from results.store import Recording, load

SHARE = 0.9
"""Of its own plateau: where a curve counts as saturated."""
RISING = 1 / SHARE
"""A curve whose last doubling of warps adds more than this still rises: it has no plateau yet."""
LARGE = 1 << 26
"""Elements of the AXPY from which the launch and the ramp are under 2% of the time."""
ACCUMULATORS = 8
"""Chains that the FMAs of fma_independent are spread over."""
LOOP = 23
"""Instructions of a turn of the grid-stride AXPY besides its extra FMAs, counted in the machine
code for cc 9.0: 64-bit indices and their wrap-around are most of it."""
MEMORY_BOUND = "memory-bound"
ALL = "all"
CLEAR = 1.25
"""A case counts as memory-bound where each other limit lies at least this far over DRAM's: nearer,
two resources bind at once, and it is scored as a knee in its own group and among all."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One case as the models see it. `curve` names the cases that differ in warps alone."""

    group: str
    curve: str
    parameters: Parameters
    workload: Workload
    coalesced: bool = True


@dataclass(frozen=True)
class Point:
    """One model's prediction of one case."""

    model: str
    group: str
    curve: str
    case: str
    warps: float
    memory_bound: bool
    measured: float
    """Throughput over the whole launch: B/s, or grids a second of a staircase."""
    predicted: float
    low: float
    high: float
    """The prediction's band at one standard uncertainty of the parameters."""

    @property
    def error(self) -> float:
        """Predicted over measured throughput, less 1: above 0, the model says too fast."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Score:
    """A model's errors over a group of cases, or over one curve of it."""

    model: str
    group: str
    curve: str | None
    cases: int
    mean_relative_error: float
    maximum_relative_error: float
    worst: str
    warps_to_90_predicted: float | None = None
    warps_to_90_measured: float | None = None


def setting_of(row: Row, measured: Measured) -> Setting | None:
    """The case as a workload; None where no model is asked about it."""
    of = SCORED.get((row["family"], row["kernel"]))
    return of(row, measured) if of else None


def points(
    run: frames.RunLike,
    *families: str,
    table: pd.DataFrame | None = None,
    by_process: pd.DataFrame | None = None,
) -> list[Point]:
    """Every model on every scored case of a run, or of these families alone.

    table, by_process: the run's frame and its processes, where they are known already.

    Raises:
        UserError: as `measure`.
    """
    recording = run if isinstance(run, Recording) else load(run)
    table = frames.frame(recording) if table is None else table
    measured = measure(recording, table, by_process)
    found: list[Point] = []
    for family, kernel in (*SCORED, *WAVES):
        if families and family not in families:
            continue
        for row in frames.only(table, family, kernel).to_dict("records"):
            resident = (row["launch"] or {}).get("blocks_per_sm")
            if not math.isfinite(row["median_seconds"]) or not resident:
                continue
            if (family, kernel) in WAVES:
                found += _wave_points(row, measured)
            elif (setting := setting_of(row, measured)) is not None:
                found += _points(row, setting)
    return found


def scores(found: list[Point]) -> list[Score]:
    """Per model: all memory-bound cases, all cases, each group, and each curve of warps."""
    result = _scored(MEMORY_BOUND, None, [point for point in found if point.memory_bound])
    result += _scored(ALL, None, [point for point in found if point.group != "waves"])
    for group in dict.fromkeys(point.group for point in found):
        inside = [point for point in found if point.group == group]
        result += _scored(group, None, inside)
    for curve in dict.fromkeys((point.group, point.curve) for point in found):
        inside = [point for point in found if (point.group, point.curve) == curve]
        if len({point.warps for point in inside}) > 2:
            result += _scored(*curve, inside)
    return result


def warps_to(share: float, curve: Iterable[tuple[float, float]]) -> float | None:
    """Warps at which a curve of (warps, throughput) reaches `share` of its highest point.

    Straight between points. None: its last doubling of warps still adds a ninth or more.
    """
    known = sorted(curve)
    top, end = max(y for _, y in known), known[-1][0]
    before = [y for x, y in known if x <= end / 2]
    if not before or max(before) * RISING < top:
        return None
    last: tuple[float, float] | None = None
    for x, y in known:
        if y >= share * top:
            if last is None:
                return x
            return last[0] + (share * top - last[1]) / (y - last[1]) * (x - last[0])
        last = (x, y)
    return None


def _points(row: Row, setting: Setting) -> list[Point]:
    parameters, workload = setting.parameters, setting.workload
    # what is nothing is absent from a record
    moved = row["work"].get("bytes_read", 0) + row["work"].get("bytes_written", 0)
    memory = memory_capacity(parameters, workload)
    others = min(
        issue_capacity(parameters, workload).throughput,
        block_capacity(parameters, workload).throughput,
    )
    bound = memory.resource == "dram" and others >= CLEAR * memory.throughput and setting.coalesced

    def whole(bandwidth: float) -> float:
        """B/s of the launch as a whole, its fixed cost included."""
        return moved / (moved / max(bandwidth, 1.0) + parameters.launch.value)

    found = []
    for model in MODELS:
        prediction = model.predict(parameters, workload)
        found.append(
            Point(
                model=model.name,
                group=setting.group,
                curve=setting.curve,
                case=label(row["family"], row["kernel"], row["params"]),
                warps=workload.warps,
                memory_bound=bound,
                measured=moved / row["median_seconds"],
                predicted=whole(prediction.bandwidth),
                low=whole(prediction.band[0]),
                high=whole(prediction.band[1]),
            )
        )
    return found


def _wave_points(row: Row, measured: Measured) -> list[Point]:
    """Blocks that stay a set time: the staircase has a law of its own."""
    if row.get("durations") != "equal":
        return []
    parameters = measured.persistent
    resident = 1 if row["residency"] == "one" else row["launch"]["blocks_per_sm"]
    warps = resident * row["block"] / 32
    cycles = parameters.block_turnover.value + (warps - 1) * parameters.warp_start.value
    block = (row["cycles"] + cycles) / parameters.clock.value
    seconds = grid_time(
        row["launch"]["grid"][0], parameters.sms, resident, block, parameters.launch.value
    )
    return [
        Point(
            model="waves",
            group="waves",
            curve=f"residency {row['residency']}",
            case=label(row["family"], row["kernel"], row["params"]),
            warps=row["waves"],
            memory_bound=False,
            measured=1 / row["median_seconds"],
            predicted=1 / seconds,
            low=1 / seconds,
            high=1 / seconds,
        )
    ]


def _scored(group: str, curve: str | None, inside: list[Point]) -> list[Score]:
    found = []
    for model in dict.fromkeys(point.model for point in inside):
        own = [point for point in inside if point.model == model]
        errors = [abs(point.error) for point in own]
        worst = max(own, key=lambda point: abs(point.error))
        swept = curve is not None and model != "waves"
        found.append(
            Score(
                model=model,
                group=group,
                curve=curve,
                cases=len(own),
                mean_relative_error=mean(errors),
                maximum_relative_error=max(errors),
                worst=worst.case,
                warps_to_90_predicted=_saturated(own, "predicted") if swept else None,
                warps_to_90_measured=_saturated(own, "measured") if swept else None,
            )
        )
    return found


def _saturated(own: list[Point], name: str) -> float | None:
    return warps_to(SHARE, [(point.warps, getattr(point, name)) for point in own])


def _read(row: Row, measured: Measured) -> Setting:
    return _walk(row, measured, "read", 0.0)


def _axpy(row: Row, measured: Measured) -> Setting:
    return _walk(row, measured, "axpy", 0.5)


def _walk(row: Row, measured: Measured, group: str, written: float) -> Setting:
    """The persistent sweep; `written` bytes for each byte read."""
    params = row["params"]
    bytes_ = 32.0 * params["width"]
    kind = {"block": ", one block"}.get(params["by"], "")
    if "carveout" in params:
        kind += f", carve-out {params['carveout']}%"
    return Setting(
        group,
        f"{params['loads']} x {params['width']} bytes{kind}",
        measured.persistent,
        Workload(
            warps=params["warps"], loads=params["loads"], bytes=bytes_, written=written * bytes_
        ),
    )


def _mixed(row: Row, measured: Measured) -> Setting | None:
    turn = measured.turn
    if turn is None:
        return None
    params = row["params"]
    level, fma = params["level"], params["extra_fma"]
    parameters = turn.parameters
    if level == "l1":  # every load takes the same time, so that the warps keep their order
        parameters = replace(parameters, theta_issue=turn.rhythm)
    return Setting(
        f"mixed in {level}",
        f"{fma} FMAs",
        parameters,
        Workload(
            warps=params["warps"],
            # without FMAs one addition still consumes the load
            alpha=max(1, fma),
            arithmetic=max(1, fma),
            instructions=turn.slots + fma * turn.fma_slots,
            l1_share=float(level == "l1"),
            l2_share=float(level == "l2"),
        ),
    )


def _fma(row: Row, measured: Measured) -> Setting:
    params = row["params"]
    extra, block = params["extra_fma"], params["block"]
    dependent = row["kernel"] == "fma_dependent"
    warps = row["launch"]["grid"][0] * block / 32 / measured.persistent.sms
    chains = 1 if dependent else ACCUMULATORS
    return Setting(
        "axpy with FMAs",
        f"{row['kernel']}, {params['warps']} warps",
        measured.persistent,
        Workload(
            warps=warps,
            loads=2,
            first=1,  # the FMAs need x only
            written=64,
            alpha=extra / chains + (chains > 1) * math.log2(chains),
            arithmetic=extra + 1 + (chains - 1),
            instructions=extra + LOOP + (chains - 1),
        ),
    )


def _grid_stride(row: Row, measured: Measured) -> Setting | None:
    params = row["params"]
    if params["n"] < LARGE or params.get("dtype", "float32") != "float32":
        return None
    block, launch = params["block"], row["launch"]
    blocks = min(launch["blocks_per_sm"], launch["grid"][0] / measured.persistent.sms)
    return Setting(
        "block size, grid-stride",
        f"registers {params.get('registers', 'few')}",
        measured.persistent,
        Workload(warps=blocks * math.ceil(block / 32), loads=2, written=64),
        coalesced=block % 32 == 0,
    )


ELEMENTS = {"monolithic": (1, 4), "block_monolithic": (1, 4), "unrolled": (4, 4), "vector": (1, 16)}
"""Kernels that give a thread a few elements: (loads of x, bytes of each)."""


def _dispatched(row: Row, measured: Measured) -> Setting | None:
    params = row["params"]
    if params["n"] < LARGE or params.get("dtype", "float32") != "float32":
        return None
    loads, width = ELEMENTS[row["kernel"]]
    block = params["block"]
    block_warps = math.ceil(block / 32)
    return Setting(
        f"block size, {row['kernel'].removeprefix('block_')}",
        f"registers {params.get('registers', 'few')}",
        measured.dispatched,
        Workload(
            warps=row["launch"]["blocks_per_sm"] * block_warps,
            loads=2 * loads,
            bytes=32.0 * width,
            written=16.0 * width,
            batches=1,
            block_warps=block_warps,
        ),
        coalesced=block % 32 == 0,
    )


SCORED: dict[tuple[str, str], Callable[[Row, Measured], Setting | None]] = {
    ("occupancy", "read"): _read,
    ("occupancy", "axpy"): _axpy,
    ("mixed", "mixed"): _mixed,
    ("axpy", "fma_dependent"): _fma,
    ("axpy", "fma_independent"): _fma,
    ("axpy", "grid_stride"): _grid_stride,
    ("registers", "block_grid_stride"): _grid_stride,
    ("axpy", "monolithic"): _dispatched,
    ("registers", "block_monolithic"): _dispatched,
    ("axpy", "unrolled"): _dispatched,
    ("axpy", "vector"): _dispatched,
}
WAVES = {("schedule", "staircase")}
