"""Registers: what spilling costs, and where the spilled values go."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

EQUAL = 0.02
"""Bandwidths closer than this to the best are called equal."""


# Row 14: caps and spills


def spills(data: RunData) -> Answer | None:
    """Registers asked for and granted, bytes spilled, occupancy and time; where spills go."""
    rows = data.select("registers", "capped")
    if rows.empty or "blocks_per_sm" not in rows:
        return None
    granted = rows["launch"].map(lambda launch: launch.get("registers"))
    local = rows["launch"].map(lambda launch: launch.get("local_bytes"))
    if granted.isna().any() or local.isna().any():
        return None
    resident = rows["launch"].map(lambda launch: launch.get("blocks_per_sm", 1))
    resident = resident.where(rows["blocks_per_sm"] == "all", 1)
    threads = rows["launch"].map(lambda launch: launch["block"][0])
    rows = rows.assign(
        granted=granted.astype("int64"),
        local_bytes=local.astype("int64"),
        spilled_an_sm=local * resident * threads,
        blocks=rows["blocks_per_sm"].map(str),
    ).sort_values("registers")
    free = rows[rows["local_bytes"] == 0]
    whole = rows[rows["blocks"] == "all"]
    if free.empty or len(whole) < 2:
        return None
    best = whole.loc[whole["median_seconds"].idxmin()]
    tight = whole.loc[whole["registers"].idxmin()]
    cost = tight["median_seconds"] / best["median_seconds"]
    text = (
        f"Capped at {tight['registers']} registers ({tight['granted']} granted) the kernel spills "
        f"{tight['local_bytes']} bytes a thread and takes {units.ratio(cost)} the time it takes "
        f"with {best['granted']}, although its occupancy rises from "
        f"{units.percent(best['occupancy'])} to {units.percent(tight['occupancy'])}"
    )
    if (where := _where(rows)) is not None:
        text += "; " + where
    columns = ["registers", "granted", "local_bytes", "blocks", "spilled_an_sm", "occupancy"]
    return Answer(
        text=text + ".",
        verdict="confirmed" if cost > 1 + EQUAL else "contradicted",
        plots=(
            Plot(
                _draw_spills,
                whole[["granted", "local_bytes", "occupancy", "median_seconds"]],
                "Time, bytes spilled and occupancy against registers granted",
            ),
        ),
        method="One kernel that keeps 128 values of a thread alive, compiled under each cap; every "
        "SM has the same threads to run. Spilled bytes are the local memory of a thread, which "
        "nothing else uses here.",
        table=rows[[*columns, "median_seconds", "operations_per_second", "spread"]],
        sources=data.sources("registers", "capped"),
    )


def _where(rows: pd.DataFrame) -> str | None:
    """Whether spills of one block an SM cost less than those of all: L1 then holds them."""
    pace = rows.pivot_table(index="registers", columns="blocks", values="operations_per_second")
    if not {"all", "1"} <= set(pace):
        return None
    both = pace.dropna()
    amounts = rows.set_index(["registers", "blocks"])["local_bytes"]
    spilling = [cap for cap in both.index if amounts[cap, "all"] > 0]
    if not spilling:
        return None
    cap = spilling[0]
    sizes = rows.set_index(["registers", "blocks"])["spilled_an_sm"]
    gain = pace.loc[cap, "all"] / pace.loc[cap, "1"]
    held = sizes[cap, "1"], sizes[cap, "all"]
    if gain < 1:
        return (
            f"with one block an SM, whose spills are {units.size(held[0])}, it is "
            f"{units.ratio(1 / gain)} as fast as with {units.size(held[1])} of spills an SM: the "
            "smaller stay in L1, the larger go to L2"
        )
    return (
        f"{units.size(held[1])} of spills an SM cost no more than {units.size(held[0])}, so that "
        "what lies behind L1 is not what limits it"
    )


def _draw_spills(rows: pd.DataFrame) -> Figure:
    figure, (above, middle, below) = plots.figure(3, 1, height=6.0, sharex=True)
    for axes, column, form, label in (
        (above, "median_seconds", units.seconds, "time"),
        (middle, "local_bytes", units.size, "spilled a thread"),
        (below, "occupancy", units.percent, "occupancy"),
    ):
        axes.plot(rows["granted"], rows[column], marker="o", color=plots.BLUE, clip_on=False)
        axes.set(ylabel=label)
        axes.set_ylim(bottom=0)
        plots.format_axis(axes, form)
    below.set(xlabel="registers a thread, granted")
    plots.ticks(below, rows["granted"], "{:.0f}".format)
    return figure


QUESTIONS = (
    Question(
        14,
        "What does it cost when registers spill?",
        ("registers",),
        spills,
        claim="Registers that spill to local memory cost time, even where more warps are resident.",
    ),
)
