"""The views of diverged warps, masks, barriers in branches and contention, on made-up records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import plots
from analysis.report.question import Answer, Question, RunData
from analysis.views import branch, contention, divergence, interleaving, mask
from results.schema import Case, Samples, Work
from results.store import load

from .conftest import CLOCK, self_check


def case(family: str, kernel: str, params: dict[str, Any], **metrics: Any) -> Case:
    seconds, work = metrics.pop("seconds", 1e-5), metrics.pop("work", None)
    samples = None
    if seconds:
        samples = Samples([round(seconds, 9)] * 3, "counted", "warm", sm_clock_hz=[CLOCK] * 3)
    more = {"samples": samples, "work": work, "metrics": metrics}
    return Case(family, kernel, params, "ok", source=f"kernels/{family}.py:1", **more)


def course(taken: str, load: bool, sync: bool, overlapped: float = 0, apart: int = 0) -> Case:
    """Each statement 100 cycles, 300 more where it loads; the else begins when the if is over,
    less the overlap; its lanes come to P `apart` cycles later."""
    goes = interleaving.TAKEN[taken](np.arange(32))
    first = 400 if load else 100
    clocks = np.zeros((32, 7), int)
    for lane in range(32):
        begin = 10 if goes[lane] else 10 + first + 100 - overlapped
        p = 2 * (first + 100) + 20 + (0 if goes[lane] else apart)
        clocks[lane] = 0, begin, begin + first, begin + first + 100, p, p + 100, p + 200
    return case(
        "divergence",
        "course",
        {"taken": taken, "load": load, "syncwarp": sync},
        statement_clock=clocks.ravel().tolist(),
        statement_mask=[0] * 224,
        overlap_cycles=[float(overlapped)] * 3,
        arrivals=[2.0 if apart else 1.0] * 3,
    )


def divergence_cases(overlapped: float = 0, apart: int = 0, edge: float = 260) -> list[Case]:
    found = [
        case("divergence", "paths", {"paths": n}, branch_cycles=[260.0 * n] * 3)
        for n in (1, 2, 8, 32)
    ]
    found += [
        case(
            "divergence",
            "stripes",
            {"block": 256, "stripe": stripe},
            branch_cycles=[edge if stripe % 32 == 0 else 520.0],
        )
        for stripe in (1, 16, 32, 48, 64)
    ]
    found += [
        case(
            "divergence",
            "lanes",
            {"lanes": n, "off": off},
            operations_per_clock_per_sm=[4.0 * n],
        )
        for off in divergence.OFF
        for n in (1, 16, 32)
    ]
    found += [
        course(taken, load, sync, overlapped if load else 0, 0 if sync else apart)
        for taken in ("half", "alternate")
        for load in (False, True)
        for sync in (False, True)
    ]
    found.append(
        case(
            "divergence",
            "hand_over",
            {"first": 0, "second": 31, "rounds": 64},
            completed_lanes=[2.0],
            handover_cycles=[900.0],
        )
    )
    locks = (("lock_in_loop", 32.0, 40_000.0), ("lock_after_loop", 1.0, 2e7))
    for kernel, lanes, cycles in locks:
        more = {"completed_lanes": [lanes], "wait_cycles": [cycles]}
        found.append(case("divergence", kernel, {}, **more))
    return found


def mask_cases(deviating: str = "") -> list[Case]:
    found = []
    for taken in (0x0000FFFF, 0x00FF0F35):
        shares = [0.25 if point == deviating else 0.0 for point in mask.POINTS]
        found.append(
            case(
                "mask",
                "points",
                {"taken": taken},
                mask_seen=[0xFFFFFFFF] * (32 * 7),
                mask_deviations=shares,
            )
        )
        found.append(case("mask", "disjoint", {"taken": taken}, wrong_reads=[0.0]))
    halves = {"block": 32, "split": 16}
    for kernel in ("full_returned", "full_both_sides"):
        more = {"wrong_reads": 0.0, "gave_up": 0.0, "hung": 0.0}
        found.append(case("mask", kernel, halves, seconds=0, **more))
    spun = {"wrong_reads": 0.0, "gave_up": 16.0, "hung": 0.0}
    found.append(case("mask", "full_spinning", halves, seconds=0, **spun))
    found.append(case("mask", "full_later", halves, seconds=0, hung=1.0))
    return found


def branch_cases(hanging: tuple[str, ...] = ("both_sides",)) -> list[Case]:
    found = []
    for kernel, edge in branch.GUIDE:
        metrics = {"wrong_reads": 0.0, "gave_up": 0.0, "hung": 0.0}
        if kernel in hanging and not edge:
            metrics = {"hung": 1.0}
        elif kernel == "later":
            metrics["wrong_reads"] = 64.0
        elif kernel == "spinning":
            metrics["gave_up"] = 64.0
        split = 64 if edge else 48
        found.append(case("branch", kernel, {"block": 128, "split": split}, seconds=0, **metrics))
    return found


def contention_cases(same: float = 1.0, kept: float = 1.0) -> list[Case]:
    found = []
    for kernel in contention.ACCESSES:
        for n in (1, 8, 32):
            for stride in (1, 32) if n > 1 else (1,):
                cycles = n if stride == 32 else same if n == 1 else 1.0
                params = {"addresses": n, "stride": stride, "block": 1024, "blocks": "one"}
                found.append(case("contention", kernel, params, access_cycles=[cycles] * 3))
    for n, stride, operations in ((1, 1, 10_000), (32, 32, 320_000)):
        params = {"addresses": n, "stride": stride, "block": 256, "blocks": "sms"}
        more = {"access_cycles": [9.0], "work": Work(operations=operations)}
        found.append(case("contention", "atomic_global", params, **more))
    for block, blocks, operations in ((32, "one", 1024), (256, "sms", 10**6)):
        where = {"block": block, "blocks": blocks}
        for kernel, share, seconds in (
            ("increments", 0.01, 1e-4),
            ("tickets", kept, 4e-4),
            ("tickets_by_warp", kept, 1e-4),
        ):
            more = {"seconds": seconds, "work": Work(operations=operations)}
            found.append(case("contention", kernel, where, kept_share=[share], **more))
    for space in ("shared", "global"):
        for block in (32, 256):
            stayed = [31] * 64 if block == 32 else [255] * 60 + [31] * 4
            params = {"block": block, "space": space}
            found.append(case("contention", "winner", params, winner=stayed))
    return found


@pytest.fixture
def ask(record: Callable[..., Path], tmp_path: Path) -> Callable[..., Answer | None]:
    """ask(function of a view, cases) -> its answer to a run of two processes with these cases."""

    def run(question: Callable[[RunData], Answer | None], cases: list[Case]) -> Answer | None:
        for path in tmp_path.rglob("*.jsonl"):
            path.unlink()
        processes = [[*self_check(process), *cases] for process in (0, 1)]
        folder = record(*processes, family=question.__module__.rpartition(".")[2])
        return question(RunData(load(folder)))

    return run


ALL: list[tuple[Question, Callable[[], list[Case]]]] = [
    (question, cases)
    for view, cases in (
        (divergence, divergence_cases),
        (interleaving, divergence_cases),
        (mask, mask_cases),
        (branch, branch_cases),
        (contention, contention_cases),
    )
    for question in view.QUESTIONS
]


@pytest.mark.parametrize(("question", "cases"), ALL, ids=[q.slug for q, _ in ALL])
def test_every_question_has_a_sentence_and_its_figures_draw(ask, question, cases):
    answer = ask(question.answer, cases())
    assert answer is not None
    assert answer.text.endswith(".")
    assert "nan" not in answer.text
    assert answer.sources
    for plot in answer.plots:
        with plots.theme():
            assert "<svg" in plots.svg(plot.draw(plot.data))


@pytest.mark.thorough
@pytest.mark.parametrize(("question", "cases"), ALL, ids=[q.slug for q, _ in ALL])
def test_a_run_that_lacks_a_case_raises_nothing(ask, question, cases):
    every = cases()
    for kernel in sorted({case.kernel for case in every}):
        left = ask(question.answer, [case for case in every if case.kernel != kernel])
        assert left is None or "nan" not in left.text
    for only in every:
        ask(question.answer, [only])
    assert ask(question.answer, []) is None


def test_paths_that_add_up_confirm_and_edges_are_free(ask):
    answer = ask(divergence.paths, divergence_cases())
    assert answer.verdict == "confirmed"
    assert "32.0× what 1 takes" in answer.text
    assert "on warp edges cost 1.000× one path, inside a warp 2.00×" in answer.text
    assert ask(divergence.paths, divergence_cases(edge=520.0)).verdict == "contradicted"


def test_paths_that_hide_each_other_contradict(ask):
    flat = [
        case("divergence", "paths", {"paths": n}, branch_cycles=[260.0 + n]) for n in (1, 8, 32)
    ]
    assert ask(divergence.paths, flat).verdict == "contradicted"


def test_lanes_that_are_off_leave_a_gap(ask):
    assert ask(divergence.lanes, divergence_cases()).verdict == "confirmed"
    filled = [
        case(
            "divergence", "lanes", {"lanes": n, "off": "return"}, operations_per_clock_per_sm=128.0
        )
        for n in (1, 32)
    ]
    answer = ask(divergence.lanes, filled)
    assert answer.verdict == "contradicted"
    assert "1 lanes, where the others have returned, do 32.0× their share" in answer.text


def test_serial_and_overlapped_are_told_from_the_clocks(ask):
    serial = ask(interleaving.overlap, divergence_cases())
    assert serial.text.startswith("Serial")
    assert serial.verdict == "observed, not promised"
    assert "together all the same" in serial.text
    overlapped = ask(interleaving.overlap, divergence_cases(overlapped=300, apart=50))
    assert overlapped.text.startswith("Overlapped: with a load")
    assert "up to 300 cycles" in overlapped.text
    assert "in up to 2 groups" in overlapped.text
    assert overlapped.verdict == "confirmed"


def test_the_timeline_names_the_statements_of_each_lane():
    rows = interleaving.timeline(course("alternate", load=True, sync=False))
    by_lane = rows.groupby("lane")["statement"].agg("".join)
    assert by_lane[0] == "ABPQ"
    assert by_lane[1] == "XYPQ"
    assert (rows["stop"] > rows["start"]).all()


def test_a_lock_that_is_not_got_is_said(ask):
    answer = ask(interleaving.waiting, divergence_cases())
    assert "900 cycles a turn" in answer.text
    assert "got by 1 of 32 lanes" in answer.text
    assert answer.verdict == "contradicted"
    good = [one for one in divergence_cases() if one.kernel != "lock_after_loop"]
    assert ask(interleaving.waiting, good).verdict == "confirmed"


@pytest.mark.parametrize(
    ("deviating", "words", "verdict"),
    [
        ("", "all lanes are back together", "observed, not promised"),
        ("after_loop", "after a loop 25.0%", "observed, not promised"),
        ("then", "differs from the ballot", "contradicted"),
    ],
)
def test_masks_are_judged_point_by_point(ask, deviating, words, verdict):
    answer = ask(mask.seen, mask_cases(deviating))
    assert words in answer.text
    assert answer.verdict == verdict


def test_a_full_mask_in_half_a_warp(ask):
    answer = ask(mask.full, mask_cases())
    assert "the other half calls only a later one: never ended" in answer.text
    assert "timed out (16 threads gave up)" in answer.text
    assert answer.verdict == "confirmed"


def test_outcomes_beside_the_guide(ask):
    answer = ask(branch.cases, branch_cases())
    assert len(answer.table) == len(branch.GUIDE)
    assert "All 5 programs that the guide allows came to a right end" in answer.text
    assert "(f) a barrier in the if and in the else, inside a warp: never ended" in answer.text
    assert answer.verdict == "confirmed"
    broken = ask(branch.cases, branch_cases(hanging=("returned",)))
    assert "(b) threads that skip it return, inside a warp: never ended" in broken.text
    assert broken.verdict == "contradicted"


def test_address_or_bank(ask):
    answer = ask(contention.addresses, contention_cases())
    assert answer.verdict == "contradicted"
    assert "it is the bank and not the address that serialises" in answer.text
    assert "1.00 atomics a clock go to one address and 32.0 to 32 in a line each" in answer.text
    assert ask(contention.addresses, contention_cases(same=32.0)).verdict == "confirmed"


def test_atomics_are_exact_or_not(ask):
    answer = ask(contention.exact, contention_cases())
    assert "Of 1,000,000 increments without atomics 99.0% are lost" in answer.text
    assert "4.00× as fast" in answer.text
    assert answer.verdict == "confirmed"
    assert ask(contention.exact, contention_cases(kept=0.99)).verdict == "contradicted"


def test_the_winner_is_observed(ask):
    answer = ask(contention.winner, contention_cases())
    assert "Lane 31's write stays in every one of 512 trials" in answer.text
    assert "2 different warps" in answer.text
    assert answer.verdict == "observed, not promised"
