"""Ready and Waiting: the states of resident warps, from hardware counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.counters import STEADY
from analysis.report.question import Answer, Plot, Question, RunData
from analysis.views.counters import METHOD, counted, sources
from results.counters import STATES

EXPECTED: dict[tuple[str, str], str] = {
    ("occupancy", "read"): "long_scoreboard",
    ("memory", "chase"): "long_scoreboard",
    ("memory", "chase_shared"): "short_scoreboard",
    ("instruction", "chain"): "wait",
    ("barrier", "syncthreads"): "barrier",
}
"""Kernels that are made of one kind of waiting, and the state that a warp must then be in: a
fixed latency is the compiler's count (`wait`), the scoreboard is for those that vary."""
ASKED = ("long_scoreboard", "short_scoreboard", "wait", "imc_miss", "barrier")
"""States in which a warp waits for an operand, or at a barrier."""
MEANINGS = "; ".join(f"{name.replace('_', ' ')}: {STATES[name].meaning}" for name in ASKED) + "."
MOSTLY = 0.5
"""Share of its warps' time from which on a case counts as waiting for something else."""
OP = "fma.f32"
"""Of the chains, the one whose latency is fixed."""
SHOWN = 5
"""States that get a colour of their own; the others are drawn together."""


def waiting(data: RunData) -> Answer | None:
    """In which state the warps of kernels that are made of one kind of waiting spend their time."""
    rows = counted(data)
    found = [row for row in (_most(rows, *key) for key in EXPECTED) if row is not None]
    if not found:
        return None
    parts, right = [], True
    for row in found:
        name = EXPECTED[row["family"], row["kernel"]]
        longest = _longest(row)
        right &= longest == name
        parts.append(
            f"{row['family']}/{row['kernel']} {units.percent(row[f'share_{longest}'])} of its "
            f"warps' time in {_spoken(longest)}"
            + ("" if longest == name else f", where {_spoken(name)} was expected")
        )
    text = f"A warp that is not ready waits for what its kernel is made of: {', '.join(parts)}"
    judged, others = _others(rows)
    if others:
        found.append(others[0])
        text += (
            f". But not for operands and barriers alone: in {len(others)} of {judged} "
            f"cases warps spend over half of their time otherwise: "
            + ", ".join(
                f"{row['family']}/{row['kernel']} {units.percent(row[f'share_{name}'])} in "
                f"{_spoken(name)} ({STATES[name].meaning})"
                for name, row in {_longest(row): row for row in reversed(others)}.items()
            )
        )
    sweep = _sweep(rows)
    drawn = [Plot(_draw_kernels, _long(found), "States of resident warps, a bar for each kernel")]
    if len(sweep) > 2:
        few, many = sweep.iloc[0], sweep.iloc[-1]
        text += (
            f". From {few['warps']:.0f} to {many['warps']:.0f} resident warps, a warp of "
            f"occupancy/read is ready {units.percent(few['ready'])} and then "
            f"{units.percent(many['ready'])} of its time, and the schedulers fill "
            f"{units.percent(few['issue_used'])} and then {units.percent(many['issue_used'])} of "
            "the issue slots that they have while a warp is there: more warps do not wait less, "
            "others issue meanwhile"
        )
        drawn.append(
            Plot(
                _draw_sweep,
                sweep,
                "States of resident warps and issue slots used against warps an SM",
            )
        )
    return Answer(
        text=text + ".",
        verdict="confirmed" if right and not others else "contradicted",
        plots=tuple(drawn),
        method=f"{METHOD} {MEANINGS}",
        table=_states(found),
        sources=sources(data, found),
    )


def _most(rows: pd.DataFrame, family: str, kernel: str) -> dict[Any, Any] | None:
    """The case of a kernel with the most warp cycles: that in which starting weighs least."""
    found = [
        row
        for row in rows.to_dict("records")
        if (row["family"], row["kernel"]) == (family, kernel)
        and row["params"].get("op", OP) == OP
        and row.get("warp_cycles", 0.0) > 0
        and _longest(row)
    ]
    return max(found, key=lambda row: row["warp_cycles"], default=None)


def _longest(row: Mapping[Any, Any]) -> str:
    """The state in which a warp waits longest; empty without counters."""
    shares = {
        name: row[f"share_{name}"]
        for name, state in STATES.items()
        if not state.ready and row.get(f"share_{name}", 0.0) > 0
    }
    return max(shares, key=lambda name: shares[name], default="")


def _others(rows: pd.DataFrame) -> tuple[int, list[dict[Any, Any]]]:
    """How many cases are long enough and have known states, and those of them whose warps wait
    mostly for neither operand nor barrier, the most first."""
    judged = [row for row in rows.to_dict("records") if row["time"] >= STEADY and _longest(row)]
    found = [
        row
        for row in judged
        if (name := _longest(row)) not in ASKED and row[f"share_{name}"] > MOSTLY
    ]
    return len(judged), sorted(found, key=lambda row: -row[f"share_{_longest(row)}"])


def _spoken(state: str) -> str:
    return state.replace("_", " ")


def _known(rows: list[dict[Any, Any]]) -> list[str]:
    """States that any of the rows has, most time first."""
    total = {
        name: sum(row.get(f"share_{name}", 0.0) or 0.0 for row in rows)
        for name in STATES
        if any(row.get(f"share_{name}", 0.0) > 0 for row in rows)
    }
    return sorted(total, key=lambda name: -total[name])


def _states(rows: list[dict[Any, Any]]) -> pd.DataFrame:
    """A row a kernel: its case, the share of every state that occurs, and issue slots used."""
    return pd.DataFrame(
        {
            "case": [row["case"] for row in rows],
            "issue_used": [_percent(row["issue_used"]) for row in rows],
            **{
                name: [_percent(row.get(f"share_{name}", float("nan"))) for row in rows]
                for name in _known(rows)
            },
        }
    )


def _percent(value: float) -> str:
    return "" if pd.isna(value) else units.percent(value)


def _long(rows: list[dict[Any, Any]]) -> pd.DataFrame:
    """Tidy: kernel, state, share; the rarer states together as `other`."""
    shown = _known(rows)[:SHOWN]
    tidy = [
        {"kernel": f"{row['family']}/{row['kernel']}", "state": name, "share": share}
        for row in rows
        for name in _known(rows)
        if (share := row.get(f"share_{name}", 0.0)) > 0
    ]
    table = pd.DataFrame(tidy)
    table["state"] = table["state"].where(table["state"].isin(shown), "other")
    return table.groupby(["kernel", "state"], sort=False, as_index=False)["share"].sum()


def _sweep(rows: pd.DataFrame) -> pd.DataFrame:
    """occupancy/read over resident warps, at the fewest and smallest loads in flight."""
    rows = rows[(rows["family"] == "occupancy") & (rows["kernel"] == "read")]
    points = [
        {**row, **{name: row["params"].get(name) for name in ("warps", "loads", "width")}}
        for row in rows.to_dict("records")
        if row["params"].get("by") == "shared_memory" and "carveout" not in row["params"]
    ]
    if not points:
        return pd.DataFrame()
    least = min((point["loads"], point["width"]) for point in points)
    points = [point for point in points if (point["loads"], point["width"]) == least]
    shares = [f"share_{name}" for name in _known(points)]
    table = pd.DataFrame(points)[["warps", "issue_used", "ready", *shares]].dropna()
    return table.sort_values("warps", ignore_index=True)


def _draw_kernels(rows: pd.DataFrame) -> Figure:
    kernels = list(dict.fromkeys(rows["kernel"]))
    figure, axes = plots.figure(height=1.4 + 0.5 * len(kernels))
    states = [name for name in dict.fromkeys(rows["state"]) if name != "other"]
    wide = rows.pivot(index="kernel", columns="state", values="share").fillna(0.0)
    wide = wide.reindex(kernels[::-1])
    left = pd.Series(0.0, index=wide.index)
    order = [*states, *(["other"] if "other" in wide else [])]
    for place, state in enumerate(order):
        color = plots.GREY if state == "other" else plots.PALETTE[place]
        axes.barh(
            wide.index,
            wide[state],
            left=left,
            color=color,
            label=state.replace("_", " "),
            height=0.6,
        )
        left += wide[state]
    axes.set(xlim=(0, max(1.0, left.max())), xlabel="share of the resident warps' cycles")
    plots.format_axis(axes, lambda value: f"{value:.0%}", "x")
    axes.grid(visible=False, axis="y")
    plots.legend(axes, columns=3)
    return figure


def _draw_sweep(rows: pd.DataFrame) -> Figure:
    figure, (above, below) = plots.figure(
        2, 1, height=4.8, sharex=True, height_ratios=(2, 1), gridspec_kw={"hspace": 0.06}
    )
    _draw_states(above, rows)
    below.plot(rows["warps"], rows["issue_used"], color=plots.BLUE, marker="o")
    below.set(
        ylim=(0, None),
        ylabel="slots used",
        xlabel="resident warps an SM (slots: of schedulers that have a warp)",
    )
    plots.format_axis(below, lambda value: f"{value:.0%}", "y")
    plots.log2_axis(below, rows["warps"], "{:.0f}".format)
    return figure


def _draw_states(axes: Axes, rows: pd.DataFrame) -> None:
    shares = [name for name in rows if name.startswith("share_")]
    bottom = pd.Series(0.0, index=rows.index)
    other = rows[shares[SHOWN:]].sum(axis=1)
    layers = [(name.removeprefix("share_"), rows[name]) for name in shares[:SHOWN]]
    if len(shares) > SHOWN:
        layers.append(("other", other))
    for place, (name, share) in enumerate(layers):
        color = plots.GREY if name == "other" else plots.PALETTE[place]
        label = name.replace("_", " ")
        axes.fill_between(rows["warps"], bottom, bottom + share, color=color, label=label, lw=0)
        bottom = bottom + share
    axes.set(ylim=(0, max(1.0, bottom.max())), ylabel="share of warps' cycles")
    plots.format_axis(axes, lambda value: f"{value:.0%}", "y")
    plots.legend(axes, columns=3)


QUESTIONS = (
    Question(
        5,
        "What do resident warps wait for?",
        ("occupancy", "memory", "instruction"),
        waiting,
        claim="A warp that is not ready waits for an operand of its next instruction, or at a "
        "barrier.",
    ),
)
