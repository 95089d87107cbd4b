"""Reductions at the sizes that have broken published ones, and in the code that comes out."""

from __future__ import annotations

import doctest
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import reduction_launches as launches
from kernels import reduction_problem, reduction_tree, reduction_warp
from kernels.compat import SIMULATOR
from kernels.reduction import FAMILY, reduce_array
from kernels.reduction_problem import Problem
from kernels.spec import Machine, Unavailable, WrongAnswer

TOY = [3, 1, 4, 2, 5, 6, 7, 8]
BAD_SIZES = (0, 1, 31, 33, 1023)


def simulated() -> Machine:
    """Two SMs, as the simulator has; NumPy also where there could be a GPU."""
    return Machine((9, 0), 2, 2048, 32, 1 << 20, 1 << 30, np, simulator=True)


MACHINE = simulated()

ptx = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")
simulator = pytest.mark.skipif(not SIMULATOR, reason="needs NUMBA_ENABLE_CUDASIM=1")
OURS = [kernel for kernel in FAMILY.kernels if not kernel.peer]
SIMULATED = [kernel.name for kernel in OURS if not kernel.simulator]


def thoroughly(*names: str) -> list[Any]:
    """Parameters that `make test` leaves to CI: a simulated thread is one of Python's."""
    return [pytest.param(name, marks=pytest.mark.thorough) for name in names]


def problem(values: Any, dtype: str = "float32", op: str = "sum") -> Problem:
    return Problem(np.asarray(values, dtype), dtype, op, np.empty(1, dtype))


# --- Grids, blocks and bounds: no kernel runs. ---


def test_few_elements_go_to_one_block_just_large_enough():
    small = launches.shape(problem(np.zeros(1024)), {}, MACHINE)
    assert (small.grid, small.block) == (1, 64)  # 4 loads of 4 elements a thread
    assert launches.shape(problem([]), {}, MACHINE).block == 32
    assert launches.shape(problem(np.zeros(2**14)), {}, MACHINE).block == 1024


def test_many_elements_fill_the_multiprocessors_and_no_more():
    large = launches.shape(problem(np.zeros(2**20)), {}, MACHINE)
    assert large.grid == MACHINE.sms * launches.RESIDENT_THREADS // launches.BLOCK
    chosen = launches.shape(problem(np.zeros(2**20)), {"block": 512, "blocks_per_sm": 1}, MACHINE)
    assert (chosen.grid, chosen.block) == (MACHINE.sms, 512)
    # A chip that holds 1024 threads an SM gets no second wave.
    small_sm = replace(MACHINE, max_threads_per_sm=1024)
    assert launches.shape(problem(np.zeros(2**20)), {}, small_sm).grid == 4 * MACHINE.sms


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("reduce4_as_published", {"block": 128}, "256 to 512 only"),
        ("reduce4_as_published", {"block": 1024}, "256 to 512 only"),
        ("reduce4", {"block": 48}, "whole warps"),
        ("sequential", {"block": 96}, "power of two"),
        ("unrolled", {"block": 96}, "power of two"),
        ("last_block", {"items": 6}, "multiple of 4"),
    ],
)
def test_launches_that_would_go_wrong_are_refused(name: str, params: Any, message: str):
    with pytest.raises(ValueError, match=message):
        FAMILY[name].bind({"n": 100, "dtype": "float32", **params}, simulated())


def test_an_input_over_the_memory_is_skipped_with_the_sizes():
    machine = replace(simulated(), memory_bytes=8 * 10**9)
    with pytest.raises(Unavailable, match=r"8\.6 GB, this device has 8\.0 GB"):
        FAMILY["last_block"].bind({"n": 2**31 + 33, "dtype": "float32"}, machine)


def test_depth_counts_the_additions_on_the_longest_way():
    assert reduction_problem.depth([(1024, 4)], 256) == 1 + 8
    assert reduction_problem.depth([(4096, 2), (2, 1)], 32) == 64 + 5 + 1 + 5


def test_the_error_bound_holds_for_the_least_favourable_order():
    values = np.random.default_rng(7).random(20_000, "float32")
    serial = np.float32(0)
    for value in values:
        serial += value
    error = abs(float(serial) - math.fsum(values.tolist())) / math.fsum(values.tolist())
    assert 0 < error < reduction_problem.tolerance(values.size, "float32")
    # ... and is tight enough to see one block of 256 in a thousand missing.
    assert reduction_problem.tolerance(1100, "float32") < 1e-4


def test_a_lost_element_is_a_wrong_answer():
    lost = problem(np.ones(1000))
    lost.result[0] = 999
    with pytest.raises(WrongAnswer, match=r"is 999\.0, should be 1000\.0"):
        reduction_problem.check(lost, 20, simulated())


def test_int32_reference_wraps_around():
    assert reduction_problem.reference(problem([2**30] * 3, "int32"), np) == 3 * 2**30 - 2**32
    assert reduction_problem.reference(problem([], "int32", "max"), np) == -(2**31)


# --- In the simulator. ---


def run(name: str, values: Any, dtype: str, op: str = "sum", **params: Any) -> Any:
    from kernels.reduction import ASSEMBLE

    machine = simulated()
    given = problem(values, dtype, op)
    bound = ASSEMBLE[name](given, params, machine)
    bound.poison()
    bound.queue(0)
    bound.check()
    return given.result[0].item()


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize("name", [one for one in SIMULATED if one != "reduce4_outside"])
def test_toy_of_the_course(name: str):
    """[3,1,4,2,5,6,7,8] -> [8,7,11,10] -> [19,17] -> 36."""
    block = 256 if name == "reduce4_as_published" else 32
    assert run(name, TOY, "int32", block=block) == 36
    assert run(name, TOY, "float32", block=block) == 36.0


@pytest.mark.simulator
@simulator
def test_the_tree_passes_through_the_toy_steps():
    """A block of as many threads as elements; each step's lower half is the course's list."""
    values, steps = np.array(TOY, "int32"), []
    while values.size > 1:
        half = values.size // 2
        partials = np.zeros(half, "int32")
        # One pair a block: thread i of the tree adds element i + half to element i.
        for i in range(half):
            pair, one = np.array([values[i], values[i + half]]), np.zeros(1, "int32")
            reduction_tree.sequential[1, 2, 0, 8](pair, 2, one)
            partials[i] = one[0]
        values = partials
        steps.append(values.tolist())
    assert steps == [[8, 7, 11, 10], [19, 17], [36]]
    whole = np.zeros(1, "int32")
    reduction_tree.sequential[1, 8, 0, 32](np.array(TOY, "int32"), 8, whole)
    assert whole[0] == 36


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize("n", BAD_SIZES)
@pytest.mark.parametrize("name", ["first_add", "reduce4", "last_block"])
def test_bad_sizes_are_exact(name: str, n: int):
    values = np.random.default_rng(n).integers(-1000, 1000, n)
    assert run(name, values, "int32", block=64, blocks_per_sm=1) == values.sum()


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize("name", ["reduce4", *thoroughly("unrolled", "last_block")])
def test_1024_threads_a_block(name: str):
    values = np.arange(1023)
    assert run(name, values, "int32", block=1024, blocks_per_sm=1) == values.sum()


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize("block", [32, 96, 160])
def test_reduce4_takes_blocks_that_are_no_power_of_two(block: int):
    assert run("reduce4", np.arange(500), "int32", block=block, blocks_per_sm=1) == 124750


@pytest.mark.simulator
@simulator
def test_as_published_outside_its_range():
    """1024 threads lose the upper half; 128 read past the end of shared memory."""
    ones, one = np.ones(1024, "float32"), np.zeros(1, "float32")
    reduction_tree.reduce4_as_published[1, 1024, 0, 4096](ones, 1024, one)
    assert one[0] == 512
    with pytest.raises(IndexError, match="out of bounds"):
        reduction_tree.reduce4_as_published[1, 128, 0, 512](ones, 128, one)


@pytest.mark.simulator
@simulator
def test_the_share_lost_outside_the_range_is_read():
    bound = FAMILY["reduce4_outside"].bind(
        {"n": 1024, "dtype": "float32", "block": 1024}, simulated()
    )
    bound.queue(0)
    bound.check()
    assert bound.reading()["lost_share"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.simulator
@simulator
def test_last_block_resets_its_own_counter():
    bound = FAMILY["last_block"].bind(
        {"n": 350, "dtype": "int32", "block": 32, "items": 4}, simulated()
    )
    assert bound.launch.grid[0] == 3
    for _ in range(3):
        bound.poison()
        bound.queue(0)
        assert bound.check() == 0.0


@pytest.mark.simulator
@simulator
def test_reduce_array_takes_what_is_contiguous_and_of_a_known_type():
    square = np.arange(12, dtype="float64").reshape(3, 4)
    assert reduce_array(square) == 66
    assert reduce_array(square, "max", "shuffle") == 11
    assert reduce_array(np.zeros(0, "float32")) == 0
    assert reduce_array(np.zeros(0, "float32"), "max") == -math.inf
    with np.errstate(over="ignore"):
        assert reduce_array(np.full(3, 2**30, "int32")) == 3 * 2**30 - 2**32


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((4, 4), "float32").T, {}, "not contiguous"),
        (np.zeros(8, "float32")[::2], {}, "not contiguous"),
        (np.zeros(8, "float16"), {}, "cannot reduce float16: convert to float32"),
        ([1.0, 2.0], {}, "cannot reduce list"),
        (np.zeros(8, "float32"), {"op": "product"}, "no reduction 'product'"),
        (np.zeros(8, "float32"), {"kernel": "reduce5"}, "no kernel 'reduce5'"),
        (np.zeros(1024, "float32"), {"kernel": "reduce4_outside"}, "no kernel 'reduce4_outside'"),
        (np.zeros(8, "float32"), {"op": "max", "kernel": "block_atomics"}, "no 'max'"),
        (np.zeros(9, "float32")[1:], {}, "multiple of 16 bytes"),
    ],
)
def test_reduce_array_says_what_does_not_fit(array: Any, options: Any, message: str):
    with pytest.raises(ValueError, match=message):
        reduce_array(array, **options)


@pytest.mark.simulator
@simulator
@pytest.mark.parametrize(
    "name",
    [
        "reduce4",
        *thoroughly(*(one for one in SIMULATED if one not in ("reduce4", "reduce4_outside"))),
    ],
)
def test_reduce_array_by_any_kernel_is_right_or_refused(name: str):
    array = np.arange(300, dtype="int32")
    assert reduce_array(array, kernel=name) == 299 * 150
    if name in ("shuffle", "vector_shuffle", "one_block", "last_block"):
        assert reduce_array(array, "max", name) == 299
    else:
        with pytest.raises(ValueError, match="sums; there is no 'max'"):
            reduce_array(array, "max", name)


@pytest.mark.simulator
@simulator
def test_reduce_array_says_what_the_simulator_lacks():
    with pytest.raises(Unavailable, match="none can wait for the others"):
        reduce_array(np.zeros(8, "float32"), kernel="grid_sync")


@pytest.mark.simulator
@simulator
def test_the_examples_of_its_page_are_true():
    page = Path(__file__).parents[2] / "docs" / "reductions.md"
    found = doctest.testfile(str(page), module_relative=False)
    assert found.attempted == 10
    assert found.failed == 0


# --- In the code. ---


def compiled(function: Any, signature: str = "void(float32[::1], int64, float32[::1])") -> Any:
    from kernels.compile import compile_kernel

    return compile_kernel(function, signature, (9, 0))


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("loads", [1, 4, 8])
def test_so_many_16_byte_loads_are_in_flight(loads: int):
    """The main loop loads everything, then adds; and the assembler has the registers for it."""
    code = compiled(reduction_warp.vector("float32", "sum", loads))
    order = "".join(
        {"ld.global.v4": "L", "@inside ld.g": "g", "add.f32": "a"}[match]
        for match in re.findall(r"@inside ld\.g|ld\.global\.v4|add\.f32", code.ptx)
    )
    assert "L" * loads + "a" in order, order
    assert order.count("L") == loads
    assert code.registers >= 4 * loads
    assert code.spill_bytes == code.local_bytes == 0


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize(
    ("dtype", "load", "shuffles"),
    [("float32", "v4.f32", 10), ("int32", "v4.s32", 10), ("float64", "v2.f64", 20)],
)
def test_loads_and_shuffles_are_as_wide_as_the_type(dtype: str, load: str, shuffles: int):
    """An int32 that became an int64 on the way would shuffle twice as often."""
    signature = f"void({dtype}[::1], int64, {dtype}[::1])"
    text = compiled(reduction_warp.vector(dtype), signature).ptx
    assert f"ld.global.{load}" in text
    assert len(re.findall(r"shfl\.sync\.down", text)) == shuffles


@pytest.mark.ptx
@ptx
def test_the_last_block_takes_its_ticket_with_both_fences():
    signature = "void(float32[::1], int64, float32[::1], uint32[::1], float32[::1])"
    text = compiled(reduction_warp.last_block("float32"), signature).ptx
    assert text.count("atom.acq_rel.gpu.global.inc.u32") == 1
    assert "ld.global.cg.f32" in text


@pytest.mark.ptx
@ptx
def test_completely_unrolled_is_a_straight_line_after_the_sum():
    text = compiled(reduction_tree.unrolled(256)).ptx
    tree = text[text.index("st.shared") :]
    assert len(re.findall(r"bar\.sync", tree)) == 3  # 256 threads: after the sum, 128 and 64
    assert len(re.findall(r"bar\.warp\.sync", tree)) == 5
    for branch in re.finditer(r"bra(?:\.uni)?\s+(\$L\S+);", tree):
        assert tree.index(f"\n{branch[1]}:") > branch.start(), "a loop is left"


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("cc", [(9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_the_cluster_kernel_compiles_where_there_are_clusters(dtype: str, cc: tuple[int, int]):
    from kernels import reduction_cluster
    from kernels.cuda_c import compile_cubin

    defines = {**reduction_cluster.DEFINES[dtype], "LOADS": "4"}
    code = compile_cubin(reduction_cluster.SOURCE, cc, defines)
    assert bytes(code.code)[:4] == b"\x7fELF"


def test_clusters_are_refused_with_the_reason_elsewhere():
    with pytest.raises(Unavailable, match=r"clusters need cc 9\.0, this GPU is 8\.9"):
        FAMILY["cluster"].bind(
            {"n": 100, "dtype": "float32"}, replace(simulated(), cc=(8, 9), simulator=False)
        )
