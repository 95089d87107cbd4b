"""One array for shared memory and L1: where L1 ends at each carve-out, and what tiles cost."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

HALF = 0.5
"""L1 counts as ended where half of the loads miss, by latency."""
SHRINKS = 0.9
"""L1 must end below this share of its largest for the claim to hold."""


# Row 15: L1 by carve-out


def l1(data: RunData) -> Answer | None:
    """The footprint that L1 holds at each carve-out."""
    rows = data.select("carveout", "chase")
    if rows.empty or rows["bytes"].nunique() < 3:
        return None
    hit, miss = rows["latency_cycles"].min(), rows["latency_cycles"].max()
    rows = rows.assign(
        hits=(miss - rows["latency_cycles"]) / (miss - hit) if miss > hit else 1.0,
        series=rows["carveout"].map(_share),
    ).sort_values(["carveout", "bytes"])
    ends = {
        int(carveout): _end(curve) for carveout, curve in rows.groupby("carveout") if carveout >= 0
    }
    known = {carveout: end for carveout, end in ends.items() if end is not None}
    if len(known) < 2:
        return None
    low, high = min(known), max(known)
    text = (
        f"With a carve-out of {low}% for shared memory half of the loads still hit L1 over "
        f"{units.size(known[low])}, with {high}% over {units.size(known[high])}: a load takes "
        f"{units.cycles(hit)} while it hits and {units.cycles(miss)} once it goes to L2"
    )
    table = pd.DataFrame(
        [{"carveout": carveout, "bytes": end} for carveout, end in sorted(known.items())]
    )
    return Answer(
        text=text + ".",
        verdict="confirmed" if known[high] < SHRINKS * known[low] else "contradicted",
        plots=(
            Plot(
                _draw_l1,
                rows[["bytes", "latency_cycles", "series"]],
                "Latency against footprint, a line for each carve-out",
            ),
        ),
        method="One thread chases addresses around a random cycle of 128-byte lines after two "
        "rounds that fill L1; the share of hits follows from the latency between its two ends. The "
        "carve-out is a hint, which the driver rounds up to what the hardware has.",
        table=table,
        sources=data.sources("carveout", "chase"),
    )


def _share(carveout: float) -> str:
    return "driver's choice" if carveout < 0 else f"{carveout:.0f}% for shared memory"


def _end(curve: pd.DataFrame) -> int | None:
    """The footprint at which half of the loads miss, to whole KiB; the largest where none do.

    Straight between measured points, over the logarithm of the footprint.
    """
    last: tuple[float, float] | None = None
    for size, hits in zip(curve["bytes"], curve["hits"], strict=True):
        if hits < HALF:
            if last is None:
                return None
            share = (last[1] - HALF) / (last[1] - hits)
            return round(last[0] * (size / last[0]) ** share / 1024) * 1024
        last = size, hits
    return int(last[0]) if last else None


def _draw_l1(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=4.2)
    plots.lines(axes, rows, "bytes", "latency_cycles", "series")
    axes.set(xlabel="footprint", ylabel="latency, cycles")
    axes.set_ylim(bottom=0)
    plots.log2_axis(axes, rows["bytes"], units.size)
    plots.legend(axes)
    return figure


# Row 15: the tiled stencil


def tiles(data: RunData) -> Answer | None:
    """Tile size against residency, bytes loaded and time."""
    rows = data.select("carveout", "stencil")
    if rows.empty or rows["tile"].nunique() < 2 or "loaded_bytes" not in rows:
        return None
    resident = rows["launch"].map(lambda launch: launch.get("blocks_per_sm"))
    if resident.isna().any():
        return None
    rows = rows.assign(
        resident=resident.astype("int64"),
        smem=rows["launch"].map(lambda launch: launch["dynamic_smem"]),
        series=rows["block"].map(lambda block: f"{block} threads"),
    ).sort_values(["block", "tile"])
    best = rows.loc[rows["median_seconds"].idxmin()]
    same = rows[rows["block"] == best["block"]]
    small, large = same.iloc[0], same.iloc[-1]
    between = small["tile"] < best["tile"] < large["tile"]
    text = ("Up to a point. " if between else "") + (
        f"A tile of {best['tile']} with {best['block']} threads is fastest "
        f"({units.seconds(best['median_seconds'])}, {best['resident']} blocks an SM); a tile of "
        f"{small['tile']} loads {_more(small, best, 'loaded_bytes')} and takes "
        f"{_more(small, best, 'median_seconds')}, one of {large['tile']} loads "
        f"{_more(large, best, 'loaded_bytes')} and takes {_more(large, best, 'median_seconds')} "
        f"with {large['resident']} block{'s' if large['resident'] != 1 else ''} an SM"
    )
    columns = ["tile", "block", "smem", "resident", "occupancy", "loaded_bytes"]
    return Answer(
        text=text + ".",
        verdict="confirmed" if between else "contradicted",
        plots=(
            Plot(
                _draw_tiles,
                rows[["tile", "series", "median_seconds", "resident", "loaded_bytes"]],
                "Time, resident blocks and loaded bytes against the side of a tile",
            ),
        ),
        method="Nine-point star on a torus several times L2; a block loads its tile and halo into "
        "shared memory, waits, and computes. Loaded bytes count halos every time; most of their "
        "repeats hit L2.",
        table=rows[[*columns, "median_seconds", "bandwidth", "spread"]],
        sources=data.sources("carveout", "stencil"),
    )


def _more(row: pd.Series, best: pd.Series, column: str) -> str:
    what = {"loaded_bytes": "the bytes", "median_seconds": "the time"}[column]
    return f"{units.ratio(row[column] / best[column])} {what}"


def _draw_tiles(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(3, 1, height=6.0, sharex=True)
    for place, (column, form, label) in enumerate(
        (
            ("median_seconds", units.seconds, "time"),
            ("resident", "{:.0f}".format, "blocks an SM"),
            ("loaded_bytes", units.size, "loaded"),
        )
    ):
        plots.lines(axes[place], rows, "tile", column, "series")
        axes[place].set(ylabel=label)
        axes[place].set_ylim(bottom=0)
        if column == "loaded_bytes":
            plots.size_axis(axes[place])
        else:
            axes[place].yaxis.set_major_locator(MaxNLocator(4, integer=column == "resident"))
            plots.format_axis(axes[place], form)
        if place:
            axes[place].get_legend().remove()
    plots.legend(axes[0])
    axes[2].set(xlabel="side of a tile, elements")
    plots.log2_axis(axes[2], rows["tile"], "{:.0f}".format)
    return figure


QUESTIONS = (
    Question(
        15,
        "How much L1 does the carve-out leave?",
        ("carveout",),
        l1,
        claim="Shared memory and L1 share one array: the more is set aside for shared memory, the "
        "less L1 holds.",
    ),
    Question(
        15,
        "Is a larger tile better?",
        ("carveout",),
        tiles,
        claim="A larger tile loads fewer bytes but leaves room for fewer blocks, so one of middle "
        "size is fastest.",
    ),
)
