"""Registers: what spilling costs, and whether block size matters for small and larger kernels."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

EQUAL = 0.02
"""Bandwidths closer than this to the best are called equal."""
NOTES_BLOCKS = (128, 256, 512)
SERIES = {
    ("block_monolithic", 32): "monolithic, up to 32 registers",
    ("block_monolithic", 64): "monolithic, 33 to 64",
    ("block_grid_stride", 32): "grid-stride, up to 32",
    ("block_grid_stride", 64): "grid-stride, 33 to 64",
}


# Row 14: caps and spills


def spills(data: RunData) -> Answer | None:
    """Registers asked for and granted, bytes spilled, occupancy and time; where spills go."""
    rows = data.select("registers", "capped")
    if rows.empty or "blocks_per_sm" not in rows:
        return None
    granted = rows["launch"].map(lambda launch: launch.get("registers"))
    local = rows["launch"].map(lambda launch: launch.get("local_bytes"))
    if granted.isna().any() or local.isna().any():
        return None
    resident = rows["launch"].map(lambda launch: launch.get("blocks_per_sm", 1))
    resident = resident.where(rows["blocks_per_sm"] == "all", 1)
    threads = rows["launch"].map(lambda launch: launch["block"][0])
    rows = rows.assign(
        granted=granted.astype("int64"),
        local_bytes=local.astype("int64"),
        spilled_an_sm=local * resident * threads,
        blocks=rows["blocks_per_sm"].map(str),
    ).sort_values("registers")
    free = rows[rows["local_bytes"] == 0]
    whole = rows[rows["blocks"] == "all"]
    if free.empty or len(whole) < 2:
        return None
    best = whole.loc[whole["median_seconds"].idxmin()]
    tight = whole.loc[whole["registers"].idxmin()]
    cost = tight["median_seconds"] / best["median_seconds"]
    text = (
        f"Capped at {tight['registers']} registers ({tight['granted']} granted) the kernel spills "
        f"{tight['local_bytes']} bytes a thread and takes {units.ratio(cost)} the time it takes "
        f"with {best['granted']}, although its occupancy rises from "
        f"{units.percent(best['occupancy'])} to {units.percent(tight['occupancy'])}"
    )
    if (where := _where(rows)) is not None:
        text += "; " + where
    columns = ["registers", "granted", "local_bytes", "blocks", "spilled_an_sm", "occupancy"]
    return Answer(
        text=text + ".",
        verdict="confirmed" if cost > 1 + EQUAL else "contradicted",
        plots=(
            Plot(
                _draw_spills,
                whole[["granted", "local_bytes", "occupancy", "median_seconds"]],
                "Time, bytes spilled and occupancy against registers granted",
            ),
        ),
        method="One kernel that keeps 128 values of a thread alive, compiled under each cap; every "
        "SM has the same threads to run. Spilled bytes are the local memory of a thread, which "
        "nothing else uses here.",
        table=rows[[*columns, "median_seconds", "operations_per_second", "spread"]],
        sources=data.sources("registers", "capped"),
    )


def _where(rows: pd.DataFrame) -> str | None:
    """Whether spills of one block an SM cost less than those of all: L1 then holds them."""
    pace = rows.pivot_table(index="registers", columns="blocks", values="operations_per_second")
    if not {"all", "1"} <= set(pace):
        return None
    both = pace.dropna()
    amounts = rows.set_index(["registers", "blocks"])["local_bytes"]
    spilling = [cap for cap in both.index if amounts[cap, "all"] > 0]
    if not spilling:
        return None
    cap = spilling[0]
    sizes = rows.set_index(["registers", "blocks"])["spilled_an_sm"]
    gain = pace.loc[cap, "all"] / pace.loc[cap, "1"]
    held = sizes[cap, "1"], sizes[cap, "all"]
    if gain < 1:
        return (
            f"with one block an SM, whose spills are {units.size(held[0])}, it is "
            f"{units.ratio(1 / gain)} as fast as with {units.size(held[1])} of spills an SM: the "
            "smaller stay in L1, the larger go to L2"
        )
    return (
        f"{units.size(held[1])} of spills an SM cost no more than {units.size(held[0])}, so that "
        "what lies behind L1 is not what limits it"
    )


def _draw_spills(rows: pd.DataFrame) -> Figure:
    figure, (above, middle, below) = plots.figure(3, 1, height=6.0, sharex=True)
    for axes, column, form, label in (
        (above, "median_seconds", units.seconds, "time"),
        (middle, "local_bytes", units.size, "spilled a thread"),
        (below, "occupancy", units.percent, "occupancy"),
    ):
        axes.plot(rows["granted"], rows[column], marker="o", color=plots.BLUE)
        axes.set(ylabel=label)
        axes.set_ylim(bottom=0)
        plots.format_axis(axes, form)
    below.set(xlabel="registers a thread, granted")
    plots.ticks(below, rows["granted"], "{:.0f}".format)
    return figure


# Row 2: block sizes of small and larger kernels


def block_sizes(data: RunData) -> Answer | None:
    """The null hypothesis "equal" for each kernel, over processes, and who departs from it."""
    rows = data.select("registers", "block_monolithic", "block_grid_stride")
    every = data.select_processes("registers", "block_monolithic", "block_grid_stride")
    if rows.empty or not set(NOTES_BLOCKS) <= set(rows["block"]):
        return None
    rows, every = _named(rows), _named(every)
    results, widest = [], 0.0
    for name, group in rows.groupby("series", sort=False):
        best = group["bandwidth"].max()
        notes = group[group["block"].isin(NOTES_BLOCKS)]["bandwidth"]
        apart = notes.max() / notes.min() - 1
        widest = max(widest, apart)
        slow = group[group["bandwidth"] < (1 - EQUAL) * best]
        results.append(
            {
                "kernel": name,
                "largest_difference": units.percent(apart),
                "p_equal": _p_equal(every[every["series"] == name]),
                "slower_blocks": ", ".join(map(str, sorted(slow["block"]))),
                "slowest": units.percent(group["bandwidth"].min() / best - 1),
            }
        )
    table = pd.DataFrame(results)
    equal = widest <= EQUAL
    text = (
        f"Blocks of 128, 256 and 512 threads differ by at most {units.percent(widest)} in each of "
        f"{len(table)} kernels"
        + (", which is to say they are equal" if equal else ", more than equal ones would")
    )
    odd = table[table["slower_blocks"] != ""]
    if len(odd):
        text += "; over 2% slower than the best are " + "; ".join(
            f"{row['slower_blocks']} ({row['kernel']}, down to {row['slowest']})"
            for row in odd.to_dict("records")
        )
    p = table["p_equal"].dropna()
    if len(p):
        text += (
            f"; that 128, 256 and 512 are equal to the last digit has p = {p.min():.2g} at the "
            "least, which says how fine the clock is and not that it matters"
            if equal and p.min() < 0.05
            else f"; Friedman's test over processes gives p = {p.min():.2g} at the least"
        )
    return Answer(
        text=text + ".",
        verdict="contradicted" if equal else "confirmed",
        plots=(
            Plot(
                _draw_blocks,
                every[["series", "block", "bandwidth", "occupancy"]],
                "Bandwidth and occupancy against threads a block, few registers and more",
            ),
        ),
        method="AXPY as it is, and with 40 more values alive in a branch that is never taken; the "
        "block sizes of a kernel are sampled in turns. Null hypothesis: equal, by Friedman's test "
        "with processes as blocks.",
        table=table,
        sources=data.sources("registers", "block_monolithic", "block_grid_stride"),
    )


def _named(rows: pd.DataFrame) -> pd.DataFrame:
    keys = zip(rows["kernel"], rows["registers"], strict=True)
    names = [SERIES.get((kernel, int(count)), kernel) for kernel, count in keys]
    return rows.assign(series=names).sort_values(["series", "block"])


def _p_equal(every: pd.DataFrame) -> float | None:
    """p of Friedman's test that the notes' block sizes are equal; None under 3 processes."""
    table = every.pivot_table(index="process", columns="block", values="bandwidth")
    table = table[list(NOTES_BLOCKS)].dropna()
    if len(table) < 3:
        return None
    if (table.max(axis=1) == table.min(axis=1)).all():
        return 1.0  # ties throughout: the statistic is 0/0
    return float(stats.friedmanchisquare(*(table[block] for block in NOTES_BLOCKS)).pvalue)


def _draw_blocks(rows: pd.DataFrame) -> Figure:
    figure, (above, below) = plots.figure(2, 1, height=5.4, sharex=True, height_ratios=(2.2, 1))
    order = [name for name in SERIES.values() if name in set(rows["series"])]
    plots.lines(above, rows, "block", "bandwidth", "series", order=order)
    plots.lines(below, rows, "block", "occupancy", "series", order=order)
    above.set(ylabel="bandwidth")
    above.set_ylim(bottom=0)
    plots.format_axis(above, units.bandwidth)
    plots.legend(above, columns=2)
    below.get_legend().remove()
    below.set(xlabel="threads a block", ylabel="occupancy", ylim=(0, 1.08))
    plots.format_axis(below, "{:.0%}".format)
    plots.log2_axis(below, rows["block"], "{:.0f}".format)
    return figure


QUESTIONS = (
    Question(
        2,
        "Does block size matter, for kernels of few registers and of more?",
        ("registers",),
        block_sizes,
    ),
    Question(
        14,
        "What does it cost when registers spill?",
        ("registers",),
        spills,
    ),
)
