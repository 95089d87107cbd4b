"""The documents' figures are those of the recorded runs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import geometric_mean

import pandas as pd
import pytest

import analysis
from analysis import counters
from analysis.model import scoring
from results.store import load

pytestmark = pytest.mark.thorough
DOCS = Path(__file__).parents[1] / "docs"
RECORDED = "nvidia-h200"


def document(name: str) -> str:
    """A page as one line, so that a figure may stand on either side of a line's end."""
    return " ".join((DOCS / name).read_text().split())


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return analysis.frame(RECORDED)


def test_latencies(rows: pd.DataFrame):
    text = document("latency.md")
    chase = rows[(rows["family"] == "memory") & (rows["kernel"] == "chase")]
    l1 = chase[(chase["cache"] == "ca") & (chase["bytes"] == 64 << 10)]["latency_cycles"].item()
    near = chase[(chase["cache"] == "cg") & (chase["bytes"] == 2 << 20)]["latency_cycles"].item()
    dram = chase[chase["bytes"] >= 128 << 20]["latency_cycles"]
    assert f"| L1 | {l1:.1f} | to 192 KiB" in text
    assert f"| near L2 | {near:.0f} |" in text
    assert f"| DRAM | {dram.min():.0f} to {dram.max():.0f} | from 128 MiB" in text


def test_latency_under_load(rows: pd.DataFrame):
    probes = rows[(rows["family"] == "loaded_latency") & (rows["width"] == 4)]
    probes = probes.sort_values("utilisation").set_index("utilisation")["latency_cycles"]

    def at(share: float) -> str:
        place = (probes.index.to_series() - share).abs().idxmin()
        return f"{probes[place]:,.0f} at {place:.0%}"

    told = f"takes {probes.iloc[0]:.0f} cycles idle, {at(0.55)} of its peak, {at(0.88)} and {at(1)}"
    assert told in document("latency.md")


def test_scores_of_the_models():
    text = document("model.md")
    scores = {
        (s.group, s.model): s for s in scoring.scores(scoring.points(RECORDED)) if not s.curve
    }
    for title, group in {
        "**bound by memory**": scoring.MEMORY_BOUND,
        "one load and FMAs, DRAM": "mixed in dram",
        "the same in L2": "mixed in l2",
        "the same in L1": "mixed in l1",
        "AXPY with extra FMAs": "axpy with FMAs",
    }.items():
        little, queueing = scores[group, "little"], scores[group, "queueing"]
        assert f"| {title} | {queueing.cases} |" in text
        row = text.split(f"| {title} |")[1].split(" | | ")[0]
        for score in (little, queueing):
            assert f"{_two(score.mean_relative_error)}, {_two(score.maximum_relative_error)}" in row
    waves = scores["waves", "waves"]
    assert f"is off by {waves.mean_relative_error:.1%}, at most" in text


@pytest.mark.parametrize("code", range(5))
def test_the_gate_for_a_ci(code: int):
    """As a CI's shell runs it: only what is the same, or cannot be told, passes."""
    lines = (DOCS / "verdict.md").read_text().splitlines()
    (gate,) = (line.strip() for line in lines if line.strip().startswith("test $code"))
    script = f"code=0\n(exit {code}) || code=$?\n{gate}"
    ended = subprocess.run(["bash", "-e", "-c", script], check=False)
    assert (ended.returncode == 0) == (code in (0, 2))


def test_reductions_beside_cub(rows: pd.DataFrame):
    text = document("reductions.md")
    sums = rows[
        (rows["family"] == "reduction")
        & (rows["dtype"] == "float32")
        & (rows["params"].map(set) == {"n", "dtype"})
    ]
    best = []
    for n, of_size in sums.groupby("n"):
        ours = of_size[~of_size["peer"].astype(bool) & of_size["ratio_to_peer"].notna()]
        cub = of_size[of_size["kernel"] == "cub"]
        if ours.empty or cub.empty:
            continue
        first = ours.loc[ours["ratio_to_peer"].idxmax()]
        last_block = ours[ours["kernel"] == "last_block"]["ratio_to_peer"].item()
        best.append(first["ratio_to_peer"])
        figures = f"{_micro(first)} | {first['ratio_to_peer']:.3f} | {last_block:.3f} |"
        exponent = int(n).bit_length() - 1
        assert f"| 2^{exponent} | {_micro(cub.iloc[0])} | `{first['kernel']}` | {figures}" in text
    spread = f"{min(best):.3f} to {max(best):.2f} times CUB's speed, {geometric_mean(best):.2f} in"
    assert spread in text


def _micro(row: pd.Series) -> str:
    """µs, three digits or one after the point."""
    seconds = row["median_seconds"] * 1e6
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.1f}"


def _two(share: float) -> str:
    """Two digits: 2.1%, 33%."""
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def test_counters_beside_the_record():
    text = document("method.md")
    recording = load(RECORDED)
    rows = counters.table(recording)
    found = counters.suspects(rows, float(recording.device["l2_bytes"]))
    streaming = [row for row in rows.to_dict("records") if counters.streaming(row)]
    assert f"{len(rows)} cases of {rows['family'].nunique()} families" in text
    assert f"All {len(streaming)} cold streaming cases" in text
    assert not [item for item in found if item.kind == "bytes"]
    lower = [item for item in found if item.kind == "residency"]
    assert f"over 10% fewer in {len(lower)} cases" in text
    for words in ("all blocks start together", "blocks are short", "blocks take unequally long"):
        assert f"{words} ({sum(item.cause.startswith(words) for item in lower)})" in text
    _bytes(text, streaming, float(recording.device["l2_bytes"]))
    _times(text, [row for row in rows.to_dict("records") if counters.timed(row)], found)


def _bytes(text: str, streaming: list[dict], l2_bytes: float):
    worst = max(abs(counters.deviation(row, l2_bytes)) for row in streaming)
    assert f"within {worst:.1%} beyond the 60 MiB" in text
    small = [row for row in streaming if 0 < counters.declared(row)[1] <= l2_bytes]
    assert len(small) == 1
    assert "all that one of them writes" in text


def _times(text: str, rows: list[dict], found: list[counters.Suspect]):
    single = [row for row in rows if row["launches"] == 1]
    ratios = pd.Series({row["case"]: row["time"] / row["seconds"] for row in single})
    within = ((ratios - 1).abs() <= counters.TIME).sum()
    assert f"{within} of {len(single)} cold kernels over 50 µs" in text
    assert f"within 3%, {ratios.median():.3f} of ours in the median" in text
    slower = sorted(
        (f"{item.deviation:.1%}" for item in found if item.kind == "time"), reverse=True
    )
    assert f"by {' and '.join(slower)}" in text
    faster = ratios[ratios < 1 - counters.TIME]
    assert f"Two are {1 - faster.max():.1%} and {1 - faster.min():.1%} faster there" in text
    spared = max(counters.spared(row) for row in single if row["case"] in faster.index)
    assert f"here {spared:.1%} of its bytes" in text
