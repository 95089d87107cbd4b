"""The map of GPCs: SMs that clusters joined, and those that were left alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis import plots
from analysis.report.question import Answer, Plot, Question, RunData
from results.schema import Case

UNJOINED = 2
"""A group of so few SMs is not a GPC but SMs that no cluster has joined to theirs yet: a GPC holds
a cluster of 16 blocks, one an SM."""


def gpcs(data: RunData) -> Answer | None:
    """Groups of SMs that ever held blocks of one cluster."""
    cases = [case for _, case in data.vectors("schedule", "gpc") if "sm_group" in case.metrics]
    if not cases:
        return None
    table = _sms(cases[0])
    sizes = Counter(table.loc[table["group"] >= 0, "group"])
    whole = sorted((size for size in sizes.values() if size > UNJOINED), reverse=True)
    alone = table[table["group"].map(lambda group: sizes.get(group, 0) <= UNJOINED)]
    rounds = cases[0].metrics.get("sm_groups", [])
    rounds = rounds if isinstance(rounds, list) else [rounds]
    still = _unchanged(rounds)
    agree = all(case.metrics["sm_group"] == cases[0].metrics["sm_group"] for case in cases)
    text = (
        f"Clusters join the {len(table)} SMs into {len(whole)} groups of "
        f"{', '.join(map(str, whole))}, as GPCs would be; the groups were unchanged over the last "
        f"{still} of {len(rounds)} rounds of launches"
    )
    names = ", ".join(f"{sm:.0f}" for sm in alone["sm"])
    text += f"; left unjoined: SM {names}" if len(alone) else "; no SM was left unjoined"
    if len(cases) > 1:
        text += f"; {len(cases)} processes {'agree' if agree else 'differ in some SMs'}"
    counted = pd.DataFrame(
        [(f"{group}", size) for group, size in sorted(sizes.items())], columns=["group", "SMs"]
    )
    lists = table.groupby("group")["sm"].agg(lambda sms: ", ".join(map(str, sms)))
    counted["numbers"] = [lists[int(group)] for group in counted["group"]]
    return Answer(
        text=text + ".",
        verdict="observed, not promised",
        plots=(Plot(_draw, table, "A square for each SM, a row for each group"),),
        method="A cluster's blocks run on one GPC, so SMs that ever hold blocks of one cluster "
        "share it. Each round launches clusters of 2 to 16 blocks that stay an uneven time, with "
        "one block an SM and with two.",
        table=counted,
        sources=data.sources("schedule", "gpc"),
    )


def _sms(case: Case) -> pd.DataFrame:
    groups = case.metrics["sm_group"]
    assert isinstance(groups, list)
    return pd.DataFrame({"sm": range(len(groups)), "group": groups}).astype(int)


def _unchanged(counts: list[float]) -> int:
    """Rounds at the end over which the number of groups stayed: joining only ever lowers it."""
    still = 0
    while still < len(counts) and counts[-1 - still] == counts[-1]:
        still += 1
    return still


def _draw(table: pd.DataFrame) -> Figure:
    seen = table[table["group"] >= 0]
    sizes = seen["group"].value_counts()
    order = {group: row for row, group in enumerate(sizes.index)}
    figure, axes = plots.figure(height=0.9 + 0.34 * len(order))
    for group, members in seen.groupby("group"):
        small = len(members) <= UNJOINED
        # Six colours, then the same ones paler; grey is for what is unjoined.
        round_, place = divmod(order[group], len(plots.PALETTE) - 1)
        color = plots.GREY if small else plots.PALETTE[place]
        shade = plots.mpl.colors.to_rgba(color, 0.75 if small or round_ == 0 else 0.35)
        places = np.arange(len(members))
        plots.boxes(axes, places, places + 0.9, order[group], 0.8, shade)
        style = {"ha": "center", "va": "center", "fontsize": 8.5, "in_layout": False}
        for place, sm in enumerate(members["sm"]):
            axes.text(place + 0.45, order[group], str(sm), **style)
    axes.set(xlabel="SMs of the group, by number", ylim=(len(order) - 0.4, -0.6))
    axes.set(xticks=[], xlim=(-0.3, sizes.max() + 0.2))
    axes.set_yticks(
        list(order.values()),
        ["unjoined" if sizes[g] <= UNJOINED else f"group {row + 1}" for g, row in order.items()],
    )
    axes.grid(visible=False)
    return figure


QUESTIONS = (
    Question(
        10,
        "Which SMs share a GPC?",
        ("schedule",),
        gpcs,
        claim="The SMs of a GPU form groups, its GPCs; which SMs share one is nowhere specified.",
    ),
)
