"""Measured cases and counters as they should be for them. All numbers are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from results.counters import FOLDER, SCHEMA, CaseCounters, FamilyCounters, label, save
from results.schema import Case, Launch, Samples, Work

from .conftest import CLOCK, L2, SMS

N = 1 << 26
READ, WRITTEN = 8 * N, 4 * N  # 512 and 256 MiB
SECONDS = 900e-6
GRID = Launch((8 * SMS * 10, 1, 1), (256, 1, 1), registers=32, blocks_per_sm=8)


def measured(
    kernel: str = "vector",
    *,
    family: str = "axpy",
    cache: str = "cold",
    seconds: float = SECONDS,
    launch: Launch | None = GRID,
    work: Work | None = None,
    resident: bool = False,
    **params: int | str,
) -> Case:
    return Case(
        family,
        kernel,
        params or {"n": N, "dtype": "float32", "block": 256},
        "ok",
        work=work or Work(READ, WRITTEN, 2 * N),
        launch=launch,
        samples=Samples([seconds] * 3, "precision", cache, sm_clock_hz=[CLOCK] * 3),  # type: ignore[arg-type]
        cache_resident=resident,
        source=f"kernels/{family}.py:1",
    )


def counted(case: Case, launches: int = 1, states: str = "long_scoreboard", **other: float):
    """Counters as they should be for a case, but for those named."""
    cycles = SMS * CLOCK * SECONDS
    warps = 60 * cycles
    found = {
        "time": SECONDS,
        "dram_read": float(READ),
        "dram_written": WRITTEN - 0.9 * L2,
        "l2_from_l1": float(READ + WRITTEN),
        "local_loaded": 0.0,
        "local_stored": 0.0,
        "shared_wavefronts": 1000.0,
        "bank_conflicts": 250.0,
        "sm_cycles_elapsed": cycles,
        "sm_cycles": cycles,
        "sm_warp_cycles": warps,
        "scheduler_cycles": 4 * cycles,
        "issued": cycles,
        "warp_cycles": warps,
        "eligible": 0.2 * warps,
        "warps_selected": 0.05 * warps,
        "warps_not_selected": 0.15 * warps,
        f"warps_{states}": 0.7 * warps,
        "warps_lg_throttle": 0.1 * warps,
    } | other
    return CaseCounters(
        label(case.family, case.kernel, case.params),
        ["kernel"] * launches,
        {name: value for name, value in found.items() if not math.isnan(value)},
    )


def beside(record: Callable[..., Path]) -> Callable[..., Path]:
    """run((case, its counters), …) -> folder of a run of two processes with counters beside it."""

    def make(*pairs: tuple[Case, CaseCounters], problems: tuple[str, ...] = ()) -> Path:
        cases = [case for case, _ in pairs]
        folder = record(cases, cases)
        by_family: dict[str, list[CaseCounters]] = {}
        for case, of_case in pairs:
            by_family.setdefault(case.family, []).append(of_case)
        for family, found in by_family.items():
            save(
                folder / FOLDER,
                FamilyCounters(
                    schema=SCHEMA,
                    family=family,
                    profile="standard",
                    device="Synthetic GPU",
                    profiler="2025.3.1.0",
                    cache="flushed",
                    metrics={},
                    sources="0" * 16,
                    cases=found,
                    problems=list(problems),
                ),
            )
        return folder

    return make
