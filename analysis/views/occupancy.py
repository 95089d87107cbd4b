"""Bandwidth against resident warps, loads in flight and load width; and when fewer warps win."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

SATURATED = 0.9
"""Share of a curve's own plateau at which it counts as saturated."""
RISING = 0.2
"""Elasticity at a curve's end from which on it has no plateau yet."""
NEAR = 0.97
"""Share of the best bandwidth at which the fewest warps are looked for."""
FASTER = 0.02
"""A gain under this is no gain: processes spread by less than half of it."""


def _sweep(data: RunData, *kernels: str) -> pd.DataFrame:
    """The sweep by shared memory at its carve-out, a row a point, with the bytes in flight."""
    rows = data.select("occupancy", *kernels)
    if rows.empty or not {"warps", "loads", "width", "by"} <= set(rows):
        return pd.DataFrame()
    rows = rows[rows["by"] == "shared_memory"]
    if "carveout" in rows:
        rows = rows[rows["carveout"].isna()]
    rows = rows.astype({"warps": "int64", "loads": "int64", "width": "int64"})
    in_flight = rows["warps"] * rows["loads"] * rows["width"] * 32
    return rows.assign(in_flight=in_flight).sort_values(["width", "loads", "warps"])


def saturation(curve: pd.DataFrame, x: str = "warps", y: str = "bandwidth") -> float | None:
    """Where a curve reaches 90% of its own plateau; None where it still rises at its end.

    Linear between measured points. It still rises where its last step keeps over RISING of what
    growth in proportion to x would be.
    """
    curve = curve.sort_values(x)
    top = curve[y].max()
    if len(curve) < 2 or _elasticity(curve[x].to_numpy(float), curve[y].to_numpy(float)) > RISING:
        return None
    last_x, last_y = None, None
    for at, value in zip(curve[x], curve[y], strict=True):
        if value >= SATURATED * top:
            if last_x is None or last_y is None or value == last_y:
                return float(at)
            share = (SATURATED * top - last_y) / (value - last_y)
            return float(last_x + share * (at - last_x))
        last_x, last_y = at, value
    return None


def _elasticity(x: np.ndarray, y: np.ndarray) -> float:
    """d ln y / d ln x over the last step: 1 in proportion, 0 on a plateau."""
    return float(np.log(y[-1] / y[-2]) / np.log(x[-1] / x[-2]))


def warps(data: RunData) -> Answer | None:
    """Warps to saturation by load width, and the bytes in flight at which all curves meet."""
    rows = _sweep(data, "read")
    if rows.empty or rows["warps"].nunique() < 3:
        return None
    points = []
    for (loads, width), curve in rows.groupby(["loads", "width"]):
        top = curve.loc[curve["bandwidth"].idxmax()]
        points.append(
            {
                "loads": loads,
                "width": width,
                "saturated_warps": saturation(curve),
                "saturated_in_flight": saturation(curve, "in_flight"),
                "bandwidth": top["bandwidth"],
                "bandwidth_of_peak": top.get("bandwidth_of_peak"),
                "warps": top["warps"],
            }
        )
    table = pd.DataFrame(points)
    text = _needed(table, int(rows["warps"].max()))
    every = _sweep_processes(data)
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(
            Plot(
                _draw_warps,
                every,
                "Bandwidth against resident warps for each load width, saturation marked",
            ),
            Plot(
                _draw_in_flight,
                every,
                "Bandwidth against bytes in flight an SM for every number of loads",
            ),
        ),
        method="Persistent grids; dynamic shared memory sets how many blocks are resident, so that "
        "code and registers are the same along a curve, and the carve-out is fixed. The loads in "
        "flight were read off the machine code.",
        table=table.rename(columns={"saturated_in_flight": "bytes_to_saturate"}),
        sources=data.sources("occupancy", "read"),
    )


def _needed(table: pd.DataFrame, most: int) -> str:
    """Few warps with much in flight first, for that is what one can do about it."""
    one = table[table["loads"] == table["loads"].min()]
    enough = table.dropna(subset="saturated_warps").sort_values("saturated_warps")
    named = enough[
        (enough["saturated_warps"].rank(method="first") == 1) | enough.index.isin(one.index)
    ]
    parts = [
        f"{np.ceil(row.saturated_warps):.0f} with {_loads(row.loads)} of {row.width:.0f} bytes"
        for row in named.itertuples()
    ]
    short = [f"{width:.0f}" for width in one[one["saturated_warps"].isna()]["width"]]
    if short:
        parts.append(
            f"more than the {most} that fit with {_loads(one['loads'].iloc[0])} of "
            f"{' or '.join(short)} bytes"
        )
    text = f"Warps an SM for {SATURATED:.0%} of the most bandwidth, by what each has in flight: "
    text += _listed(parts)
    in_flight = enough["saturated_in_flight"].dropna()
    if len(in_flight) > 1:
        text += (
            f"; what counts is bytes in flight, warps x 32 lanes x loads x bytes a load, of which "
            f"{units.size(in_flight.min())} to {units.size(in_flight.max())} an SM are enough "
            "(read between the measured points)"
        )
    return text


def _sweep_processes(data: RunData) -> pd.DataFrame:
    rows = data.select_processes("occupancy", "read")
    rows = rows[rows["by"] == "shared_memory"]
    if "carveout" in rows:
        rows = rows[rows["carveout"].isna()]
    in_flight = rows["warps"] * rows["loads"] * rows["width"] * 32
    return rows.assign(in_flight=in_flight)[["loads", "width", "warps", "in_flight", "bandwidth"]]


def _loads(count: float) -> str:
    return "one load" if count == 1 else f"{count:.0f} loads"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _draw_warps(rows: pd.DataFrame) -> Figure:
    rows = rows[rows["loads"] == rows["loads"].min()]
    rows = rows.assign(series=rows["width"].map(lambda width: f"{width:.0f}-byte loads"))
    figure, axes = plots.figure(height=4.2)
    order = [f"{width:.0f}-byte loads" for width in sorted(rows["width"].unique())]
    plots.lines(axes, rows, "warps", "bandwidth", "series", order=order)
    for place, name in enumerate(order):
        curve = rows[rows["series"] == name].groupby("warps", as_index=False)["bandwidth"].median()
        if (at := saturation(curve)) is not None:
            axes.plot(
                at,
                SATURATED * curve["bandwidth"].max(),
                marker="*",
                markersize=15,
                color=plots.PALETTE[place],
                markeredgecolor=plots.INK,
                zorder=5,
            )
    axes.set(xlabel="resident warps an SM (★ 90% of the curve's plateau)", ylabel="bandwidth")
    axes.set_ylim(0, 1.08 * rows["bandwidth"].max())
    plots.log2_axis(axes, rows["warps"], "{:.0f}".format)
    plots.format_axis(axes, units.bandwidth)
    plots.legend(axes)
    return figure


def _draw_in_flight(rows: pd.DataFrame) -> Figure:
    names = rows["loads"].map(_loads)
    rows = rows.assign(series=names).sort_values("loads")
    points = rows.groupby(["series", "width", "in_flight"], as_index=False, sort=False)
    rows = points["bandwidth"].median()
    figure, axes = plots.figure(height=4.2)
    for place, (name, curve) in enumerate(rows.groupby("series", sort=False)):
        axes.scatter(
            curve["in_flight"],
            curve["bandwidth"],
            color=plots.PALETTE[place % len(plots.PALETTE)],
            marker=plots.MARKERS[place % len(plots.MARKERS)],
            s=26,
            label=name,
            zorder=3,
        )
    axes.set(xlabel="bytes in flight an SM", ylabel="bandwidth")
    axes.set_ylim(bottom=0)
    # Every other power of two: the labels are wide.
    least = rows["in_flight"].min()
    places = [least * 4**k for k in range(12) if least * 4**k <= rows["in_flight"].max()]
    plots.log2_axis(axes, places, units.size)
    plots.format_axis(axes, units.bandwidth)
    plots.legend(axes)
    return figure


def lower_wins(data: RunData) -> Answer | None:
    """Measured cases in which fewer resident warps are faster, and why."""
    rows = _sweep(data, "read")
    if rows.empty:
        return None
    full = rows[rows["warps"] == rows["warps"].max()]
    narrow = full.loc[full["bandwidth"].idxmin()]
    fewer = rows[rows["warps"] <= rows["warps"].max() / 2]
    if fewer.empty:
        return None
    near = fewer[fewer["bandwidth"] >= NEAR * fewer["bandwidth"].max()]
    wide = near.sort_values(["warps", "bandwidth"], ascending=[True, False]).iloc[0]
    gain = wide["bandwidth"] / narrow["bandwidth"] - 1
    parts = []
    if gain > FASTER:
        parts.append(
            f"{wide['warps']} warps with {_loads(wide['loads'])} of {wide['width']} bytes in "
            f"flight read {units.bandwidth(wide['bandwidth'])}, {units.percent(gain)} more than "
            f"{narrow['warps']} warps with {_loads(narrow['loads'])} of {narrow['width']} bytes: "
            f"bytes in flight hide latency, and warps are only one way to have them"
        )
    capped = data.select("registers", "capped")
    if not capped.empty and "blocks_per_sm" in capped:
        capped = capped[capped["blocks_per_sm"] == "all"]
    if len(capped) > 1:
        best = capped.loc[capped["median_seconds"].idxmin()]
        most = capped.loc[capped["occupancy"].idxmax()]
        slower = most["median_seconds"] / best["median_seconds"] - 1
        if slower > FASTER and best["occupancy"] < most["occupancy"]:
            parts.append(
                f"a kernel capped at {most['registers']} registers has "
                f"{units.percent(most['occupancy'])} occupancy and takes "
                f"{units.ratio(1 + slower)} as long as with {units.percent(best['occupancy'])} and "
                f"{best['launch'].get('registers')} registers: it spills"
            )
    columns = ["kernel", "warps", "loads", "width", "in_flight", "bandwidth", "spread"]
    table = rows[[name for name in columns if name in rows]].sort_values(
        "bandwidth", ascending=False
    )
    text = (
        "No: " + "; ".join(parts)
        if parts
        else "Yes: in no measured case do fewer resident warps win"
    )
    return Answer(
        text=text + ".",
        verdict="confirmed" if parts else "contradicted",
        plots=(
            Plot(
                _draw_surface,
                rows[["warps", "loads", "width", "bandwidth"]],
                "Bandwidth against warps for the narrowest and the widest loads",
            ),
        ),
        method="The same data, read by persistent grids; see the sweep of resident warps.",
        table=table.head(12),
        sources=data.sources("occupancy", "read"),
    )


def _draw_surface(rows: pd.DataFrame) -> Figure:
    width, loads = rows["width"], rows["loads"]
    ends = rows[
        ((width == width.min()) & (loads == loads.min()))
        | ((width == width.max()) & (loads == rows.loc[width == width.max(), "loads"].max()))
        | ((width == width.max()) & (loads == loads.min()))
    ]
    ends = ends.assign(
        series=[f"{_loads(row.loads)} of {row.width} bytes" for row in ends.itertuples(index=False)]
    )
    figure, axes = plots.figure(height=4.2)
    plots.lines(axes, ends, "warps", "bandwidth", "series")
    axes.set(xlabel="resident warps an SM", ylabel="bandwidth")
    axes.set_ylim(0, 1.08 * ends["bandwidth"].max())
    plots.log2_axis(axes, ends["warps"], "{:.0f}".format)
    plots.format_axis(axes, units.bandwidth)
    plots.legend(axes, columns=2)
    return figure


QUESTIONS = (
    Question(
        13,
        "How many warps do I need to saturate memory?",
        ("occupancy",),
        warps,
        asked_first="How many warps do I need on this GPU?",
    ),
    Question(
        13,
        "Is more occupancy always faster?",
        ("occupancy",),
        lower_wins,
        claim="More occupancy is not always faster.",
    ),
)
