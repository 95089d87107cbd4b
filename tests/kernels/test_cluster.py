"""Clusters: the CUDA C compiles, its chains are whole, and who has none is told so."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from bench.bench_cluster import cases
from kernels import cluster
from kernels import cluster_source as source
from kernels.compat import SIMULATOR
from kernels.spec import Machine, Unavailable

ptx = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
# Kernel, what counts, and how many lie between the clocks in Hopper's machine code.
CODE = (
    ("sync_release", "UCGABAR_ARV", source.BARRIERS),
    ("sync_release", "UCGABAR_WAIT", source.BARRIERS),
    ("sync_release", "MEMBAR.ALL.GPU", source.BARRIERS),
    ("sync_relaxed", "UCGABAR_ARV", source.BARRIERS),
    ("sync_relaxed", "UCGABAR_WAIT", source.BARRIERS),
    ("sync_relaxed", "MEMBAR.ALL.GPU", 0),
    ("chase_cluster", "LD.E.64", source.STEPS),
    ("chase_block", "LDS", source.STEPS),
    ("stream_cluster", "LD.E.128", source.LOADS),
    ("stream_block", "LDS.128", source.LOADS),
)


def machine(cc: tuple[int, int], simulator: bool = False) -> Machine:
    return Machine(cc, 2, 2048, 32, 1 << 20, 1 << 30, np, simulator=simulator)


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("cc", [(9, 0), (10, 0), (12, 0)])
def test_compiles_where_there_are_clusters(cc):
    assert cluster._cubin(cc)[:4] == b"\x7fELF"


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize(("kernel", "mnemonic", "count"), CODE)
def test_between_the_clocks_lie_the_steps(kernel, mnemonic, count, disassembled):
    code = disassembled(cluster._cubin((9, 0)))[kernel]
    clocks = [place for place, line in enumerate(code) if "SR_CLOCKLO" in line]
    inside = Counter(line.split()[0] for line in code[clocks[-2] : clocks[-1]])
    assert inside[mnemonic] == count


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("kernel", ["chase_cluster", "chase_block"])
def test_nothing_lies_between_two_loads_of_a_chase(kernel, disassembled):
    code = disassembled(cluster._cubin((9, 0)))[kernel]
    load = "LDS" if kernel == "chase_block" else "LD.E.64"
    places = [place for place, line in enumerate(code) if line.split()[0] == load]
    chained = [re.findall(r"\bR\d+", code[place])[:2] for place in places]
    assert all(to == origin for (to, _), (_, origin) in pairwise(chained))
    # The loop's own counter and comparison may lie between them, at no cost: nothing waits.
    assert places[-1] - places[0] < source.STEPS + 4


@pytest.mark.parametrize("kernel", cluster.FAMILY.kernels, ids=lambda kernel: kernel.name)
def test_without_clusters_the_reason_is_given(kernel):
    params = kernel.examples[0]
    with pytest.raises(Unavailable, match=r"need cc 9\.0, this GPU is 8\.9"):
        kernel.bind(params, machine((8, 9)))
    with pytest.raises(Unavailable, match="no clusters"):
        kernel.bind(params, machine((9, 0), simulator=True))


def test_a_distance_outside_the_cluster_is_refused():
    assert cluster._rank({"cluster": 4, "distance": 3}) == 3
    with pytest.raises(ValueError, match="distance 4 is outside 0 to 3"):
        cluster._rank({"cluster": 4, "distance": 4})


def test_a_chase_goes_through_every_word_and_its_end_is_not_its_start():
    seen = {step * source.STRIDE % source.WORDS for step in range(source.WORDS)}
    assert len(seen) == source.WORDS
    loads = source.REPEATS * cluster.TURNS * source.STEPS
    assert loads >= source.WORDS


def test_blocks_differ_in_what_is_read_from_them():
    totals = {cluster._total(rank) for rank in range(16)}
    assert len(totals) == 16
    words = [(i * cluster.WORD + 3) % 2**32 for i in range(cluster.WINDOW // 4)]
    reads = cluster.STREAM_TURNS * source.REPEATS
    assert cluster._total(3) == sum(words) * reads % 2**32


def test_axes():
    params = [(case.kernel.name, dict(case.params)) for case in cases("standard", machine((9, 0)))]
    assert {p["cluster"] for name, p in params if name == "cluster_sync"} == {1, 2, 4, 8, 16}
    assert {p["block"] for name, p in params if name == "cluster_sync"} >= {32, 1024}
    assert {p["order"] for name, p in params if name == "cluster_sync"} == set(cluster.ORDERS)
    assert [p for _, p in params if p.get("permitted") == 0]
    assert {p["distance"] for n, p in params if n == "dsmem_latency" and p["cluster"] == 16} == set(
        range(16)
    )
