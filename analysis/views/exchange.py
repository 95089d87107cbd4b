"""Exchanges through shared memory: what a barrier makes visible."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData, Verdict

BARRIERS = {"no_barrier": "no barrier", "syncwarp": "syncwarp", "syncthreads": "syncthreads"}
ACROSS = "tid ^ 32"
"""The one partner that is in another warp."""


def visibility(data: RunData) -> Answer | None:
    """Wrong reads of each partner, with and without each barrier."""
    rows = data.select("exchange", *BARRIERS)
    if rows.empty or ACROSS not in set(rows["partner"]):
        return None
    reads = rows["work"].map(lambda work: work["operations"])
    rows = rows.assign(
        barrier=rows["kernel"].map(BARRIERS),
        reads=reads,
        share=rows["wrong_reads"] / reads,
        enough=(rows["kernel"] == "syncthreads")
        | ((rows["kernel"] == "syncwarp") & (rows["partner"] != ACROSS)),
    )
    wrong = rows[rows["enough"]]["wrong_reads"].sum()
    across = rows[(rows["partner"] == ACROSS) & ~rows["enough"]]
    inside = rows[(rows["partner"] != ACROSS) & ~rows["enough"]]
    text = _across(across) + (
        "; with a barrier that spans both threads none is"
        if wrong == 0
        else f"; with a barrier that spans both threads {units.count(wrong)} still are"
    )
    if not inside.empty:
        text += _inside(inside)
    drawn = rows.groupby(["partner", "barrier"], as_index=False, sort=False)["share"].max()
    return Answer(
        text=text + ".",
        verdict=_verdict(float(wrong), float(across["wrong_reads"].sum())),
        plots=(Plot(_draw_shares, drawn, "Share of wrong reads by partner and barrier"),),
        method="Each of 1,000 rounds every thread writes its cell of shared memory and reads its "
        "partner's; a read that finds another round's value counts. Median over launches.",
        table=rows[["partner", "barrier", "access", "block", "reads", "wrong_reads"]].assign(
            share=rows["share"].map(units.percent)
        ),
        sources=data.sources("exchange", *BARRIERS),
    )


def _across(rows: pd.DataFrame) -> str:
    words = [
        f"{units.percent(part['share'].max())} with {BARRIERS[kernel]}"
        for kernel, part in rows.groupby("kernel", sort=False)
    ]
    return "Of the reads from another warp up to " + " and ".join(words) + " are wrong"


def _inside(rows: pd.DataFrame) -> str:
    if rows["wrong_reads"].sum() == 0:
        return (
            f"; inside a warp all of {rows['reads'].sum():,} reads are right "
            "without a barrier too, which is observed, not promised"
        )
    return f"; inside a warp without a barrier up to {units.percent(rows['share'].max())} are wrong"


def _verdict(wrong_with: float, wrong_without: float) -> Verdict:
    """Confirmed where the barrier mends what was seen to go wrong without it."""
    if wrong_with:
        return "contradicted"
    return "confirmed" if wrong_without else "observed, not promised"


def _draw_shares(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.2)
    partners = list(dict.fromkeys(rows["partner"]))
    names = [name for name in BARRIERS.values() if name in set(rows["barrier"])]
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        part = rows[rows["barrier"] == name].set_index("partner")["share"].reindex(partners)
        at = [x + (place - (len(names) - 1) / 2) * width for x in range(len(partners))]
        axes.bar(at, part, 0.9 * width, label=name, color=plots.PALETTE[place])
        for x, share in zip(at, part, strict=True):
            if pd.notna(share) and share == 0:
                axes.annotate("0", (x, 0), xytext=(0, 2), textcoords="offset points", ha="center")
    axes.set_xticks(range(len(partners)), [f"reads {partner}" for partner in partners])
    axes.set(ylabel="wrong reads", ylim=(0, max(0.01, 1.1 * rows["share"].max())))
    axes.grid(False, axis="x")
    plots.format_axis(axes, units.percent)
    plots.legend(axes)
    return figure


QUESTIONS = (
    Question(
        17,
        "Does a barrier make earlier writes visible?",
        ("exchange",),
        visibility,
        claim="A barrier makes earlier writes visible to the threads that it spans; without one, "
        "an exchange between them goes wrong.",
    ),
)
