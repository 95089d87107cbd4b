"""The views of occupancy, mixed, registers and carve-out, on a GPU that obeys simple laws."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import plots
from analysis.occupancy import resident
from analysis.report.question import Answer, Question, RunData
from analysis.views import block_size, carveout, mixed, occupancy, registers, residency
from results.schema import Case, Launch, Samples, Work
from results.store import load

from .conftest import CLOCK, PEAK, SMS

LATENCY = {"l1": 40.0, "l2": 250.0, "dram": 1000.0}
BYTES = 10**9


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
        work=more.pop("work", Work(BYTES)),
        metrics=more,
    )


def little(warps: int, loads: int, width: int, level: str = "dram") -> float:
    """Bandwidth by Little's law, B/s."""
    return min(PEAK, warps * loads * width * 32 * SMS * CLOCK / LATENCY[level])


def launched(threads: int, count: int, smem: int, blocks: int, grid: int = 100) -> Launch:
    return Launch(
        (grid, 1, 1),
        (threads, 1, 1),
        dynamic_smem=smem,
        static_smem=0,
        registers=count,
        blocks_per_sm=blocks,
        local_bytes=0,
    )


def driver_case(wrong: int = 0) -> Case:
    random = np.random.default_rng(2)
    columns: dict[str, list[float]] = {name: [] for name in residency.VECTORS}
    for place in range(300):
        row = [int(random.integers(1, 1025)), int(random.choice([16, 32, 64, 128])), 0]
        row.append(int(random.integers(0, 200_000)) if place % 2 else 0)
        row.append(resident("9.0", *row)[0] + (place < wrong))
        for name, value in zip(residency.VECTORS, row, strict=True):
            columns[name].append(value)
    metrics = {f"driver_{name}": column for name, column in columns.items()}
    return case("occupancy", "driver", 1e-6, {}, **metrics)


def occupancy_cases(seen: float = 0.0, wrong: int = 0) -> list[Case]:
    found = [driver_case(wrong)]
    for loads in (1, 2, 4, 8):
        for width in (4, 8, 16):
            for warps in (1, 2, 4, 8, 16, 32, 64):
                blocks = -(-warps // 2)
                params = {"warps": warps, "loads": loads, "width": width, "by": "shared_memory"}
                smem = 232448 // blocks // 1024 * 1024 - 1024
                blocks = resident("9.0", 64, 24, 0, smem)[0]
                more = {"resident_blocks": [blocks + seen] * 3, "batch_cycles": [1000.0]}
                launch = launched(64, 24, smem, blocks, grid=SMS * blocks)
                seconds = BYTES / little(warps, loads, width)
                found.append(case("occupancy", "read", seconds, params, launch=launch, **more))
    return found


def mixed_cases() -> list[Case]:
    found = []
    for level in LATENCY:
        for fma in (0, 4):
            for warps in (1, 2, 4, 8, 16, 32, 64):
                seconds = BYTES / (little(warps, 1, 4, level) / 3 + 1)
                params = {"warps": warps, "extra_fma": fma, "level": level}
                cycles = {"batch_cycles": [LATENCY[level] + 4 * fma]}
                found.append(case("mixed", "mixed", seconds, params, **cycles))
    return found


def register_cases(spread: float = 0.0) -> list[Case]:
    found = []
    for blocks in ("all", 1):
        for cap in (24, 32, 64, 128, 255):
            granted, spilled = min(cap, 140), max(0, 4 * (140 - cap))
            fit = resident("9.0", 256, granted)[0]
            launch = Launch(
                (100, 1, 1), (256, 1, 1), registers=granted, local_bytes=spilled, blocks_per_sm=fit
            )
            penalty = 10 if blocks == "all" else 2
            work = Work(operations=10**9 if blocks == "all" else 10**7)
            seconds = work.operations / 1e12 * (1 + penalty * spilled / 400)
            params = {"registers": cap, "blocks_per_sm": blocks}
            found.append(case("registers", "capped", seconds, params, launch=launch, work=work))
    for name in ("block_monolithic", "block_grid_stride"):
        for up_to, count in ((32, 16), (64, 48)):
            for block in (32, 128, 256, 512, 1024):
                launch = launched(block, count, 0, resident("9.0", block, count)[0])
                slow = (1.5 if block == 32 else 1.0) + spread * (block == 512)
                params = {"n": 1 << 27, "block": block, "registers": up_to}
                found.append(case("registers", name, 2e-3 * slow, params, launch=launch))
    return found


def carveout_cases(shrinks: bool = True) -> list[Case]:
    found = []
    for share in (0, 50, 100):
        holds = 256 - (228 * share // 100 if shrinks else 0)
        for kib in (16, 32, 64, 128, 192, 224, 256, 320):
            latency = 33.0 if kib <= holds else 250.0
            params = {"bytes": kib << 10, "carveout": share}
            found.append(case("carveout", "chase", 1e-5, params, latency_cycles=[latency] * 3))
    for tile, microseconds in ((16, 500), (32, 300), (64, 250), (128, 350), (224, 900)):
        smem = 4 * (tile + 4) ** 2
        launch = launched(256, 40, smem, resident("9.0", 256, 40, 0, smem)[0])
        loaded = {"loaded_bytes": [float(smem * (7168 // tile) ** 2)]}
        params = {"n": 7168, "tile": tile, "block": 256}
        found.append(
            case("carveout", "stencil", microseconds * 1e-6, params, launch=launch, **loaded)
        )
    return found


@pytest.fixture
def ask(record: Callable[..., Path], tmp_path: Path) -> Callable[..., Answer | None]:
    """ask(function of a view, cases) -> its answer to a run of three processes."""

    def run(question: Callable[[RunData], Answer | None], cases: list[Case]) -> Answer | None:
        for path in tmp_path.rglob("*.jsonl"):
            path.unlink()
        return question(RunData(load(record(cases, cases, cases, family="occupancy"))))

    return run


ALL: list[tuple[Question, Callable[[], list[Case]]]] = [
    (question, cases)
    for view, cases in (
        (residency, occupancy_cases),
        (occupancy, occupancy_cases),
        (mixed, mixed_cases),
        (registers, register_cases),
        (carveout, carveout_cases),
    )
    for question in view.QUESTIONS
]
IDS = [question.slug for question, _ in ALL]


@pytest.mark.parametrize(("question", "cases"), ALL, ids=IDS)
def test_every_question_has_a_sentence_and_its_figures_draw(ask, question, cases):
    answer = ask(question.answer, cases())
    assert answer is not None
    assert answer.text.endswith(".")
    assert "nan" not in answer.text
    assert answer.sources
    for plot in answer.plots:
        with plots.theme():
            assert "<svg" in plots.svg(plot.draw(plot.data))


@pytest.mark.parametrize(("question", "cases"), ALL, ids=IDS)
def test_a_run_that_lacks_cases_raises_nothing(ask, question, cases):
    every = cases()
    for kernel in sorted({case.kernel for case in every}):
        ask(question.answer, [case for case in every if case.kernel != kernel])
    for keep in (slice(0, 1), slice(0, 3), slice(-2, None)):
        ask(question.answer, every[keep])
    assert ask(question.answer, []) is None


def test_agreement_states_its_counts(ask):
    answer = ask(residency.agreement, occupancy_cases())
    assert answer.verdict == "confirmed"
    reference, distinct = answer.table["of"].iloc[:2]
    assert reference > 2500
    assert f"NVIDIA's published rules on {reference:,} of {reference:,}" in answer.text
    assert 290 <= distinct <= 300
    assert f"{distinct} of {distinct} random launches" in answer.text
    assert "84 of 84 points of the sweeps" in answer.text
    assert (answer.table["equal"] == answer.table["of"]).all()
    assert len(answer.table) == 4


def test_a_driver_or_an_sm_that_disagrees_is_named(ask):
    answer = ask(residency.agreement, occupancy_cases(wrong=2))
    assert answer.verdict == "contradicted"
    asked = answer.table.iloc[1]
    assert asked["of"] - asked["equal"] == 2
    assert "Differing are" in answer.text
    answer = ask(residency.agreement, occupancy_cases(seen=1.0))
    assert answer.verdict == "contradicted"
    assert "0 of 84" in answer.text


def test_a_grid_too_small_to_fill_the_sms_is_no_evidence(ask):
    few = launched(256, 24, 0, 8, grid=SMS * 4)
    lone = case("schedule", "staircase", 1e-5, {"waves": 0.5}, launch=few, resident_blocks=[4.0])
    answer = ask(residency.agreement, [*occupancy_cases(), lone])
    assert answer.verdict == "confirmed"
    assert "84 of 84 points of the sweeps" in answer.text


def test_saturation_is_where_a_curve_reaches_90_percent_of_its_plateau():
    curve = pd.DataFrame({"warps": [1, 2, 4, 8, 16, 32, 64], "bandwidth": [1, 2, 4, 8, 10, 10, 10]})
    assert occupancy.saturation(curve) == pytest.approx(12.0)
    rising = curve.assign(bandwidth=curve["warps"])
    assert occupancy.saturation(rising) is None


def test_warps_follow_littles_law(ask):
    answer = ask(occupancy.warps, occupancy_cases())
    table = answer.table.set_index(["loads", "width"])
    # 1 TB/s on 100 SMs at 1 GHz is 10 B a clock an SM: 10,000 bytes in flight, which 64 warps
    # with 128 bytes each do not have; 512 each reach 0.8192 with 16 warps and 1 with 32.
    assert pd.isna(table.loc[(1, 4), "saturated_warps"])
    assert "more than the 64 that fit with one load of 4 or 8 bytes" in answer.text
    assert table.loc[(1, 16), "saturated_warps"] == pytest.approx(16 + 16 * 0.0808 / 0.1808)
    assert table.loc[(8, 16), "saturated_warps"] < 3


def test_fewer_warps_win_where_they_have_more_bytes_in_flight(ask):
    answer = ask(occupancy.lower_wins, [*occupancy_cases(), *register_cases()])
    assert answer.verdict == "confirmed"
    assert "bytes in flight" in answer.text
    assert answer.text.startswith("No: 4 warps with 8 loads of 16 bytes")
    assert "it spills" in answer.text


def test_the_notes_25_warps_are_held_against_each_level(ask):
    answer = ask(mixed.enough, mixed_cases())
    assert answer.verdict == "contradicted"
    assert "the notes say 25" in answer.text
    assert "26 with the warp that waits" in answer.text
    assert "100 for the four schedulers" in answer.text
    assert "not by 64 warps" in answer.text


def test_spills_cost_and_where_they_go(ask):
    answer = ask(registers.spills, register_cases())
    assert answer.verdict == "confirmed"
    assert "24 granted" in answer.text
    assert "the smaller stay in L1" in answer.text


def test_block_sizes_are_equal_until_they_are_not(ask):
    answer = ask(block_size.registers, register_cases())
    assert answer.verdict == "contradicted"
    assert "only through the warps that fit" in answer.text
    assert "differ by at most 0.0%" in answer.text
    assert ask(block_size.registers, register_cases(spread=0.1)).verdict == "confirmed"


def test_l1_ends_sooner_with_more_shared_memory(ask):
    answer = ask(carveout.l1, carveout_cases())
    assert answer.verdict == "confirmed"
    assert "with 100% over 23 KiB" in answer.text  # in the middle of 16 and 32
    # Equal ends: the claim falls.
    assert ask(carveout.l1, carveout_cases(shrinks=False)).verdict == "contradicted"


def test_a_middle_tile_is_best(ask):
    answer = ask(carveout.tiles, carveout_cases())
    assert answer.verdict == "confirmed"
    assert "tile of 64" in answer.text
    assert "3.60× the time" in answer.text
