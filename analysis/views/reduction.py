"""Reductions: what each step of the course gains, what it costs in accuracy, and CUB over n."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

AXES = {"n", "dtype"}
"""Parameters of a case in which nothing else was varied."""
OTHERS = ("ratio_to_peer", "relative_error", "spread")
ROUNDOFF = 2.0**-24
"""Unit roundoff of float32: a smaller error is luck, and is drawn at this value."""
ROUNDED = 2 * ROUNDOFF
"""Up to here an error is that of rounding the result to float32, which says nothing of the sum."""


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """float32 sums with the launch that each kernel chooses by itself."""
    if rows.empty:
        return rows
    return rows[(rows["params"].map(set) == AXES) & (rows["dtype"] == "float32")]


def _name(kernel: str) -> str:
    return {"cub": "CUB", "numba_reduce": "numba cuda.reduce"}.get(kernel, kernel.replace("_", " "))


def _method(data: RunData) -> str:
    return (
        "Device time of every launch up to the scalar in device memory, second launch or memset "
        "included; L2 flushed before each sample; variants and peers sampled in turns. Median "
        f"over {len(data.recording.processes)} processes."
    )


OVER_CUB = " Speed over CUB is the median of the ratios within each process."

# Row 16: the steps


def steps(data: RunData) -> Answer | None:
    """Bandwidth of each variant in the course's order, which is that of the records."""
    rows = _at_centre(_plain(data.select("reduction")))
    if rows is None:
        return None
    ours = rows[~rows["peer"]].copy()
    ours["gain"] = ours["bandwidth"] / ours["bandwidth"].shift()
    first, best = ours.iloc[0], ours.loc[ours["bandwidth"].idxmax()]
    step = ours.loc[ours["gain"].idxmax()]
    text = (
        f"From {_name(first['kernel'])} to {_name(best['kernel'])} the sum of n = "
        f"{units.raised(units.elements(best['n']))} gets "
        f"{units.digits(best['bandwidth'] / first['bandwidth'])} times as fast, to "
        f"{units.bandwidth(best['bandwidth'])}{_of_peak(best)}{_of_cub(best, data)}; the largest "
        f"step is {_name(step['kernel'])} ({units.digits(step['gain'])}×)"
    )
    text += _errors(ours, best) + _outside(data)
    every = rows.merge(ours[["kernel", "gain"]], how="left", on="kernel")
    drawn = every.assign(
        kernel=every["kernel"].map(_name), peak=data.number("memory_bandwidth_peak")
    )
    columns = ["kernel", "bandwidth", "gain", "relative_error", "peer", "peak"]
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(
            Plot(
                _draw_steps,
                drawn[columns],
                "Bandwidth and relative error of each reduction variant, in the course's order",
            ),
        ),
        method=_method(data)
        + OVER_CUB
        + " Each variant is a step on from the one above it; from reduce4 on "
        "a grid-stride loop adds up before the tree, and after vector shuffle it is the last step, "
        "from a sum a block to the scalar, that differs. Error against a float64 sum of the same "
        "random values in [0, 1).",
        table=drawn[
            ["kernel", "median_seconds", "bandwidth", "bandwidth_of_peak", "gain", *OTHERS]
        ],
        sources=data.sources("reduction"),
    )


def _at_centre(rows: pd.DataFrame) -> pd.DataFrame | None:
    """The size at which most variants were measured; None with fewer than three of ours."""
    if rows.empty:
        return None
    rows = rows[rows["n"] == rows.groupby("n")["kernel"].nunique().idxmax()]
    return rows if (~rows["peer"]).sum() >= 3 else None


def _of_peak(row: pd.Series) -> str:
    share = row["bandwidth_of_peak"]
    return "" if pd.isna(share) else f", {units.percent(share)} of the peak"


def _of_cub(row: pd.Series, data: RunData) -> str:
    if data.select("reduction", "cub").empty:
        return ""
    ratio = _over_cub(data).get(row["kernel"], pd.Series(dtype=float)).get(row["n"])
    return "" if pd.isna(ratio) else f" and {units.ratio(ratio)} CUB's speed"


def _errors(ours: pd.DataFrame, best: pd.Series) -> str:
    if ours["relative_error"].isna().any():
        return ""
    worst = ours.loc[ours["relative_error"].idxmax()]
    if worst["relative_error"] <= ROUNDED:
        return (
            f"; all of them are within {units.scientific(worst['relative_error'])} of the float64 "
            "sum, which is the rounding of the result"
        )
    return (
        f"; its relative error is {units.scientific(best['relative_error'])}, the largest is "
        f"{units.scientific(worst['relative_error'])} ({_name(worst['kernel'])})"
    )


def _outside(data: RunData) -> str:
    """What the published version loses outside its range of blocks."""
    rows = data.select("reduction", "reduce4_outside")
    if rows.empty or rows["lost_share"].isna().all():
        return ""
    row = rows.loc[rows["lost_share"].idxmax()]
    if row["lost_share"] < 0.01:
        return ""
    return (
        f"; reduce4 as published loses {units.percent(row['lost_share'])} of the sum with "
        f"{row['block']:.0f} threads a block, outside its range of 256 to 512"
    )


def _draw_steps(rows: pd.DataFrame) -> Figure:
    tells = rows["relative_error"].max() > ROUNDED
    figure, panels = plots.figure(
        1,
        2 if tells else 1,
        width=7.2 if tells else 6.6,
        height=0.9 + 0.28 * len(rows),
        sharey=True,
        squeeze=False,
        width_ratios=(2.2, 1) if tells else (1,),
    )
    left = panels[0][0]
    places = np.arange(len(rows))
    colors = [plots.GREY if peer else plots.BLUE for peer in rows["peer"]]
    left.barh(places, rows["bandwidth"], color=colors, height=0.62)
    for place, width, gain in zip(places, rows["bandwidth"], rows["gain"], strict=True):
        if pd.notna(gain):
            inside = width > 0.3 * rows["bandwidth"].max()
            left.annotate(
                f"{gain:.2f}×",
                (width, place),
                xytext=(-3 if inside else 3, 0),
                textcoords="offset points",
                ha="right" if inside else "left",
                va="center",
                fontsize=8.5,
                color="white" if inside else plots.INK,
            )
    left.set_yticks(places, rows["kernel"])
    left.invert_yaxis()
    _limits(left, rows)
    peers = " (grey: peers)" if rows["peer"].any() else ""
    left.set_xlabel(f"bandwidth, and gain over the step before{peers}")
    left.xaxis.set_major_locator(MaxNLocator(4))
    plots.format_axis(left, units.bandwidth, "x")
    left.grid(False, axis="y")
    if tells:
        _draw_errors(panels[0][1], rows, places, colors)
    return figure


def _draw_errors(axes: Axes, rows: pd.DataFrame, places: np.ndarray, colors: list[str]) -> None:
    axes.scatter(rows["relative_error"].clip(lower=ROUNDOFF), places, c=colors, s=28, zorder=3)
    axes.set_xscale("log")
    axes.set_xlim(ROUNDOFF / 2, 4 * max(rows["relative_error"].max(), 4 * ROUNDOFF))
    axes.xaxis.set_major_locator(LogLocator(base=100))
    axes.xaxis.set_minor_locator(NullLocator())
    plots.format_axis(axes, "{:.0e}".format, "x")
    axes.set_xlabel("relative error")


def _limits(axes: Axes, rows: pd.DataFrame) -> None:
    peak = rows["peak"].iloc[0]
    if pd.notna(peak):
        plots.limit(axes, peak, "peak", horizontal=False, end="end")
        axes.set_xlim(0, 1.04 * peak)


# Row 16: over n


def over_n(data: RunData) -> Answer | None:
    """The best variant for each size against CUB."""
    rows = _plain(data.select("reduction"))
    if rows.empty or "cub" not in set(rows["kernel"]):
        return None
    speed = _over_cub(data)
    if len(speed) < 3:
        return None
    times = rows.pivot(index="n", columns="kernel", values="median_seconds").loc[speed.index]
    best, winner = speed.max(axis=1), speed.idxmax(axis=1)
    mean = float(np.exp(np.log(best).mean()))
    text = (
        f"Over n = {_n(best.index.min())} to {_n(best.index.max())} the best variant for each "
        f"size has {units.ratio(best.min())} (n = {_n(best.idxmin())}) to "
        f"{units.ratio(best.max())} (n = {_n(best.idxmax())}) CUB's speed, "
        f"{units.ratio(mean)} in the geometric mean; {_winners(winner)}"
    )
    table = pd.DataFrame(
        {
            "n": best.index,
            "best variant": winner.map(_name),
            "median_seconds": [times.loc[n, name] for n, name in winner.items()],
            "CUB": times["cub"].map(units.seconds),
            "against CUB": best.map(units.ratio),
        }
    )
    shown = [name for name in speed if speed[name].notna().sum() >= 3 or name in set(winner)]
    drawn = speed[shown].reset_index().melt("n", var_name="kernel", value_name="speed").dropna()
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(
            Plot(
                _draw_over_n,
                drawn.assign(kernel=drawn["kernel"].map(_name)),
                "Speed relative to CUB against elements, a line for each variant",
            ),
        ),
        method=_method(data) + OVER_CUB,
        table=table,
        sources=data.sources("reduction", *speed.columns),
    )


def _over_cub(data: RunData) -> pd.DataFrame:
    """CUB's time over a variant's: a row a size, a column a variant. Both were sampled in turns in
    one process, so that the ratio is taken there; median over the processes."""
    rows = _plain(data.select_processes("reduction"))
    times = rows[rows["kernel"] != "numba_reduce"].pivot(
        index=["n", "process"], columns="kernel", values="median_seconds"
    )
    speed = times.rdiv(times["cub"], axis=0).drop(columns="cub")
    return speed.groupby("n").median().dropna(how="all")


def _n(value: float) -> str:
    return units.raised(units.elements(value))


def _winners(winner: pd.Series) -> str:
    """`one block is best up to n = 2^14, last block from there on`, as the data have it."""
    runs = winner.ne(winner.shift()).cumsum()
    parts = [(group.iloc[0], group.index[0], group.index[-1]) for _, group in winner.groupby(runs)]
    if len(parts) == 1:
        return f"{_name(parts[0][0])} is the best at all of them"
    words = [f"{_name(name)} at {_range(low, high)}" for name, low, high in parts]
    return "the best are " + ", ".join(words)


def _range(low: float, high: float) -> str:
    return f"n = {_n(low)}" if low == high else f"n = {_n(low)} to {_n(high)}"


def _draw_over_n(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    plots.lines(axes, rows, "n", "speed", "kernel")
    ends = rows["n"].agg(["min", "max"])
    plots.model(axes, ends, [1.0, 1.0], label="CUB")
    axes.set(xlabel="elements", ylabel="speed relative to CUB")
    plots.format_axis(axes, "{:.2f}×".format)
    plots.legend(axes, columns=3)
    plots.log2_axis(axes, rows["n"], units.elements)
    return figure


QUESTIONS = (
    Question(
        16,
        "What does each step of a reduction gain?",
        ("reduction",),
        steps,
        readme="reduction-steps",
    ),
    Question(16, "Which reduction for which size, and against CUB?", ("reduction",), over_n),
)
