"""Instructions: what each costs, and how warps and independent instructions hide it."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import architecture, plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.latency import beside_published, capability

METHOD = (
    "One block on one SM, timed by the SM's own clock from the first warp's start to the last "
    "warp's stop; the instructions are one loop in assembly of 256, its counter and jump 3 more."
)
FREE = 0.25
"""Cycles a switch between warps may cost and still be called free: a quarter of an issue slot."""
SCHEDULERS = 4
RATE = "operations_per_clock_per_sm"
PUBLISHED = {
    "fma.f32": "fma_f32_latency",
    "add.f32": "add_f32_latency",
    "fma.f64": "fma_f64_latency",
}


def _latency(data: RunData, op: str) -> float | None:
    """Cycles of a dependent `op`, None where the run has none."""
    rows = data.select("instruction", "chain")
    if rows.empty:
        return None
    found = rows[rows["op"] == op]["latency_cycles"]
    return float(found.iloc[0]) if len(found) else None


# Row 4: does switching between warps cost anything?


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


# Row 5: a warp goes on until an operand is missing


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


# Row 11: units, schedulers, and what an instruction costs


def schedulers(data: RunData) -> Answer | None:
    """FMAs a clock with warps on 1 to 4 sub-partitions: one warp at a time, or four?"""
    rows = data.select("instruction", "partitions")
    if rows.empty or not {1, SCHEDULERS} <= set(rows["partitions"]):
        return None
    rows = rows.sort_values("partitions")
    rate = rows.set_index("partitions")[RATE]
    at_once = rate[SCHEDULERS] / rate[1]
    latency = _latency(data, "fma.f32")
    text = (
        f"Not one warp at a time: warps on one sub-partition make {units.digits(rate[1])} FMAs a "
        f"clock, on all four {units.digits(rate[SCHEDULERS])}, {at_once:.2f} times as many, so "
        f"that up to {round(rate[SCHEDULERS] / 32)} warp-instructions are issued in a clock"
    )
    if latency is not None:
        text += f"; one warp issues its next dependent FMA after {units.cycles(latency)}"
    return Answer(
        text=text + ".",
        verdict="contradicted" if at_once > 1.5 else "confirmed",
        plots=(
            Plot(
                _draw_partitions,
                rows[["partitions", RATE]],
                "FMAs a clock against sub-partitions in use",
            ),
        ),
        method="32 warps of four independent FMA chains each; only those whose %warpid mod 4 is "
        "below the number run. That the number picks a sub-partition is observed, not promised.",
        table=rows[["partitions", RATE]],
        sources=data.sources("instruction", "partitions"),
    )


def _draw_partitions(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.2)
    bars = axes.bar(rows["partitions"], rows[RATE], color=plots.BLUE, width=0.6)
    labels = [units.digits(value) for value in rows[RATE]]
    axes.bar_label(bars, labels, label_type="center", color="white")
    plots.model(axes, rows["partitions"], 32 * rows["partitions"], "one warp a clock each")
    axes.set(xlabel="sub-partitions in use", ylabel="FMAs a clock")
    axes.set_xticks(rows["partitions"])
    axes.grid(visible=False, axis="x")
    plots.legend(axes)
    return figure


def costs(data: RunData) -> Answer | None:
    """Every op's latency and throughput beside the units that the architecture has."""
    latency = data.select("instruction", "chain")
    busy = data.select("instruction", "streams")
    if latency.empty or busy.empty:
        return None
    cc = capability(data)
    rows = pd.DataFrame(
        {
            "latency_cycles": latency.set_index("op")["latency_cycles"],
            RATE: busy.groupby("op")[RATE].max(),
        }
    ).dropna()
    if rows.empty:
        return None
    rows = rows.rename_axis("op").reset_index()
    rows["kind"] = rows["op"].map(architecture.KIND_OF)
    rows["units"] = [architecture.units(op, cc) for op in rows["op"]]
    rows["share"] = rows[RATE] / rows["units"]
    rows = rows.sort_values(RATE, ascending=False, kind="stable")
    known = rows.dropna(subset=["units"])
    best = known.loc[known.groupby("kind")["share"].idxmax()].sort_values(RATE, ascending=False)
    if len(best):
        told = ", ".join(
            f"{row.kind} {units.digits(getattr(row, RATE))} of {row.units:.0f}"
            for row in best.itertuples()
        )
        text = f"Results a clock an SM, measured of what the units allow: {told}"
    else:
        text = f"{len(rows)} instructions measured; no table of units for compute capability {cc}"
    fma = _latency(data, "fma.f32")
    if fma is not None:
        text += f"; a dependent FMA takes {units.cycles(fma)}"
    table = rows.assign(
        units=[f"{value:.0f}" if pd.notna(value) else "" for value in rows["units"]],
        published=[_published(row.op, row.latency_cycles, cc) for row in rows.itertuples()],
    )
    drawn = rows[["op", "latency_cycles", RATE, "units"]].astype({"units": "float64"})
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(
            Plot(_draw_costs, drawn, "Throughput of every op beside its units, and its latency"),
        ),
        method="Latency: one warp, each instruction needs the one before. Throughput: the most "
        "that any number of warps and independent chains reached. An op that is two instructions "
        "(rcp_add, conversions, vote, sin, cos) is counted once. " + METHOD,
        table=table[["op", "kind", "latency_cycles", RATE, "units", "published"]],
        sources=data.sources("instruction", "chain", "streams"),
    )


def _published(op: str, latency: float, cc: str) -> str:
    """The ratio to each published latency of this op, those of the architecture first."""
    if op not in PUBLISHED:
        return ""
    rows = beside_published(PUBLISHED[op], latency, cc)
    return ", ".join(f"{row.ratio:.2f}× {row.gpu}" for row in rows.itertuples())


def _draw_costs(rows: pd.DataFrame) -> Figure:
    rows = rows.sort_values([RATE, "latency_cycles"], ascending=[True, False])
    figure, (left, right) = plots.figure(
        1, 2, width=7.4, height=1.0 + 0.22 * len(rows), sharey=True, width_ratios=(1.3, 1)
    )
    left.barh(rows["op"], rows[RATE], color=plots.BLUE, height=0.66)
    left.plot(
        rows["units"],
        rows["op"],
        "|",
        color=plots.VERMILION,
        markersize=11,
        markeredgewidth=2,
        label="units an SM",
    )
    right.barh(rows["op"], rows["latency_cycles"], color=plots.GREEN, height=0.66)
    _write(left, rows[[RATE, "units"]].max(axis=1), rows[RATE])
    _write(right, rows["latency_cycles"], rows["latency_cycles"])
    left.set(xlabel="results a clock an SM", ylim=(-0.7, len(rows) - 0.3))
    right.set(xlabel="latency, cycles")
    for axes in (left, right):
        axes.grid(visible=False, axis="y")
    plots.legend(left)
    return figure


def _write(axes: Axes, ends: pd.Series, values: pd.Series) -> None:
    """Each bar's value at its end."""
    for place, (end, value) in enumerate(zip(ends, values, strict=True)):
        axes.annotate(
            units.digits(value),
            (end, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_xlim(0, 1.2 * ends.max())


def by_architecture(data: RunData) -> Answer | None:
    """Units an SM of each architecture beside what this GPU was measured to give."""
    rows = data.select("instruction", "streams")
    if rows.empty:
        return None
    cc = capability(data)
    best = rows.groupby("op")[RATE].max()
    table = pd.DataFrame(architecture.UNITS).T.rename_axis("kind").reset_index()
    measured = {
        kind: max(
            (best[op] for op, of in architecture.KIND_OF.items() if of == kind and op in best),
            default=np.nan,
        )
        for kind in table["kind"]
    }
    table["measured"] = table["kind"].map(measured)
    table = table.dropna(subset=["measured"])
    if table.empty:
        return None
    ccs = [column for column in table if column not in ("kind", "measured")]
    few = table[ccs].min(axis=1)
    many = table[ccs].max(axis=1)
    varied = [(k, a, b) for k, a, b in zip(table["kind"], few, many, strict=True) if b > a]
    constant = table["kind"][many == few].tolist()
    text = (
        f"From compute capability {ccs[0]} to {ccs[-1]} an SM has "
        + ", ".join(f"{low:.0f} to {high:.0f} units for {kind}" for kind, low, high in varied)
        if varied
        else f"From compute capability {ccs[0]} to {ccs[-1]} no kind of units differs"
    )
    if constant:
        text += f", and as many of {', '.join(constant)} throughout" if varied else ""
    drawn = table.melt(["kind", "measured"], ccs, var_name="cc", value_name="units")
    return Answer(
        text=text + f"; this GPU is a {cc}.",
        verdict="measured",
        plots=(Plot(_draw_units, drawn, "Units an SM by architecture, and measured throughput"),),
        method="Units: CUDA C++ Programming Guide, throughput of native arithmetic instructions. "
        "Measured: the best op of each kind.",
        table=table.assign(measured=table["measured"].map(units.digits)).astype(str),
        sources=data.sources("instruction", "streams"),
    )


def _draw_units(rows: pd.DataFrame) -> Figure:
    kinds = list(dict.fromkeys(rows["kind"]))
    ccs = list(dict.fromkeys(rows["cc"]))
    figure, axes = plots.figure(height=4.4)
    width = 0.8 / len(ccs)
    for number, cc in enumerate(ccs):
        part = rows[rows["cc"] == cc].set_index("kind")["units"].reindex(kinds)
        places = np.arange(len(kinds)) + (number - (len(ccs) - 1) / 2) * width
        shade = plots.SHADES(0.1 + 0.8 * number / max(1, len(ccs) - 1))
        axes.bar(places, part, width=width, color=shade, label=f"cc {cc}")
    measured = rows.drop_duplicates("kind").set_index("kind")["measured"].reindex(kinds)
    left = np.arange(len(kinds)) - 0.42
    axes.hlines(
        measured, left, left + 0.84, color=plots.VERMILION, linewidth=2.2, label="measured here"
    )
    axes.set_xticks(range(len(kinds)), [kind.replace(" ", "\n") for kind in kinds])
    axes.set(ylabel="results a clock an SM")
    axes.grid(visible=False, axis="x")
    plots.legend(axes, columns=4)
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
    Question(
        11,
        "One warp at a time in an SM?",
        ("instruction",),
        schedulers,
        claim="An SM runs one warp at a time.",
    ),
    Question(11, "What does each instruction cost?", ("instruction",), costs),
    Question(
        11, "How do the units of an SM differ by architecture?", ("instruction",), by_architecture
    ),
)
