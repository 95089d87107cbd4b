"""Why 256 threads a block: bandwidth against block size, and which limit each size meets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.axpy import FORMS, method, named

NOTES_BLOCKS = (128, 256, 512)
"""The block sizes that the course notes weigh against each other."""
SAME = 0.02
"""Bandwidths closer than this are called equal: four times the spread that is usual between
processes."""
LOSS = 0.05
"""A block size that falls short of 256 threads by more than this is named."""
AT_RATE = 0.95
"""From this share of the most blocks started a second on, starting blocks is the limit."""
SERIES = {
    ("block_monolithic", 32): "monolithic, up to 32 registers",
    ("block_monolithic", 64): "monolithic, 33 to 64 registers",
    ("block_grid_stride", 32): "grid-stride, up to 32 registers",
    ("block_grid_stride", 64): "grid-stride, 33 to 64 registers",
}


# How fast the chip starts blocks


@dataclass(frozen=True)
class BlockRate:
    """Blocks that the chip starts a second at the most."""

    rate: float
    empty: bool
    """Seen with empty blocks (family `launch`), and not only in the kernels judged by it."""

    def limits(self, rows: pd.DataFrame) -> pd.Series:
        """Whether each row starts blocks as fast as the chip can.

        Without empty blocks a kernel must show one rate at two block sizes to be believed.
        """
        at = rows["block_rate"] >= AT_RATE * self.rate
        if self.empty:
            return at
        return at & (at.groupby(rows["kernel"]).transform("sum") >= 2)


def _block_rate(data: RunData, rows: pd.DataFrame) -> BlockRate:
    empty = data.select("launch", "blocks")
    if empty.empty:
        return BlockRate(float(rows["block_rate"].max()), empty=False)
    largest = empty[empty["grid"] == empty["grid"].max()]
    return BlockRate(float((largest["grid"] / largest["median_seconds"]).max()), empty=True)


def _with_rate(rows: pd.DataFrame) -> pd.DataFrame:
    """With blocks started a second."""
    blocks = rows["launch"].map(lambda launch: launch.get("grid", (0,))[0])
    return rows.assign(block_rate=blocks / rows["median_seconds"])


def _billions(rate: float) -> str:
    return f"{units.digits(rate / 1e9)} billion blocks a second"


# AXPY as it is


def block_size(data: RunData) -> Answer | None:
    """Whether 128, 256 and 512 threads a block differ, by form, and what binds where they do."""
    rows = _at_centre(data.select("axpy", *FORMS))
    if rows is None or not set(NOTES_BLOCKS) <= set(rows["block"]):
        return None
    rows = _with_rate(rows)
    rate = _block_rate(data, rows)
    rows = rows.assign(limited=rate.limits(rows))
    by_block = rows.pivot(index="block", columns="kernel", values="bandwidth")
    relative = by_block / by_block.loc[256] - 1
    apart = relative.loc[[128, 512]].abs().max()
    notes = rows[rows["block"].isin(NOTES_BLOCKS)]
    starting = notes.groupby("kernel")["limited"].any()
    steady = [form for form in FORMS if form in apart and not starting[form]]
    equal = [form for form in steady if apart[form] <= SAME]
    resident = rows.groupby("block")["occupancy"].max()
    text = _equal(equal, apart, resident, data) + _unequal(steady, equal, apart)
    bound = rows[rows["limited"]]
    text += _bound(bound, rate, [form for form in FORMS if starting.get(form)], apart)
    text += _losers(rows[rows["kernel"].isin(equal) & ~rows["limited"]], relative, resident, data)
    every = _at_centre(data.select_processes("axpy", *FORMS))
    assert every is not None
    drawn = named(every, "block", "bandwidth", "occupancy").assign(
        peak=data.number("memory_bandwidth_peak"),
        most=(data.number("max_threads_per_sm") or 0) / 32,
        # bytes that a thread of the slowest limited form moves, times blocks a second
        bytes_a_thread_second=_pace(bound),
    )
    return Answer(
        text=text + ".",
        verdict="contradicted" if equal else "confirmed",
        plots=(
            Plot(
                _draw_forms,
                drawn,
                "Bandwidth and resident warps against threads a block, a line for each form",
            ),
        ),
        method=method(data),
        table=named(
            rows,
            *("block", "median_seconds", "bandwidth", "bandwidth_of_peak", "occupancy"),
            *("block_rate", "spread"),
        ),
        sources=data.sources("axpy", *FORMS),
    )


def _at_centre(rows: pd.DataFrame) -> pd.DataFrame | None:
    """float32 at the largest size, all block sizes; None where the run has none."""
    if rows.empty:
        return None
    rows = rows[rows["dtype"] == "float32"]
    return rows[rows["n"] == rows["n"].max()].sort_values("block")


def _equal(equal: list[str], apart: pd.Series, resident: pd.Series, data: RunData) -> str:
    if not equal:
        return "256 differs"
    text = (
        f"It need not be 256 in the {_forms(equal)}, where blocks of 128, 256 and 512 threads "
        f"differ by at most {units.percent(apart[equal].max())}"
    )
    if resident[list(NOTES_BLOCKS)].nunique() == 1:
        text += f", for each fills an SM with {_warps(resident[256], data)} warps"
    return text


def _unequal(steady: list[str], equal: list[str], apart: pd.Series) -> str:
    rest = [form for form in steady if form not in equal]
    if not rest:
        return ""
    return f"; by up to {units.percent(apart[rest].max())} in the {_forms(rest)}"


def _bound(bound: pd.DataFrame, rate: BlockRate, starting: list[str], apart: pd.Series) -> str:
    """What starting blocks costs, and whom."""
    if bound.empty:
        return ""
    first = starting[0] if starting else bound["kernel"].iloc[0]
    sizes = sorted(bound[bound["kernel"] == first]["block"])
    text = f"; in the {_forms([first])}"
    if first in starting:
        apart_by = units.percent(apart[first])
        text = f", while the {_forms([first])} does need 256 (up to {apart_by} apart); there"
    return (
        f"{text} the chip starts no more than {_billions(rate.rate)}"
        + (", empty ones too" if rate.empty else "")
        + f", and blocks of {_listed(sizes)} threads do so little each that this is the limit"
    )


def _losers(other: pd.DataFrame, relative: pd.DataFrame, resident: pd.Series, data: RunData) -> str:
    """Block sizes that lose, in forms that 128 to 512 threads leave equal, and what is told of
    each: its warps, and that its blocks begin inside a line of memory."""
    losses: dict[int, float] = {}
    for row in other.itertuples():
        loss = -relative.loc[row.block, row.kernel]
        if loss > LOSS:
            losses[row.block] = max(loss, losses.get(row.block, 0.0))
    if not losses:
        return ""
    parts = []
    for block, loss in sorted(losses.items()):
        remark = f"{_warps(resident[block], data)} warps an SM"
        remark += ", blocks that begin inside a 128-byte line" if block % 32 else ""
        parts.append(f"{block} threads up to {units.percent(loss)} ({remark})")
    return f". Slower than 256 in those forms: {_listed(parts)}"


def _forms(forms: list[str]) -> str:
    names = [form.replace("grid_stride", "grid-stride") for form in forms]
    return f"{_listed(names)} form{'s' if len(names) > 1 else ''}"


def _listed(parts: list[str] | list[int]) -> str:
    words = [str(part) for part in parts]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _warps(occupancy: float, data: RunData) -> str:
    most = data.number("max_threads_per_sm")
    return f"{occupancy * most / 32:.0f}" if most else units.percent(occupancy)


def _pace(bound: pd.DataFrame) -> float | None:
    """Bytes a second for each thread of a block, while starting blocks is the limit."""
    if bound.empty:
        return None
    return float((bound["bandwidth"] / bound["block"]).min())


def _lines(axes: Axes, rows: pd.DataFrame, by: str, order: list[str]) -> pd.DataFrame:
    """Bandwidth over blocks of whole warps, which are returned; other blocks, of which each is a
    case of its own and no point of a line, as hollow markers."""
    whole, odd = rows[rows["block"] % 32 == 0], rows[rows["block"] % 32 != 0]
    plots.lines(axes, whole, "block", "bandwidth", by, order=order)
    for place, name in enumerate(order):
        part = odd[odd[by] == name].groupby("block")["bandwidth"].median()
        color, marker = plots.PALETTE[place], plots.MARKERS[place]
        axes.plot(part.index, part, marker, mfc="none", mec=color, markersize=7)
    for block, part in odd.groupby("block"):
        axes.annotate(
            f"{block} threads",
            (block, part["bandwidth"].min()),
            xytext=(0, -7),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8.5,
        )
    return whole


def _draw_forms(rows: pd.DataFrame) -> Figure:
    figure, (above, below) = plots.figure(
        2, 1, height=5.0, sharex=True, height_ratios=(3, 1), gridspec_kw={"hspace": 0.06}
    )
    names = [form.replace("_", " ") for form in FORMS]
    order = [name for name in names if name in set(rows["kernel"])]
    whole = _lines(above, rows, "kernel", order)
    top = rows["bandwidth"].max()
    if rows["peak"].notna().all():
        top = rows["peak"].iloc[0]
        plots.limit(above, top, "DRAM peak")
    if rows["bytes_a_thread_second"].notna().all():
        pace = rows["bytes_a_thread_second"].iloc[0]
        blocks = np.geomspace(rows["block"].min(), min(rows["block"].max(), 0.98 * top / pace))
        plots.model(above, blocks, pace * blocks, "as fast as blocks start")
    above.set(ylim=(0, 1.12 * top), ylabel="bandwidth")
    plots.format_axis(above, units.bandwidth)
    plots.legend(above)
    warps = whole.groupby("block", as_index=False)[["occupancy", "most"]].max()
    below.plot(warps["block"], warps["occupancy"] * warps["most"], marker="o", color=plots.GREY)
    most = warps["most"].iloc[0]
    below.set(ylim=(0, 1.15 * max(most, 1)), yticks=[0, most / 2, most], ylabel="warps an SM")
    below.set_xlabel("threads a block")
    plots.log2_axis(below, whole["block"], "{:.0f}".format)
    return figure


# Kernels of few registers and of more


def registers(data: RunData) -> Answer | None:
    """Few registers and more: whether block sizes with equal warps an SM are equal."""
    rows = data.select("registers", "block_monolithic", "block_grid_stride")
    every = data.select_processes("registers", "block_monolithic", "block_grid_stride")
    if rows.empty or not set(NOTES_BLOCKS) <= set(rows["block"]):
        return None
    rows, every = _with_series(_with_rate(rows)), _with_series(every)
    rows = rows.assign(limited=_block_rate(data, rows).limits(rows))
    table = pd.DataFrame(
        [
            _judged(name, group, every[every["series"] == name], data)
            for name in SERIES.values()
            if not (group := rows[rows["series"] == name]).empty
        ]
    )
    fair = rows[(rows["kernel"] == "block_grid_stride") & rows["block"].isin(NOTES_BLOCKS)]
    groups = fair.groupby(["series", "occupancy"])["bandwidth"]
    pairs = groups.agg(["min", "max", "count"])
    pairs = pairs[pairs["count"] > 1]
    alike = float((pairs["max"] / pairs["min"] - 1).max()) if len(pairs) else None
    equal = alike is not None and alike <= SAME
    text = "In grid-stride loops blocks of 128, 256 and 512 threads differ by " + " and by ".join(
        f"{row['largest_difference']} with {row['kernel'].partition(', ')[2]} "
        f"({row['warps']} warps an SM)"
        for row in table.to_dict("records")
        if row["kernel"].startswith("grid-stride")
    )
    if alike is not None:
        text += (
            f": {'only' if equal else 'not only'} through the warps that fit, for sizes with "
            f"equally many warps an SM differ by at most {units.percent(alike)}"
        )
    text += _monolithic(rows)
    return Answer(
        text=text + ".",
        verdict="measured" if alike is None else ("contradicted" if equal else "confirmed"),
        plots=(
            Plot(
                _draw_series,
                every[["series", "block", "bandwidth", "occupancy"]],
                "Bandwidth and occupancy against threads a block, few registers and more",
            ),
        ),
        method="AXPY as it is, and with 40 more values alive in a branch that is never taken; the "
        "block sizes of a kernel are sampled in turns. p: that 128, 256 and 512 threads are equal "
        "to the last digit, by Friedman's test with processes as blocks.",
        table=table,
        sources=data.sources("registers", "block_monolithic", "block_grid_stride"),
    )


def _monolithic(rows: pd.DataFrame) -> str:
    rows = rows[rows["kernel"] == "block_monolithic"]
    notes = rows[rows["block"].isin(NOTES_BLOCKS)].groupby("series")["bandwidth"]
    if notes.ngroups == 0:
        return ""
    text = (
        ". With one element a thread they differ by up to "
        f"{units.percent((notes.max() / notes.min() - 1).max())}"
    )
    limited = sorted(set(rows[rows["limited"]]["block"]))
    if limited:
        text += (
            f", because blocks of {limited[0]} to {limited[-1]} threads cannot be started faster"
            if len(limited) > 1
            else f", because blocks of {limited[0]} threads cannot be started faster"
        )
    return text


def _judged(name: str, group: pd.DataFrame, every: pd.DataFrame, data: RunData) -> dict[str, str]:
    notes = group[group["block"].isin(NOTES_BLOCKS)].sort_values("block")
    best = group["bandwidth"].max()
    slow = group[group["bandwidth"] < (1 - SAME) * best]
    p = _p_equal(every)
    return {
        "kernel": name,
        "largest_difference": units.percent(
            notes["bandwidth"].max() / notes["bandwidth"].min() - 1
        ),
        "warps": ", ".join(_warps(value, data) for value in notes["occupancy"]),
        "p": "" if p is None else f"{p:.2g}",
        "over 2% slower than the best": ", ".join(map(str, sorted(slow["block"]))),
        "slowest": units.percent(group["bandwidth"].min() / best - 1),
    }


def _with_series(rows: pd.DataFrame) -> pd.DataFrame:
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


def _draw_series(rows: pd.DataFrame) -> Figure:
    figure, (above, below) = plots.figure(2, 1, height=5.4, sharex=True, height_ratios=(2.2, 1))
    order = [name for name in SERIES.values() if name in set(rows["series"])]
    whole = _lines(above, rows, "series", order)
    plots.lines(below, whole, "block", "occupancy", "series", order=order)
    above.set(ylabel="bandwidth")
    above.set_ylim(bottom=0)
    plots.format_axis(above, units.bandwidth)
    plots.legend(above, columns=2)
    below.get_legend().remove()
    below.set(xlabel="threads a block", ylabel="occupancy", ylim=(0, 1.08))
    plots.format_axis(below, "{:.0%}".format)
    plots.log2_axis(below, whole["block"], "{:.0f}".format)
    return figure


QUESTIONS = (
    Question(
        2,
        "Why 256 threads a block, not 128 or 512?",
        ("axpy",),
        block_size,
        claim="128 threads a block are too few, since they are only 4 warps; the 8 warps of 256 "
        "are enough.",
        asked_first="Why 256 threads?",
        readme="bandwidth-by-block",
    ),
    Question(
        2,
        "Does block size matter, for kernels of few registers and of more?",
        ("registers",),
        registers,
        claim="The size of a block matters of itself, even where equally many warps are resident.",
    ),
)
