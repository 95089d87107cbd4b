"""README is true: its families are those there are, its files exist, its commands are known."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.families import names

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def test_every_family_is_named_and_none_that_is_not():
    table = TEXT.split("## What it measures")[1].split("## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == names()


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_every_link_leads_to_a_file(link: str):
    assert (ROOT / link).exists()


@pytest.mark.parametrize(
    ("module", "command"), sorted(set(re.findall(r"python -m (bench|analysis) (\w+)", TEXT)))
)
def test_every_command_is_known(module: str, command: str):
    done = subprocess.run(
        [sys.executable, "-m", module, command, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_make_target_is_known():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|    )make ([a-z]+)", TEXT)):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_what_is_said_of_the_baselines_is_so():
    from results.store import baselines, load

    processes = {
        name: {
            family: len({file.run.process for file in run.files if file.run.family == family})
            for family in run.families
        }
        for name in baselines()
        for run in [load(name)]
    }
    committed = TEXT.split("Committed are")[1].split("\n\n")[0].split("In a notebook")[0]
    assert re.findall(r"`([\w-]+)`", committed) == list(processes)
    told = re.search(
        r"five of them make a baseline \(in the recorded H200,\s(.*?) have two\)", TEXT, re.S
    )
    assert told is not None
    two = re.findall(r"`(\w+)`", told.group(1))
    assert processes["nvidia-h200"] == {name: 2 if name in two else 5 for name in names()}
    assert set(processes["nvidia-h200-quick"].values()) == {20}
    assert "\n20 processes of the quick profile" in committed


def test_what_is_committed_stays_small():
    from results.store import BASELINES

    assert sum(file.stat().st_size for file in BASELINES.rglob("*") if file.is_file()) < 15e6


def test_the_figures_quoted_are_those_of_the_recorded_run():
    """The table of what an H200 says, against the record."""
    import analysis

    rows = analysis.frame("nvidia-h200")
    centre = rows[(rows.n == 2**28) & (rows.dtype == "float32")]

    def one(family: str, kernel: str, **params: object) -> dict:
        found = rows[(rows.family == family) & (rows.kernel == kernel)]
        for name, value in params.items():
            found = found[found[name] == value]
        assert len(found) == 1, (family, kernel, params)
        return found.iloc[0].to_dict()

    vector = centre[(centre.kernel == "vector") & (centre.block == 256)].iloc[0]
    cublas = centre[(centre.family == "axpy") & (centre.kernel == "cublas")].iloc[0]
    float4 = centre[centre.kernel == "cuda_float4"].iloc[0]
    assert f"{vector.bandwidth_of_peak:.1%} of peak" in TEXT
    assert f"{cublas.median_seconds / vector.median_seconds:.2f} × cuBLAS" in TEXT
    assert f"{float4.median_seconds / vector.median_seconds:.2f} × CUDA C" in TEXT
    sums = centre[(centre.family == "reduction") & (centre.op != "max") & ~centre.peer]
    best = sums.loc[sums.bandwidth_of_peak.idxmax()]
    by_size = rows[(rows.family == "reduction") & (rows.dtype == "float32") & (rows.op != "max")]
    ratios = by_size[~by_size.peer].groupby("n").ratio_to_peer.max().dropna()
    sizes = f"{ratios.min():.3f} to {ratios.max():.2f} × CUB"
    assert f"{best.bandwidth_of_peak:.1%} of peak, {best.ratio_to_peer:.3f} × CUB; {sizes}" in TEXT
    chase = {
        size: one("memory", "chase", bytes=size, cache=cache)["latency_cycles"]
        for size, cache in ((2**15, "ca"), (2**23, "cg"), (50331648, "cg"))
    }
    l1, near, far = chase.values()
    dram = rows[(rows.kernel == "chase") & (rows.bytes >= 2**27)].latency_cycles
    shared = one("memory", "chase_shared", bytes=4096)["latency_cycles"]
    levels = f"{l1:.0f}, {shared:.0f}, {near:.0f}, {far:.0f}"
    assert f"| {levels}, {dram.min():.0f} to {dram.max():.0f} cycles" in TEXT
    fma = one("instruction", "chain", op="fma.f32")["latency_cycles"]
    rate = rows[(rows.op == "fma.f32")].operations_per_clock_per_sm.max()
    assert f"{fma:.2f} cycles; {rate:.0f} of 128" in TEXT
    small, large = (
        one("barrier", "syncthreads", block=block, blocks_per_sm=1)["latency_cycles"]
        for block in (32, 1024)
    )
    assert f"{small:.0f} and {large:.0f} cycles" in TEXT
    grid, node, launch = (
        one("barrier", kernel, block=256, blocks_per_sm=1)["latency_seconds"] * 1e6
        for kernel in ("grid_sync", "graph_relaunch", "relaunch")
    )
    assert f"{grid:.1f}, {node:.2f} and {launch:.1f} µs" in TEXT
