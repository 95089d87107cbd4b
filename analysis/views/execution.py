"""Blocks on SMs: in which order they run, when a place is taken again, what stays private."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from results.metrics import scalar
from results.schema import Case


def bars(case: Case) -> pd.DataFrame:
    """A row a block: number, SM, start and stop in s, when its other warps left."""
    names = {"block_sm": "sm", "block_start": "start", "block_stop": "stop", "block_left": "left"}
    return pd.DataFrame(
        {column: case.metrics[name] for name, column in names.items() if name in case.metrics}
    ).assign(block=lambda table: range(len(table)))


def inversions(starts: np.ndarray) -> float:
    """Share of pairs of blocks i < j of which j started before i; shape (blocks,)."""
    later = starts[:, None] > starts[None, :]
    pairs = len(starts) * (len(starts) - 1) / 2
    return float(np.triu(later, 1).sum() / pairs) if pairs else 0.0


def order(data: RunData) -> Answer | None:
    """Whether blocks start in the order of blockIdx, and how soon a place is taken again."""
    traced = [
        case for _, case in data.vectors("schedule", "timeline") if "block_start" in case.metrics
    ]
    if not traced:
        return None
    shown = max(
        traced,
        key=lambda case: (
            case.params.get("durations") == "unequal",
            case.params.get("residency") == "one",
            case.params.get("waves", 0),
        ),
    )
    table = pd.DataFrame([_order_of(case) for case in traced])
    # A row a case: the processes repeat each other's parameters.
    keys = ["waves", "durations", "blocks an SM"]
    table = table.groupby(keys, as_index=False).median(numeric_only=True)
    drawn = bars(shown)
    pairs = inversions(drawn["start"].to_numpy())
    most = table["resident_blocks"].max()
    text = (
        f"Of {len(drawn)} blocks, {units.percent(pairs)} of the pairs start against the order of "
        f"blockIdx, {units.percent(table['inversions'].min())} where all last equally long"
        if table["inversions"].min() < pairs
        else f"Of {len(drawn)} blocks, {units.percent(pairs)} of the pairs start against the order "
        "of blockIdx"
    )
    if most > 1:
        text += f"; up to {most:.0f} blocks shared an SM"
    refill = table["refill_cycles"].median()
    if not pd.isna(refill):
        text += f"; a freed place is taken again after {units.cycles(refill)}"
    return Answer(
        text=text + ".",
        verdict="confirmed" if pairs > 0 else "observed, not promised",
        plots=(Plot(_draw_bars, drawn, "A bar for each block: its SM down, time across"),),
        method="Each block stores its SM, and its start and end on the clock that all SMs share. "
        "The time to refill is on the SM's own clock, from the last read of the block "
        "that ends to the first of the one that follows.",
        table=table,
        sources=data.sources("schedule", "timeline"),
    )


def _order_of(case: Case) -> dict[str, Any]:
    starts = np.asarray(case.metrics["block_start"])
    return {
        "waves": case.params.get("waves"),
        "durations": case.params.get("durations"),
        "blocks an SM": case.params.get("residency"),
        "blocks": len(starts),
        "inversions": inversions(starts),
        **{
            name: scalar(case.metrics[name])
            for name in ("resident_blocks", "refill_cycles", "sms_used")
            if name in case.metrics
        },
    }


def lanes(blocks: pd.DataFrame) -> pd.Series:
    """A lane in its SM for each block, so that blocks that are there together do not overlap."""
    found = pd.Series(0, index=blocks.index)
    for _, members in blocks.sort_values("start").groupby("sm"):
        free: list[float] = []
        for block, start, stop in zip(
            members.index, members["start"], members["stop"], strict=True
        ):
            lane = next((place for place, end in enumerate(free) if end <= start), len(free))
            free[lane : lane + 1] = [stop]
            found[block] = lane
    return found


def _draw_bars(blocks: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=5.6)
    sms = {sm: place for place, sm in enumerate(sorted(blocks["sm"].unique()))}
    lane = lanes(blocks)
    height = 0.85 / (lane.max() + 1)
    colors = plots.mpl.cm.ScalarMappable(
        plots.mpl.colors.Normalize(0, blocks["block"].max()), plots.SHADES
    )
    rows = blocks["sm"].map(sms) - 0.425 + height * (lane + 0.5)
    start, stop = blocks["start"] * 1e6, blocks["stop"] * 1e6
    plots.boxes(axes, start, stop, rows, height, colors.to_rgba(blocks["block"]))
    if "left" in blocks:
        left = (blocks["left"] * 1e6).clip(lower=start)
        plots.boxes(axes, start, left, rows, height, plots.VERMILION)
        key = Patch(color=plots.VERMILION, label="all warps are there")
        plots.legend(axes, handles=[key])
    axes.set(xlabel="time, µs", ylabel="SM", ylim=(len(sms), -1), xlim=(0, None))
    step = max(1, len(sms) // 11)
    axes.set_yticks(list(sms.values())[::step], [f"{sm:.0f}" for sm in list(sms)[::step]])
    figure.colorbar(colors, ax=axes, label="blockIdx", shrink=0.6)
    axes.grid(visible=False, axis="y")
    return figure


def replacement(data: RunData) -> Answer | None:
    """Whether a block of which one warp is left gives its place to another."""
    rows = data.select("schedule", "early_exit")
    case = next((case for _, case in data.vectors("schedule", "early_exit")), None)
    if rows.empty or case is None or "block_left" not in case.metrics:
        return None
    row = rows.iloc[0]
    fits = row["launch"].get("blocks_per_sm")
    drawn = bars(case)
    alone = (drawn["stop"] - drawn["left"]).median()
    waits = fits is None or row["resident_blocks"] <= fits
    text = (
        f"All warps but one leave a block {units.seconds(alone)} before it ends, and "
        + (
            "no other block takes their place until the last warp is gone"
            if waits
            else "other blocks take their place before the last warp is gone"
        )
        + f": at most {row['resident_blocks']:.0f} blocks were on an SM at once"
        + (f", where the driver says {fits} fit" if fits else "")
    )
    if not pd.isna(row.get("refill_cycles")):
        text += f"; the next starts {units.cycles(row['refill_cycles'])} after the last warp's end"
    return Answer(
        text=text + ".",
        verdict="contradicted" if waits else "confirmed",
        plots=(
            Plot(
                _draw_bars,
                drawn[drawn["sm"].isin(sorted(drawn["sm"].unique())[:24])].reset_index(drop=True),
                "A bar for each block on 24 SMs, red while all of its warps are there",
            ),
        ),
        method="Blocks of 1024 threads, as many as fit and as many again. All warps but the first "
        "return at once.",
        table=rows[["block", "blocks" if "blocks" in rows else "waves", "resident_blocks"]],
        sources=data.sources("schedule", "early_exit"),
    )


def private_memory(data: RunData) -> Answer | None:
    """Whether blocks on one SM see each other's shared memory."""
    rows = data.select("schedule", "private_memory")
    if rows.empty:
        return None
    row = rows.iloc[0]
    foreign = row["foreign_values"]
    text = (
        f"{row['resident_blocks']:.0f} blocks on one SM each filled a shared array, at "
        + (
            "the same address in each"
            if row["shared_addresses"] == 1
            else f"{row['shared_addresses']:.0f} addresses"
        )
        + f", and found {'no word' if foreign == 0 else f'{foreign:.0f} words'} of others in it"
    )
    names = {
        "resident_blocks": "blocks on an SM at once",
        "shared_addresses": "addresses of their arrays",
        "foreign_values": "words of others that they found",
    }
    drawn = pd.DataFrame({"what": names.values(), "count": row[list(names)].astype(float)})
    return Answer(
        text=text + ".",
        verdict="confirmed" if foreign == 0 else "contradicted",
        plots=(Plot(_draw_private, drawn, "Blocks on an SM, their addresses, and foreign words"),),
        method="Each block writes words that no other does, waits while its neighbours do the "
        "same, and reads them all back.",
        table=rows[["block", "resident_blocks", "shared_addresses", "foreign_values"]],
        sources=data.sources("schedule", "private_memory"),
    )


def _draw_private(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=1.9)
    axes.barh(range(len(rows)), rows["count"], 0.6, color=plots.BLUE)
    for place, count in enumerate(rows["count"]):
        style = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(f"{count:.0f}", (count, place), **style)
    axes.set_yticks(range(len(rows)), rows["what"])
    axes.set(ylim=(len(rows) - 0.4, -0.6), xticks=[])
    axes.spines["bottom"].set_visible(False)
    axes.grid(visible=False)
    return figure


QUESTIONS = (
    Question(
        7,
        "In which order do blocks run?",
        ("schedule",),
        order,
        claim="Blocks run in no set order.",
    ),
    Question(
        7,
        "Does a new block wait for a block's last warp?",
        ("schedule",),
        replacement,
        claim="A finished warp is replaced at once, even while others of its block still run.",
    ),
    Question(
        7,
        "Is shared memory private to a block?",
        ("schedule",),
        private_memory,
        claim="Blocks never see each other's shared memory, even on one SM.",
    ),
)
