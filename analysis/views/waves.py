"""Waves of blocks: the staircase of time against the grid, and where it is smoothed away."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.model.waves import blocks_of_waves, grid_time, waves
from analysis.report.question import Answer, Plot, Question, RunData

COURSE = 1.25
"""Waves of the notes' example: 100 blocks on 80 SMs."""
CLOSE = 0.05
"""A staircase within this of the prediction holds: a launch is some 2 µs beside blocks of 11."""
SERIES = {
    ("staircase", "equal", "one"): "equal, one an SM",
    ("staircase", "unequal", "one"): "unequal, one an SM",
    ("staircase", "equal", "full"): "equal, SM full",
    ("staircase_arithmetic", "", "full"): "arithmetic, SM full",
}


def staircase(data: RunData) -> Answer | None:
    """Time of grids of half a wave to four against whole waves of blocks."""
    rows = _rows(data)
    if rows is None:
        return None
    equal = rows[rows["series"] == SERIES["staircase", "equal", "one"]]
    course = equal[equal["waves"] == COURSE]
    if course.empty:
        return None
    row = course.iloc[0]
    wave = blocks_of_waves(row["blocks"], row["slots"], 1)
    measured, predicted = row["in_blocks"], row["predicted_in_blocks"]
    error = (equal["median_seconds"] / equal["predicted"] - 1).abs()
    holds = bool(error.max() <= CLOSE)
    text = (
        f"100 blocks on 80 SMs are here {row['blocks']} on {row['slots']}: they run as "
        f"{' and then '.join(map(str, wave))}, in {measured:.2f} times the "
        f"{units.seconds(row['one'])} of one block where whole waves say {predicted:.2f}; "
        "equal blocks, one an SM, follow the "
        f"staircase within {units.percent(error.max())}"
    )
    smooth = _at(rows, ("staircase", "unequal", "one"))
    if smooth is not None:
        text += (
            f", while blocks of unequal length, whose places are refilled one by one, take "
            f"{smooth['in_blocks']:.2f} times their mean"
        )
    work = _at(rows, ("staircase_arithmetic", "", "full"))
    if work is not None:
        faster = work["in_blocks"] < (1 - CLOSE) * work["predicted_in_blocks"]
        text += (
            f"; where blocks that compute share an SM, 1.25 waves take {work['in_blocks']:.2f} "
            "times one wave" + (", for a last wave that is not full runs faster" if faster else "")
        )
    columns = ["series", "waves", "blocks", "median_seconds", "predicted", "spread"]
    return Answer(
        text=text + ".",
        verdict="confirmed" if holds else "contradicted",
        plots=(
            Plot(_draw, rows, "Time in blocks' durations against waves, for four kinds of block"),
        ),
        method="Blocks stay a set number of cycles, so the prediction takes nothing from these "
        "points: waves x cycles at the measured clock, and an empty kernel's time for the launch. "
        "Blocks that compute are predicted from their own single wave.",
        table=rows[columns],
        sources=data.sources("schedule", "staircase", "staircase_arithmetic"),
    )


def _rows(data: RunData) -> pd.DataFrame | None:
    """A row a grid: series, blocks, slots, time, its prediction, both in blocks' durations."""
    rows = data.select("schedule", "staircase", "staircase_arithmetic")
    if rows.empty:
        return None
    sms = data.number("sms")
    if not sms or "waves" not in rows:
        return None
    empty = data.select("selfcheck", "empty")
    launch = float(empty["median_seconds"].iloc[0]) if not empty.empty else 0.0
    durations = rows["durations"].fillna("") if "durations" in rows else ""
    rows = rows.assign(
        blocks=[launch["grid"][0] for launch in rows["launch"]],
        resident=[launch.get("blocks_per_sm") or 1 for launch in rows["launch"]],
        durations=durations,
    )
    rows["slots"] = (rows["resident"] * sms).astype(int)
    named = zip(rows["kernel"], rows["durations"], rows["residency"], strict=True)
    rows["series"] = [SERIES.get(key) for key in named]
    rows = rows[rows["series"].notna()].sort_values(["series", "waves"])
    rows["one"] = _block_seconds(rows, launch)
    rows = rows[rows["one"].notna()]
    rows["predicted"] = [
        grid_time(row["blocks"], int(sms), row["resident"], row["one"], launch)
        for row in rows.to_dict("records")
    ]
    rows["predicted_in_blocks"] = [
        float(waves(row["blocks"], int(sms), row["resident"])) for row in rows.to_dict("records")
    ]
    rows["in_blocks"] = (rows["median_seconds"] - launch) / rows["one"]
    return rows if not rows.empty else None


def _block_seconds(rows: pd.DataFrame, launch: float) -> pd.Series:
    """A block's duration: its cycles at the measured clock, or its series' single wave."""
    own = rows["cycles"] / rows["sm_clock"] if "cycles" in rows else rows["waves"] * float("nan")
    single = rows[rows["waves"] == 1.0].set_index("series")["median_seconds"] - launch
    return own.fillna(rows["series"].map(single))


def _at(rows: pd.DataFrame, series: tuple[str, str, str]) -> pd.Series | None:
    found = rows[(rows["series"] == SERIES[series]) & (rows["waves"] == COURSE)]
    return None if found.empty else found.iloc[0]


def _draw(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    order = [name for name in SERIES.values() if name in set(rows["series"])]
    plots.lines(axes, rows, "waves", "in_blocks", "series", order=order)
    steps = rows.drop_duplicates("waves").sort_values("waves")
    axes.step(
        [0, *steps["waves"]],
        [1, *steps["predicted_in_blocks"]],
        where="pre",
        color=plots.INK,
        linestyle=plots.MODEL,
        linewidth=1.4,
        label="whole waves",
        zorder=1.5,
    )
    axes.set(xlabel="waves: blocks over places", ylabel="time over a block's", ylim=(0, None))
    plots.legend(axes, columns=3)
    return figure


QUESTIONS = (
    Question(
        9,
        "Do 100 blocks on 80 SMs run as 80, then 20?",
        ("schedule",),
        staircase,
        claim="Blocks that last equally long run in whole waves: 100 on 80 SMs as 80, then 20.",
    ),
)
