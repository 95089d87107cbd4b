"""The views of the execution model, on a GPU that is simulated block by block: 10 SMs, no noise."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import plots
from analysis.report.question import Answer, Question, RunData
from analysis.views import execution, gpc, identity, launch, scalability, waves
from results.schema import Case, Launch, Samples, Work
from results.store import load

from .conftest import CLOCK, SMS, self_check

LAUNCH = 2e-6
CYCLES = 10_000


def case(family: str, kernel: str, seconds: float, params: dict[str, Any], **more: Any) -> Case:
    samples = Samples([round(float(seconds), 9)] * 3, "counted", "warm", sm_clock_hz=[CLOCK] * 3)
    return Case(
        family,
        kernel,
        params,
        "ok",
        samples=samples,
        source=f"kernels/{family}.py:1",
        launch=more.pop("launch", None),
        work=more.pop("work", None),
        metrics=more,
    )


def scheduled(durations: list[float], slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, stop and place of each block, when a free place takes the next block at once."""
    free = [(0.0, place) for place in range(slots)]
    rows = []
    for lasting in durations:
        begin, place = heapq.heappop(free)
        rows.append((begin, begin + lasting, place))
        heapq.heappush(free, (begin + lasting, place))
    start, stop, place = (np.array(column) for column in zip(*rows, strict=True))
    return start, stop, place


def durations(kind: str, count: int) -> list[float]:
    block = CYCLES / CLOCK
    spread = np.random.default_rng(1).uniform(0.5, 1.5, count) if kind == "unequal" else 1
    return list(np.full(count, block) * spread)


def schedule_cases() -> list[Case]:
    found = []
    for kind in ("equal", "unequal"):
        for count in (0.5, 1.0, 1.01, 1.25, 2.0, 3.0):
            blocks = -int(-count * SMS // 1)
            _, stop, _ = scheduled(durations(kind, blocks), SMS)
            params = {
                "block": 256,
                "residency": "one",
                "cycles": CYCLES,
                "durations": kind,
                "waves": count,
            }
            shape = Launch((blocks, 1, 1), (256, 1, 1), blocks_per_sm=1)
            found.append(case("schedule", "staircase", LAUNCH + stop.max(), params, launch=shape))
    for count, time in ((1.0, 20e-6), (1.25, 30e-6), (2.0, 40e-6)):
        shape = Launch((int(count * SMS * 8), 1, 1), (256, 1, 1), blocks_per_sm=8)
        params = {"block": 256, "residency": "full", "turns": 32, "waves": count}
        more = {"launch": shape}
        found.append(case("schedule", "staircase_arithmetic", LAUNCH + time, params, **more))
    found += [timeline(kind) for kind in ("equal", "unequal")]
    found.append(early_exit(resident=2.0))
    found.append(
        case(
            "schedule",
            "private_memory",
            1e-5,
            {"block": 128},
            resident_blocks=[16.0],
            foreign_values=[0.0],
            shared_addresses=[1.0],
        )
    )
    found.append(
        case("schedule", "gpc", 1e-3, {}, sm_group=[0, 0, 0, 1, 1, 1, 2], sm_groups=[5.0, 3.0, 3.0])
    )
    return found


def timeline(kind: str) -> Case:
    start, stop, place = scheduled(durations(kind, 125), SMS)
    params = {"waves": 1.25, "durations": kind, "residency": "one", "block": 256}
    order = np.arange(125) if kind == "equal" else np.random.default_rng(2).permutation(125)
    return case(
        "schedule",
        "timeline",
        3e-5,
        params,
        block_start=start[order].tolist(),
        block_stop=stop[order].tolist(),
        block_sm=place[order].tolist(),
        block_slot=[0] * 125,
        resident_blocks=[1.0],
        refill_cycles=[500.0],
        sms_used=[float(SMS)],
    )


def early_exit(resident: float) -> Case:
    start, stop, place = scheduled(durations("equal", 400), 2 * SMS)
    return case(
        "schedule",
        "early_exit",
        3e-5,
        {"block": 1024, "waves": 2.0},
        launch=Launch((400, 1, 1), (1024, 1, 1), blocks_per_sm=2),
        block_start=start.tolist(),
        block_stop=stop.tolist(),
        block_left=(start + 1e-6).tolist(),
        block_sm=(place // 2).tolist(),
        resident_blocks=[resident],
        refill_cycles=[400.0],
    )


def identity_cases(differs: float = 0.0) -> list[Case]:
    linear = np.arange(1024) % 256
    claims = {"lane_differs": [differs], "sms_per_block": [1.0], "sms_per_slot": [4.0]}
    warps = list(range(8)) * 8
    return [
        case(
            "identity",
            "small",
            1e-6,
            {"block_shape": "16x16", "grid_shape": "2x2"},
            **claims,
            slot_differs=[0.0],
            warps_per_block=[8.0],
            thread_slot=(linear // 32).tolist(),
            thread_lane=(linear % 32).tolist(),
            thread_sm=(np.arange(1024) // 256).tolist(),
        ),
        case(
            "identity",
            "small",
            1e-6,
            {"block_shape": "33", "grid_shape": "2"},
            **claims,
            slot_differs=[0.0],
            warps_per_block=[2.0],
        ),
        case(
            "identity",
            "full_chip",
            1e-4,
            {"block": 256},
            **claims,
            slot_differs=[0.875],
            warps_per_block=[8.0],
            slot_block=[slot // 8 for slot in range(64)],
            slot_warp=warps,
        ),
    ]


def scalability_cases() -> list[Case]:
    found = []
    for sms in (1, 2, 4, 8, 16, 32, 64, 100):
        arithmetic, memory = 1e-2 / sms, 1e-2 / min(sms, 40)
        for kernel, seconds in (("compute", arithmetic), ("memory", memory)):
            for name in (f"blocks_{kernel}", kernel):
                if name == kernel and sms < 8:
                    continue
                work = Work(10**9, 10**9) if kernel == "memory" else Work(operations=10**9)
                more = {"work": work, "sms_used": [float(sms)]}
                found.append(case("scalability", name, seconds, {"sms": sms}, **more))
    return found


def launch_cases() -> list[Case]:
    roads = (("numba", 0, 15e-6), ("numba", 2, 30e-6), ("cupy", 0, 5e-6), ("cuda_core", 0, 4e-6))
    found = [
        case(
            "launch",
            kernel,
            2e-6,
            {"arguments": arguments},
            host_seconds=[host],
            roundtrip_seconds=[host + 8e-6],
        )
        for kernel, arguments, host in roads
    ]
    for nodes in (1, 16):
        host = {"host_seconds": [6e-6], "roundtrip_seconds": [2e-5]}
        found.append(case("launch", "graph", 1e-6 * nodes, {"nodes": nodes}, **host))
    host = {"host_seconds": [15e-6], "roundtrip_seconds": [230e-6]}
    found.append(case("launch", "spin", 200e-6, {"nanoseconds": 200_000}, **host))
    for exponent in (0, 8, 16, 24):
        seconds = 2e-6 + 2**exponent * 1e-9
        found.append(case("launch", "blocks", seconds, {"grid": 2**exponent, "block": 32}))
    found.append(case("launch", "refused", 1e-6, {"limit": "block_z"}, error_code=[1.0]))
    codes = [0, 0, 600, 719, 719, 719]
    found.append(case("launch", "late_error", 1e-6, {"fault": "trap"}, error_codes=codes))
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
        (identity, identity_cases),
        (execution, schedule_cases),
        (waves, schedule_cases),
        (gpc, schedule_cases),
        (scalability, scalability_cases),
        (launch, launch_cases),
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


@pytest.mark.parametrize(("question", "cases"), ALL, ids=[q.slug for q, _ in ALL])
def test_a_run_that_lacks_a_case_raises_nothing(ask, question, cases):
    every = cases()
    for kernel in sorted({case.kernel for case in every}):
        ask(question.answer, [case for case in every if case.kernel != kernel])
    assert ask(question.answer, []) is None


def test_identity_says_what_the_small_launch_cannot_show(ask):
    answer = ask(identity.identity, identity_cases())
    assert "linear index 21 and lane 21" in answer.text
    assert "they are equal for all of the threads" in answer.text
    assert "they differ for 87.5%" in answer.text
    assert "33 threads make 2 warps" in answer.text
    assert answer.verdict == "confirmed"
    assert ask(identity.identity, identity_cases(differs=0.5)).verdict == "contradicted"


def test_order_is_read_off_the_starts(ask):
    answer = ask(execution.order, schedule_cases())
    assert answer.verdict == "confirmed"
    assert "taken again after 500 cycles" in answer.text
    assert execution.inversions(np.array([0.0, 1.0, 2.0])) == 0.0
    assert execution.inversions(np.array([2.0, 1.0, 0.0])) == 1.0
    assert execution.inversions(np.array([1.0, 0.0, 2.0])) == pytest.approx(1 / 3)


def test_blocks_that_share_an_sm_get_a_lane_each():
    blocks = pd.DataFrame(
        {"sm": [0, 0, 1, 0], "start": [0.0, 1.0, 0.0, 5.0], "stop": [5.0, 9.0, 9.0, 6.0]}
    )
    assert execution.lanes(blocks).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(("resident", "verdict"), [(2.0, "contradicted"), (5.0, "confirmed")])
def test_replacement_follows_what_was_resident(ask, resident, verdict):
    assert ask(execution.replacement, [early_exit(resident)]).verdict == verdict


def test_staircase_of_equal_blocks_is_predicted(ask):
    answer = ask(waves.staircase, schedule_cases())
    assert answer.verdict == "confirmed"
    assert "here 125 on 100: they run as 100 and then 25, in 2.00 times" in answer.text
    assert "runs faster" in answer.text


def test_a_staircase_that_is_off_is_contradicted(ask):
    cases = schedule_cases()
    slow = [
        case(c.family, c.kernel, 3 * c.samples.time_s[0], c.params, launch=c.launch)
        if c.params.get("waves") == 2.0 and c.params.get("durations") == "equal"
        else c
        for c in cases
    ]
    assert ask(waves.staircase, slow).verdict == "contradicted"


def test_arithmetic_scales_and_memory_saturates(ask):
    answer = ask(scalability.speed_up, scalability_cases())
    assert "Arithmetic on 100 SMs is 100.0 times as fast as on one, 100.0% of the ideal" in (
        answer.text
    )
    assert answer.verdict == "confirmed"
    assert "Confined by green contexts" in answer.text
    assert "memory reaches 90% of its 8.00 TB/s with 64 SMs" in answer.text


def test_without_green_contexts_blocks_stand_for_sms(ask):
    cases = [case for case in scalability_cases() if case.kernel.startswith("blocks_")]
    assert "green contexts are not to be had here" in ask(scalability.speed_up, cases).text


def test_gpcs_name_what_was_left_unjoined(ask):
    answer = ask(gpc.gpcs, schedule_cases())
    assert "7 SMs into 2 groups of 3, 3" in answer.text
    assert "over the last 2 of 3 rounds" in answer.text
    assert "left unjoined: SM 6" in answer.text


def test_launch_returns_before_the_kernel_ends(ask):
    answer = ask(launch.cost, launch_cases())
    assert "4.00 µs by cuda.core, 5.00 µs by CuPy, 15.0 µs by numba" in answer.text
    assert "returns after 15.0 µs" in answer.text
    assert answer.verdict == "confirmed"


def test_blocks_a_second(ask):
    answer = ask(launch.blocks, launch_cases())
    assert "2²⁴ blocks of 32 threads take 16.8 ms, 1.00 billion blocks a second" in answer.text
    assert answer.verdict == "confirmed"
    few = [case for case in launch_cases() if case.params.get("grid", 0) <= 2**12]
    assert ask(launch.blocks, few).verdict == "measured", "131,072 threads are not millions"


def test_errors_name_the_call_that_tells(ask):
    answer = ask(launch.errors, launch_cases())
    assert "refused at once (INVALID_VALUE)" in answer.text
    assert "first told by synchronise, and by every call after it, not by its own launch" in (
        answer.text
    )
    assert answer.verdict == "confirmed"
    assert list(answer.table.columns) == ["error", *launch.STEPS]


def test_the_steps_are_those_of_the_kernel():
    from kernels import late_error

    assert launch.STEPS == late_error.STEPS
