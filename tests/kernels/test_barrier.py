"""Barriers: chains that the compiler has kept whole, and checks that notice a barrier left out."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from numba import cuda

from bench.bench_barrier import CHAINS, WIDE, cases
from kernels import barrier_block, barrier_grid, barrier_relaunch
from kernels.barrier import FAMILY
from kernels.barrier_steps import STEPS, bounds, chain
from kernels.compat import SIMULATOR, jit
from kernels.spec import Machine, WrongAnswer

ptx = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
simulator = pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
HOPPER = (9, 0)
MACHINE = Machine(HOPPER, 2, 2048, 32, 1 << 20, 1 << 30, np, simulator=True)

# What one step is in PTX, and in Hopper's machine code.
CODE = {
    "syncwarp": ("bar.warp.sync", "NOP"),  # provably converged: nothing is left to do
    "syncwarp_masked": ("bar.warp.sync", "BRA.DIV"),
    "syncwarp_halves": ("bar.warp.sync", "BRA.DIV"),
    "syncwarp_diverged": ("bar.warp.sync", "BSYNC"),
    "diverged": ("setp.gt.s32 q", "BSYNC"),
    "shuffle": ("shfl.sync.idx", "SHFL.IDX"),
    "ballot": ("vote.sync.ballot", "VOTE.ANY"),
    "syncthreads": ("bar.sync", "BAR.SYNC.DEFER_BLOCKING"),
    "syncthreads_diverged": ("bar.sync", "BAR.SYNC.DEFER_BLOCKING"),
    "syncthreads_count": ("bar.red.popc", "BAR.RED.POPC.DEFER_BLOCKING"),
    "syncthreads_and": ("bar.red.and", "BAR.RED.AND.DEFER_BLOCKING"),
    "syncthreads_or": ("bar.red.or", "BAR.RED.OR.DEFER_BLOCKING"),
}


def test_every_chain_has_its_case_and_its_code():
    assert set(CHAINS) == set(STEPS) == set(CODE) == set(barrier_block.MEETINGS)
    assert set(CHAINS) | set(WIDE) == {kernel.name for kernel in FAMILY.kernels}


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("name", STEPS)
def test_a_chain_is_one_block_of_its_steps(name):
    from kernels.compile import compile_kernel

    step, (instruction, _) = STEPS[name], CODE[name]
    compiled = compile_kernel(barrier_block.timed(name), barrier_block.SIGNATURE, HOPPER)
    assert compiled.registers <= barrier_block.REGISTERS, "1,024 threads would not fit twice"
    assert compiled.spill_bytes == 0
    block = re.search(r"begin inline asm\s*\{[^}]*TURN:(.*?)// end inline asm", compiled.ptx, re.S)
    assert block.group(1).count(instruction) == step.steps
    assert compiled.ptx.count("TURN:") == 1, "two copies: the first would not warm the second"


@pytest.fixture(scope="module")
def machine_code(machine_codes) -> dict[str, list[str]]:
    """That of every chain, by its name."""
    from kernels.compile import compile_kernel

    kernels = [
        compile_kernel(barrier_block.timed(name), barrier_block.SIGNATURE, HOPPER) for name in STEPS
    ]
    return dict(zip(STEPS, machine_codes(kernels, barrier_block.REGISTERS), strict=True))


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("name", STEPS)
def test_between_the_clocks_lie_the_steps_and_no_more(name, machine_code):
    step, (_, mnemonic) = STEPS[name], CODE[name]
    code = machine_code[name]
    clocks = [place for place, line in enumerate(code) if "SR_CLOCKLO" in line]
    inside = Counter(line.split()[0] for line in code[clocks[-2] : clocks[-1]])
    assert inside[mnemonic] == step.steps
    # A loop around them is counted once in all of them; what else there is, is the step's own.
    own = {"syncwarp": 0, "syncthreads": 0, "shuffle": 0, "ballot": 1, "syncthreads_count": 2}
    if name in own:
        assert sum(inside.values()) - step.steps * (1 + own[name]) < 12, inside


@pytest.mark.ptx
@ptx
def test_grid_barriers_are_what_they_say():
    from kernels.compile import compile_kernel

    cooperative = compile_kernel(barrier_grid.grid_sync, barrier_grid.GRID_SIGNATURE, HOPPER).ptx
    assert "cudaCGSynchronize" in cooperative
    atomic = compile_kernel(barrier_grid.atomic_barrier, barrier_grid.ATOMIC_SIGNATURE, HOPPER).ptx
    assert "cudaCG" not in atomic, "a cooperative launch would refuse what this is to show"
    assert "red.release.gpu.global.add.s32" in atomic
    assert "ld.acquire.gpu.global.s32" in atomic
    # Each wait reads the clock in its loop: none can last for ever.
    assert atomic.count("%clock64") > atomic.count("ld.acquire.gpu")


# --- Checks that can fail. ---


@pytest.mark.parametrize("name", ["shuffle", "ballot", "diverged", "syncthreads_diverged"])
def test_one_step_too_few_is_another_end(name):
    step = STEPS[name]
    for steps in (31, 64, 4096):
        ends = [step.end(5, 64, steps), step.end(5, 64, steps - 1)]
        assert ends[0] != ends[1]


def test_and_and_or_turn_on_one_thread():
    for name, outcome in (("syncthreads_and", 0), ("syncthreads_or", 1)):
        start, _, end = bounds(name, 96, 1)
        assert (start == outcome).sum() == 1
        assert (end == outcome).all()


def test_a_word_not_seen_is_a_wrong_answer():
    seen = np.full(64, barrier_block.ROUNDS)
    assert barrier_block.all_saw(seen, "x") == 0
    seen[33] -= 1
    with pytest.raises(WrongAnswer, match=r"participant 33 read a word .* in 3 of 4 rounds"):
        barrier_block.all_saw(seen, "x")


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize("width", [0, 16, 32])
def test_a_barrier_left_out_is_seen(width, monkeypatch):
    monkeypatch.setattr(barrier_block, "LATE", 30_000_000)  # ns in the simulator: 30 ms

    def nothing(late):
        return True

    results = []
    for barrier in (nothing, barrier_block._block):
        meet = barrier_block.through_memory(barrier, width)

        @jit
        def kernel(seen, meet=meet):
            seen[cuda.threadIdx.x] = meet()

        seen = np.full(32, -1)
        kernel[1, 32](seen)
        results.append(seen.min())
    assert results[0] < barrier_block.ROUNDS == results[1]


@pytest.mark.simulator
@simulator
def test_blocks_that_wait_for_ever_give_up(monkeypatch):
    """In the simulator the first of two blocks waits for one that has not started."""
    monkeypatch.setattr(barrier_grid, "PATIENCE", 20_000_000)
    bound = barrier_grid.bind_atomic({"block": 32, "blocks_per_sm": 1, "beyond": 1}, MACHINE)
    assert bound.launch.grid == (1, 1, 1)
    arrays = bound.arguments[3:]
    lost = np.zeros(2, np.int32)
    seen, cycles = np.full(64, -1, np.int32), np.zeros(2, np.int64)
    arguments = (*bound.arguments[:2], 20_000_000, *arrays[:2], seen, cycles, lost)
    barrier_grid.atomic_barrier[2, 32](*arguments)
    assert lost.tolist() == [1, 1]


@pytest.mark.simulator
@simulator
def test_a_launch_that_ran_ahead_is_a_wrong_answer():
    bound = barrier_relaunch.bind_relaunch({"block": 32, "blocks_per_sm": 2}, MACHINE)
    bound.poison()
    bound.queue(0)
    assert bound.check() == 0
    bound.poison()
    with pytest.raises(WrongAnswer, match="before the launch in front of it"):
        bound.check()
    with pytest.raises(ValueError, match="whole warps"):
        barrier_relaunch.bind_relaunch({"block": 48, "blocks_per_sm": 1}, MACHINE)


@pytest.mark.simulator
@simulator
def test_a_chain_counts_its_rounds():
    steps = chain("syncwarp_diverged")

    @jit
    def kernel(rounds, start, operand, out):
        i = cuda.threadIdx.x
        out[i] = steps(rounds, start[i], operand[i], 0)

    start, operand, end = bounds("syncwarp_diverged", 32, 3)
    out = np.empty(32, np.int32)
    kernel[1, 32](3, start, operand, out)
    assert (out == end).all()


# --- Axes. ---


def test_axes():
    standard = [(case.kernel.name, dict(case.params)) for case in cases("standard", MACHINE)]
    assert len({(name, *sorted(params.items(), key=str)) for name, params in standard}) == len(
        standard
    )
    for name in CHAINS:
        blocks = [p["block"] for n, p in standard if n == name and p["blocks_per_sm"] == 1]
        assert [block // 32 for block in blocks] == [1, 2, 4, 8, 16, 32]
        assert {p["blocks_per_sm"] for n, p in standard if n == name} == {1, 2, "most"}
    beyond = {name for name, params in standard if params.get("beyond")}
    assert beyond == {"grid_sync", "atomic_barrier"}
    assert len(list(cases("quick", MACHINE))) < 6
    for case in cases("full", MACHINE):
        assert case.cache == "warm"
        assert case.count
