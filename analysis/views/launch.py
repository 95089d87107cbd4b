"""Launching: what it costs the host and the device, how many blocks, and where errors appear."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData
from results.schema import Case

ROADS = {"numba": "numba", "cupy": "CuPy", "cuda_core": "cuda.core"}
STEPS = ("launch", "launch behind it", "query", "synchronise", "launch after", "allocate after")
"""The calls whose CUresult `late_error` records, in turn."""
RESULTS = {
    0: "success",
    1: "INVALID_VALUE",
    600: "NOT_READY",
    700: "ILLEGAL_ADDRESS",
    716: "MISALIGNED_ADDRESS",
    718: "INVALID_PC",
    719: "LAUNCH_FAILED",
    999: "UNKNOWN",
}
"""Names of CUresult, without CUDA_ERROR_: cuda.h."""
PENDING = {0, 600}
"""What a call answers while it knows of no error."""
MILLIONS = 2_000_000
"""Threads from which a grid that ran says something of `millions`."""


# Row 28: the cost of a launch


def cost(data: RunData) -> Answer | None:
    """Host and device time of an empty kernel by each road, and of a graph's node."""
    rows = data.select("launch", *ROADS)
    if rows.empty or rows["host_seconds"].isna().all():
        return None
    rows = rows.assign(
        road=[_road(*item) for item in zip(rows["kernel"], rows["arguments"], strict=True)]
    )
    bare = rows[rows["arguments"] == 0].sort_values("host_seconds")
    text = "A launch of an empty kernel takes the host " + ", ".join(
        f"{units.seconds(row['host_seconds'])} by {ROADS[row['kernel']]}"
        for row in bare.to_dict("records")
    )
    loaded = rows[(rows["arguments"] > 0) & (rows["kernel"] == "numba")]
    if not loaded.empty:
        text += f" ({units.seconds(loaded['host_seconds'].iloc[0])} by numba with two arrays)"
    text += f", and the device {units.seconds(bare['median_seconds'].min())}"
    graph = data.select("launch", "graph")
    nodes = None
    if not graph.empty:
        nodes = graph.sort_values("nodes")
        last = nodes.iloc[-1]
        text += (
            f"; in a graph of {last['nodes']:.0f} it is "
            f"{units.seconds(_each(last, 'host_seconds'))} of the host and "
            f"{units.seconds(_each(last, 'median_seconds'))} of the device a kernel"
        )
    spin = data.select("launch", "spin")
    early = None
    if not spin.empty:
        row = spin.iloc[0]
        early = bool(row["host_seconds"] < 0.5 * row["median_seconds"])
        text += (
            f"; launching a kernel of {units.seconds(row['median_seconds'])} "
            + ("returns after " if early else "does not return before ")
            + units.seconds(row["host_seconds"])
        )
    columns = ["host_seconds", "roundtrip_seconds", "median_seconds"]
    table = pd.concat([rows, _graph_rows(nodes)])[["road", *columns]]
    return Answer(
        text=text + ".",
        verdict="measured" if early is None else ("confirmed" if early else "contradicted"),
        plots=(
            Plot(_draw_cost, table, "Host, device and round-trip time of a launch by each road"),
        ),
        method="Host time: 100 launches in a row, none waited for. Round trip: a launch and a "
        "synchronisation. Device time: between two events behind a gate, so that nothing of the "
        "host is in it.",
        table=table,
        sources=data.sources("launch", *ROADS, "graph", "spin"),
    )


def _road(kernel: str, arguments: int) -> str:
    return ROADS[kernel] + (f", {arguments} arrays" if arguments else "")


def _each(row: pd.Series, column: str) -> float:
    return float(row[column] / row["nodes"])


def _graph_rows(nodes: pd.DataFrame | None) -> pd.DataFrame | None:
    """The graphs with the times of a node."""
    if nodes is None:
        return None
    nodes = nodes.assign(road=[f"graph, a node of {n:.0f}" for n in nodes["nodes"]])
    for column in ("host_seconds", "roundtrip_seconds", "median_seconds"):
        nodes[column] = nodes[column] / nodes["nodes"]
    return nodes


def _draw_cost(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=1.2 + 0.28 * len(rows))
    kinds = (
        ("host_seconds", "host", plots.BLUE),
        ("median_seconds", "device", plots.GREEN),
        ("roundtrip_seconds", "launch and wait", plots.GREY),
    )
    for place, (column, label, color) in enumerate(kinds):
        at = range(len(rows))
        axes.plot(rows[column], at, plots.MARKERS[place], color=color, markersize=7, label=label)
    axes.set_yticks(range(len(rows)), rows["road"])
    axes.set(xlabel="time", ylim=(len(rows) - 0.4, -0.6))
    plots.log_axis(axes, units.seconds, "x")
    plots.legend(axes)
    return figure


def blocks(data: RunData) -> Answer | None:
    """How fast empty blocks are dispatched, from one to millions."""
    rows = data.select("launch", "blocks")
    if rows.empty or rows["grid"].nunique() < 2:
        return None
    rows = rows.sort_values(["block", "grid"])
    first = rows.groupby("block")["median_seconds"].transform("first")
    rate = (rows["grid"] - 1) / (rows["median_seconds"] - first).where(rows["grid"] > 1)
    rows = rows.assign(rate=rate.where(rate > 0), threads=rows["grid"] * rows["block"])
    largest = rows[rows["grid"] == rows["grid"].max()]
    texts = [
        f"{units.raised(units.count(row['grid']))} blocks of {row['block']:.0f} threads take "
        f"{units.seconds(row['median_seconds'])}, "
        f"{units.digits(row['rate'] / 1e9)} billion blocks a second"
        for row in largest.to_dict("records")
    ]
    base = rows[rows["grid"] == rows["grid"].min()]["median_seconds"].min()
    same = rows[rows["median_seconds"] <= 1.1 * base]["grid"].max()
    text = "; ".join(texts)
    if same > 1:
        cheap = units.raised(units.count(same, shortest=16))
        text += f"; up to {cheap} blocks take what one does ({units.seconds(base)})"
    return Answer(
        text=text + ".",
        verdict="confirmed" if rows["threads"].max() >= MILLIONS else "measured",
        plots=(Plot(_draw_blocks, rows, "Time of an empty grid against its blocks"),),
        method="Empty kernels; the rate is over the time that a single block takes.",
        table=rows[["block", "grid", "threads", "median_seconds", "spread"]],
        sources=data.sources("launch", "blocks"),
    )


def _draw_blocks(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure()
    rows = rows.assign(series=[f"{block:.0f} threads a block" for block in rows["block"]])
    plots.lines(axes, rows, "grid", "median_seconds", "series")
    axes.set(yscale="log", xlabel="blocks", ylabel="time")
    plots.log2_axis(
        axes, rows["grid"], lambda value: units.count(value, shortest=2) if value > 1 else "1"
    )
    plots.format_axis(axes, units.seconds)
    plots.legend(axes)
    return figure


def errors(data: RunData) -> Answer | None:
    """Which call tells of a launch that is too large, and of an error inside a kernel."""
    late = [case for _, case in data.vectors("launch", "late_error")]
    refused = data.select("launch", "refused")
    if not late and refused.empty:
        return None
    table = _calls(late)
    texts = []
    at_once = True
    if not refused.empty:
        at_once = bool((refused["error_code"] > 0).all())
        names = ", ".join(sorted({result(code) for code in refused["error_code"]}))
        texts.append(
            f"A launch with one thread or block more than is allowed "
            f"{'is refused at once' if at_once else 'is not always refused'} ({names})"
        )
    told = {_first_told(case) for case in late}
    if told:
        later = all(code not in PENDING for case in late for code in _codes(case)[4:])
        texts.append(
            f"an error inside a kernel is first told by {' or '.join(sorted(told))}"
            + (", and by every call after it" if later else "")
            + (", not by its own launch" if told.isdisjoint({"launch", "no call"}) else "")
        )
    as_said = at_once and told.isdisjoint({"launch", "no call"})
    return Answer(
        text="; ".join(texts)[0].upper() + "; ".join(texts)[1:] + ".",
        verdict="confirmed" if as_said else "contradicted",
        plots=(Plot(_draw_calls, table, "What each call answers, a row for each kind of error"),)
        if len(table)
        else (),
        method="The kernel breaks 5 ms after its launch, in a child process, since the error ends "
        "the process's context; what each call answers is noted.",
        table=table.pivot(index="error", columns="call", values="answer")[
            [step for step in STEPS if step in set(table["call"])]
        ].reset_index()
        if len(table)
        else None,
        sources=data.sources("launch", "refused", "late_error"),
    )


def _first_told(case: Case) -> str:
    """The first call that answered with an error."""
    answers = zip(STEPS, _codes(case), strict=False)
    return next((step for step, code in answers if code not in PENDING), "no call")


def _codes(case: Case) -> list[float]:
    codes = case.metrics.get("error_codes", [])
    return codes if isinstance(codes, list) else [codes]


def _calls(cases: list[Case]) -> pd.DataFrame:
    """A row a fault and call: what the first process was answered."""
    rows = {
        (str(case.params.get("fault")), step): (result(code), int(code in PENDING))
        for case in reversed(cases)
        for step, code in zip(STEPS, _codes(case), strict=False)
    }
    return pd.DataFrame(
        [(fault, step, *answer) for (fault, step), answer in rows.items()],
        columns=["error", "call", "answer", "pending"],
    )


def result(code: float) -> str:
    """CUresult as its name, or its number where this table lacks it."""
    return RESULTS.get(int(code), f"CUresult {code:.0f}")


def _draw_calls(rows: pd.DataFrame) -> Figure:
    faults = list(dict.fromkeys(rows["error"]))
    steps = [step for step in STEPS if step in set(rows["call"])]
    figure, axes = plots.figure(width=7.4, height=1.3 + 0.55 * len(faults))
    for row in rows.itertuples():
        x, y = steps.index(row.call), faults.index(row.error)
        color = plots.SKY if row.pending else plots.VERMILION
        axes.barh(y, 0.94, left=x - 0.47, height=0.8, color=color, alpha=0.8)
        axes.text(x, y, row.answer.replace("_", "\n"), ha="center", va="center", fontsize=7.5)
    axes.set_xticks(range(len(steps)), [step.replace(" ", "\n", 1) for step in steps])
    axes.set_yticks(range(len(faults)), faults)
    axes.set(ylim=(len(faults) - 0.4, -0.6))
    axes.grid(visible=False)
    return figure


QUESTIONS = (
    Question(
        28,
        "What does a launch cost the host and the device?",
        ("launch",),
        cost,
        claim="A launch returns at once, before its kernel has ended.",
    ),
    Question(
        28,
        "Are millions of blocks fine?",
        ("launch",),
        blocks,
        claim="A grid may well have millions of threads.",
    ),
    Question(
        28,
        "Where does an error appear?",
        ("launch",),
        errors,
        claim="A launch that is too large is refused at once; an error inside a kernel is told by "
        "a later call.",
    ),
)
