"""Exchanges: which barriers suffice, what is counted, and what is in the code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kernels.compat import SIMULATOR
from kernels.exchange import FAMILY, PARTNERS, exchange, suffices
from kernels.races import FAULTS
from kernels.spec import Machine, WrongAnswer

ptx = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
simulator = pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")


def simulated() -> Machine:
    return Machine((9, 0), 2, 2048, 32, 1 << 20, 1 << 30, np, simulator=True)


def bound(name: str, partner: str, rounds: int = 4) -> Any:
    params = {"partner": partner, "access": "plain", "block": 64, "rounds": rounds}
    return FAMILY[name].bind(params, simulated())


def test_partners_are_who_their_names_say():
    lanes = np.arange(64)
    assert (lanes ^ PARTNERS["31 - lane"] == lanes // 32 * 32 + 31 - lanes % 32).all()
    assert (lanes ^ PARTNERS["tid ^ 32"] == (lanes + 32) % 64).all()
    stays = {
        name: bool((lanes // 32 == (lanes ^ bits) // 32).all()) for name, bits in PARTNERS.items()
    }
    assert stays == {"tid ^ 1": True, "31 - lane": True, "tid ^ 32": False}
    for name, inside in stays.items():
        assert suffices("syncwarp", name) == inside
        assert suffices("syncthreads", name)
        assert not suffices("none", name)


def test_a_wrong_read_behind_a_barrier_that_suffices_is_a_wrong_answer():
    right = bound("syncthreads", "tid ^ 32")
    counts = right.arguments[2]
    counts[:] = 5, 2 * 64 * 4
    with pytest.raises(WrongAnswer, match=r"5 of 512 reads are wrong in spite of syncthreads"):
        right.check()
    counts[:] = 0, 3
    with pytest.raises(WrongAnswer, match=r"3 reads were made, should be 512"):
        right.check()


def test_without_a_barrier_wrong_reads_are_a_result():
    racy = bound("no_barrier", "tid ^ 32")
    racy.arguments[2][:] = 128, 512
    assert racy.check() == 0.25
    racy.arguments[2][:] = 140, 1024
    assert racy.reading() == {"wrong_reads": 12.0}  # of the latest launch alone


@pytest.mark.simulator
@simulator
def test_the_simulator_runs_into_the_race_between_warps():
    """Its threads start one after another: the first finds nothing of the others yet."""
    racy = bound("no_barrier", "tid ^ 32", rounds=20)
    racy.poison()
    racy.queue(0)
    assert racy.check() > 0


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize("partner", list(PARTNERS))
def test_no_wrong_read_with_syncthreads(partner: str):
    right = bound("syncthreads", partner)
    right.poison()
    right.queue(0)
    assert right.check() == 0
    assert right.reading() == {"wrong_reads": 0.0}


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize(
    ("barrier", "instruction"), [("syncthreads", r"bar\.sync"), ("syncwarp", r"bar\.warp\.sync")]
)
def test_each_round_has_two_barriers_of_its_kind(barrier: str, instruction: str):
    from kernels.compile import compile_kernel

    signature = "void(int32, int32, int64[::1])"
    with_it = compile_kernel(exchange(barrier, "plain"), signature, (9, 0)).ptx
    stores = len(re.findall(r"st\.shared", with_it))
    assert stores
    assert len(re.findall(instruction, with_it)) == 2 * stores
    without = compile_kernel(exchange("none", "plain"), signature, (9, 0)).ptx
    assert not re.search(r"bar\.(warp\.)?sync", without)


@pytest.mark.ptx
@ptx
def test_volatile_accesses_are_volatile():
    from kernels.compile import compile_kernel

    text = compile_kernel(
        exchange("none", "volatile"), "void(int32, int32, int64[::1])", (9, 0)
    ).ptx
    assert "ld.volatile.s32" in text
    assert not re.search(r"ld\.shared", text)


def test_planted_faults_cover_every_verdict():
    assert {fault.expected for fault in FAULTS.values()} == {"clean", "warning", "error"}
    assert FAULTS["exchange tid ^ 32, syncwarp"].expected == "error"
    assert FAULTS["exchange 31 - lane, syncwarp"].expected == "clean"
    assert FAULTS["exchange 31 - lane, none"].expected == "warning"


@pytest.mark.simulator
@simulator
def test_a_planted_fault_says_what_came_out():
    assert FAULTS["reduce4_as_published, 256 threads"].run() == "256 ones add up to 256"
    assert FAULTS["exchange tid ^ 32, syncthreads"].run() == "0 of 5120 reads are wrong"
