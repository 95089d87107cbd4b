"""Memory's latency: by footprint, under load, and from each SM; beside published figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plateaus, plots, units
from analysis.model import published, theta_from_curve
from analysis.model.queueing import loaded_latency
from analysis.report.question import Answer, Plot, Question, RunData

CLAIMED = 100
"""Cycles that the notes assume for a load."""
NEAR = 0.2
"""Share by which a measured latency may differ from the claimed one and still confirm it."""
LEVELS = {"l1": "L1", "l2_near": "near L2", "l2_far": "far L2", "dram": "DRAM"}
QUANTITIES = {
    "L1": "l1_latency",
    "near L2": "l2_latency",
    "DRAM": "dram_latency",
    "shared memory": "shared_latency",
}
"""Level -> quantity in results/reference/published.csv."""
CACHES = {"ca": "through L1 (.ca)", "cg": "past L1 (.cg)"}
METHOD = (
    "One warp follows absolute addresses through a random cycle of 128-byte lines; nothing lies "
    "between two loads, and no launch meets a line again before the whole cycle has passed. Up to "
    "twice L2 its SM reads the whole cycle once before it, in the same order. "
    "Plateaus are found in the curve, not set by sizes. Random chases over gigabytes include "
    "misses in the page tables' caches."
)


def capability(data: RunData) -> str:
    """The device's compute capability, as 9.0."""
    cc = data.device.get("cc")
    return ".".join(map(str, cc)) if isinstance(cc, list | tuple) else str(cc)


def beside_published(quantity: str, value: float, cc: str) -> pd.DataFrame:
    """Published figures of a quantity, those of the same architecture first, and the ratio."""
    rows = [
        {
            "gpu": gpu,
            "architecture": figure.architecture,
            "published": figure.value,
            "ratio": value / figure.value,
            "same": figure.cc == cc,
        }
        for (gpu, name), figure in published.figures().items()
        if name == quantity
    ]
    table = pd.DataFrame(rows, columns=["gpu", "architecture", "published", "ratio", "same"])
    return table.sort_values("same", ascending=False, kind="stable")


def _curve(rows: pd.DataFrame, cache: str) -> tuple[list[float], list[float]]:
    chosen = rows[rows["cache"] == cache].sort_values("bytes")
    return chosen["bytes"].tolist(), chosen["latency_cycles"].tolist()


# Row 3: the latency that warps have to hide


def by_level(data: RunData) -> Answer | None:
    """Latency of each level of memory, against the 100 cycles that the notes assume."""
    rows = data.select("memory", "chase")
    if rows.empty or not {"ca", "cg"} <= set(rows["cache"]):
        return None
    found = plateaus.levels(_curve(rows, "ca"), _curve(rows, "cg"))
    if "dram" not in found:
        return None
    levels = {LEVELS[name]: plateau for name, plateau in found.items()}
    measured = {name: plateau.latency for name, plateau in levels.items()}
    close = [name for name, value in measured.items() if abs(value / CLAIMED - 1) <= NEAR]
    shared = data.select("memory", "chase_shared")
    table = pd.DataFrame(
        {
            "level": list(levels),
            "latency_cycles": list(measured.values()),
            "from": [units.size(plateau.first) for plateau in levels.values()],
            "to": [units.size(plateau.last) for plateau in levels.values()],
        }
    )
    for name, kernel in (("shared memory", "chase_shared"), ("texture", "chase_texture")):
        other = data.select("memory", kernel)
        if not other.empty:
            latency = other["latency_cycles"].median()
            sizes = {"from": "", "to": units.size(other["bytes"].max())}
            table.loc[len(table)] = {"level": name, "latency_cycles": latency, **sizes}
    clock = rows["sm_clock"].median()
    if pd.notna(clock):
        table["latency_seconds"] = table["latency_cycles"] / clock
    spread = _spread(data, rows, levels)
    steps = ", ".join(
        f"{units.cycles(plateau.latency)} from {name}"
        + (f" (up to {units.size(plateau.last)})" if name != LEVELS["dram"] else "")
        for name, plateau in levels.items()
    )
    text = f"A load takes {steps}"
    if not shared.empty:
        text += f", and {units.cycles(shared['latency_cycles'].median())} from shared memory"
    text += (
        f"; the notes' {CLAIMED} cycles are those of {' and '.join(close)}"
        if close
        else f"; the notes' {CLAIMED} cycles are those of no level"
    )
    if spread is not None:
        text += f". Processes differ by at most {units.percent(spread)}"
    every = data.select_processes("memory", "chase")
    drawn = every.assign(series=every["cache"].map(CACHES), level="")
    drawn = drawn[["series", "bytes", "latency_cycles", "level"]]
    ends = [
        {"series": "", "bytes": size, "latency_cycles": plateau.latency, "level": name}
        for name, plateau in levels.items()
        for size in (plateau.first, plateau.last)
    ]
    compared = _published(table, capability(data))
    return Answer(
        text=text + ".",
        verdict="confirmed" if close else "contradicted",
        plots=(
            Plot(
                _draw_curve,
                pd.concat([drawn, pd.DataFrame(ends)], ignore_index=True),
                "Latency against footprint, through L1 and past it, plateaus named",
            ),
            *(
                (Plot(_draw_published, compared, "Latency here beside published figures"),)
                if len(compared)
                else ()
            ),
        ),
        method=METHOD,
        table=table,
        sources=data.sources("memory", "chase", "chase_shared"),
    )


def _spread(data: RunData, rows: pd.DataFrame, levels: dict[str, plateaus.Plateau]) -> float | None:
    """Largest range of a plateau's median over the processes, relative; None for one process."""
    every = data.select_processes("memory", "chase")
    if every["process"].nunique() < 2:
        return None
    worst = 0.0
    for name, plateau in levels.items():
        part = every[
            every["bytes"].between(plateau.first, plateau.last)
            & (every["cache"] == ("ca" if name == "L1" else "cg"))
        ]
        medians = part.groupby("process")["latency_cycles"].median()
        worst = max(worst, float((medians.max() - medians.min()) / medians.median()))
    return worst


def _published(table: pd.DataFrame, cc: str) -> pd.DataFrame:
    """Ours over published, for every level that somebody published."""
    parts = [
        beside_published(QUANTITIES[level], latency, cc).assign(level=level, measured=latency)
        for level, latency in zip(table["level"], table["latency_cycles"], strict=True)
        if level in QUANTITIES
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _draw_curve(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(width=7.4, height=4.2)
    measured = rows[rows["level"] == ""]
    plots.lines(axes, measured, "bytes", "latency_cycles", "series", order=list(CACHES.values()))
    axes.set(xlabel="footprint", ylabel="latency, cycles")
    axes.set_ylim(0, 1.12 * measured["latency_cycles"].max())
    plots.log2_axis(axes, measured["bytes"], units.size)
    for name, ends in rows[rows["level"] != ""].groupby("level", sort=False):
        latency = ends["latency_cycles"].iloc[0]
        plots.model(axes, ends["bytes"], ends["latency_cycles"])
        axes.annotate(
            f"{name}: {units.digits(latency)}",
            (ends["bytes"].min(), latency),
            xytext=(0, 7),
            textcoords="offset points",
            ha="right" if name == LEVELS["l2_far"] else "left",
            fontsize=9,
        )
    plots.legend(axes)
    return figure


def _draw_published(rows: pd.DataFrame) -> Figure:
    levels = list(dict.fromkeys(rows["level"]))
    figure, axes = plots.figure(width=7.4, height=1.5 + 0.5 * len(levels))
    here = rows.drop_duplicates("level")
    axes.scatter(
        here["measured"],
        here["level"],
        s=150,
        facecolors="none",
        edgecolors=plots.INK,
        linewidths=1.6,
        label="this GPU",
        zorder=4,
    )
    rows = rows.sort_values("same", ascending=False, kind="stable")
    for place, ((architecture, gpu), part) in enumerate(
        rows.groupby(["architecture", "gpu"], sort=False)
    ):
        axes.scatter(
            part["published"],
            part["level"],
            s=42,
            color=plots.PALETTE[place % len(plots.PALETTE)],
            marker=plots.MARKERS[(place + place // len(plots.PALETTE)) % len(plots.MARKERS)],
            alpha=0.9,
            label=f"{gpu} ({architecture})",
            zorder=3,
        )
    axes.set(xlabel="latency, cycles", ylim=(len(levels) - 0.5, -0.5))
    plots.log_axis(axes, "{:.0f}".format, "x")
    plots.legend(axes, columns=3)
    return figure


def under_load(data: RunData) -> Answer | None:
    """How latency grows with the load on DRAM, and the knee in it."""
    rows = data.select("loaded_latency", "probe")
    if rows.empty or not rows["utilisation"].notna().any():
        return None
    rows = rows.dropna(subset=["utilisation", "latency_cycles"]).sort_values("utilisation")
    idle = rows[rows["warps"] == 0]["latency_cycles"]
    if idle.empty or len(rows) < 5:
        return None
    unloaded = float(idle.median())
    fits = {width: _knee(part) for width, part in rows.groupby("width")}
    known = {width: fit for width, fit in fits.items() if fit is not None}
    heaviest = rows.iloc[-1]
    text = (
        f"An idle DRAM answers in {units.cycles(unloaded)}; at "
        f"{units.percent(heaviest['utilisation'])} of the peak, the most that the load generators "
        f"reach, in {units.cycles(heaviest['latency_cycles'])}"
    )
    twice = rows[rows["latency_cycles"] >= 2 * unloaded]["utilisation"]
    if len(twice):
        text += f"; it has doubled at {units.percent(twice.min())}"
    if known:
        knees = " and ".join(
            f"θ = {fit:.3f} with {width}-byte loads" for width, fit in known.items()
        )
        text += f". The queueing law fits it with {knees}"
    every = data.select_processes("loaded_latency", "probe").dropna(subset=["utilisation"])
    drawn = every.assign(
        series=every["width"].map("{:.0f}-byte loads".format), theta=np.nan, unloaded=unloaded
    )[["series", "utilisation", "latency_cycles", "theta", "unloaded"]]
    for width, theta in known.items():
        drawn.loc[drawn["series"] == f"{width:.0f}-byte loads", "theta"] = theta
    columns = ["width", "warps", "pause", "utilisation", "load_bandwidth", "latency_cycles"]
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_load, drawn, "Latency against utilisation of DRAM, with the law"),),
        method="One warp chases through DRAM on an SM of its own while all others read, with a "
        "pause between batches. The generators count their bytes, and the probe reads the counts "
        "when its chase begins and ends. θ is how hard the limit is: at 1 nothing waits below it, "
        "with less the wait grows sooner.",
        table=rows[columns],
        sources=data.sources("loaded_latency", "probe"),
    )


def _knee(rows: pd.DataFrame) -> float | None:
    """theta of the curve; None where its points do not carry one."""
    try:
        fit = theta_from_curve(rows["utilisation"].tolist(), rows["latency_cycles"].tolist())
    except ValueError:
        return None
    return fit.theta.value


def _draw_load(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    for color, marker, (name, part) in zip(
        plots.PALETTE, plots.MARKERS, rows.groupby("series", sort=False), strict=False
    ):
        points = {"color": color, "marker": marker, "linestyle": "none", "label": name}
        axes.plot(part["utilisation"], part["latency_cycles"], **points)
        theta, unloaded = part["theta"].iloc[0], part["unloaded"].iloc[0]
        if pd.notna(theta):
            x = np.linspace(0, min(0.99, part["utilisation"].max()), 100)
            law = [unloaded * loaded_latency(value, theta) for value in x]
            plots.model(axes, x, law, f"law, θ = {theta:.3f}", color)
    axes.set(xlabel="DRAM bandwidth in use, of the peak", ylabel="latency, cycles")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    plots.format_axis(axes, "{:.0%}".format, "x")
    plots.legend(axes, columns=2)
    return figure


# Row 10: an SM's place on the chip


def by_sm(data: RunData) -> Answer | None:
    """Whether all SMs are equally far from L2."""
    cases = [
        case for _, case in data.vectors("memory", "chase_by_sm") if "block_latency" in case.metrics
    ]
    if not cases:
        return None
    frames = [
        pd.DataFrame(
            {"sm": case.metrics["block_sm"], "latency_cycles": case.metrics["block_latency"]}
        )
        for case in cases
    ]
    rows = pd.concat(frames).groupby("sm", as_index=False)["latency_cycles"].median()
    low, high = rows["latency_cycles"].min(), rows["latency_cycles"].max()
    differ = high / low - 1
    size = units.size(float(cases[0].params["bytes"]))
    text = (
        f"Over the same {size} in L2, the nearest SM waits {units.cycles(low)} and the farthest "
        f"{units.cycles(high)}, {units.percent(differ)} more"
    )
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_sms, rows, "Latency of L2 from each SM"),),
        method="One warp on each SM follows the same cycle of lines, each from another start; "
        "one load an SM in flight is far too little to queue. Median over processes.",
        table=rows,
        sources=data.sources("memory", "chase_by_sm"),
    )


def _draw_sms(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.2)
    axes.plot(rows["sm"], rows["latency_cycles"], "o", color=plots.BLUE, markersize=4)
    axes.set(xlabel="SM", ylabel="latency, cycles")
    return figure


QUESTIONS = (
    Question(
        3,
        "How long does a load take, level by level?",
        ("memory",),
        by_level,
        claim="A load takes about 100 cycles, from one level of memory at least.",
        asked_first="How long does a load take?",
    ),
    Question(3, "What does load do to latency?", ("loaded_latency",), under_load),
    Question(10, "Is every SM equally far from L2?", ("memory",), by_sm),
)
