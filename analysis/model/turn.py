"""The loop of the mixed family, a load and its arithmetic, read off its calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from analysis import frame as frames
from analysis.model.feeds import Source
from analysis.model.parameters import SCHEDULERS, Parameters
from analysis.model.stream import LINE
from analysis.model.value import Value


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


def read_turn(source: Source, persistent: Parameters) -> Turn | None:
    """None: the run lacks the mixed calibration, or one of its levels."""
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
