"""Contention: where each lane writes, bursts that the compiler leaves whole, axes that mean it."""

from __future__ import annotations

import numpy as np
import pytest

from bench import families
from kernels import contention
from kernels.compat import SIMULATOR
from kernels.contention import ACCESSES, BURST, FAMILY, STRIDE
from kernels.spec import Machine

MACHINE = Machine((9, 0), 132, 2048, 32, 50 << 20, 140 << 30, np)


@pytest.mark.parametrize("addresses", [1, 2, 3, 32])
def test_words_of_the_lanes(addresses):
    near, far = contention._where(addresses, 1), contention._where(addresses, STRIDE)
    assert len(set(near)) == len(set(far)) == addresses
    assert len(set(near % 32)) == addresses, "each in a bank of its own"
    assert len(set(far % 32)) == 1, "all in one bank"
    assert far.max() < contention.WORDS


@pytest.mark.parametrize(("addresses", "stride"), [(0, 1), (33, 1), (2, 7)])
def test_refuses_other_addresses(addresses, stride):
    with pytest.raises(ValueError, match="addresses"):
        contention._where(addresses, stride)


@pytest.mark.parametrize("profile", ["quick", "standard", "full"])
def test_cases_put_the_conflict_beside_the_same_address(profile):
    cases = families.cases("contention", profile, MACHINE)
    assert len({case.label for case in cases}) == len(cases)
    for name in (f"{op}_{space}" for space, op in ACCESSES):
        shown = {
            (case.params["addresses"], case.params["stride"])
            for case in cases
            if case.kernel.name == name
        }
        assert {(1, 1), (32, 1), (32, STRIDE)} <= shown


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
@pytest.mark.parametrize(("space", "op"), ACCESSES)
def test_no_access_is_left_out_or_gathered(space, op):
    from kernels.compile import compile_kernel

    kernel = FAMILY[f"{op}_{space}"]
    ptx = compile_kernel(*kernel.compiled[0], (9, 0)).ptx
    found = ptx.count(contention.OPS[op].split(" ")[0].format(space=space))
    assert found >= BURST
    assert found % BURST == 0
    assert "vote" not in ptx


@pytest.mark.ptx
@pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
def test_only_one_of_the_two_counters_gathers_a_warp():
    from kernels.compile import compile_kernel

    each = compile_kernel(*FAMILY["tickets"].compiled[0], (9, 0)).ptx
    gathered = compile_kernel(*FAMILY["tickets_by_warp"].compiled[0], (9, 0)).ptx
    assert "vote" not in each
    assert "vote" in gathered
    assert "shfl" in gathered
