"""Divergence: branches that stay branches, statements in order, and what their clocks say."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench import families
from kernels import divergence, paths
from kernels.compat import SIMULATOR
from kernels.course import COURSES, FIRST, JOIN, POINTS, course_reference, overlap
from kernels.divergence import FAMILY
from kernels.spec import Machine

MACHINE = Machine((9, 0), 132, 2048, 32, 50 << 20, 140 << 30, np)


def clocks(then: tuple[int, int], otherwise: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    goes = np.arange(32) < 16
    seen = np.zeros((32, POINTS), np.int64)
    seen[goes, FIRST], seen[goes, JOIN] = then
    seen[~goes, FIRST], seen[~goes, JOIN] = otherwise
    return seen, goes


@pytest.mark.parametrize(
    ("then", "otherwise", "cycles"),
    [
        ((0, 100), (100, 200), 0),
        ((150, 260), (0, 150), 0),
        ((0, 100), (60, 160), 40),
        ((0, 500), (100, 200), 100),
    ],
)
def test_overlap_of_two_branches(then, otherwise, cycles):
    assert overlap(*clocks(then, otherwise)) == cycles


def test_no_overlap_where_all_go_one_way():
    seen, goes = clocks((0, 100), (0, 100))
    assert overlap(seen, goes | True) == 0
    assert overlap(seen, goes & False) == 0


def test_the_result_tells_the_way():
    ends = {course_reference(goes, x, 5) for goes in (True, False) for x in range(64)}
    assert len(ends) == 128


def test_every_path_leads_elsewhere():
    ends = paths.switch_reference(np.arange(paths.PATHS), 3, 0.5, divergence.A)
    gaps = np.diff(np.sort(ends)) / np.abs(ends).max()
    assert gaps.min() > 1e-3, "ten times the tolerance of the check"


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        ("paths", {"paths": 0}),
        ("paths", {"paths": 33}),
        ("lanes", {"lanes": 0, "off": "branch"}),
        ("lanes", {"lanes": 4, "off": "elsewhere"}),
        ("course", {"taken": "nobody", "load": False, "syncwarp": False}),
    ],
)
def test_refuses_what_no_warp_can_do(kernel, params):
    with pytest.raises(ValueError, match=r"paths|lanes|taken"):
        FAMILY[kernel].bind(params, MACHINE)


@pytest.mark.parametrize("profile", ["quick", "standard", "full"])
def test_cases_cover_the_ends_of_their_axes(profile):
    cases = families.cases("divergence", profile, MACHINE)
    labels = [case.label for case in cases]
    assert len(labels) == len(set(labels))
    axis = {case.params["paths"] for case in cases if case.kernel.name == "paths"}
    assert {1, 32} <= axis
    for off in divergence.OFF:
        lanes = {case.params["lanes"] for case in cases if case.params.get("off") == off}
        assert {1, 32} <= lanes
    shown = {
        (case.params["load"], case.params["syncwarp"])
        for case in cases
        if case.kernel.name == "course"
    }
    assert shown == set(COURSES)


def compiled(kernel: str, which: int = 0) -> str:
    from kernels.compile import compile_kernel

    function, signature = FAMILY[kernel].compiled[which]
    return compile_kernel(function, signature, (9, 0)).ptx


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
def test_a_switch_has_a_chain_for_every_path():
    ptx = compiled("paths")
    assert ptx.count("brx.idx") == 1, "unrolled, or turned into something else"
    added = re.findall(r"fma\.rn\.f32 v, v, %\w+, (0f\w+);", ptx)
    assert len(added) == paths.PATHS * paths.STEPS
    assert len(set(added)) == paths.PATHS


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
@pytest.mark.parametrize(("which", "course"), list(enumerate(COURSES)), ids=str)
def test_every_statement_stands_once_and_in_order(which, course):
    load, sync = course
    ptx = compiled("course", which)
    found = re.findall(r"// statement (\w+)", ptx)
    assert sorted(found) == sorted(
        ["begin", "A", "B", "then_ends", "X", "Y", "else_ends", "P", "Q", "end"]
    )
    # Each branch is a basic block of its own, with a jump in front.
    blocks = re.split(r"\n\$L\w+:", ptx)
    (then,) = [block for block in blocks if "statement A" in block]
    (otherwise,) = [block for block in blocks if "statement X" in block]
    (after,) = [block for block in blocks if "statement P" in block]
    assert then is not otherwise
    assert after not in (then, otherwise)
    assert ptx.count("ld.volatile.global.u32") == (2 if load else 0)
    # One warp barrier at the head of every turn, and one before P where it was asked for.
    assert ptx.count("bar.warp.sync") == (2 if sync else 1)
    assert ("bar.warp.sync" in after) == sync
