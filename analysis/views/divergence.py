"""Diverged warps: what paths cost, and lanes that are off."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

WARP = 32
NEAR = 0.1
"""A cost or a rate within this of what the claim says is called equal to it."""
RATE = "operations_per_clock_per_sm"
OFF = {"branch": "skip a branch", "return": "have returned", "partial": "do not exist"}


def paths(data: RunData) -> Answer | None:
    """Cycles against the number of paths, and against where in the warps the paths split."""
    rows = data.select("divergence", "paths")
    if rows.empty or rows["paths"].nunique() < 2:
        return None
    rows = rows.sort_values("paths")
    alone, most = rows.iloc[0], rows.iloc[-1]
    growth = most["branch_cycles"] / alone["branch_cycles"]
    wanted = most["paths"] / alone["paths"]
    slope = float(np.polyfit(rows["paths"], rows["branch_cycles"], 1)[0])
    text = (
        f"A warp on {most['paths']} paths takes {units.cycles(most['branch_cycles'])}, "
        f"{units.ratio(growth)} what {alone['paths']} takes "
        f"({units.cycles(alone['branch_cycles'])}): each further path adds {units.cycles(slope)}, "
        "what surrounds the switch is paid once"
    )
    serial = abs(growth / wanted - 1) <= 2 * NEAR
    figures = [Plot(_draw_paths, rows[["paths", "branch_cycles"]], "Cycles against paths")]
    stripes = data.select("divergence", "stripes")
    verdict = serial
    if not stripes.empty:
        edges, inside = _split(stripes)
        if len(edges) and len(inside):
            whole = edges["branch_cycles"].median()
            cost = whole / alone["branch_cycles"]
            text += (
                f"; two paths that split on warp edges cost {units.ratio(cost)} one path, inside "
                f"a warp {units.ratio(inside['branch_cycles'].median() / alone['branch_cycles'])}"
            )
            verdict &= abs(cost - 1) <= NEAR
        drawn = stripes[["stripe", "branch_cycles"]].assign(alone=alone["branch_cycles"])
        figures.append(Plot(_draw_stripes, drawn, "Cycles against the width of the stripes"))
    return Answer(
        text=text + ".",
        verdict="confirmed" if verdict else "contradicted",
        plots=tuple(figures),
        method="One block; each lane goes down its path of a switch, 64 dependent FMAs with a "
        "constant of its own, and the warp meets at `syncwarp`. For the warp edges, 256 threads "
        "take one of two paths in stripes.",
        table=rows[["paths", "branch_cycles"]],
        sources=data.sources("divergence", "paths"),
    )


def _split(stripes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    on_edges = stripes["stripe"] % WARP == 0
    return stripes[on_edges], stripes[~on_edges]


def _draw_paths(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    axes.plot(rows["paths"], rows["branch_cycles"], marker="o", label="measured")
    first = rows.iloc[0]
    plots.model(
        axes,
        rows["paths"],
        rows["paths"] * first["branch_cycles"] / first["paths"],
        "k times one path",
    )
    axes.set(xlabel="paths of one warp", ylabel="cycles", xlim=(0, None), ylim=(0, None))
    axes.set_xticks([1, *range(4, int(rows["paths"].max()) + 1, 4)])
    plots.legend(axes)
    return figure


def _draw_stripes(rows: pd.DataFrame) -> Figure:
    rows = rows.sort_values("stripe")
    figure, axes = plots.figure(height=3.0)
    edges = rows["stripe"] % WARP == 0
    places = np.arange(len(rows))
    colors = edges.map({True: plots.BLUE, False: plots.VERMILION})
    axes.bar(places, rows["branch_cycles"], color=colors, width=0.7)
    for label, color in (("on warp edges", plots.BLUE), ("inside warps", plots.VERMILION)):
        axes.bar([0], [0], color=color, label=label)
    plots.limit(axes, rows["alone"].iloc[0], "one path", end="end")
    axes.set_xticks(places, [str(stripe) for stripe in rows["stripe"]])
    axes.set(xlabel="threads that go one way before the next go the other", ylabel="cycles")
    axes.grid(visible=False, axis="x")
    plots.legend(axes)
    return figure


def lanes(data: RunData) -> Answer | None:
    """Results a clock against active lanes, on an SM that issues at its limit."""
    rows = data.select("divergence", "lanes")
    if rows.empty or rows["lanes"].nunique() < 2:
        return None
    full = rows.loc[rows["lanes"].idxmax()]
    share = rows[RATE] / rows["lanes"] / (full[RATE] / full["lanes"])
    worst = rows.assign(share=share).loc[(share - 1).abs().idxmax()]
    proportional = abs(worst["share"] - 1) <= NEAR
    few = rows.loc[rows["lanes"].idxmin()]
    text = (
        f"With {full['lanes']} active lanes a warp an SM does {units.digits(full[RATE])} FMAs a "
        f"clock, with {few['lanes']} it does {units.digits(few[RATE])}: "
    )
    if proportional:
        text += (
            "no other warp's threads fill the gap, whether the lanes skip a branch, have returned "
            f"or do not exist (all within {max(0.001, abs(worst['share'] - 1)):.1%} of their share)"
        )
    else:
        text += (
            f"{worst['lanes']} lanes, where the others {OFF.get(worst['off'], worst['off'])}, do "
            f"{units.ratio(worst['share'])} their share"
        )
    return Answer(
        text=text + ".",
        verdict="confirmed" if proportional else "contradicted",
        plots=(
            Plot(
                _draw_lanes,
                rows[["lanes", "off", RATE]],
                "FMAs a clock and SM against active lanes, for lanes off by three causes",
            ),
        ),
        method="Blocks of one warp, as many as an SM holds up to 32, each lane 16,384 dependent "
        "FMAs; results over the cycles from an SM's first start to its last end, median over SMs.",
        table=rows[["off", "lanes", RATE]].sort_values(["off", "lanes"]),
        sources=data.sources("divergence", "lanes"),
    )


def _draw_lanes(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    rows = rows.assign(off=rows["off"].map(OFF).fillna(rows["off"]))
    plots.lines(axes, rows, "lanes", RATE, "off")
    top = rows.loc[rows["lanes"].idxmax()]
    count = np.array([0, top["lanes"]])
    plots.model(axes, count, count * top[RATE] / top["lanes"], "share of the lanes")
    axes.set(xlabel="active lanes a warp", ylabel="FMAs a clock and SM", ylim=(0, None))
    axes.set_xticks([1, *range(4, int(rows["lanes"].max()) + 1, 4)])
    plots.legend(axes, columns=2)
    return figure


QUESTIONS = (
    Question(
        20,
        "Do the paths of a diverged warp run one after another?",
        ("divergence",),
        paths,
        claim="A diverged warp runs its paths one after another; a branch that splits on warp "
        "edges costs nothing.",
    ),
    Question(
        20,
        "Do other warps fill the lanes that are off?",
        ("divergence",),
        lanes,
        claim="Lanes that are off stay idle: no other warp's threads fill the gap.",
    ),
)
