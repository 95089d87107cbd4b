"""What hardware counters explain: Ready and Waiting, declared bytes, and our clock."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from analysis import counters, plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from results.counters import STATES
from results.errors import UserError

EXPECTED: dict[tuple[str, str], str] = {
    ("occupancy", "read"): "long_scoreboard",
    ("memory", "chase"): "long_scoreboard",
    ("memory", "chase_shared"): "short_scoreboard",
    ("instruction", "chain"): "wait",
    ("barrier", "syncthreads"): "barrier",
}
"""Kernels that are made of one kind of waiting, and the state that a warp must then be in: a
fixed latency is the compiler's count (`wait`), the scoreboard is for those that vary."""
OP = "fma.f32"
"""Of the chains, the one whose latency is fixed."""
SHOWN = 5
"""States that get a colour of their own; the others are drawn together."""
METHOD = (
    "Nsight Compute replays each launch with L1 and L2 invalidated and the clocks left alone; only "
    "the launches of a case's queue are counted. In each cycle every resident warp is in one state."
)


def _table(data: RunData) -> pd.DataFrame:
    try:
        return counters.table(data.recording, cases=data.frame)
    except UserError:  # the first screen says what is wrong with them
        return counters.table(data.recording, [], data.frame)


def _l2(data: RunData) -> float:
    return data.number("l2_bytes") or 0.0


# Row 5: Ready and Waiting


def waiting(data: RunData) -> Answer | None:
    """In which state the warps of kernels that are made of one kind of waiting spend their time."""
    rows = _table(data)
    found = [row for row in (_most(rows, *key) for key in EXPECTED) if row is not None]
    if not found:
        return None
    parts, right = [], True
    for row in found:
        name = EXPECTED[row["family"], row["kernel"]]
        longest = _longest(row)
        right &= longest == name
        parts.append(
            f"{row['family']}/{row['kernel']} is {_spoken(longest)} for "
            f"{units.percent(row[f'share_{longest}'])} of its warps' time"
            + ("" if longest == name else f", where {_spoken(name)} was expected")
        )
    text = f"A warp that is not ready waits for what its kernel is made of: {'; '.join(parts)}"
    sweep = _sweep(rows)
    drawn = [Plot(_draw_kernels, _long(found), "States of resident warps, a bar for each kernel")]
    if len(sweep) > 2:
        few, many = sweep.iloc[0], sweep.iloc[-1]
        text += (
            f". From {few['warps']:.0f} to {many['warps']:.0f} resident warps, a warp of "
            f"occupancy/read is ready {units.percent(few['ready'])} and then "
            f"{units.percent(many['ready'])} of its time, and the schedulers fill "
            f"{units.percent(few['issue_used'])} and then {units.percent(many['issue_used'])} of "
            "their issue slots: more warps do not wait less, others issue meanwhile"
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
        verdict="confirmed" if right else "contradicted",
        plots=tuple(drawn),
        method=METHOD,
        table=_states(found),
        sources=_sources(data, found),
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


def _spoken(state: str) -> str:
    return f"in {state.replace('_', ' ')} ({STATES[state].meaning})"


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
    below.set(ylim=(0, None), ylabel="issue slots used", xlabel="resident warps an SM")
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


def _sources(data: RunData, rows: list[dict[Any, Any]]) -> tuple[str, ...]:
    kernels = dict.fromkeys((row["family"], row["kernel"]) for row in rows)
    return tuple(dict.fromkeys(source for key in kernels for source in data.sources(*key)))


# Declared bytes and our clock


def declared(data: RunData) -> Answer | None:
    """Whether every cold streaming case moves at DRAM what its kernel declares."""
    rows = [row for row in _table(data).to_dict("records") if counters.streaming(row)]
    if not rows:
        return None
    off = [counters.deviation(row, _l2(data)) for row in rows]
    odd = [
        item for item in counters.suspects(pd.DataFrame(rows), _l2(data)) if item.kind == "bytes"
    ]
    worst = max(off, key=abs)
    text = (
        f"{len(rows) - len(odd)} of {len(rows)} cold streaming cases move at DRAM what they "
        f"declare, within {counters.BYTES:.0%} and the {units.size(_l2(data))} of writes that L2 "
        "may keep; "
        + (
            f"the largest deviation beyond that is {abs(worst):.1%}"
            if abs(worst) >= 0.0005
            else "beyond that none deviates"
        )
    )
    if odd:
        text += f". {odd[0].case}: {odd[0].text}: {odd[0].cause}"
    drawn = pd.DataFrame(
        {
            "declared": [sum(counters.declared(row)) for row in rows],
            "counted": [row["dram_read"] + row["dram_written"] for row in rows],
            "family": [row["family"] for row in rows],
            "l2": _l2(data),
        }
    )
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_bytes, drawn, "Bytes counted at DRAM over bytes declared, by size"),),
        method=f"{METHOD} Cases from {units.size(counters.STREAMING)} on, whose data is not meant "
        "to stay in cache.",
        table=_suspects(odd) if odd else _extremes(rows, off),
        sources=_sources(data, rows),
    )


def _suspects(odd: list[counters.Suspect]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "case": [item.case for item in odd],
            "deviation": [f"{item.deviation:+.1%}" for item in odd],
            "found": [item.text for item in odd],
            "cause": [item.cause for item in odd],
        }
    )


def _extremes(rows: list[dict[Any, Any]], off: list[float]) -> pd.DataFrame:
    """The case that deviates most of each kernel."""
    worst: dict[tuple[str, str], tuple[float, dict[Any, Any]]] = {}
    for row, value in zip(rows, off, strict=True):
        key = row["family"], row["kernel"]
        if key not in worst or abs(value) > abs(worst[key][0]):
            worst[key] = value, row
    return pd.DataFrame(
        {
            "case": [row["case"] for _, row in worst.values()],
            "declared": [units.size(sum(counters.declared(row))) for _, row in worst.values()],
            "dram_read": [units.size(row["dram_read"]) for _, row in worst.values()],
            "dram_written": [units.size(row["dram_written"]) for _, row in worst.values()],
            "deviation": [f"{value:+.1%}" for value, _ in worst.values()],
        }
    )


def _draw_bytes(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    for place, (family, part) in enumerate(rows.groupby("family", sort=False)):
        axes.plot(
            part["declared"],
            part["counted"] / part["declared"],
            linestyle="",
            marker=plots.MARKERS[place % len(plots.MARKERS)],
            color=plots.PALETTE[place % len(plots.PALETTE)],
            label=str(family).replace("_", " "),
        )
    sizes = rows["declared"].sort_values()
    kept = (1 - rows["l2"].iloc[0] / sizes).clip(lower=0)
    axes.fill_between(sizes, kept, 1.0, color=plots.GREY, alpha=0.2, lw=0, zorder=1)
    axes.axhline(1.0, color=plots.INK, linestyle=plots.MODEL, linewidth=1.1, zorder=1.5)
    axes.set(xlabel="bytes declared (grey: what L2 may keep)", ylabel="counted over declared")
    counted = rows["counted"] / rows["declared"]
    axes.yaxis.set_major_locator(MultipleLocator(0.05))
    plots.format_axis(axes, "{:.2f}".format)
    axes.set_ylim(min(0.85, counted.min() - 0.02), max(1.05, counted.max() + 0.02))
    axes.set_xscale("log", base=2)
    plots.ticks(axes, [2.0**e for e in _exponents(sizes)], units.size)
    plots.legend(axes, columns=4)
    return figure


def _exponents(sizes: pd.Series) -> range:
    return range(math.floor(math.log2(sizes.min())), math.ceil(math.log2(sizes.max())) + 1)


def clock(data: RunData) -> Answer | None:
    """Whether the profiler's time and ours agree for long cold kernels."""
    rows = [row for row in _table(data).to_dict("records") if counters.timed(row)]
    single = [row for row in rows if row["launches"] == 1]
    if not single:
        return None
    odd = [
        item for item in counters.suspects(pd.DataFrame(single), _l2(data)) if item.kind == "time"
    ]
    ratios = pd.Series([row["time"] / row["seconds"] for row in single])
    text = (
        f"{'Yes' if not odd else 'Nearly always' if len(odd) <= 0.1 * len(single) else 'No'}: "
        f"{len(single) - len(odd)} of {len(single)} cold kernels over "
        f"{plots.short(units.seconds(counters.LONG))} take the profiler's time within "
        f"{counters.TIME:.0%} and the share of the bytes that its clean L2 keeps from DRAM; its "
        f"time over ours is {ratios.median():.3f} in the median, {ratios.min():.3f} to "
        f"{ratios.max():.3f}"
    )
    if odd:
        text += f". {odd[0].case}: {odd[0].text}: {odd[0].cause}"
    drawn = pd.DataFrame(
        {"seconds": [row["seconds"] for row in single], "ratio": ratios}
    ).sort_values("seconds")
    return Answer(
        text=text + ".",
        verdict="measured",
        plots=(Plot(_draw_clock, drawn, "The profiler's time over ours against our time"),),
        method=f"{METHOD} Cases of several launches are left out: our time holds the gaps.",
        table=_suspects(odd) if odd else None,
        sources=_sources(data, single),
    )


def _draw_clock(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    axes.plot(rows["seconds"], rows["ratio"], linestyle="", marker="o", color=plots.BLUE)
    axes.axhspan(1 - counters.TIME, 1 + counters.TIME, color=plots.GREY, alpha=0.2, lw=0)
    axes.axhline(1.0, color=plots.INK, linestyle=plots.MODEL, linewidth=1.1, zorder=1.5)
    axes.set(xlabel=f"our time (grey: within {counters.TIME:.0%})", ylabel="profiler's over ours")
    plots.log_axis(axes, units.seconds, "x")
    return figure


QUESTIONS = (
    Question(
        2,
        "Does DRAM move the bytes that the kernels declare?",
        ("axpy", "reduction"),
        declared,
    ),
    Question(
        2,
        "Does the profiler's clock agree with ours?",
        ("axpy", "reduction"),
        clock,
    ),
    Question(
        5,
        "What do resident warps wait for?",
        ("occupancy", "memory", "instruction"),
        waiting,
        claim="A warp that is not ready waits for an operand of its next instruction, or at a "
        "barrier.",
    ),
)
