"""Barriers that vote: whether their answers are right, and what they cost beside a plain one."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData

VOTES = ("syncthreads_count", "syncthreads_and", "syncthreads_or")


def votes(data: RunData) -> Answer | None:
    """syncthreads_count, _and and _or: right answers, and cycles over warps a block."""
    rows = data.select("exchange", *VOTES)
    if set(rows["kernel"]) != set(VOTES):
        return None
    answers = sum(work["operations"] for work in rows["work"])
    text = (
        "Yes: syncthreads_count, syncthreads_and and syncthreads_or answer every thread right, "
        f"{units.count(answers)} answers from no thread to all of a block"
    )
    cost = _costs(data)
    if not cost.empty:
        text += "; a vote whose result is read costs " + " and ".join(
            f"{units.cycles(cost.loc[block, list(VOTES)].max())} in blocks of {block // 32} "
            f"warp{'s' if block > 32 else ''} where the plain barrier costs "
            f"{units.cycles(cost.loc[block, 'syncthreads'])}"
            for block in dict.fromkeys((cost.index[0], cost.index[-1]))
        )
    warps = cost.set_axis(cost.index // 32).rename_axis("warps").reset_index()
    drawn = warps.melt("warps", var_name="kernel", value_name="latency_cycles")
    alt = "Cycles of barriers that vote against warps a block"
    return Answer(
        text=text + ".",
        verdict="confirmed",
        plots=(Plot(_draw, drawn, alt),) if len(drawn) else (),
        method="Each thread's answer is stored and compared with a count on the host. The cost is "
        "by the SM's clock over a chain in which each vote decides the next, so that none is "
        "dropped or overlaps; median over the processes.",
        table=drawn if len(drawn) else rows[["kernel", "block"]],
        sources=data.sources("exchange", *VOTES),
    )


def _costs(data: RunData) -> pd.DataFrame:
    """Cycles with one block an SM: a row a block size, a column a barrier; empty where the run
    lacks one of them."""
    kinds = ["syncthreads", *VOTES]
    rows = data.select("barrier", *kinds)
    if rows.empty:
        return pd.DataFrame(columns=kinds)
    alone = rows[rows["blocks_per_sm"] == 1]
    cost = alone.pivot_table(index="block", columns="kernel", values="latency_cycles").dropna()
    return cost[kinds] if set(kinds) <= set(cost) else pd.DataFrame(columns=kinds)


def _draw(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.2)
    plots.lines(axes, rows, "warps", "latency_cycles", "kernel")
    plots.format_axis(axes, units.cycles)
    plots.log2_axis(axes, rows["warps"], units.count)
    axes.set(xlabel="warps a block")
    axes.set_ylim(bottom=0)
    plots.legend(axes, columns=2)
    return figure


QUESTIONS = (
    Question(
        19,
        "Are the barriers that vote right, and what do they cost?",
        ("exchange",),
        votes,
        claim="`syncthreads_count`, `syncthreads_and` and `syncthreads_or` tell every thread how "
        "the whole block voted.",
    ),
)
