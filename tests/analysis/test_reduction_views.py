"""The views of reductions and exchanges, on numbers by decree."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import plots
from analysis.report.question import Answer, RunData
from analysis.views import exchange, reduction
from results.schema import Case, Work
from results.store import load

from .conftest import PEAK, samples

SHARES = {"interleaved_divergent": 0.10, "sequential": 0.20, "reduce4": 0.30, "last_block": 0.90}
PEER_SHARES = {"cub": 0.88, "numba_reduce": 0.01}
CENTRE = 2**28


def reduction_case(kernel: str, n: int, share: float, process: int = 0, **more: Any) -> Case:
    work = Work(bytes_read=4 * n, operations=n - 1)
    return Case(
        "reduction",
        kernel,
        {"n": n, "dtype": "float32", **more},
        "ok",
        work=work,
        samples=samples(2e-6 + 4 * n / (share * PEAK), process),
        metrics={"relative_error": 1e-6 / share},
        peer=kernel in PEER_SHARES,
        source="kernels/reduction_tree.py:1",
    )


def reductions(process: int) -> list[Case]:
    found = [
        reduction_case(name, CENTRE, share, process)
        for name, share in {**SHARES, **PEER_SHARES}.items()
    ]
    for n in (2**10, 2**16, 2**22):
        found.append(reduction_case("last_block", n, 0.9, process))
        found.append(reduction_case("one_block", n, 0.95 if n < 2**16 else 0.01, process))
        found.append(reduction_case("cub", n, 0.88, process))
    found.append(reduction_case("last_block", CENTRE, 0.99, process, block=512))
    lost = Case(
        "reduction",
        "reduce4_outside",
        {"n": CENTRE, "dtype": "float32", "block": 1024},
        "ok",
        metrics={"lost_share": [0.5, 0.5]},
    )
    return [*found, lost]


def exchanges(wrong: dict[tuple[str, str], float]) -> list[Case]:
    return [
        Case(
            "exchange",
            kernel,
            {"partner": partner, "access": "plain", "block": 64, "rounds": 10},
            "ok",
            work=Work(operations=1000),
            metrics={"wrong_reads": [wrong.get((kernel, partner), 0.0)] * 3},
        )
        for kernel in exchange.BARRIERS
        for partner in ("tid ^ 1", "31 - lane", "tid ^ 32")
    ]


Record = Callable[..., Path]


def answered(answer: Answer | None) -> Answer:
    """The answer, whose figures can be drawn."""
    assert answer is not None
    for plot in answer.plots:
        with plots.theme():
            assert plots.svg(plot.draw(plot.data)).startswith("<?xml")
    return answer


def test_steps_in_the_order_of_the_records(record: Record):
    run = RunData(load(record(reductions(0), reductions(1), family="reduction")))
    found = answered(reduction.steps(run))
    assert found.text.startswith("From interleaved divergent to last block the sum of n = 2²⁸ ")
    assert "897 GB/s, 89.7% of the peak and 1.023× CUB's speed" in found.text
    assert re.search(r"the largest step is last block \((2\.9\d|3\.00)×\)", found.text)
    assert "loses 50.0% of the sum with 1024 threads a block" in found.text
    assert "the largest is 1.0e-05 (interleaved divergent)" in found.text
    assert found.table is not None
    assert list(found.table["kernel"])[:4] == [
        "interleaved divergent", "sequential", "reduce4", "last block"
    ]  # fmt: skip
    assert list(found.table["kernel"])[4:] == ["CUB", "numba cuda.reduce"]


def test_the_best_for_each_size_meets_cub(record: Record):
    run = RunData(load(record(reductions(0), family="reduction")))
    found = answered(reduction.over_n(run))
    assert found.text.startswith("Over n = 2¹⁰ to 2²⁸")
    assert "one block at n = 2¹⁰, last block at n = 2¹⁶ to 2²⁸" in found.text
    assert found.table is not None
    assert list(found.table["best variant"]) == ["one block"] + ["last block"] * 3


@pytest.mark.parametrize("kernels", [[], ["cub"], ["last_block"], ["sequential", "cub"]])
def test_what_cannot_be_answered_is_none(record: Record, kernels: list[str]):
    kept = [case for case in reductions(0) if case.kernel in kernels]
    run = RunData(load(record(kept, family="reduction")))
    assert reduction.steps(run) is None
    if "last_block" not in kernels:
        assert reduction.over_n(run) is None


def test_without_peers_the_steps_are_still_told(record: Record):
    kept = [case for case in reductions(0) if not case.peer and case.kernel in SHARES]
    run = RunData(load(record(kept, family="reduction")))
    assert "CUB" not in answered(reduction.steps(run)).text
    assert reduction.over_n(run) is None


def test_a_barrier_mends_what_goes_wrong_without_it(record: Record):
    wrong = {("no_barrier", "tid ^ 32"): 400.0, ("syncwarp", "tid ^ 32"): 200.0}
    run = RunData(load(record(exchanges(wrong), family="exchange")))
    found = answered(exchange.visibility(run))
    assert found.verdict == "confirmed"
    assert "up to 40.0% with no barrier and 20.0% with syncwarp are wrong" in found.text
    assert "observed, not promised" in found.text


def test_nothing_wrong_anywhere_proves_nothing(record: Record):
    run = RunData(load(record(exchanges({}), family="exchange")))
    assert answered(exchange.visibility(run)).verdict == "observed, not promised"


def test_a_wrong_read_behind_a_barrier_contradicts(record: Record):
    wrong = {("syncthreads", "tid ^ 32"): 1.0, ("no_barrier", "tid ^ 1"): 30.0}
    run = RunData(load(record(exchanges(wrong), family="exchange")))
    found = answered(exchange.visibility(run))
    assert found.verdict == "contradicted"
    assert "inside a warp without a barrier up to 3.0% are wrong" in found.text
