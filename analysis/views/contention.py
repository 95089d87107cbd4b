"""One address for many lanes: what ordinary writes and atomics cost, and whose write stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

STRIDE = 32
WARP = 32
NEAR = 0.1
ACCESSES = {
    "store_shared": "write, shared",
    "atomic_shared": "atomic, shared",
    "store_global": "write, global",
    "atomic_global": "atomic, global",
}


def addresses(data: RunData) -> Answer | None:
    """Cycles a warp's access takes, by the number of addresses and by bank."""
    rows = data.select("contention", *ACCESSES)
    if rows.empty:
        return None
    every, rows = rows, _one_block(rows)
    table = rows.set_index(["kernel", "addresses", "stride"])["access_cycles"]
    parts: list[str] = []
    same, apart, bank = (
        table.get(("store_shared", *place)) for place in ((1, 1), (32, 1), (32, STRIDE))
    )
    slower = None
    if same is not None and apart is not None:
        slower = same > (1 + NEAR) * apart
        parts.append(
            f"32 lanes that write one shared word take {units.cycles(same)}, "
            f"{units.ratio(same / apart)} what 32 words in 32 banks take"
        )
        if bank is not None:
            parts.append(
                f"32 words in one bank take {units.cycles(bank)}, {units.ratio(bank / apart)}: it "
                + (
                    "is the bank and not the address that serialises"
                    if not slower
                    else "is the bank, too, that serialises"
                )
            )
    for kernel in ("atomic_shared", "store_global", "atomic_global"):
        one, all_ = table.get((kernel, 1, 1)), table.get((kernel, 32, 1))
        if one is not None and all_ is not None:
            what, _, space = ACCESSES[kernel].partition(", ")
            slow = one > (1 + NEAR) * all_
            parts.append(
                f"{'an' if what == 'atomic' else 'a'} {what} to {space} memory takes "
                f"{units.cycles(one)} on one address {'but' if slow else 'and'} "
                f"{units.cycles(all_)} on 32 in a row"
            )
    if not parts or slower is None:
        return None
    parts += _everywhere(every)
    drawn = rows[["kernel", "addresses", "stride", "access_cycles"]]
    return Answer(
        text="; ".join([parts[0][0].upper() + parts[0][1:], *parts[1:]]) + ".",
        verdict="confirmed" if slower else "contradicted",
        plots=(
            Plot(
                _draw_addresses,
                drawn,
                "Cycles a warp's access against different addresses, for writes and atomics",
            ),
        ),
        method="One block of 1024 threads on one SM, 1,024 accesses a warp; cycles from the first "
        "warp's start to the last one's end, over all accesses.",
        table=drawn,
        sources=data.sources("contention", *ACCESSES),
    )


def _everywhere(rows: pd.DataFrame) -> list[str]:
    """Atomics of all SMs on one address and on 32, a clock of the whole chip."""
    rows = rows[(rows["kernel"] == "atomic_global") & (rows["blocks"] == "sms")]
    rows = rows.assign(rate=rows["operations_per_second"] / rows["sm_clock"]).dropna(subset="rate")
    rates = rows.set_index(["addresses", "stride"])["rate"]
    one, many = rates.get((1, 1)), rates.get((32, STRIDE))
    if one is None or many is None:
        return []
    return [
        f"from all SMs at once, {units.digits(one)} atomics a clock go to one address and "
        f"{units.digits(many)} to 32 in a line each"
    ]


def _one_block(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows[rows["blocks"] == "one"]
    return rows[rows["block"] == rows["block"].max()].sort_values(["kernel", "stride", "addresses"])


def _draw_addresses(rows: pd.DataFrame) -> Figure:
    figure, grid = plots.figure(1, 2, width=7.2, height=4.2)
    for axes, space in zip(grid, ("shared", "global"), strict=True):
        part = rows[rows["kernel"].str.endswith(space)]
        near = part[(part["stride"] == 1)].assign(where="next to each other")
        # One address has no stride: it belongs to both curves.
        far = part[(part["stride"] == STRIDE) | (part["addresses"] == 1)].assign(
            where="in one bank" if space == "shared" else "a line each"
        )
        both = pd.concat([near, far])
        both["series"] = both["kernel"].str.split("_").str[0] + ", " + both["where"]
        both["series"] = both["series"].str.replace("store", "write")
        plots.lines(axes, both, "addresses", "access_cycles", "series")
        plots.log2_axis(axes, both["addresses"], lambda value: f"{value:.0f}")
        plots.log_axis(axes, lambda value: f"{value:g}")
        axes.set(xlabel=f"{space} memory: addresses of 32 lanes", ylabel="")
        plots.legend(axes, columns=1)
    grid[0].set(ylabel="cycles a warp's access")
    return figure


def exact(data: RunData) -> Answer | None:
    """What is lost without atomics, what atomics cost, and what one atomic a warp saves."""
    rows = data.select("contention", "increments", "tickets", "tickets_by_warp")
    if rows.empty:
        return None
    threads = rows["work"].map(lambda work: work.get("operations", 0))
    rows = rows.assign(increments=threads)
    largest = rows[rows["increments"] == rows["increments"].max()].set_index("kernel")
    parts = []
    if "increments" in largest.index:
        kept = largest.loc["increments", "kept_share"]
        parts.append(
            f"of {units.count(largest.loc['increments', 'increments'])} increments without "
            f"atomics {_lost(kept, largest.loc['increments', 'increments'])} are lost"
        )
    atomics = rows[rows["kernel"] != "increments"]
    exactly = bool(len(atomics)) and bool((atomics["kept_share"] == 1).all())
    if len(atomics):
        parts.append("with atomics none" if exactly else "with atomics some are lost, too")
    if {"tickets", "tickets_by_warp"} <= set(largest.index):
        gain = largest["median_seconds"]["tickets"] / largest["median_seconds"]["tickets_by_warp"]
        parts.append(
            f"one atomic a warp instead of one a thread makes it {units.ratio(gain)} as fast"
        )
    if not parts:
        return None
    text = "; ".join(parts)
    return Answer(
        text=text[0].upper() + text[1:] + ".",
        verdict="confirmed" if exactly else "measured" if atomics.empty else "contradicted",
        plots=(
            Plot(
                _draw_counters,
                rows[["kernel", "increments", "operations_per_second"]],
                "Increments a second, without atomics, with one a thread, and with one a warp",
            ),
        ),
        method="All threads add to one word of global memory: by reading and writing it, by an "
        "atomic each, or by one atomic a warp, whose result the lanes share. Each ticket drawn is "
        "checked to be drawn once.",
        table=rows[
            ["kernel", "block", "blocks", "kept_share", "median_seconds", "operations_per_second"]
        ],
        sources=data.sources("contention", *dict.fromkeys(rows["kernel"])),
    )


def _lost(kept: float, increments: float) -> str:
    """A share, unless it would round to all."""
    if kept >= 0.001:
        return units.percent(1 - kept)
    return f"all but {units.count(round(kept * increments))}"


COUNTERS = {
    "increments": "read and write",
    "tickets": "atomic a thread",
    "tickets_by_warp": "atomic a warp",
}


def _draw_counters(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.2)
    named = rows.assign(kernel=rows["kernel"].map(COUNTERS))
    order = [name for name in COUNTERS.values() if name in set(named["kernel"])]
    plots.lines(axes, named, "increments", "operations_per_second", "kernel", order=order)
    axes.set(xscale="log", yscale="log", xlabel="increments", ylabel="increments a second")
    plots.format_axis(axes, units.elements, "x")
    plots.format_axis(axes, lambda value: units.si(value, "/s"))
    plots.legend(axes)
    return figure


def winner(data: RunData) -> Answer | None:
    """Which of a block's writes to one word stays."""
    found: list[dict[str, Any]] = []
    writes: list[pd.DataFrame] = []
    for process, case in data.vectors("contention", "winner"):
        stayed = case.metrics.get("winner")
        if isinstance(stayed, list) and stayed and isinstance(case.params.get("block"), int):
            lanes = pd.Series(stayed).astype(int) % WARP
            where = f"{case.params['block']} threads, {case.params.get('space')}"
            writes.append(pd.DataFrame({"where": where, "lane": lanes}))
            found.append(
                {
                    "process": process,
                    "space": case.params.get("space"),
                    "block": case.params["block"],
                    "lane": int(lanes.mode().iloc[0]),
                    "share": float((lanes == lanes.mode().iloc[0]).mean()),
                    "threads": int(pd.Series(stayed).nunique()),
                    "trials": len(stayed),
                }
            )
    if not found:
        return None
    table = pd.DataFrame(found)
    table = table.groupby(["space", "block"], as_index=False).agg(
        lane=("lane", "first"), share=("share", "min"), threads=("threads", "max"),
        trials=("trials", "sum"),
    )  # fmt: skip
    parts = [
        f"lane {row['lane']} in {units.percent(row['share'])} of the trials with {row['block']} "
        f"threads in {row['space']} memory"
        + (f" ({row['threads']} different threads)" if row["block"] > WARP else "")
        for row in table.to_dict("records")
    ]
    always = table["lane"].nunique() == 1 and (table["share"] == 1).all()
    text = (
        f"Lane {table['lane'].iloc[0]}'s write stays in every one of {table['trials'].sum():,} "
        f"trials, in {' and '.join(dict.fromkeys(table['space']))} memory, in blocks of "
        f"{' and '.join(map(str, sorted(set(table['block']))))} threads"
        + (f", of {most} different warps" if (most := table["threads"].max()) > 1 else "")
        if always
        else f"The write that stays is that of {'; '.join(parts)}"
    )
    shares = pd.concat(writes).groupby("where")["lane"].value_counts(normalize=True)
    drawn = shares.rename("share").reset_index()
    return Answer(
        text=text + ".",
        verdict="observed, not promised",
        plots=(Plot(_draw_winners, drawn, "Share of the trials in which a lane's write stays"),),
        method="All threads of a block write their number to one word, in 64 blocks a trial each; "
        "the guide promises that one write stays, not which.",
        table=table.rename(columns={"share": "share of trials", "threads": "winners"}),
        sources=data.sources("contention", "winner"),
    )


def _draw_winners(rows: pd.DataFrame) -> Figure:
    series = list(dict.fromkeys(rows["where"]))
    figure, axes = plots.figure(height=1.1 + 0.35 * len(series))
    every = np.arange(WARP)
    for place, where in enumerate(series):
        part = rows[rows["where"] == where]
        lane = part["lane"].to_numpy()
        plots.boxes(axes, every - 0.42, every + 0.42, place, 0.75, (0.5, 0.5, 0.5, 0.15))
        plots.boxes(axes, lane - 0.42, lane + 0.42, place, 0.75, plots.SHADES(part["share"]))
        plots.beside(axes, place, units.percent(part["share"].max()))
    plots.beside(axes, -1, "most:")
    axes.set_yticks(range(len(series)), series)
    axes.set(xlabel="lane whose write stays", xticks=(0, 8, 16, 24, 31), xlim=(-0.6, WARP - 0.4))
    axes.set_ylim(len(series) - 0.4, -0.6)
    axes.grid(visible=False)
    return figure


QUESTIONS = (
    Question(
        24,
        "Is one address for many lanes slow, or only one bank?",
        ("contention",),
        addresses,
        claim="Lanes that write one word of shared memory are served one after another.",
    ),
    Question(
        24,
        "What do atomics cost, and what is lost without?",
        ("contention",),
        exact,
        claim="Atomics are exact: of many additions to one word none is lost.",
    ),
    Question(
        24,
        "Whose write stays when all lanes write one word?",
        ("contention",),
        winner,
        claim="Of the lanes that write one word, the write of one stays; which is not specified.",
    ),
)
