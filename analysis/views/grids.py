"""Synchronising a whole grid: what it costs, what is refused, what waits for ever."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData, Verdict

NAMES = {
    "grid_sync": "grid sync",
    "atomic_barrier": "barrier of atomics",
    "graph_relaunch": "next node of a graph",
    "relaunch": "next launch",
}
BLOCK = 256
"""Threads a block of which the cost is told first."""
PASSES = {"grid_sync": "one pass with a grid sync", "vector": "two launches"}
"""Reductions that differ in how they finish."""


def residency(data: RunData) -> Answer | None:
    """The cost at each residency; the launch above the limit; who waits for ever."""
    rows = data.select("barrier", *NAMES)
    if rows.empty or not (rows["kernel"] == "grid_sync").any():
        return None
    rows = rows[rows["latency_cycles"].notna()]
    text = "A grid sync costs " + _costs(rows[rows["kernel"] == "grid_sync"])
    refused, stuck, kept = _refused(data), *_gave_up(data)
    if refused is not None:
        text += "; one block more than fit " + (
            "was refused at the launch" if refused else "was launched all the same"
        )
    if stuck is not None:
        text += (
            f"; at a barrier made of atomics, which nobody refuses, {_share(stuck)} of the blocks "
            "waited until their time was up with one block too many"
        )
    if kept is not None:
        text += f", and {_share(kept)} within the limit"
    text += _passes(data)
    drawn = rows.assign(
        name=rows["kernel"].map(NAMES),
        blocks=rows["blocks_per_sm"].astype(str),
    )[["name", "block", "blocks", "latency_cycles"]]
    return Answer(
        text=text + ".",
        verdict=_verdict(refused, stuck, kept),
        plots=(Plot(_draw, drawn, "Cycles of each barrier over a grid against threads a block"),),
        method="Cycles by each SM's clock over 64 barriers in a row, every block resident; waits "
        "are bounded by the clock, so that a deadlock is a block that gave up. Grid-stride loops "
        "are the remedy: as many blocks as fit, each with several pieces of work.",
        table=_table(data, rows),
        sources=data.sources("barrier", *NAMES),
    )


def _costs(sync: pd.DataFrame) -> str:
    """At the block size that kernels have as a rule, with few blocks and with most; then over all
    that was measured."""
    usual = sync[sync["block"] == (BLOCK if BLOCK in set(sync["block"]) else sync["block"].min())]
    usual = usual.sort_values("latency_cycles")
    parts = [
        f"{_cost(row)} with {_blocks(row['blocks_per_sm'])} of {row['block']:.0f} threads an SM"
        for _, row in usual.iloc[[0, -1] if len(usual) > 1 else [0]].iterrows()
    ]
    text = " and ".join(parts)
    every = sync.sort_values("latency_cycles")
    if len(every) > len(usual):
        low, high = every.iloc[0], every.iloc[-1]
        text += f", from {_cost(low)} to {_cost(high)} over all sizes and numbers of blocks"
    return text


def _cost(row: pd.Series) -> str:
    cycles, seconds = units.cycles(row["latency_cycles"]), row["latency_seconds"]
    return f"{units.seconds(seconds)} ({cycles})" if pd.notna(seconds) else cycles


def _blocks(count: object) -> str:
    return {1: "one block", 2: "two blocks", "most": "as many blocks as fit"}.get(count, str(count))


def _share(value: float) -> str:
    return {0.0: "none", 1.0: "all"}.get(value, units.percent(value))


def _above(data: RunData, kernel: str) -> pd.DataFrame:
    """Cases with more blocks than are resident, whatever became of them."""
    table = data.frame
    rows = table[(table["family"] == "barrier") & (table["kernel"] == kernel)]
    return rows[rows["params"].map(lambda params: params.get("beyond", 0) > 0)]


def _refused(data: RunData) -> bool | None:
    """Whether the cooperative launch above the limit was refused; None: not tried."""
    rows = _above(data, "grid_sync")
    return None if rows.empty else bool((rows["status"] == "skipped").all())


def _gave_up(data: RunData) -> tuple[float | None, float | None]:
    """Share of blocks that gave up above the limit, and within it."""
    rows = data.select("barrier", "atomic_barrier")
    if rows.empty or rows["gave_up"].isna().all():
        return None, None
    above = rows["params"].map(lambda params: params.get("beyond", 0) > 0)
    shares = [rows.loc[part, "gave_up"].max() for part in (above, ~above)]
    stuck, kept = (None if pd.isna(share) else float(share) for share in shares)
    return stuck, kept


def _verdict(refused: bool | None, stuck: float | None, kept: float | None) -> Verdict:
    if refused is None or stuck is None:
        return "measured"
    return "confirmed" if refused and stuck > 0 and not kept else "contradicted"


def _passes(data: RunData) -> str:
    """The sum of the same array with a grid sync and with a second launch."""
    rows = data.select("reduction", *PASSES)
    if rows.empty:
        return ""
    rows = rows[rows["params"].map(set) == {"n", "dtype"}]
    rows = rows[rows["dtype"] == "float32"]
    common = rows.groupby("n").filter(lambda part: set(part["kernel"]) == set(PASSES))
    if common.empty:
        return ""
    words = []
    for n in dict.fromkeys((common["n"].min(), common["n"].max())):
        times = common[common["n"] == n].set_index("kernel")["median_seconds"]
        pair = " against ".join(units.seconds(times[name]) for name in PASSES)
        words.append(f"{pair} at n = {units.raised(units.elements(n))}")
    return "; a sum takes, in one pass with a grid sync against two launches, " + " and ".join(
        words
    )


def _table(data: RunData, rows: pd.DataFrame) -> pd.DataFrame:
    """What was measured, then what was refused, with the library's message."""
    shown = rows.assign(kernel=rows["kernel"].map(NAMES), outcome="")
    above = pd.concat([_above(data, "grid_sync"), _above(data, "atomic_barrier")])
    if not above.empty:
        gave_up = above["gave_up"] if "gave_up" in above else pd.Series(index=above.index)
        outcome = [
            reason if status != "ok" else f"{units.percent(share)} of the blocks gave up"
            for status, reason, share in zip(
                above["status"], above["reason"], gave_up.fillna(0), strict=True
            )
        ]
        above = above.assign(kernel=above["kernel"].map(NAMES), outcome=outcome)
    columns = ["kernel", "block", "blocks_per_sm", "latency_cycles", "latency_seconds", "outcome"]
    return pd.concat([shown.reindex(columns=columns), above.reindex(columns=columns)])


def _draw(rows: pd.DataFrame) -> Figure:
    names = [name for name in NAMES.values() if name in set(rows["name"])]
    residencies = sorted(set(rows["blocks"]), key=lambda text: (text == "most", text))
    figure, panels = plots.figure(
        1, len(residencies), width=7.6, height=3.4, sharey=True, squeeze=False
    )
    for axes, residency in zip(panels[0], residencies, strict=True):
        part = rows[rows["blocks"] == residency]
        plots.lines(axes, part, "block", "latency_cycles", "name", order=names)
        plots.log_axis(axes, units.cycles)
        plots.log2_axis(axes, part["block"], "{:.0f}".format)
        axes.set_title(f"{residency} block{'' if residency == '1' else 's'} an SM", fontsize=10)
        axes.set(xlabel="threads a block")
        axes.get_legend().remove()
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=2)
    return figure


QUESTIONS = (
    Question(
        25,
        "What does a grid sync cost, and what does it need?",
        ("barrier",),
        residency,
        claim="A grid-wide sync needs every block resident: with one too many the launch is "
        "refused, or blocks wait for ever.",
        asked_first="What does a grid sync cost?",
    ),
)
