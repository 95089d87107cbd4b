"""Masks: what the branch promises, who is whose partner, and barriers that stay in their branch."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench import families
from kernels import branch, mask, meeting
from kernels.compat import FULL_MASK, SIMULATOR
from kernels.mask import POINTS, by_point, partners, promised
from kernels.spec import Machine

MACHINE = Machine((9, 0), 132, 2048, 32, 50 << 20, 140 << 30, np)
TAKEN = (0x0000FFFF, 0x55555555, 0x00000001, 0x7FFFFFFF, 0x00FF0F35)


@pytest.mark.parametrize("taken", TAKEN)
def test_masks_that_the_branch_promises(taken):
    masks = promised(taken)
    assert tuple(masks) == POINTS
    for lane in range(32):
        inside = masks["then" if taken >> lane & 1 else "otherwise"][lane]
        assert inside >> lane & 1, "a lane is in its own mask"
        assert masks["then"][lane] == 0 or masks["otherwise"][lane] == 0
    sides = {int(m) for name in ("then", "otherwise") for m in masks[name] if m}
    assert sum(sides) == FULL_MASK
    assert (masks["nested"] & ~masks["then"] == 0).all()


def test_both_branches_share_a_place_in_the_log():
    taken = 0x0000FFFF
    wanted = promised(taken)
    log = np.stack(
        [
            wanted["before"],
            wanted["then"] + wanted["otherwise"],
            wanted["nested"],
            wanted["after"],
            wanted["after_loop"],
            wanted["synchronised"],
        ],
        axis=1,
    )
    assert (by_point(log, taken) == np.stack(list(wanted.values()), axis=1)).all()


@pytest.mark.parametrize("taken", TAKEN)
def test_partners_are_on_the_same_side(taken):
    found = partners(taken)
    goes = (taken >> np.arange(32)) & 1
    assert sorted(found) == list(range(32))
    assert (goes[found] == goes).all()


@pytest.mark.parametrize("family", ["mask", "branch"])
@pytest.mark.parametrize("profile", ["standard", "full"])
def test_what_may_hang_comes_together_and_last(family, profile):
    cases = families.cases(family, profile, MACHINE)
    hanging = [case.kernel.may_hang for case in cases]
    first = hanging.index(True)
    assert all(hanging[first:])
    assert {case.group for case in cases[first:]} == {"isolated"}
    assert {case.group for case in cases[:first]} <= {None}


def test_the_seven_cases_are_there():
    cases = families.cases("branch", "standard", MACHINE)
    shown = {(case.kernel.name, case.params["split"] % 32 == 0) for case in cases}
    assert {name for name, _ in shown} == set(branch.PROGRAMS)
    assert {("both_sides", True), ("both_sides", False)} <= shown


def test_expected_reads():
    assert list(meeting.expected("both_sides", 4, 2)) == [3, 2, 1, 0]
    assert list(meeting.expected("returned", 4, 2)) == [1, 0, meeting.NOTHING, meeting.NOTHING]


@pytest.mark.parametrize("split", [0, 64, 65])
def test_a_split_leaves_two_halves(split):
    with pytest.raises(ValueError, match="split"):
        branch.FAMILY["later"].bind({"block": 64, "split": split}, MACHINE)


@pytest.mark.simulator
@pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
@pytest.mark.parametrize(
    ("name", "wrong", "waited"),
    [
        ("uniform", False, 0),
        ("returned", False, 0),
        ("both_sides", False, 0),
        ("after", False, 0),
        ("later", True, 0),
        ("spinning", False, 32),
    ],
)
def test_outcomes_in_the_simulator(name, wrong, waited):
    """Its barrier counts threads wherever they are, and leaves out those that have returned."""
    from bench.machine import simulated

    bound = branch.FAMILY[name].bind({"block": 64, "split": 32}, simulated())
    bound.poison()
    bound.queue(0)
    bound.check()
    found = bound.reading()
    assert (found["wrong_reads"] > 0) == wrong
    assert found["gave_up"] == waited


BARRIERS = {"uniform": 2, "returned": 2, "later": 3, "spinning": 2, "both_sides": 3, "after": 2}


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
@pytest.mark.parametrize("name", BARRIERS)
@pytest.mark.parametrize("whose", ["block", "warp"])
def test_barriers_stay_where_they_were_written(name, whose):
    from kernels.compile import compile_kernel

    programs = branch.PROGRAMS if whose == "block" else mask.PROGRAMS
    ptx = compile_kernel(programs[name], meeting.signature(name), (9, 0)).ptx
    barrier = r"bar\.warp\.sync" if whose == "warp" else r"\b(?:bar|barrier)\.(?:cta\.)?sync\b"
    assert len(re.findall(barrier, ptx)) == BARRIERS[name]
    if name == "both_sides":
        blocks = [part for part in re.split(r"\n\$L\w+:", ptx) if re.search(barrier, part)]
        assert len(blocks) == 3, "one before the branch and one in each side"
