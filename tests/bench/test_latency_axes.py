"""Axes of memory, loaded latency and instructions: complete, unique, and within their budget."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench import bench_instruction, bench_loaded_latency, bench_memory
from kernels.instruction import ILP, OPERANDS, SURFACE
from kernels.spec import Machine

H200 = Machine((9, 0), 132, 2048, 32, 60 << 20, 140 << 30, xp=None)
MODULES = (bench_memory, bench_loaded_latency, bench_instruction)


def keys(module, profile: str) -> list[tuple]:
    cases = module.cases(profile, H200)
    return [(case.kernel.name, *sorted(case.params.items())) for case in cases]


@pytest.mark.parametrize("module", MODULES)
def test_every_case_is_there_once_and_a_larger_profile_keeps_it(module):
    quick, standard, full = (keys(module, name) for name in ("quick", "standard", "full"))
    for found in (quick, standard, full):
        assert len(found) == len(set(found))
    assert set(quick) < set(standard) < set(full)


def test_footprints_reach_from_l1_to_far_past_l2():
    for cache in ("ca", "cg"):
        sizes = [
            case.params["bytes"]
            for case in bench_memory.cases("standard", H200)
            if case.params.get("cache") == cache
        ]
        assert sizes == sorted(sizes)
        assert min(sizes) == 4 << 10
        assert max(sizes) == 4 << 30
        assert max(big / small for small, big in pairwise(sizes)) <= 2


def test_chases_find_what_they_left_in_the_caches():
    """A flush between samples would turn every footprint into a chase through DRAM."""
    for module in MODULES:
        assert all(case.cache == "warm" for case in module.cases("standard", H200))


def test_load_goes_from_none_to_all():
    for width in (4, 16):
        cases = [
            case.params
            for case in bench_loaded_latency.cases("standard", H200)
            if case.params["width"] == width
        ]
        assert cases[0]["warps"] == 0
        assert {"width": width, "warps": 32, "pause": 0} in cases
        pauses = [params["pause"] for params in cases if params["warps"] == 32]
        assert pauses == sorted(pauses, reverse=True)


def test_every_op_has_latency_and_throughput():
    cases = list(bench_instruction.cases("standard", H200))
    chains = {case.params["op"] for case in cases if case.kernel.name == "chain"}
    busy = {
        case.params["op"]
        for case in cases
        if case.kernel.name == "streams" and case.params["warps"] == 32
    }
    assert chains == busy == set(OPERANDS)


def test_the_surface_is_whole():
    surface = {
        (case.params["op"], case.params["ilp"], case.params["warps"])
        for case in bench_instruction.cases("standard", H200)
        if case.kernel.name == "streams"
    }
    for op in SURFACE:
        points = {(ilp, warps) for name, ilp, warps in surface if name == op}
        assert points == {(ilp, warps) for ilp in ILP for warps in (1, 2, 4, 8, 16, 32)}
