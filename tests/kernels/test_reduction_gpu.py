"""Every reduction on a physical GPU: bad sizes, all dtypes, blocks up to 1024, 64-bit indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import device
from kernels.reduction import FAMILY, reduce_array
from kernels.spec import Bound, Unavailable

REASON = device.why_not()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]
SIZES = (0, 1, 31, 33, 1023, 1025, 100_003, 2**20, 2**22 + 1)
OURS = [k.name for k in FAMILY.kernels if not k.peer and k.name != "reduce4_outside"]
ANY_BLOCK = ("reduce4", "register_sum", "shuffle", "vector_shuffle", "last_block", "cluster")


@pytest.fixture(scope="module")
def machine() -> Any:
    from bench.machine import from_snapshot

    return from_snapshot(device.snapshot(0))


def bind(name: str, machine: Any, **params: Any) -> Bound:
    machine.release()
    try:
        return FAMILY[name].bind({"dtype": "float32", **params}, machine)
    except Unavailable as reason:
        pytest.skip(str(reason))


def run(bound: Bound) -> float:
    from numba import cuda

    bound.poison()
    cuda.synchronize()
    stream = cuda.stream()
    bound.queue(stream)
    stream.synchronize()
    return bound.check()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", OURS)
def test_bad_sizes(name: str, dtype: str, machine: Any):
    for n in SIZES:
        error = run(bind(name, machine, n=n, dtype=dtype))
        assert dtype != "int32" or error == 0, n


@pytest.mark.parametrize("block", [32, 64, 96, 512, 992, 1024])
@pytest.mark.parametrize("name", ANY_BLOCK)
def test_blocks_of_whole_warps(name: str, block: int, machine: Any):
    assert run(bind(name, machine, n=1_000_003, dtype="int32", block=block)) == 0


@pytest.mark.parametrize("name", ["interleaved_divergent", "first_add", "unrolled"])
def test_1024_threads_a_block(name: str, machine: Any):
    assert run(bind(name, machine, n=1_000_003, dtype="int32", block=1024)) == 0


@pytest.mark.parametrize("items", [4, 8, 16, 32])
def test_items_a_thread(items: int, machine: Any):
    for n in (5, 4097, 1_000_003):
        assert run(bind("last_block", machine, n=n, dtype="int32", items=items)) == 0


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_cluster_sizes(size: int, machine: Any):
    bound = bind("cluster", machine, n=1_000_003, dtype="int32", block=256, cluster=size)
    assert run(bound) == 0
    assert bound.launch.cluster == size


@pytest.mark.parametrize("name", ["reduce4", "shuffle", "last_block", "cluster", "first_add"])
def test_over_2_31_elements(name: str, machine: Any):
    run(bind(name, machine, n=2**31 + 33))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_maximum(dtype: str, machine: Any):
    for n in (0, 1, 33, 1_000_003):
        assert run(bind("last_block", machine, n=n, dtype=dtype, op="max")) == 0


def test_last_block_is_right_again_and_again(machine: Any):
    """The ticket wraps by itself, and no launch sees the partials of the one before."""
    bound = bind("last_block", machine, n=3_000_001, dtype="int32")
    assert bound.launch.grid[0] > 100
    for _ in range(200):
        assert run(bound) == 0


@pytest.mark.parametrize("name", ["cub", "numba_reduce"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_peers(name: str, dtype: str, machine: Any):
    for n in (1, 33, 1023, 1_000_003):
        run(bind(name, machine, n=n, dtype=dtype))


def test_what_1024_threads_lose(machine: Any):
    bound = bind("reduce4_outside", machine, n=2**22, block=1024)
    run(bound)
    assert bound.reading()["lost_share"] == pytest.approx(0.5, abs=0.01)


def test_reduce_array():
    import cupy

    values = cupy.arange(1_000_001, dtype="int32")
    wrapped = np.arange(1_000_001, dtype="int32").sum(dtype="int32").item()
    assert reduce_array(values) == wrapped
    assert reduce_array(values, "max") == 1_000_000
    with pytest.raises(ValueError, match="multiple of 16 bytes"):
        reduce_array(values[1:])
    assert reduce_array(values[1:], kernel="shuffle") == wrapped
