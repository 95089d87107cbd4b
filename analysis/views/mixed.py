"""The notes' 25 warps: latency over work between accesses, against what a GPU shows."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.model.naive import counting_the_waiting_warp, warps_needed, warps_needed_per_sm
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.occupancy import SATURATED, saturation

NOTES_WORK, NOTES_LATENCY = 4, 100
"""Arithmetic instructions a load, and cycles of latency, of the course notes' example."""
LEVELS = {"l1": "L1", "l2": "L2", "dram": "DRAM"}
CLOSE = 2
"""Warps by which the notes may be off and still be right."""


def enough(data: RunData) -> Answer | None:
    """Latency, and the warps to 90% of the kernel's plateau, by where the data lie."""
    rows = _rows(data)
    if rows.empty or NOTES_WORK not in set(rows["extra_fma"]):
        return None
    table = pd.DataFrame(
        [
            _point(int(fma), str(level), curve)
            for (fma, level), curve in rows.groupby(["extra_fma", "level"])
        ]
    ).sort_values(["extra_fma", "batch_cycles"])
    own = table[table["extra_fma"] == NOTES_WORK]
    said = warps_needed(NOTES_LATENCY, NOTES_WORK)
    most = rows["warps"].max()
    parts, close = [], True
    for point in own.to_dict("records"):
        need = point["saturated_warps"]
        reached = f"at {need:.0f} warps an SM" if pd.notna(need) else f"not by {most} warps"
        parts.append(
            f"in {LEVELS[point['level']]} {reached} (a turn of one warp takes "
            f"{units.cycles(point['batch_cycles'])})"
        )
        close &= pd.notna(need) and abs(need - said) <= CLOSE
    text = (
        f"{'Yes' if close else 'No'}: the notes' kernel reaches {SATURATED:.0%} of its own "
        f"plateau {', '.join(parts)}; the "
        f"notes say {said:.0f} for a latency of {NOTES_LATENCY} cycles, which is "
        f"{counting_the_waiting_warp(NOTES_LATENCY, NOTES_WORK):.0f} with the warp that waits and "
        f"{warps_needed_per_sm(NOTES_LATENCY, NOTES_WORK):.0f} for the four schedulers of an SM"
    )
    every = data.select_processes("mixed", "mixed")
    drawn = every[["extra_fma", "level", "warps", "bandwidth"]]
    return Answer(
        text=text + ".",
        verdict="confirmed" if close else "contradicted",
        plots=(
            Plot(
                _draw,
                drawn.assign(said=said),
                "Throughput over that of one warp, against warps, for L1, L2 and DRAM",
            ),
        ),
        method=f"Persistent warps, each with one load in flight and {NOTES_WORK} dependent "
        "arithmetic instructions on what it brought, again and again. The cycles of a turn are "
        "read on the SM with one warp on it; they hold the latency, the arithmetic and the loop.",
        table=table,
        sources=data.sources("mixed"),
    )


def _rows(data: RunData) -> pd.DataFrame:
    rows = data.select("mixed", "mixed")
    if rows.empty or "bandwidth" not in rows or rows["warps"].nunique() < 3:
        return pd.DataFrame()
    return rows[rows["bandwidth"].notna()]


def _point(fma: int, level: str, curve: pd.DataFrame) -> dict[str, object]:
    first = curve.loc[curve["warps"].idxmin()]
    cycles = float(first["batch_cycles"])
    return {
        "extra_fma": fma,
        "level": level,
        "batch_cycles": cycles,
        "saturated_warps": saturation(curve),
        # The notes' rule with what was measured here in place of their 100 cycles.
        "notes_rule_a_scheduler": warps_needed(cycles, max(1, fma)),
        "notes_rule_an_sm": warps_needed_per_sm(cycles, max(1, fma)),
        "bandwidth": curve["bandwidth"].max(),
    }


def _draw(rows: pd.DataFrame) -> Figure:
    said = float(rows["said"].iloc[0])
    rows = rows[rows["extra_fma"] == NOTES_WORK].sort_values("warps")
    medians = rows.groupby(["level", "warps"])["bandwidth"].transform("median")
    alone = medians.groupby(rows["level"]).transform("first")
    rows = rows.assign(times=rows["bandwidth"] / alone, series=rows["level"].map(LEVELS))
    figure, axes = plots.figure(height=4.2)
    order = [name for name in LEVELS.values() if name in set(rows["series"])]
    plots.lines(axes, rows, "warps", "times", "series", order=order)
    ends = [rows["warps"].min(), rows["warps"].max()]
    plots.model(axes, ends, [end / ends[0] for end in ends], "every warp counts in full")
    axes.set(xlabel="resident warps an SM", ylabel="times the throughput of one warp")
    plots.log2_axis(axes, rows["warps"], "{:.0f}".format)
    powers = [2.0**k for k in range(12) if 2**k <= rows["times"].max() * 1.2]
    plots.log2_axis(axes, powers, "{:.0f}".format, "y")
    plots.limit(axes, said, f"notes: {said:.0f}", horizontal=False)
    plots.legend(axes)
    return figure


QUESTIONS = (
    Question(
        3,
        "Are 25 warps enough to hide a latency?",
        ("mixed",),
        enough,
        claim="It takes 25 warps to hide the latency of a kernel with 4 instructions a load "
        "(100 cycles / 4), wherever its data lie.",
    ),
)
