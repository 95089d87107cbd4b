"""The ladder of synchronisation: what meeting costs, from the lanes of a warp to a new launch."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from analysis import plots, units
from analysis.model.published import PUBLISHED
from analysis.report.question import Answer, Plot, Question, RunData

BLOCK, SIZE = 256, 8
"""Threads a block, and blocks a cluster, of the ladder."""
RUNGS = (
    ("syncwarp", "warp", "syncwarp"),
    ("ballot", "warp", "ballot"),
    ("shuffle", "warp", "shuffle"),
    ("syncthreads", "block", "syncthreads"),
    ("syncthreads_count", "block", "syncthreads_count"),
    ("dsmem_latency", "cluster", "read of remote shared memory"),
    ("relaxed", "cluster", "cluster sync, relaxed"),
    ("release_acquire", "cluster", "cluster sync"),
    ("atomic_barrier", "grid", "barrier of atomics"),
    ("grid_sync", "grid", "grid sync"),
    ("graph_relaunch", "launch", "next node of a graph"),
    ("relaunch", "launch", "next launch"),
)
"""Kernel (of clusters: the barrier's order), how far it reaches, and how the figure calls it."""
LEVELS = {"warp": 0, "block": 1, "cluster": 2, "grid": 3, "launch": 4}
BARRIERS = ("syncwarp", "syncthreads", "release_acquire", "grid_sync", "relaunch")
"""The plain barrier of each level."""
MUCH = 2.0
"""From so many times on one thing is called much cheaper than another."""
SAME = 0.02
CHAINS = (
    "syncwarp",
    "syncwarp_masked",
    "syncwarp_halves",
    "ballot",
    "shuffle",
    "syncthreads",
    "syncthreads_count",
)
METHOD = (
    "Cycles by the SM's clock over a chain in one block of assembly, so that no loop is in them; "
    "launches by the same clock from the first of a row to the last, queued ahead. Median over "
    "{processes} processes."
)


def _method(data: RunData) -> str:
    return METHOD.format(processes=len(data.recording.processes))


# Row 27: the ladder


def ladder(data: RunData) -> Answer | None:
    """Every rung in cycles and seconds; whether it widens, and what a graph's node costs."""
    rungs = rungs_of(data)
    if rungs is None:
        return None
    cost = rungs.set_index("rung")["latency_cycles"]
    seconds = rungs.set_index("rung")["latency_seconds"]
    steps = [name for name in BARRIERS if name in cost]
    if not {"syncthreads", "grid_sync", "relaunch"} <= set(steps):
        return None
    names = {rung: name for rung, _, name in RUNGS}
    relaunch = cost["relaunch"] / cost["grid_sync"]
    widens = cost[steps].is_monotonic_increasing
    text = "The wider, the dearer" if widens else "Not always the wider, the dearer"
    text += ", and" if relaunch >= MUCH else ", but"
    text += (
        " a new launch costs much more than a grid sync. "
        if relaunch >= MUCH
        else (" a new launch costs hardly more than a grid sync. ")
    )
    text += "A barrier costs " + ", ".join(
        f"{units.cycles(cost[name])} as {names[name]}{_time(seconds[name])}" for name in steps
    )
    text += f": launching again is {_times(relaunch)} a grid sync" + _over_shapes(data)
    if "graph_relaunch" in cost:
        node = cost["graph_relaunch"] / cost["grid_sync"]
        text += (
            f", and a node of a graph {_times(node)} one: it is "
            + ("cheaper" if node < 1 - SAME else "as dear" if node <= 1 + SAME else "dearer")
            + _time(seconds["graph_relaunch"])
        )
    text += _on_the_host(data)
    shown = pd.concat([rungs, published(set(rungs["rung"]))], ignore_index=True)
    return Answer(
        text=text + ".",
        verdict="confirmed" if widens and relaunch >= MUCH else "contradicted",
        plots=(
            Plot(
                _draw_ladder,
                shown,
                "Cycles and time of each way to synchronise, from a warp to a new launch",
            ),
        ),
        method=_method(data) + f" Blocks of {BLOCK} threads, one on every SM, clusters of {SIZE}; "
        "a line spans all sizes and numbers of blocks an SM that were measured. Ballots and "
        "shuffles exchange values and order no memory.",
        table=rungs[["level", "name", "latency_cycles", "latency_seconds", "least", "most"]],
        sources=data.sources("barrier") + data.sources("cluster"),
    )


def _over_shapes(data: RunData) -> str:
    """A launch over a grid sync at each shape that has both, from least to most."""
    rows = data.select("barrier", "grid_sync", "relaunch")
    wide = rows.pivot_table(
        index=["block", "blocks_per_sm"], columns="kernel", values="latency_cycles"
    )
    ratio = (wide["relaunch"] / wide["grid_sync"]).dropna()
    if len(ratio) < 2:
        return ""
    return (
        f" ({units.digits(ratio.min())} to {units.digits(ratio.max())} over all sizes and numbers "
        "of blocks)"
    )


def rungs_of(data: RunData) -> pd.DataFrame | None:
    """A row for each rung that was measured: at the reference shape, and the range over all."""
    rows = _measured(data)
    if rows.empty:
        return None
    found = []
    for rung, level, name in RUNGS:
        every = rows[rows["rung"] == rung]
        here = every[every["reference"]]
        if here.empty:
            continue
        found.append(
            {
                "rung": rung,
                "level": level,
                "name": name,
                "latency_cycles": here["latency_cycles"].median(),
                "latency_seconds": here["latency_seconds"].median(),
                "least": every["latency_cycles"].min(),
                "most": every["latency_cycles"].max(),
                "source": "",
            }
        )
    return pd.DataFrame(found) if found else None


def _measured(data: RunData) -> pd.DataFrame:
    """Cases of both families with their rung, and whether they are at the reference shape."""
    parts = []
    barriers = data.select("barrier")
    if not barriers.empty:
        at = (barriers["block"] == BLOCK) & (barriers["blocks_per_sm"] == 1)
        parts.append(barriers.assign(rung=barriers["kernel"], reference=at))
    sync = data.select("cluster", "cluster_sync")
    if not sync.empty:
        at = (sync["block"] == BLOCK) & (sync["cluster"] == SIZE)
        parts.append(sync.assign(rung=sync["order"], reference=at))
    remote = data.select("cluster", "dsmem_latency")
    if not remote.empty:
        remote = remote[remote["distance"] > 0]
        at = remote["cluster"] == SIZE
        parts.append(remote.assign(rung=remote["kernel"], reference=at))
    if not parts:
        return pd.DataFrame()
    rows = pd.concat(
        [part[["rung", "reference", "latency_cycles", "latency_seconds"]] for part in parts]
    )
    return rows[rows["latency_cycles"].notna()]


def published(quantities: set[str]) -> pd.DataFrame:
    """What others measured of these quantities, in cycles, as rows of the ladder."""
    table = pd.read_csv(PUBLISHED, comment="#")
    table = table[table["quantity"].isin(quantities) & (table["unit"] == "cycle")]
    level = {rung: (level, name) for rung, level, name in RUNGS}
    return pd.DataFrame(
        {
            "rung": table["quantity"],
            "level": [level[name][0] for name in table["quantity"]],
            "name": [level[name][1] for name in table["quantity"]],
            "latency_cycles": table["value"].astype(float),
            "source": table["gpu"],
        }
    )


def _time(seconds: float) -> str:
    return f" ({units.seconds(seconds)})" if pd.notna(seconds) and seconds >= 1e-7 else ""


def _times(value: float) -> str:
    return f"{units.digits(value)} times"


def _on_the_host(data: RunData) -> str:
    """What the device's side of a launch is not: the host's time to queue it."""
    rows = data.select("launch", "numba", "cuda_core")
    if rows.empty or rows["host_seconds"].isna().all():
        return ""
    rows = rows[rows["arguments"] == 0].set_index("kernel")["host_seconds"]
    words = [f"{units.seconds(rows[name])} by {name.replace('_', '.')}" for name in rows.index]
    return "; queueing a launch takes the host " + " and ".join(words)


def _draw_ladder(rows: pd.DataFrame) -> Figure:
    measured = rows[rows["source"] == ""]
    names = list(measured["name"])
    figure, axes = plots.figure(height=0.9 + 0.34 * len(names))
    for level, part in measured.groupby("level", sort=False):
        color = plots.PALETTE[LEVELS[str(level)]]
        at = [names.index(name) for name in part["name"]]
        axes.hlines(at, part["least"], part["most"], color=color, linewidth=5, alpha=0.3)
        axes.plot(part["latency_cycles"], at, "o", color=color, label=level)
        for y, row in zip(at, part.to_dict("records"), strict=True):
            axes.annotate(
                units.digits(row["latency_cycles"])
                if row["latency_cycles"] < 1000
                else f"{row['latency_cycles']:,.0f}",
                (max(row["latency_cycles"], row["most"]), y),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
    others = rows[rows["source"] != ""]
    if not others.empty:
        at = [names.index(name) for name in others["name"]]
        label = "published: " + ", ".join(dict.fromkeys(others["source"]))
        axes.plot(others["latency_cycles"], at, "D", mfc="none", mec=plots.INK, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set(xscale="log", xlabel="cycles")
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_minor_locator(NullLocator())
    plots.format_axis(axes, units.count, "x")
    axes.set_xlim(0.5 * measured["least"].min(), 5 * measured["most"].max())
    timed = measured.dropna(subset=["latency_seconds"])
    if not timed.empty:
        clock = (timed["latency_cycles"] / timed["latency_seconds"]).median()
        above = axes.secondary_xaxis(
            "top", functions=(lambda cycles: cycles / clock, lambda seconds: seconds * clock)
        )
        plots.format_axis(above, units.seconds, "x")
    axes.legend(loc="lower left", fontsize=8.5)
    return figure


# Row 23: the warp's barrier against the block's


def warp_against_block(data: RunData) -> Answer | None:
    """syncwarp, its masks, shuffles and ballots against syncthreads, over warps a block."""
    rows = data.select("barrier")
    if rows.empty:
        return None
    rows = rows[rows["blocks_per_sm"] == 1]
    cost = rows.pivot_table(index="block", columns="kernel", values="latency_cycles")
    if not {"syncwarp", "syncthreads"} <= set(cost):
        return None
    ratio = (cost["syncthreads"] / cost["syncwarp"]).dropna()
    if ratio.empty:
        return None
    first, last = ratio.index[0], ratio.index[-1]
    text = (
        f"syncthreads costs {units.digits(ratio[first])} times a syncwarp in blocks of "
        f"{_warps(first)} and {units.digits(ratio[last])} times in blocks of {_warps(last)} "
        f"({units.cycles(cost['syncthreads'][last])} against {units.cycles(cost['syncwarp'][last])}"
        "), where the assembler knows the warp to be converged and leaves an instruction that "
        "does nothing"
    )
    if "syncwarp_masked" in cost:
        masked = cost["syncwarp_masked"]
        text += f". With a mask that it cannot know a syncwarp costs {units.cycles(masked[first])}"
        if (masked > cost["syncthreads"]).all():
            text += ", more than the block's barrier in blocks of any size"
        if "syncwarp_halves" in cost:
            text += f"; two halves with a mask each {units.cycles(cost['syncwarp_halves'][first])}"
    text += _diverged(cost)
    drawn = rows[rows["kernel"].isin(CHAINS)][["kernel", "block", "latency_cycles"]]
    drawn = drawn.assign(warps=drawn["block"] // 32, kernel=drawn["kernel"].map(_name))
    return Answer(
        text=text + ".",
        verdict="confirmed" if (ratio >= MUCH).all() else "contradicted",
        plots=(
            Plot(
                _draw_warps,
                drawn[["kernel", "warps", "latency_cycles"]],
                "Cycles of each barrier inside a block against the warps of the block",
            ),
        ),
        method=_method(data) + " One block an SM; after divergence: half the lanes leave a loop "
        "one turn early, and the loop alone is taken off.",
        table=rows[["kernel", "block", "latency_cycles", "latency_seconds", "spread"]].assign(
            kernel=rows["kernel"].map(_name)
        ),
        sources=data.sources("barrier", "syncwarp", "syncthreads"),
    )


def _diverged(cost: pd.DataFrame) -> str:
    """What the barriers add to a loop that the lanes leave at different times."""
    wanted = ["diverged", "syncwarp_diverged", "syncthreads_diverged"]
    if not set(wanted) <= set(cost):
        return ""
    alone, warp, block = (cost[name].iloc[0] for name in wanted)
    return (
        f"; after divergence, which costs {units.cycles(alone)} itself, a syncwarp adds "
        f"{_added(warp - alone)} and a syncthreads {_added(block - alone)}"
    )


def _added(cycles: float) -> str:
    return "nothing" if abs(cycles) < 0.5 else units.cycles(cycles)


def _warps(block: float) -> str:
    count = int(block) // 32
    return f"{count} warp{'s' if count > 1 else ''}"


def _name(kernel: str) -> str:
    masks = {"syncwarp_masked": "syncwarp, unknown mask", "syncwarp_halves": "syncwarp, two masks"}
    return masks.get(kernel, kernel)


def _draw_warps(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    order = [name for name in map(_name, CHAINS) if name in set(rows["kernel"])]
    plots.lines(axes, rows, "warps", "latency_cycles", "kernel", order=order)
    plots.log_axis(axes, units.cycles)
    plots.log2_axis(axes, rows["warps"], units.count)
    axes.set(xlabel="warps a block", ylabel="")
    plots.legend(axes, columns=3)
    return figure


QUESTIONS = (
    Question(
        23,
        "Is syncwarp really much cheaper than syncthreads?",
        ("barrier",),
        warp_against_block,
        claim="In blocks of any size a `syncwarp` is much cheaper than a `syncthreads`, half its "
        "cost or less.",
    ),
    Question(
        27,
        "What does synchronising cost, from a warp to a new launch?",
        ("barrier",),
        ladder,
        claim="The wider a barrier reaches, the more it costs, and launching again is too "
        "expensive, at least twice a grid sync.",
        readme="synchronisation",
    ),
)
