"""A barrier in a branch: the seven cases, what happened, and what the programming guide says."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots
from analysis.report.question import Answer, Plot, Question, RunData

WARP = 32
GUIDE = {
    ("uniform", True): ("a", "the whole block takes the branch", "done"),
    ("returned", True): ("b", "warps that skip it return", "done"),
    ("returned", False): ("b", "threads that skip it return, inside a warp", "done"),
    ("later", True): ("c", "warps that skip it meet the next barrier", "undefined"),
    ("later", False): ("c", "threads that skip it meet the next, inside a warp", "undefined"),
    ("spinning", True): ("d", "warps that skip it wait for what comes after", "never ends"),
    ("spinning", False): ("d", "threads that skip it wait, inside a warp", "never ends"),
    ("both_sides", True): ("e", "a barrier in the if and in the else, warp edge", "undefined"),
    ("both_sides", False): ("f", "a barrier in the if and in the else, inside a warp", "undefined"),
    ("after", True): ("g", "the barrier after the branch, warp edge", "done"),
    ("after", False): ("g", "the barrier after the branch, inside a warp", "done"),
}
"""(kernel, split on a warp edge) -> case, what it is, and what the CUDA C++ Programming Guide
says: a barrier in a branch is allowed where the whole block agrees on the condition; since
compute capability 7.0 it waits for every thread that has not returned."""


def outcome(row: pd.Series) -> str:
    """done, wrong data, or timed out, of a case that could have hung."""
    if row.get("hung") == 1:
        return "never ended"
    if (gave_up := row.get("gave_up")) and not math.isnan(gave_up):
        return f"timed out ({gave_up:.0f} threads gave up)"
    if (wrong := row.get("wrong_reads")) and not math.isnan(wrong):
        return f"wrong data ({wrong:.0f} reads)"
    return "done"


def cases(data: RunData) -> Answer | None:
    """Outcomes beside what is promised."""
    rows = data.select("branch")
    if rows.empty:
        return None
    found = []
    for _, row in rows.iterrows():
        known = GUIDE.get((row["kernel"], row["split"] % WARP == 0))
        if known:
            found.append((*known, outcome(row), row["wrong_reads"], row["gave_up"]))
    if not found:
        return None
    table = pd.DataFrame(
        found, columns=["case", "program", "by the guide", "outcome", "wrong_reads", "gave_up"]
    ).sort_values("case", kind="stable")
    promised = table[table["by the guide"] == "done"]
    loose = table[table["by the guide"] != "done"]
    broken = promised[promised["outcome"] != "done"]
    bad = loose[loose["outcome"] != "done"]
    text = (
        f"All {len(promised)} programs that the guide allows came to a right end"
        if broken.empty
        else f"Of {len(promised)} programs that the guide allows, these did not end well: "
        + _list(broken)
    )
    if len(loose):
        well = len(loose) - len(bad)
        text += f"; of {len(loose)} that it does not, {well} ended well all the same"
        if len(bad):
            text += f" and {len(bad)} did not: {_list(bad)}"
    drawn = table.assign(program="(" + table["case"] + ") " + table["program"])
    drawn = drawn[["program", "by the guide", "outcome"]]
    hangs = table["outcome"].str.contains("ended|timed").any()
    return Answer(
        text=("It can. " if hangs else "Not here. ") + text + ".",
        verdict="contradicted" if len(broken) or not hangs else "confirmed",
        plots=(
            Plot(draw_outcomes, drawn, "How each program ended, and what the guide says of it"),
        ),
        method="Each program once in a process of its own, which is killed when the kernel does "
        "not end within a second. Half of the threads write late, so that who reads too early "
        "reads a wrong word; who waits for a flag gives up after 2 million cycles.",
        table=table,
        sources=data.sources("branch"),
    )


ENDS = {
    "done": plots.GREEN,
    "wrong data": plots.ORANGE,
    "timed out": plots.VERMILION,
    "never ended": plots.PURPLE,
}


def draw_outcomes(rows: pd.DataFrame) -> Figure:
    """A row a program: how it ended, as `outcome` words it, and beside it what the guide says."""
    ends = list(ENDS)
    places = [ends.index(text.split(" (")[0]) for text in rows["outcome"]]
    figure, axes = plots.figure(width=7.4, height=1.0 + 0.27 * len(rows))
    axes.scatter(
        places, range(len(rows)), s=110, marker="s", color=[ENDS[ends[place]] for place in places]
    )
    axes.set_yticks(range(len(rows)), rows["program"])
    axes.set_xticks(range(len(ends)), [end.replace(" ", "\n") for end in ends])
    axes.tick_params(axis="x", top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.set(xlim=(-0.5, len(ends) - 0.5), ylim=(len(rows) - 0.4, -0.6))
    for place, text in enumerate(rows["by the guide"]):
        plots.beside(axes, place, text)
    plots.beside(axes, -1, "guide:")
    return figure


def _list(rows: pd.DataFrame) -> str:
    return "; ".join(
        f"({row['case']}) {row['program']}: {row['outcome']}" for _, row in rows.iterrows()
    )


QUESTIONS = (
    Question(
        18,
        "Does a barrier in a branch hang?",
        ("branch",),
        cases,
        claim="A barrier in a branch can hang; where every thread of the block reaches it or has "
        "returned, it ends well.",
    ),
)
