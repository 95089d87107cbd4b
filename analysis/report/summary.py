"""The first screen: which GPU, when, how fast, what share of the limit, and what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pandas as pd

from analysis import counters, units
from analysis.frame import problems
from analysis.report.question import RunData
from results.errors import UserError


@dataclass(frozen=True)
class Tile:
    """One figure in large type, with what it is above and a remark below."""

    label: str
    value: str
    remark: str = ""


@dataclass(frozen=True)
class Summary:
    """What the first screen says of one run."""

    name: str
    gpu: str
    when: str
    """`2026-01-31, standard profile, 5 processes, 148 cases in 3 families, driver 580.1`."""
    headline: str
    tiles: list[Tile]
    problems: list[str]
    skipped: list[str]
    """What this GPU or machine cannot do, a line each: no fault of the run."""


def summarise(data: RunData) -> Summary:
    """The summary of one run, whatever families it has."""
    profiles = " and ".join(dict.fromkeys(file.run.profile for file in data.recording.files))
    families = len(data.recording.families)
    started = min(file.run.started for file in data.recording.files)
    processes = len(data.recording.processes)
    when = (
        f"{started[:10]}, {profiles} profile, {processes} {_plural(processes, 'process', 'es')}"
        f"{_fewer(data)}, "
        f"{len(data.frame):,} cases in {families} {_plural(families, 'famil', 'ies', 'y')}"
    )
    if driver := data.device.get("driver_version"):
        when += f", driver {driver}"
    ours = data.frame[(data.frame["status"] == "ok") & ~data.frame["peer"].astype(bool)]
    tiles = [tile for make in (_memory, _arithmetic, _peer) if (tile := make(data, ours))]
    tiles.append(_whole(data.frame))
    return Summary(
        name=data.name,
        gpu=str(data.device.get("name", "unknown GPU")),
        when=when,
        headline=_headline(ours),
        tiles=tiles,
        problems=[*problems(data.recording, data.frame), *_of_counters(data)],
        skipped=[
            f"{row['family']}/{row['kernel']} {row['params']}: {row['reason']}"
            for row in data.frame[data.frame["status"] == "skipped"].to_dict("records")
        ],
    )


def _of_counters(data: RunData) -> list[str]:
    """What is wrong with the hardware counters beside the run."""
    try:
        return counters.strangers(data.recording, counters.of_run(data.recording))
    except UserError as error:
        return [str(error)]


def _fewer(data: RunData) -> str:
    """` (2 for 9 of the families)` where not every family was run in every process."""
    counts = Counter(file.run.family for file in data.recording.files)
    most = len(data.recording.processes)
    fewer = [count for count in counts.values() if count < most]
    if not fewer:
        return ""
    return f" ({' to '.join(map(str, sorted({min(fewer), max(fewer)})))} for {len(fewer)} families)"


def _plural(count: int, stem: str, many: str, one: str = "") -> str:
    return stem + (one if count == 1 else many)


def _best(rows: pd.DataFrame, metric: str) -> pd.Series | None:
    return rows.loc[rows[metric].idxmax()] if rows[metric].notna().any() else None


def _headline(ours: pd.DataFrame) -> str:
    best = _best(ours, "bandwidth_of_peak")
    if best is None:
        return "no memory bandwidth was measured in this run"
    return (
        f"{units.bandwidth(best['bandwidth'])} from memory, "
        f"{units.percent(best['bandwidth_of_peak'])} of the limit"
    )


def _case(row: pd.Series) -> str:
    return f"{row['family']}, {row['kernel'].replace('_', ' ')}"


def _memory(data: RunData, ours: pd.DataFrame) -> Tile | None:
    best = _best(ours, "bandwidth_of_peak")
    if best is None:
        return None
    peak = data.number("memory_bandwidth_peak")
    limit = f" of {units.bandwidth(peak)}" if peak else ""
    return Tile(
        "Most memory bandwidth",
        units.bandwidth(best["bandwidth"]),
        f"{units.percent(best['bandwidth_of_peak'])}{limit}, by {_case(best)}",
    )


def _arithmetic(data: RunData, ours: pd.DataFrame) -> Tile | None:
    best = _best(ours, "operations_per_second")
    if best is None:
        return None
    peak = data.number("fp32_peak")
    share = ""
    if peak and best.get("dtype") == "float32":
        share = (
            f"{units.percent(best['operations_per_second'] / peak)} of {units.si(peak, 'op/s')}, "
        )
    return Tile(
        "Most arithmetic",
        units.si(best["operations_per_second"], "op/s"),
        f"{share}by {_case(best)}; one FMA counts as two",
    )


def _peer(data: RunData, ours: pd.DataFrame) -> Tile | None:
    best = _best(ours, "bandwidth_of_peak")
    if best is None or pd.isna(best["ratio_to_peer"]):
        return None
    return Tile(
        "Against the best library",
        units.ratio(best["ratio_to_peer"]),
        f"of its speed, by {_case(best)} at n = {units.raised(units.elements(best['n']))}"
        if pd.notna(best.get("n"))
        else f"of its speed, by {_case(best)} at the same work",
    )


def _whole(frame: pd.DataFrame) -> Tile:
    counts = frame["status"].value_counts()
    others = [f"{counts[name]} {name}" for name in counts.index if name != "ok"]
    return Tile("Cases measured", f"{counts.get('ok', 0):,}", ", ".join(others))
