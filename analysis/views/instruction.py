"""Instructions: what each costs, and on which units and schedulers they run."""

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
