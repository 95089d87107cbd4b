"""Clusters: their barrier by size, shared memory of other blocks by distance, how many fit."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from analysis import plots, units
from analysis.report.question import Answer, Plot, Question, RunData, Verdict
from analysis.views.synchronisation import published

PORTABLE = 8
"""Blocks a cluster may have on every GPU with clusters (CUDA programming guide)."""
ORDERS = {"release_acquire": "release and acquire", "relaxed": "relaxed"}


def clusters(data: RunData) -> Answer | None:
    """The barrier's cost by size, remote against local latency and bandwidth, the largest size."""
    sync = data.select("cluster", "cluster_sync")
    remote, local = _reads(data, "latency")
    if sync.empty and remote.empty:
        return None
    text = ". ".join(
        part[0].upper() + part[1:]
        for part in (
            _barrier(sync),
            _latency(remote, local),
            _bandwidth(*_reads(data, "bandwidth")),
            _size(data, sync),
        )
        if part
    )
    figures = []
    if not sync.empty:
        figures.append(Plot(_draw_sync, _drawn(sync), "Cycles of a cluster sync by cluster size"))
    if not remote.empty:
        figures.append(
            Plot(_draw_reads, _reads_drawn(remote, local), "Latency by distance in the cluster")
        )
    return Answer(
        text=text + ".",
        verdict=_verdict(data, sync),
        plots=tuple(figures),
        method="Cycles by the SM's clock, one block an SM, as many clusters as the driver says are "
        "active at once. Latency: one lane follows a cycle of addresses through the other block's "
        "shared memory. Bandwidth: every block reads another's, 16 bytes a load.",
        table=_table(data),
        sources=data.sources("cluster"),
    )


def _reads(data: RunData, what: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Reads through the cluster's window, and plain shared loads."""
    return (
        data.select("cluster", f"dsmem_{what}"),
        data.select("cluster", f"shared_{what}"),
    )


def _barrier(sync: pd.DataFrame) -> str:
    if sync.empty:
        return ""
    cost = sync.pivot_table(
        index="cluster", columns="order", values="latency_cycles", aggfunc="median"
    )
    words = []
    for order in (name for name in ORDERS if name in cost):
        known = cost[order].dropna()
        ends = dict.fromkeys((known.index[0], known.index[-1]))
        words.append(
            f"{ORDERS[order]} "
            + " and ".join(f"{units.cycles(known[size])} for {_blocks(size)}" for size in ends)
        )
    return "a cluster sync costs with " + ", and ".join(words)


def _blocks(size: float) -> str:
    return f"{size:.0f} block{'s' if size > 1 else ''}"


def _latency(remote: pd.DataFrame, local: pd.DataFrame) -> str:
    if remote.empty:
        return ""
    away = remote[remote["distance"] > 0]["latency_cycles"]
    if away.empty:
        return ""
    text = f"a read of another block's shared memory takes {units.cycles(away.median())}"
    if away.max() - away.min() > 0.02 * away.median():
        text += f" ({away.min():.0f} to {away.max():.0f} by distance and size)"
    if not local.empty:
        near = local["latency_cycles"].median()
        text += f" where the block's own takes {units.cycles(near)}"
    others = published({"dsmem_latency"})
    for row in others.to_dict("records"):
        text += f" (published: {row['latency_cycles']:.0f} on {row['source']})"
    return text


def _bandwidth(remote: pd.DataFrame, local: pd.DataFrame) -> str:
    rows = remote[remote["distance"] > 0] if not remote.empty else remote
    if rows.empty:
        return ""
    by_size = rows.groupby("cluster")["bytes_per_clock_per_sm"].median()
    text = (
        f"all SMs at once read {units.digits(by_size.max())} B a clock each in clusters of "
        f"{by_size.idxmax():.0f}"
    )
    if by_size.max() > 1.02 * by_size.min():
        text += f" and {units.digits(by_size.min())} in clusters of {by_size.idxmin():.0f}"
    if not local.empty:
        near = local["bytes_per_clock_per_sm"].median()
        text += f", {units.digits(near)} of their own"
    return text


def _size(data: RunData, sync: pd.DataFrame) -> str:
    most = data.select("cluster", "max_active_clusters")
    sizes = [*sync.get("cluster", []), *most.get("cluster", [])]
    if not sizes:
        return ""
    text = f"clusters of {_blocks(max(sizes))} run"
    if max(sizes) > PORTABLE and _refused(data):
        text += f", those over {PORTABLE} only where the kernel allows sizes that are not portable"
    at = most[most["cluster"] == max(sizes)] if not most.empty else most
    if not at.empty:
        row = at.iloc[0]
        text += (
            f" ({row['max_active_clusters']:.0f} at once, on {row['sms_used']:.0f} of "
            f"{data.number('sms') or float('nan'):.0f} SMs)"
        )
    return text


def _refused(data: RunData) -> bool:
    """Whether a size that is not portable was refused where no leave had been given."""
    table = data.frame
    rows = table[(table["family"] == "cluster") & (table["kernel"] == "cluster_sync")]
    asked = rows[rows["params"].map(lambda params: params.get("permitted") == 0)]
    return not asked.empty and bool((asked["status"] == "skipped").all())


def _verdict(data: RunData, sync: pd.DataFrame) -> Verdict:
    """The claim is at most 8 blocks a cluster."""
    if sync.empty or "permitted" not in _parameters(data):
        return "measured"
    return "contradicted" if sync["cluster"].max() > PORTABLE else "confirmed"


def _parameters(data: RunData) -> set[str]:
    rows = data.frame[data.frame["family"] == "cluster"]
    return {name for params in rows["params"] for name in params}


def _table(data: RunData) -> pd.DataFrame:
    rows = data.select("cluster")
    wanted = ["kernel", "cluster", "block", "order", "distance", "latency_cycles"]
    wanted += ["latency_seconds", "bytes_per_clock_per_sm", "max_active_clusters", "sms_used"]
    return rows[[name for name in wanted if name in rows and rows[name].notna().any()]]


def _drawn(sync: pd.DataFrame) -> pd.DataFrame:
    block = sync.groupby("block")["cluster"].nunique().idxmax()
    rows = sync[sync["block"] == block]
    return rows.assign(order=rows["order"].map(ORDERS))[["order", "cluster", "latency_cycles"]]


def _draw_sync(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.2)
    plots.lines(axes, rows, "cluster", "latency_cycles", "order")
    plots.format_axis(axes, units.cycles)
    plots.log2_axis(axes, rows["cluster"], units.count)
    axes.set(xlabel="blocks a cluster")
    axes.set_ylim(bottom=0)
    plots.legend(axes)
    return figure


def _reads_drawn(remote: pd.DataFrame, local: pd.DataFrame) -> pd.DataFrame:
    """Latency by distance, a series a cluster size; what is not of this run has its GPU's name."""
    rows = remote.assign(series=remote["cluster"].map(lambda size: f"clusters of {size:.0f}"))
    rows = rows[["series", "distance", "latency_cycles"]]
    flat = []
    if not local.empty:
        near = local["latency_cycles"].median()
        flat.append({"series": "own, as shared loads", "latency_cycles": near})
    flat += [
        {"series": f"published, {row['source']}", "latency_cycles": row["latency_cycles"]}
        for row in published({"dsmem_latency"}).to_dict("records")
    ]
    return pd.concat([rows, pd.DataFrame(flat)], ignore_index=True)


def _draw_reads(rows: pd.DataFrame) -> Figure:
    figure, axes = plots.figure(height=3.4)
    near = rows[rows["distance"].notna()]
    plots.lines(axes, near, "distance", "latency_cycles", "series")
    ends = [near["distance"].min(), near["distance"].max()]
    for place, row in enumerate(rows[rows["distance"].isna()].to_dict("records")):
        color = (plots.INK, plots.GREY)[place % 2]
        plots.model(axes, ends, [row["latency_cycles"]] * 2, row["series"], color)
    plots.format_axis(axes, units.cycles)
    axes.set(xlabel="distance in the cluster, blocks (0: the block itself)")
    axes.set_ylim(bottom=0)
    plots.legend(axes, columns=3)
    return figure


QUESTIONS = (
    Question(
        26,
        "What do clusters cost, and how far is remote shared memory?",
        ("cluster",),
        clusters,
        claim="A cluster has at most 8 blocks.",
    ),
)
