"""The axes of identity, schedule, scalability and launch; and the host's side of a launch."""

from __future__ import annotations

import importlib
from itertools import pairwise

import pytest

from bench.measure import Case
from kernels.compat import SIMULATOR
from kernels.schedule import blocks_of, residents
from kernels.spec import Bound, Machine, Work

H200 = Machine((9, 0), 132, 2048, 32, 60 << 20, 140 << 30, None)
SMALL = Machine((8, 6), 20, 1536, 16, 2 << 20, 8 << 30, None)
FAMILIES = ["identity", "schedule", "scalability", "launch"]


def cases(family: str, profile: str, machine: Machine = H200) -> list[Case]:
    return list(importlib.import_module(f"bench.bench_{family}").cases(profile, machine))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("profile", ["quick", "standard", "full"])
def test_cases_are_distinct_and_profiles_grow(family, profile):
    found = cases(family, profile)
    keys = [(case.kernel.name, tuple(sorted(case.params.items()))) for case in found]
    assert len(keys) == len(set(keys))
    sizes = [len(cases(family, name)) for name in ("quick", "standard", "full")]
    assert all(a < b for a, b in pairwise(sizes))


def test_schedule_has_the_notes_case_scaled_to_the_device():
    traced = [
        case.params for case in cases("schedule", "standard") if case.kernel.name == "timeline"
    ]
    assert {"equal", "unequal"} <= {params["durations"] for params in traced}
    assert blocks_of(1.25, 80) == 100
    assert any(params["waves"] == 1.25 and params["residency"] == "one" for params in traced)


@pytest.mark.parametrize("machine", [H200, SMALL], ids=["h200", "small"])
def test_pictures_stay_small(machine):
    for case in cases("schedule", "standard", machine):
        if case.kernel.name in ("timeline", "early_exit"):
            slots = machine.sms * residents(case.params, machine)
            assert blocks_of(case.params["waves"], slots) <= 600


def test_scalability_ends_with_all_sms():
    for machine in (H200, SMALL):
        for kernel in ("compute", "memory", "blocks_compute", "blocks_memory"):
            sms = [
                case.params["sms"]
                for case in cases("scalability", "standard", machine)
                if case.kernel.name == kernel
            ]
            assert sms == sorted(set(sms))
            assert sms[-1] == machine.sms
            assert (kernel.startswith("blocks")) == (sms[:7] == [1, 2, 3, 4, 5, 6, 7])


def test_launch_goes_to_millions_of_blocks():
    grids = [c.params["grid"] for c in cases("launch", "standard") if c.kernel.name == "blocks"]
    assert min(grids) == 1
    assert max(grids) == 2**24


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
def test_host_time_is_a_launchs_share(monkeypatch):
    from bench import bench_launch

    now = iter([10.0, 10.5, 20.0, 20.1])
    monkeypatch.setattr(bench_launch.time, "perf_counter", lambda: next(now))
    queued: list[object] = []
    bound = Bound(None, Work(), check=lambda: 0.0, queue=queued.append)
    reading = bench_launch.with_host_time(bound).reading
    assert reading is not None
    found = reading()
    assert found["host_seconds"] == pytest.approx(0.5 / bench_launch.LAUNCHES)
    assert found["roundtrip_seconds"] == pytest.approx(0.1 / bench_launch.ROUNDTRIPS)
    assert len(queued) == 1 + bench_launch.LAUNCHES + bench_launch.ROUNDTRIPS
