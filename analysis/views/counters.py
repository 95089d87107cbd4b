"""Hardware counters beside the record: declared bytes and our clock."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis import counters, plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from results.errors import UserError

METHOD = (
    "Nsight Compute replays each launch with L1 and L2 invalidated and the clocks left alone; only "
    "the launches of a case's queue are counted. In each cycle every resident warp is in one state."
)


def counted(data: RunData) -> pd.DataFrame:
    """analysis.counters.table of the run; empty where its counters cannot be read."""
    try:
        return counters.table(data.recording, cases=data.frame)
    except UserError:  # the first screen says what is wrong with them
        return counters.table(data.recording, [], data.frame)


def _l2(data: RunData) -> float:
    return data.number("l2_bytes") or 0.0


def sources(data: RunData, rows: list[dict[Any, Any]]) -> tuple[str, ...]:
    """Where the kernels of these rows are written."""
    kernels = dict.fromkeys((row["family"], row["kernel"]) for row in rows)
    return tuple(dict.fromkeys(source for key in kernels for source in data.sources(*key)))


def declared(data: RunData) -> Answer | None:
    """Whether every cold streaming case moves at DRAM what its kernel declares."""
    rows = [row for row in counted(data).to_dict("records") if counters.streaming(row)]
    if not rows or not _l2(data):
        return None
    off = [counters.deviation(row, _l2(data)) for row in rows]
    odd = [
        item for item in counters.suspects(pd.DataFrame(rows), _l2(data)) if item.kind == "bytes"
    ]
    worst = max(off, key=abs)
    small = sum(0 < counters.declared(row)[1] <= _l2(data) for row in rows)
    text = (
        f"{len(rows) - len(odd)} of {len(rows)} cold streaming cases move at DRAM what they "
        f"declare, within {counters.BYTES:.0%} and the {units.size(_l2(data))} of writes that L2 "
        f"may keep, which is all that {small} of them write; "
        + (
            f"the largest deviation beyond is {abs(worst):.1%}"
            if abs(worst) >= 0.0005
            else "beyond that none deviates"
        )
    )
    if odd:
        text += f". {odd[0].case}: {odd[0].text}: {odd[0].cause}"
    drawn = pd.DataFrame(
        {
            "declared": [sum(counters.declared(row)) for row in rows],
            "counted": [row["dram_read"] + row["dram_written"] for row in rows],
            "kept": [min(counters.declared(row)[1], _l2(data)) for row in rows],
            "family": [row["family"] for row in rows],
        }
    )
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_bytes, drawn, "Bytes counted at DRAM over bytes declared, by size"),),
        method=f"{METHOD} Cases from {units.size(counters.STREAMING)} on, whose data is not meant "
        "to stay in cache.",
        table=_suspects(odd) if odd else _extremes(rows, off),
        sources=sources(data, rows),
    )


def _suspects(odd: list[counters.Suspect]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "case": [item.case for item in odd],
            "deviation": [f"{item.deviation:+.1%}" for item in odd],
            "found": [item.text for item in odd],
            "cause": [item.cause for item in odd],
        }
    )


def _extremes(rows: list[dict[Any, Any]], off: list[float]) -> pd.DataFrame:
    """The case that deviates most of each kernel."""
    worst: dict[tuple[str, str], tuple[float, dict[Any, Any]]] = {}
    for row, value in zip(rows, off, strict=True):
        key = row["family"], row["kernel"]
        if key not in worst or abs(value) > abs(worst[key][0]):
            worst[key] = value, row
    return pd.DataFrame(
        {
            "case": [row["case"] for _, row in worst.values()],
            "declared": [units.size(sum(counters.declared(row))) for _, row in worst.values()],
            "dram_read": [units.size(row["dram_read"]) for _, row in worst.values()],
            "dram_written": [units.size(row["dram_written"]) for _, row in worst.values()],
            "deviation": [
                f"{(row['dram_read'] + row['dram_written']) / sum(counters.declared(row)) - 1:+.1%}"
                for _, row in worst.values()
            ],
            "beyond_l2": [f"{value:+.1%}" for value, _ in worst.values()],
        }
    )


def _draw_bytes(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    for place, (family, part) in enumerate(rows.groupby("family", sort=False)):
        axes.plot(
            part["declared"],
            part["counted"] / part["declared"],
            linestyle="",
            marker=plots.MARKERS[place % len(plots.MARKERS)],
            color=plots.PALETTE[place % len(plots.PALETTE)],
            label=str(family).replace("_", " "),
        )
    sizes = rows["declared"]
    axes.vlines(sizes, 1 - rows["kept"] / sizes, 1.0, color=plots.GREY, alpha=0.5, zorder=1)
    axes.axhline(1.0, color=plots.INK, linestyle=plots.MODEL, linewidth=1.1, zorder=1.5)
    axes.set(
        xlabel="bytes declared (grey line: writes that L2 may keep)", ylabel="counted over declared"
    )
    counted = rows["counted"] / rows["declared"]
    axes.yaxis.set_major_locator(MultipleLocator(0.05))
    plots.format_axis(axes, "{:.2f}".format)
    axes.set_ylim(min(0.85, counted.min() - 0.02), max(1.05, counted.max() + 0.02))
    axes.set_xscale("log", base=2)
    plots.ticks(axes, [2.0**e for e in _exponents(sizes)], units.size)
    plots.legend(axes, columns=4)
    return figure


def _exponents(sizes: pd.Series) -> range:
    return range(math.floor(math.log2(sizes.min())), math.ceil(math.log2(sizes.max())) + 1)


def clock(data: RunData) -> Answer | None:
    """Whether the profiler's time and ours agree for long cold kernels."""
    rows = [row for row in counted(data).to_dict("records") if counters.timed(row)]
    single = [row for row in rows if row["launches"] == 1]
    if not single:
        return None
    odd = {
        item.case: item
        for item in counters.suspects(pd.DataFrame(single), _l2(data))
        if item.kind == "time"
    }
    drawn = pd.DataFrame(
        {
            "case": [row["case"] for row in single],
            "seconds": [row["seconds"] for row in single],
            "ratio": [row["time"] / row["seconds"] for row in single],
            "spared": [counters.spared(row) for row in single],
        }
    )
    within = int(((drawn["ratio"] - 1).abs() <= counters.TIME).sum())
    more = len(single) - len(odd) - within
    text = (
        f"{'Yes' if not odd else 'Nearly always' if len(odd) <= 0.1 * len(single) else 'No'}: "
        f"{within} of {len(single)} cold kernels over {plots.short(units.seconds(counters.LONG))} "
        f"take the profiler's time within {counters.TIME:.0%}"
        + (f", and {more} more where its clean L2 spares them some writes" if more else "")
        + f"; its time over ours is {drawn['ratio'].median():.3f} in the median, "
        f"{drawn['ratio'].min():.3f} to {drawn['ratio'].max():.3f}"
    )
    if odd:
        first = next(iter(odd.values()))
        text += f". {first.case}: {first.text}: {first.cause}"
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_clock, drawn, "The profiler's time over ours against our time"),),
        method=f"{METHOD} Cases of several launches are left out: our time holds the gaps.",
        table=_times(single, odd),
        sources=sources(data, single),
    )


def _times(rows: list[dict[Any, Any]], odd: dict[str, counters.Suspect]) -> pd.DataFrame:
    """All times, the furthest apart first."""
    rows = sorted(rows, key=lambda row: -abs(row["time"] / row["seconds"] - 1))
    return pd.DataFrame(
        {
            "case": [row["case"] for row in rows],
            "ours": [units.seconds(row["seconds"]) for row in rows],
            "profiler's": [units.seconds(row["time"]) for row in rows],
            "ratio": [f"{row['time'] / row['seconds']:.3f}" for row in rows],
            "spared": [f"{counters.spared(row):.1%}" for row in rows],
            "cause": [odd[row["case"]].cause if row["case"] in odd else "" for row in rows],
        }
    )


def _draw_clock(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    low = 1 - rows["spared"]
    axes.vlines(rows["seconds"], low, 1.0, color=plots.GREY, alpha=0.5, zorder=1)
    axes.plot(rows["seconds"], rows["ratio"], linestyle="", marker="o", color=plots.BLUE)
    axes.axhspan(1 - counters.TIME, 1 + counters.TIME, color=plots.GREY, alpha=0.2, lw=0)
    axes.axhline(1.0, color=plots.INK, linestyle=plots.MODEL, linewidth=1.1, zorder=1.5)
    axes.set(
        xlabel=f"our time (grey: within {counters.TIME:.0%}; line: writes that L2 spares)",
        ylabel="profiler's over ours",
    )
    plots.log_axis(axes, units.seconds, "x")
    return figure


QUESTIONS = (
    Question(
        2,
        "Does DRAM move the bytes that the kernels declare?",
        ("axpy", "reduction"),
        declared,
    ),
    Question(
        2,
        "Does the profiler's clock agree with ours?",
        ("axpy", "reduction"),
        clock,
    ),
)
