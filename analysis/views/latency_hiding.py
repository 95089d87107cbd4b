"""Latency that is hidden: by other warps, by independent instructions, and beneath a load."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.instruction import METHOD, RATE

FREE = 0.25
"""Cycles a switch between warps may cost and still be called free: a quarter of an issue slot."""


def switching(data: RunData) -> Answer | None:
    """k warps of dependent FMAs on one scheduler: flat, then linear; the slope less one issue."""
    rows = data.select("instruction", "switch")
    if rows.empty:
        return None
    rows = rows.sort_values(["registers", "warps"])
    found = {name: _switch_cost(part) for name, part in rows.groupby("registers")}
    costs = {name: cost for name, cost in found.items() if cost is not None}
    if not costs:
        return None
    alone = float(rows[rows["warps"] == rows["warps"].min()]["latency_cycles"].median())
    issue = min(slope for slope, _ in costs.values())
    knee = alone / max(round(issue), 1)
    # The flat part: how much the last point before the knee differs from a warp alone.
    below = rows[rows["warps"] <= knee]["latency_cycles"]
    told = " and ".join(
        f"{round(cost, 2) + 0.0:+.2f} cycles with {name} registers"
        for name, (_, cost) in costs.items()
    )
    worst = max(abs(cost) for _, cost in costs.values())
    free = worst <= FREE
    text = (
        f"A dependent FMA takes {units.cycles(alone)} whether 1 or {knee:.0f} warps share the "
        f"scheduler ({units.cycles(below.max())} at most); from there each further warp "
        f"adds {units.digits(issue)} cycles, which is its own issue: a switch costs {told}"
    )
    drawn = rows[["warps", "registers", "latency_cycles"]].assign(alone=alone, issue=round(issue))
    return Answer(
        text=text + ".",
        verdict="confirmed" if free else "contradicted",
        plots=(
            Plot(
                _draw_switch,
                drawn,
                "Cycles a step of each warp against warps on one scheduler, few and most registers",
            ),
        ),
        method="Warps with %warpid divisible by 4 run a chain of FMAs, the others leave; `most` "
        "goes over as many registers as the warps' share of the register file holds. The cost is "
        "the slope past the knee less the whole cycles that an issue takes. " + METHOD,
        table=rows[["warps", "registers", "latency_cycles"]],
        sources=data.sources("instruction", "switch"),
    )


def _switch_cost(rows: pd.DataFrame) -> tuple[float, float] | None:
    """(slope past the knee in cycles a warp, slope less the issue interval)."""
    alone = rows[rows["warps"] == rows["warps"].min()]["latency_cycles"].median()
    past = rows[rows["latency_cycles"] > 1.2 * alone]
    if len(past) < 3:
        return None
    slope = float(np.polyfit(past["warps"], past["latency_cycles"], 1)[0])
    return slope, slope - max(1, round(slope))


def _draw_switch(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    rows = rows.assign(registers=rows["registers"].map("{} registers".format))
    plots.lines(axes, rows, "warps", "latency_cycles", "registers")
    warps = np.arange(1, rows["warps"].max() + 1)
    alone, issue = rows["alone"].iloc[0], rows["issue"].iloc[0]
    plots.model(axes, warps, np.maximum(alone, warps * issue), "free switching")
    axes.set(xlabel="warps on one sub-partition", ylabel="cycles until a warp's next FMA")
    plots.ticks(axes, rows["warps"], "{:.0f}".format)
    axes.set_ylim(bottom=0)
    plots.legend(axes)
    return figure


def surface(data: RunData) -> Answer | None:
    """Throughput over independent instructions a warp and warps an SM."""
    rows = _surface(data)
    if rows is None:
        return None
    parts, shown = [], []
    for op, part in rows.groupby("op", sort=False):
        top = part[RATE].max()
        # Concurrency is what counts: the least warps x ILP that reach 90%.
        enough = part[part[RATE] >= 0.9 * top].assign(product=lambda t: t["ilp"] * t["warps"])
        least = enough.sort_values(["product", "warps"]).iloc[0]
        parts.append(
            f"{least['warps']:.0f} x {least['ilp']:.0f} for {op} ({units.digits(top)} a clock)"
        )
        shown.append(part.assign(top=top))
    text = (
        "Warps and independent instructions hide latency alike; the fewest warps x independent "
        f"instructions that reach 90% of the highest rate are {', '.join(parts)}"
    )
    alone = rows[rows["ilp"] == 1].groupby("op", sort=False)[RATE].max()
    short = [
        f"{op} {units.digits(alone[op])}"
        for op, top in rows.groupby("op", sort=False)[RATE].max().items()
        if op in alone and alone[op] < 0.9 * top
    ]
    if short:
        text += (
            f". But warps alone, one chain each, stop at {', '.join(short)} a clock "
            "(docs/latency.md says why)"
        )
    drawn = pd.concat(shown)[["op", "ilp", "warps", RATE, "top"]]
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_surface, drawn, "Share of the highest throughput over ILP and warps"),),
        method=METHOD,
        table=drawn[["op", "ilp", "warps", RATE]],
        sources=data.sources("instruction", "streams"),
    )


def _surface(data: RunData) -> pd.DataFrame | None:
    """Ops that were measured over several ILP and several warps."""
    rows = data.select("instruction", "streams")
    if rows.empty:
        return None
    counts = rows.groupby("op")[["ilp", "warps"]].nunique()
    full = counts[(counts["ilp"] > 1) & (counts["warps"] > 1)].index
    rows = rows[rows["op"].isin(full)]
    return rows.sort_values(["op", "ilp", "warps"]) if len(rows) else None


def _draw_surface(rows: pd.DataFrame) -> Figure:
    ops = list(dict.fromkeys(rows["op"]))
    figure, axes = plots.figure(
        1, len(ops), width=2.2 + 2.6 * len(ops), height=3.4, sharey=True, squeeze=False
    )
    for panel, op in zip(axes[0], ops, strict=True):
        part = rows[rows["op"] == op]
        share = part.assign(share=part[RATE] / part["top"])
        grid = share.pivot_table(index="ilp", columns="warps", values="share")
        image = panel.imshow(grid, origin="lower", vmin=0, vmax=1, aspect="auto")
        for (y, x), value in np.ndenumerate(grid.to_numpy()):
            if np.isfinite(value):
                color = "#111111" if value > 0.5 else "white"  # of the cell, not of the page
                panel.text(
                    x,
                    y,
                    f"{100 * value:.0f}",
                    ha="center",
                    va="center",
                    color=color,
                    fontsize=8.5,
                    in_layout=False,
                )
        panel.set_xticks(range(len(grid.columns)), [f"{warps:.0f}" for warps in grid.columns])
        panel.set_yticks(range(len(grid.index)), [f"{ilp:.0f}" for ilp in grid.index])
        panel.set(title=f"{op}: 100 is {units.digits(part['top'].iloc[0])} a clock", xlabel="warps")
        panel.grid(visible=False)
    axes[0][0].set_ylabel("independent instructions")
    figure.colorbar(image, ax=axes, shrink=0.8, format=lambda value, _: f"{value:.0%}")
    return figure


def beneath_a_load(data: RunData) -> Answer | None:
    """How many independent FMAs fit beneath a load before it takes longer."""
    rows = data.select("instruction", "load_use")
    if rows.empty or 0 not in set(rows["fma"]):
        return None
    rows = rows.sort_values("fma")
    bare = float(rows.iloc[0]["latency_cycles"])
    flat = rows[rows["latency_cycles"] <= 1.1 * bare]["fma"].max()
    past = rows[rows["latency_cycles"] > 1.1 * bare]
    text = (
        f"A load from L2 and its use are {units.cycles(bare)} apart; {flat:.0f} independent FMAs "
        "between them cost nothing"
    )
    if len(past) >= 2:
        slope = float(np.polyfit(past["fma"], past["latency_cycles"], 1)[0])
        text += f", and past the latency each costs {units.digits(slope)} cycles"
    text += (
        ": the scoreboard stops the warp at the use, not at the load. (Between FMAs it is the "
        "compiler's stall count that waits, since their latency is fixed)"
    )
    drawn = rows[["fma", "latency_cycles"]].assign(bare=bare)
    return Answer(
        text=text + ".",
        verdict="confirmed" if flat >= 0.5 * bare or flat >= 32 else "contradicted",
        plots=(Plot(_draw_load_use, drawn, "Cycles a load and its FMAs take, against FMAs"),),
        method="One warp; each round is a load of the next address, FMAs that do not need it, and "
        "the next round's load, which does.",
        table=rows[["fma", "latency_cycles"]],
        sources=data.sources("instruction", "load_use"),
    )


def _draw_load_use(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    axes.plot(rows["fma"], rows["latency_cycles"], marker="o", color=plots.BLUE, label="measured")
    bare = rows["bare"].iloc[0]
    plots.model(axes, rows["fma"], np.maximum(bare, rows["fma"]), "max(latency, one a clock)")
    axes.set(xlabel="independent FMAs between load and use", ylabel="cycles a round")
    axes.set_ylim(bottom=0)
    plots.legend(axes)
    return figure


QUESTIONS = (
    Question(
        4,
        "Does switching between warps cost anything?",
        ("instruction",),
        switching,
        claim="Switching from one warp to another costs nothing.",
    ),
    Question(
        5, "How do warps and independent instructions hide latency?", ("instruction",), surface
    ),
    Question(
        5,
        "How long does a warp go on after a load?",
        ("instruction",),
        beneath_a_load,
        claim="After a load a warp goes on until an instruction needs what was loaded.",
    ),
)
