"""AXPY's forms, seen in the code that the compiler made of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.axpy import FAMILY, B, C, extra_fma, extra_fma_reference, unrolled, vector_f32
from kernels.compat import SIMULATOR
from kernels.instructions import fma_chain_reference

F32 = "void(int64, float32, float32[::1], float32[::1])"
FMA = "void(int64, float32, float32, float32, float32[::1], float32[::1])"

ptx = pytest.mark.skipif(SIMULATOR, reason="the simulator compiles nothing")


def compiled(function: object, signature: str):
    from kernels.compile import compile_kernel

    return compile_kernel(function, signature, (9, 0))


@pytest.mark.ptx
@ptx
def test_unrolled_has_four_independent_loads_of_each_array():
    text = compiled(unrolled, F32).ptx
    order = "".join(match[0] for match in re.findall(r"\b(ld\.global|st\.global|fma\.rn)", text))
    assert order.startswith("l" * 8 + "fs" * 4), order


@pytest.mark.ptx
@ptx
def test_vector_moves_sixteen_bytes_at_a_time():
    text = compiled(vector_f32, F32).ptx
    assert len(re.findall(r"ld\.global\.v4\.f32", text)) == 2
    assert len(re.findall(r"st\.global\.v4\.f32", text)) == 1


@pytest.mark.ptx
@ptx
@pytest.mark.parametrize("accumulators", [1, 8])
def test_extra_fma_has_exactly_the_extra_fmas(accumulators: int):
    base = len(re.findall(r"fma\.rn\.f32", compiled(extra_fma(0, accumulators), FMA).ptx))
    more = compiled(extra_fma(64, accumulators), FMA)
    # The loop is not unrolled around the chain: 64 more FMAs, no multiple of it.
    assert len(re.findall(r"fma\.rn\.f32", more.ptx)) == base + 64
    assert more.spill_bytes == 0


@pytest.mark.parametrize("accumulators", [1, 8])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 20, 512])
def test_closed_form_of_the_extra_fmas(count: int, accumulators: int):
    v = np.array([0.0, 0.25, 0.99])
    step_by_step = fma_chain_reference(count, accumulators, v, B, C)
    assert np.allclose(extra_fma_reference(v, count, accumulators), step_by_step, rtol=1e-12)


def test_work_counts_each_array_once():
    from kernels.axpy import axpy_work

    work = axpy_work(1000, "float64", extra=3)
    assert (work.bytes_read, work.bytes_written, work.operations) == (16000, 8000, 8000)


def test_peers_do_the_same_work():
    peers = {kernel.name for kernel in FAMILY.kernels if kernel.peer}
    assert peers == {"cublas", "cuda_float4", "cupy_elementwise", "memcpy"}
