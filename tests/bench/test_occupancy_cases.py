"""The axes of the occupancy families: complete, in proportion, and calibration kept apart."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from bench import bench_occupancy, families
from bench.measure import Case
from bench.stopping import PROFILES
from kernels.spec import Machine

H200 = Machine((9, 0), 132, 2048, 32, 60 << 20, 141 << 30, np)
NAMES = ("occupancy", "mixed", "registers", "carveout")


def cases(family: str, profile: str) -> list[Case]:
    return families.cases(family, profile, H200)


def key(case: Case) -> Any:
    return case.kernel.name, tuple(sorted(case.params.items()))


@pytest.mark.parametrize(("family", "profile"), list(product(NAMES, PROFILES)))
def test_no_case_twice(family: str, profile: str):
    keys = [key(case) for case in cases(family, profile)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("family", NAMES)
def test_a_smaller_profile_is_part_of_a_larger_one(family: str):
    quick, standard, full = ({key(c) for c in cases(family, p)} for p in PROFILES)
    assert quick & standard
    assert len(quick) <= 25
    assert len(quick) < len(standard) < len(full)


def test_the_sweep_is_loads_by_widths_by_warps():
    swept = {
        (case.params["loads"], case.params["width"], case.params["warps"])
        for case in cases("occupancy", "standard")
        if case.kernel.name == "read" and case.params["by"] == "shared_memory"
    }
    warps = bench_occupancy.WARPS["standard"]
    assert swept >= set(product((1, 2, 4, 8), (4, 8, 16), warps))
    assert {1, 64} <= set(warps)


@pytest.mark.parametrize(
    ("profile", "family", "axis"),
    [
        (profile, *what)
        for profile in PROFILES
        for what in (("occupancy", "warps"), ("mixed", "extra_fma"))
    ],
)
def test_no_calibration_point_is_a_point_of_the_scored_sweep(profile: str, family: str, axis: str):
    fed, scored = set(), set()
    for case in cases(family, profile):
        if axis in case.params:
            (fed if case.kernel.name.startswith("calibration") else scored).add(case.params[axis])
    assert fed
    assert scored
    assert not fed & scored


def test_random_launches_are_the_same_in_every_process():
    assert bench_occupancy.random_launches(30) == bench_occupancy.random_launches(30)
    assert len(bench_occupancy.random_launches(100)) == 100


def test_more_than_two_thousand_launches_are_put_to_the_driver():
    from kernels.occupancy import DRIVER_LAUNCHES, SPINNERS

    assert DRIVER_LAUNCHES * len(SPINNERS) >= 2000


def test_what_stays_in_cache_is_measured_warm():
    for case in cases("mixed", "standard"):
        assert case.cache == ("cold" if case.params["level"] == "dram" else "warm")
