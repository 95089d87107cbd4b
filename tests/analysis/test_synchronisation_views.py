"""The views of barriers, grids and clusters, on numbers by decree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import plots
from analysis.report.question import Answer, RunData
from analysis.views import clusters, grids, synchronisation, votes
from results.schema import Case, Work
from results.store import load

from .conftest import samples, write_process

COST = {
    "syncwarp": 2.0,
    "syncwarp_masked": 20.0,
    "syncwarp_halves": 60.0,
    "syncwarp_diverged": 75.0,
    "diverged": 70.0,
    "shuffle": 25.0,
    "ballot": 12.0,
    "syncthreads": 20.0,
    "syncthreads_diverged": 95.0,
    "syncthreads_count": 35.0,
    "syncthreads_and": 33.0,
    "syncthreads_or": 33.0,
}
WIDE = {"grid_sync": 2000.0, "atomic_barrier": 1500.0, "relaunch": 3000.0, "graph_relaunch": 2500.0}
MESSAGE = "201 blocks where 200 are resident at once: the cooperative launch was refused"


def case(family: str, kernel: str, params: dict[str, Any], **metrics: float) -> Case:
    read = {name: [value] * 11 for name, value in metrics.items()}
    taken = samples(1e-4, 0)
    return Case(family, kernel, params, "ok", samples=taken, metrics=read, source="kernels/x.py:1")


def barriers(**cost: float) -> list[Case]:
    found = []
    for kernel, cycles in {**COST, **cost}.items():
        for block in (32, 256, 1024):
            grows = 1 + (block // 32 - 8) / 40 if kernel.startswith("syncthreads") else 1
            params = {"block": block, "blocks_per_sm": 1}
            if kernel in COST:
                found.append(case("barrier", kernel, params, latency_cycles=cycles * grows))
    for kernel, cycles in {**WIDE, **{k: v for k, v in cost.items() if k in WIDE}}.items():
        for block in (32, 256, 1024):
            for place, per_sm in enumerate((1, 2, "most")):
                params = {"block": block, "blocks_per_sm": per_sm}
                more = {"gave_up": 0.0} if kernel == "atomic_barrier" else {}
                found.append(
                    case("barrier", kernel, params, latency_cycles=cycles * (1 + place), **more)
                )
    return found


def above(stuck: float = 1.0, refused: bool = True) -> list[Case]:
    params = {"block": 256, "blocks_per_sm": "most", "beyond": 1}
    sync = Case("barrier", "grid_sync", params, "skipped", reason=MESSAGE)
    if not refused:
        sync = case("barrier", "grid_sync", params, latency_cycles=2000.0)
    return [sync, case("barrier", "atomic_barrier", params, gave_up=stuck)]


def clustered(largest: int = 16) -> list[Case]:
    found = []
    for size in (1, 2, 4, 8, 16):
        if size > largest:
            continue
        for order, cycles in (("release_acquire", 400.0), ("relaxed", 200.0)):
            params = {"cluster": size, "block": 256, "order": order}
            found.append(case("cluster", "cluster_sync", params, latency_cycles=cycles + size))
        found.append(
            case(
                "cluster",
                "max_active_clusters",
                {"cluster": size, "block": 256},
                max_active_clusters=100 // size,
                sms_used=100 // size * size,
            )
        )
        for distance in range(size):
            params = {"cluster": size, "distance": distance}
            cycles = 220.0 if distance else 40.0
            found.append(case("cluster", "dsmem_latency", params, latency_cycles=cycles))
            rate = 20.0 if distance else 100.0
            found.append(case("cluster", "dsmem_bandwidth", params, bytes_per_clock_per_sm=rate))
    found.append(case("cluster", "shared_latency", {"cluster": 1}, latency_cycles=30.0))
    found.append(case("cluster", "shared_bandwidth", {"cluster": 1}, bytes_per_clock_per_sm=127.0))
    asked = {"cluster": 16, "block": 256, "order": "release_acquire", "permitted": 0}
    found.append(Case("cluster", "cluster_sync", asked, "skipped", reason="refused without leave"))
    return found


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., Answer | None]:
    """`asked(view, cases)` writes a run of them and answers, its figures drawn."""

    def ask(view: Callable[[RunData], Answer | None], cases: list[Case]) -> Answer | None:
        for family in {one.family for one in cases}:
            write_process(tmp_path, 0, [one for one in cases if one.family == family], family)
        answer = view(RunData(load(tmp_path)))
        if answer is not None:
            with plots.theme():
                for plot in answer.plots:
                    assert plots.svg(plot.draw(plot.data)).startswith("<?xml")
        return answer

    return ask


def test_the_ladder_answers_whether_a_node_is_cheaper_than_a_grid_sync(asked):
    answer = asked(synchronisation.ladder, [*barriers(), *clustered()])
    assert answer.verdict == "contradicted", "1.5 grid syncs are not too expensive"
    assert "2,000 cycles as grid sync (2.00 µs)" in answer.text
    assert "launching again is 1.50 times a grid sync" in answer.text
    assert "a node of a graph 1.25 times one: it is dearer" in answer.text
    shown = answer.plots[0].data
    assert "H800-PCIe" in set(shown["source"])
    assert set(answer.table["level"]) == {"warp", "block", "cluster", "grid", "launch"}
    # The range of a rung spans the residencies that were measured.
    grid = answer.table.set_index("name").loc["grid sync"]
    assert (grid["latency_cycles"], grid["least"], grid["most"]) == (2000, 2000, 6000)


def test_a_dear_relaunch_confirms_the_notes(asked):
    answer = asked(synchronisation.ladder, barriers(relaunch=9000.0))
    assert answer.verdict == "confirmed"
    assert "costs much more than a grid sync" in answer.text


def test_a_cheap_relaunch_contradicts_the_notes(asked):
    answer = asked(synchronisation.ladder, barriers(relaunch=1900.0, graph_relaunch=1000.0))
    assert answer.verdict == "contradicted"
    assert "a node of a graph 0.500 times one: it is cheaper" in answer.text
    assert "cluster" not in set(answer.table["level"]), "drawn without what there is not"


def test_syncwarp_against_syncthreads(asked):
    answer = asked(synchronisation.warp_against_block, barriers())
    assert answer.verdict == "confirmed"
    assert "16.0 times in blocks of 32 warps" in answer.text
    assert (
        "after divergence, which costs 70.0 cycles itself, a syncwarp adds 5.00 cycles"
        in answer.text
    )


def test_an_equal_syncwarp_contradicts_the_notes(asked):
    answer = asked(synchronisation.warp_against_block, barriers(syncwarp=20.0))
    assert answer.verdict == "contradicted"


def voted(*kernels: str) -> list[Case]:
    params = {"block": 256, "rounds": 65}
    return [Case("exchange", name, params, "ok", work=Work(operations=100)) for name in kernels]


def test_votes(asked):
    answer = asked(votes.votes, [*voted(*votes.VOTES), *barriers()])
    assert answer.verdict == "confirmed"
    assert "300 answers" in answer.text
    assert "in blocks of 32 warps where the plain barrier costs" in answer.text


def test_votes_without_costs(asked):
    answer = asked(votes.votes, voted(*votes.VOTES))
    assert (answer.verdict, answer.plots) == ("confirmed", ())


def test_two_of_the_votes_are_not_all(asked):
    assert asked(votes.votes, [*voted(*votes.VOTES[:2]), *barriers()]) is None


def test_what_waits_for_ever_and_what_is_refused(asked):
    answer = asked(grids.residency, [*barriers(), *above()])
    assert answer.verdict == "confirmed"
    assert "was refused at the launch" in answer.text
    assert "all of the blocks waited until their time was up" in answer.text
    assert "none within the limit" in answer.text
    assert MESSAGE in set(answer.table["outcome"])


@pytest.mark.parametrize("more", [{"refused": False}, {"stuck": 0.0}])
def test_a_launch_above_the_limit_that_works_contradicts(more, asked):
    assert asked(grids.residency, [*barriers(), *above(**more)]).verdict == "contradicted"


def test_clusters(asked):
    answer = asked(clusters.clusters, clustered())
    assert answer.verdict == "contradicted"
    assert "401 cycles for 1 block and 416 cycles for 16 blocks" in answer.text
    assert "takes 220 cycles where the block's own takes 30.0 cycles" in answer.text
    assert "published: 180 on H800-PCIe" in answer.text
    assert "Clusters of 16 blocks run, those over 8 only where the kernel allows" in answer.text


def test_clusters_of_eight_at_most_confirm(asked):
    assert asked(clusters.clusters, clustered(largest=8)).verdict == "confirmed"


@pytest.mark.parametrize(
    "view",
    [
        synchronisation.ladder,
        synchronisation.warp_against_block,
        votes.votes,
        grids.residency,
        clusters.clusters,
    ],
)
def test_a_run_that_lacks_the_cases_is_no_answer(view, asked):
    skipped = Case("cluster", "cluster_sync", {"cluster": 8}, "skipped", reason="cc 8.9")
    assert asked(view, [case("barrier", "ballot", {"block": 64, "blocks_per_sm": 1}), skipped]) is (
        None
    )
