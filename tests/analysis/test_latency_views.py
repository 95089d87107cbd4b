"""The views of latency and instructions, on a GPU made by formula: its levels, units and knee."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis import plots
from analysis.report.question import Question, RunData
from analysis.views import instruction, latency, latency_hiding
from results.schema import Case, Samples
from results.store import load

from .conftest import CLOCK, PEAK, SMS, write_process

KIB, MIB = 1 << 10, 1 << 20
L1, NEAR, FAR, DRAM = 34.0, 250.0, 310.0, 640.0
THETA = 0.95
LANES = {"fma.f32": 128, "ex2.f32": 16, "fma.f64": 64, "mad.s32": 64, "shfl.b32": 32}
CYCLES = {"fma.f32": 4, "ex2.f32": 18, "fma.f64": 8, "mad.s32": 4, "shfl.b32": 23, "sinf": 60}


def case(family: str, kernel: str, params: dict[str, Any], **metrics: Any) -> Case:
    samples = Samples([1e-4] * 3, "counted", "warm", sm_clock_hz=[CLOCK] * 3)
    return Case(
        family,
        kernel,
        params,
        "ok",
        samples=samples,
        source=f"kernels/{family}.py:1",
        metrics=metrics,
    )


def memory_cases(process: int) -> list[Case]:
    drift = 1 + 0.002 * process
    found = []
    for size in [1 << exponent for exponent in range(12, 33)]:
        below = NEAR if size <= 8 * MIB else FAR if size <= 32 * MIB else DRAM
        for cache, cycles in (("ca", L1 if size <= 128 * KIB else below), ("cg", below)):
            params = {"bytes": size, "cache": cache}
            found.append(case("memory", "chase", params, latency_cycles=[cycles * drift] * 3))
    found.append(case("memory", "chase_shared", {"bytes": 4096}, latency_cycles=[29.0]))
    found.append(case("memory", "chase_texture", {"bytes": 4096}, latency_cycles=[90.0]))
    latencies = [NEAR + sm % 2 * 25 for sm in range(SMS)]
    by_sm = {"block_latency": latencies, "block_sm": list(range(SMS))}
    found.append(case("memory", "chase_by_sm", {"bytes": MIB}, latency_cycles=[NEAR], **by_sm))
    return found


def loaded_cases(process: int) -> list[Case]:
    loads = [loaded(16, 32, 1000 * (10 - step), step / 10) for step in range(1, 10)]
    return [loaded(16, 0, 0, 0.0), *loads]


def loaded(width: int, warps: int, pause: int, rho: float) -> Case:
    params = {"width": width, "warps": warps, "pause": pause}
    cycles = DRAM * (1 - THETA * rho) / (1 - rho)
    metrics = {"latency_cycles": [cycles] * 3, "load_bandwidth": [rho * PEAK] * 3}
    return case("loaded_latency", "probe", params, **metrics)


def instruction_cases(process: int) -> list[Case]:
    found = []
    rate = "operations_per_clock_per_sm"
    for op, cycles in CYCLES.items():
        found.append(case("instruction", "chain", {"op": op}, latency_cycles=[float(cycles)]))
        for ilp in (1, 4) if op in ("fma.f32", "fma.f64") else (1,):
            for warps in (1, 4, 32):
                reached = min(LANES.get(op, 10), 32 * warps * ilp / cycles)
                params = {"op": op, "ilp": ilp, "warps": warps}
                found.append(case("instruction", "streams", params, **{rate: [reached]}))
    for partitions in range(1, 5):
        params = {"op": "fma.f32", "ilp": 4, "partitions": partitions}
        found.append(case("instruction", "partitions", params, **{rate: [32.0 * partitions]}))
    for registers in ("few", "most"):
        for warps in (*range(1, 9), 12, 16):
            params = {"warps": warps, "registers": registers}
            found.append(case("instruction", "switch", params, latency_cycles=[max(4.0, warps)]))
    for fma in (0, 64, 128, 256, 320, 384, 512):
        cycles = max(NEAR, fma + 10)
        found.append(case("instruction", "load_use", {"fma": fma}, latency_cycles=[cycles]))
    return found


EVERY: list[tuple[Question, Callable[[int], list[Case]]]] = [
    *((question, instruction_cases) for question in instruction.QUESTIONS),
    *((question, instruction_cases) for question in latency_hiding.QUESTIONS),
    *(
        (question, loaded_cases if "loaded_latency" in question.families else memory_cases)
        for question in latency.QUESTIONS
    ),
]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., RunData]:
    """run(cases of process 0, cases of process 1, ...) -> the run as views see it."""

    def record(*processes: list[Case]) -> RunData:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for process, cases in enumerate(processes):
            write_process(folder, process, cases, cases[0].family)
        return RunData(load(folder))

    return record


def ids(item: tuple) -> str:
    return item[0].slug


@pytest.mark.parametrize("item", EVERY, ids=ids)
def test_every_question_has_a_sentence_and_its_figures_draw(run, item):
    question, cases = item
    answer = question.answer(run(cases(0), cases(1)))
    assert answer is not None
    assert answer.text.endswith(".")
    assert "nan" not in answer.text
    assert answer.plots
    assert answer.sources
    with plots.theme():
        for plot in answer.plots:
            assert "<svg" in plots.svg(plot.draw(plot.data))


@pytest.mark.parametrize("item", EVERY, ids=ids)
def test_a_run_that_lacks_cases_raises_nothing(run, item):
    question, cases = item
    full = cases(0)
    for kept in (full[:1], full[1:2], full[-1:], full[::7], full[:2]):
        answer = question.answer(run(kept))
        assert answer is None or "nan" not in answer.text


def test_levels_are_those_of_the_formula(run):
    answer = latency.by_level(run(memory_cases(0), memory_cases(1)))
    assert answer.verdict == "contradicted"
    for part in ("34.0 cycles from L1", "250 cycles from near L2", "310 cycles from far L2"):
        assert part in answer.text
    assert "641 cycles from DRAM" in answer.text
    assert "at most 0.2%" in answer.text
    published = answer.plots[1].data
    assert published[published["same"]]["gpu"].tolist().count("H100-PCIe") == 3
    h100 = published[(published["gpu"] == "H100-PCIe") & (published["level"] == "DRAM")]
    assert h100["ratio"].iloc[0] == pytest.approx(DRAM * 1.001 / 657)


def test_a_level_of_a_hundred_cycles_confirms_the_notes(run):
    cases = [
        case(
            "memory",
            "chase",
            {"bytes": 1 << exponent, "cache": cache},
            latency_cycles=[
                30.0 if cache == "ca" and exponent < 17 else 105.0 if exponent < 22 else 500.0
            ],
        )
        for exponent in range(12, 30)
        for cache in ("ca", "cg")
    ]
    answer = latency.by_level(run(cases))
    assert answer.verdict == "confirmed"
    assert "are those of near L2" in answer.text


def test_the_knee_of_the_curve_is_found(run):
    answer = latency.under_load(run(loaded_cases(0)))
    assert f"θ = {THETA:.3f}" in answer.text
    assert "640 cycles" in answer.text


def test_free_switching_is_told_from_switching_that_costs(run):
    answer = latency_hiding.switching(run(instruction_cases(0)))
    assert answer.verdict == "confirmed"
    assert "+0.00 cycles with few registers" in answer.text
    dear = [
        case(
            "instruction",
            "switch",
            {"warps": warps, "registers": "few"},
            latency_cycles=[max(4.0, 1.4 * warps)],
        )
        for warps in range(1, 9)
    ]
    answer = latency_hiding.switching(run(dear))
    assert answer.verdict == "contradicted"
    assert "+0.40 cycles" in answer.text


def test_four_schedulers_contradict_one_warp_at_a_time(run):
    answer = instruction.schedulers(run(instruction_cases(0)))
    assert answer.verdict == "contradicted"
    assert "4.00 times" in answer.text
    assert "up to 4 warp-instructions" in answer.text
    single = [
        case(
            "instruction",
            "partitions",
            {"op": "fma.f32", "ilp": 4, "partitions": partitions},
            operations_per_clock_per_sm=[32.0],
        )
        for partitions in range(1, 5)
    ]
    assert instruction.schedulers(run(single)).verdict == "confirmed"


def test_units_are_set_beside_what_was_measured(run):
    answer = instruction.costs(run(instruction_cases(0)))
    assert answer.verdict == "measured"
    assert "FP32 128 of 128" in answer.text
    assert "special function 16.0 of 16" in answer.text
    row = answer.table.set_index("op").loc["fma.f64"]
    assert (row["units"], row["latency_cycles"]) == ("64", 8.0)
    assert row["published"] == "1.00× V100"


def test_what_fits_beneath_a_load(run):
    answer = latency_hiding.beneath_a_load(run(instruction_cases(0)))
    assert answer.verdict == "confirmed"
    assert "256 independent FMAs between them cost nothing" in answer.text
    assert "each costs 1.00 cycles" in answer.text
    assert math.isclose(answer.table["latency_cycles"].iloc[0], NEAR)
