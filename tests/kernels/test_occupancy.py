"""Residency from logs, launches that make so many warps resident, registers of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import axpy, carveout, mixed, occupancy, registers
from kernels.compat import SIMULATOR
from kernels.residency import mean_cycles, most_at_once
from kernels.spec import Machine, Unavailable, WrongAnswer

COMPILES = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
SIMULATES = pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")


def machine(threads: int = 2048, blocks: int = 32) -> Machine:
    return Machine((9, 0), 132, threads, blocks, 50 << 20, 141 << 30, np)


def log(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array(rows, np.int64)


def test_blocks_on_different_sms_are_not_together():
    assert most_at_once(log((0, 10, 20), (1, 12, 18), (2, 10, 20))) == 1


def test_a_block_that_starts_when_another_stops_replaces_it():
    assert most_at_once(log((3, 10, 20), (3, 20, 30), (3, 30, 40))) == 1


def test_blocks_on_one_sm_are_together_while_they_overlap():
    assert most_at_once(log((3, 10, 20), (3, 12, 30), (3, 19, 40), (3, 30, 50))) == 3


def test_clocks_of_two_sms_need_not_agree():
    assert most_at_once(log((0, 10**12, 10**12 + 5), (0, 10**12 + 1, 10**12 + 9), (1, 3, 4))) == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 20)),
        min_size=1,
        max_size=30,
    )
)
def test_most_at_once_equals_counting_at_every_tick(rows: list[tuple[int, int, int]]):
    entries = [(sm, start, start + length) for sm, start, length in rows]
    counted = max(
        sum(1 for sm, start, stop in entries if sm == which and start <= tick < stop)
        for which in range(4)
        for tick in range(61)
    )
    assert most_at_once(log(*entries)) == counted


def test_mean_cycles():
    assert mean_cycles(log((0, 10, 20), (1, 0, 30))) == 20.0


@pytest.mark.parametrize("by", ["shared_memory", "block"])
@pytest.mark.parametrize("warps", [1, 2, 3, 4, 12, 31, 32, 33, 48, 62, 64])
def test_arranged_blocks_make_the_warps(warps: int, by: str):
    block, blocks = occupancy.arrange(warps, by, machine())
    assert block * blocks == warps * 32
    assert block <= 1024
    assert blocks <= 32


def test_shared_memory_sets_the_number_of_blocks_and_block_size_their_size():
    assert occupancy.arrange(32, "shared_memory", machine()) == (32, 32)
    assert occupancy.arrange(64, "shared_memory", machine()) == (64, 32)
    assert occupancy.arrange(32, "block", machine()) == (1024, 1)
    assert occupancy.arrange(64, "block", machine()) == (1024, 2)
    assert occupancy.arrange(48, "shared_memory", machine(1536, 16)) == (96, 16)


def test_what_no_launch_can_make_is_unavailable():
    with pytest.raises(Unavailable, match="holds 48 warps, not 64"):
        occupancy.arrange(64, "block", machine(1536, 16))
    with pytest.raises(Unavailable, match="no equal blocks"):
        occupancy.arrange(61, "shared_memory", machine())
    with pytest.raises(ValueError, match="by='luck'"):
        occupancy.arrange(4, "luck", machine())


def test_affine_is_what_the_fmas_do():
    for count in (0, 1, 4, 64):
        p, q = mixed.affine(count)
        for v in (0.0, 0.3, 0.9):
            value = v
            for _ in range(count - 1):
                value = value * float(mixed.B) + float(mixed.C)
            assert p * v + q == pytest.approx(value * float(mixed.B) if count else v)


@pytest.mark.parametrize(("apart", "step", "turns"), [(1, 1, 37), (2, 5, 100), (0, 3, 16)])
def test_sums_of_warps_that_go_round(apart: int, step: int, turns: int):
    lines, warps = 16, 6
    data = np.random.default_rng(1).random(lines * 32).astype("float32")
    rows = data.reshape(lines, 32).astype(float)
    expected = [
        sum(rows[(warp * apart + turn * step) % lines] for turn in range(turns))
        for warp in range(warps)
    ]
    found = mixed._round_sums(data, warps, apart, step, turns, np)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-12)


def test_the_stencil_keeps_a_constant_and_spreads_a_point():
    grid = np.full((8, 8), 3.0)
    np.testing.assert_allclose(carveout.stencil_reference(grid, np), 3.0, rtol=1e-6)
    grid = np.zeros((8, 8))
    grid[0, 0] = 1.0
    spread = carveout.stencil_reference(grid, np)
    assert spread[0, 0] == pytest.approx(0.5)
    assert spread[0, 7] == spread[1, 0] == pytest.approx(0.1)
    assert spread[6, 0] == spread[0, 2] == pytest.approx(0.025)
    assert spread[1, 1] == 0.0


def wrong_outputs() -> list[Any]:
    cases = [
        ("read", occupancy.FAMILY, {"warps": 2, "loads": 2, "width": 8, "by": "block"}),
        ("axpy", occupancy.FAMILY, {"warps": 1, "loads": 2, "width": 4, "by": "block"}),
        ("mixed", mixed.FAMILY, {"warps": 1, "extra_fma": 4, "level": "l2"}),
        ("capped", registers.FAMILY, {"registers": 64, "blocks_per_sm": 1}),
        ("chase", carveout.FAMILY, {"bytes": 4096, "carveout": 0}),
        ("stencil", carveout.FAMILY, {"n": 16, "tile": 8, "block": 32}),
    ]
    return [pytest.param(family[name], params, id=name) for name, family, params in cases]


@pytest.mark.simulator
@SIMULATES
@pytest.mark.parametrize(("kernel", "params"), wrong_outputs())
def test_an_output_that_was_not_written_is_a_wrong_answer(kernel: Any, params: Any):
    from bench.machine import simulated

    here = simulated()
    bound = kernel.bind(params, here)
    bound.poison()
    with pytest.raises(WrongAnswer):
        bound.check()


@pytest.mark.ptx
@COMPILES
@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (12, 0)])
def test_spinners_have_the_registers_that_they_promise(cc: tuple[int, int]):
    from kernels.compile import compile_kernel

    seen = []
    for values, static in occupancy.SPINNERS.items():
        built = compile_kernel(occupancy.spinner(values), occupancy._WAIT, cc)
        assert built.registers >= values
        seen.append(built.registers)
        assert built.spill_bytes == 0
        assert built.static_smem >= static
        assert built.static_smem == 0 or static
    assert len(set(seen)) == len(seen), "real kernels that differ in registers were wanted"


@pytest.mark.ptx
@COMPILES
@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (12, 0)])
@pytest.mark.parametrize("name", ["monolithic", "grid_stride"])
def test_block_kernels_have_up_to_32_and_33_to_64_registers(name: str, cc: tuple[int, int]):
    from kernels.compile import compile_kernel

    small = compile_kernel(axpy.FUNCTIONS[name, "float32"], axpy._ARRAYS["float32"], cc)
    large = compile_kernel(registers.LARGE[name], registers._AXPY, cc)
    assert small.registers <= 32 < large.registers <= 64
    assert large.spill_bytes == 0


@pytest.mark.ptx
@COMPILES
def test_fewer_registers_spill_more_and_none_below_24_are_granted():
    from kernels.compile import compile_kernel

    signature = registers.FAMILY["capped"].compiled[0][1]
    built = {
        cap: compile_kernel(registers.capped(cap), signature, (9, 0)) for cap in (16, 24, 64, 168)
    }
    assert built[16].registers == built[24].registers == 24
    assert built[24].spill_bytes > built[64].spill_bytes > 0
    assert built[24].local_bytes > built[64].local_bytes > 0
    assert built[168].spill_bytes == built[168].local_bytes == 0
    assert built[168].registers >= registers.LIVE
