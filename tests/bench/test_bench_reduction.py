"""The reduction's axes: every variant, every n beside its peer, no case twice."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from bench import bench_exchange, bench_reduction
from bench.measure import Case
from bench.stopping import PROFILES
from kernels.reduction import FAMILY


def cases(profile: str, module: Any = bench_reduction) -> list[Case]:
    return list(module.cases(profile, None))


def key(case: Case) -> Any:
    return case.kernel.name, tuple(sorted(case.params.items()))


@pytest.mark.parametrize("module", [bench_reduction, bench_exchange])
@pytest.mark.parametrize("profile", PROFILES)
def test_no_case_is_measured_twice(profile: str, module: Any):
    keys = [key(case) for case in cases(profile, module)]
    assert len(keys) == len(set(keys))


def test_every_kernel_has_a_case():
    assert {case.kernel.name for case in cases("standard")} == {k.name for k in FAMILY.kernels}


def test_every_variant_is_side_by_side_with_the_peers_at_the_centre():
    groups = {
        name: list(members) for name, members in groupby(cases("standard"), lambda case: case.group)
    }
    names = [case.kernel.name for case in groups["centre"]]
    assert names == [*bench_reduction.COURSE, "cub", "numba_reduce"]
    for group in groups.values():
        ours = [case for case in group if not case.kernel.peer]
        for peer in (case for case in group if case.kernel.peer):
            # So that metrics.derive finds it: what a peer is given, ours were given too.
            assert all(peer.params.items() <= case.params.items() for case in ours)


@pytest.mark.parametrize("profile", ["standard", "full"])
def test_over_n_the_best_meet_cub_from_2_10_to_2_30(profile: str):
    sizes = {
        case.params["n"]
        for case in cases(profile)
        if case.kernel.name == "cub" and case.params["dtype"] == "float32"
    }
    step = 2 if profile == "standard" else 1
    assert sizes >= {2**exponent for exponent in range(10, 31, step)}


def test_one_axis_at_a_time_around_the_centre():
    for case in cases("standard"):
        varied = {
            name
            for name, centre in (
                ("n", 2**28),
                ("block", 256),
                ("blocks_per_sm", None),
                ("items", None),
            )
            if name in case.params and case.params[name] != centre
        }
        if case.kernel.name != "reduce4_outside":
            assert len(varied) <= 1, case.label


def test_profiles_grow():
    counts = [len(cases(profile)) for profile in PROFILES]
    assert counts == sorted(counts)
    assert counts[0] <= 12
    assert counts[1] <= 100
