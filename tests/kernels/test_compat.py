"""What the simulator was given: warp functions, and the twins of inline assembly."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kernels import compat

if not compat.SIMULATOR:
    pytest.skip("needs numba's simulator: set NUMBA_ENABLE_CUDASIM=1", allow_module_level=True)

from numba import cuda

from kernels import probes, ptx
from kernels.instructions import OPS, chain, chain_reference, fma_chain, fma_chain_reference

pytestmark = pytest.mark.simulator


@compat.jit(lineinfo=True, max_registers=32, launch_bounds=(128, 1), opt=True, lto=False)
def block_sums(x, out):
    lane = cuda.threadIdx.x % 32
    warps = cuda.shared.array(4, "float32")
    value = x[cuda.grid(1)]
    offset = 16
    while offset > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
        offset //= 2
    if lane == 0:
        warps[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = warps[0] + warps[1] + warps[2] + warps[3]


@compat.jit
def one_array(out):
    words = cuda.shared.array(64, "int32")
    words[cuda.threadIdx.x] = cuda.threadIdx.x
    cuda.syncthreads()
    out[cuda.threadIdx.x] = words[63 - cuda.threadIdx.x]


def test_threads_that_come_at_once_share_an_array(monkeypatch):
    """Numba's own simulator looks and then makes one: a thread that is switched off in between
    had an array to itself."""
    empty = np.empty

    def slowly(*shape):
        time.sleep(0.01)
        return empty(*shape)

    out = np.zeros(64, np.int32)
    monkeypatch.setattr(np, "empty", slowly)
    one_array[1, 64](out)
    assert (out == 63 - np.arange(64)).all()


def test_shuffle_reduction_is_exact():
    x = np.random.default_rng(1).integers(-100, 100, 384).astype(np.float32)
    out = np.full(3, np.nan, np.float32)
    block_sums[3, 128](x, out)
    np.testing.assert_array_equal(out, x.reshape(3, 128).sum(axis=1))


def test_shuffles_of_every_kind():
    @compat.jit
    def kernel(out):
        lane = cuda.threadIdx.x
        out[0, lane] = cuda.shfl_sync(-1, lane, 5)
        out[1, lane] = cuda.shfl_up_sync(-1, lane, 1)
        out[2, lane] = cuda.shfl_down_sync(-1, lane, 2)
        out[3, lane] = cuda.shfl_xor_sync(-1, lane, 3)

    lanes = np.arange(32)
    out = np.empty((4, 32), np.int64)
    kernel[1, 32](out)
    np.testing.assert_array_equal(out[0], 5)
    np.testing.assert_array_equal(out[1], np.maximum(lanes - 1, 0))
    np.testing.assert_array_equal(out[2], np.where(lanes + 2 < 32, lanes + 2, lanes))
    np.testing.assert_array_equal(out[3], lanes ^ 3)


def test_votes_and_matches_of_every_kind():
    @compat.jit
    def kernel(out):
        lane = cuda.threadIdx.x
        out[0, lane] = cuda.all_sync(0xFFFFFFFF, lane < 32)
        out[1, lane] = cuda.any_sync(0xFFFFFFFF, lane == 32)
        out[2, lane] = cuda.eq_sync(0xFFFFFFFF, lane > 4)
        out[3, lane] = cuda.ballot_sync(0xFFFFFFFF, lane >= 28)
        out[4, lane] = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, lane % 3 == 0))
        out[5, lane] = cuda.match_any_sync(0xFFFFFFFF, lane // 16)
        same, whole = cuda.match_all_sync(0xFFFFFFFF, 7)
        out[6, lane] = same if whole else 1
        same, whole = cuda.match_all_sync(0xFFFFFFFF, lane)
        out[7, lane] = same if not whole else 1
        out[8, lane] = cuda.activemask()
        out[9, lane] = cuda.lanemask_lt()

    out = np.empty((10, 32), np.int64)
    kernel[1, 32](out)
    np.testing.assert_array_equal(out[0], 1)
    np.testing.assert_array_equal(out[1], 0)
    np.testing.assert_array_equal(out[2], 0)
    # numba returns masks as signed 32-bit integers.
    np.testing.assert_array_equal(out[3], np.int32(-(1 << 28)))
    np.testing.assert_array_equal(out[4], 11)
    np.testing.assert_array_equal(out[5], np.repeat([0xFFFF, -0x10000], 16))
    np.testing.assert_array_equal(out[6], -1)
    np.testing.assert_array_equal(out[7], 0)
    np.testing.assert_array_equal(out[8], -1)
    np.testing.assert_array_equal(out[9], (1 << np.arange(32)) - 1)


def test_two_paths_of_a_warp_do_not_meet():
    @compat.jit
    def kernel(out):
        lane = cuda.threadIdx.x
        if lane < 20:
            for turn in range(5):
                out[lane] += cuda.shfl_xor_sync(0x000FFFFF, lane, 1) + turn
        else:
            cuda.syncwarp(0xFFF00000)
            out[lane] = cuda.popc(cuda.ballot_sync(0xFFF00000, True))

    out = np.zeros(32, np.int64)
    kernel[1, 32](out)
    np.testing.assert_array_equal(out[:20], 5 * (np.arange(20) ^ 1) + 10)
    np.testing.assert_array_equal(out[20:], 12)


def test_last_warp_of_a_block_may_be_short():
    @compat.jit
    def kernel(out):
        out[cuda.threadIdx.x] = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, True))

    out = np.zeros(40, np.int64)
    kernel[1, 40](out)
    np.testing.assert_array_equal(out, [32] * 32 + [8] * 8)


def test_missing_lane_is_named(monkeypatch):
    @compat.jit
    def leaver(out):
        lane = cuda.threadIdx.x
        if lane == 37:
            return
        cuda.syncwarp()
        out[lane] = 1

    monkeypatch.setattr(compat, "WARP_TIMEOUT_S", 0.5)
    with pytest.raises(compat.WarpError) as error:
        leaver[1, 64](np.zeros(64, np.int64))
    for part in ("syncwarp", "'leaver'", "warp 1", "0xffffffff", "lanes [5]"):
        assert part in str(error.value)


def test_lane_outside_its_mask_is_named():
    @compat.jit
    def stranger(out):
        out[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFE, 1, 2)

    with pytest.raises(compat.WarpError, match=r"lane 0 calls it and is not in the mask"):
        stranger[1, 1](np.zeros(1, np.int64))


def test_cache_hints_and_sleep():
    @compat.jit
    def kernel(x, out):
        i = cuda.grid(1)
        cuda.nanosleep(10)
        cuda.stcs(out, i, cuda.ldca(x, i) + cuda.ldcg(x, i) + cuda.ldcs(x, i))

    x = np.arange(8.0)
    out = np.zeros(8)
    kernel[1, 8](x, out)
    np.testing.assert_array_equal(out, 3 * x)


def test_argument_and_array_module():
    x = np.zeros(3)
    assert compat.array_module() is np
    assert compat.argument(x) is x


def test_registers_tell_the_place():
    @compat.jit
    def kernel(ids, times):
        i = cuda.grid(1)
        times[i, 0] = ptx.clock64()
        times[i, 1] = ptx.globaltimer()
        ids[i, 0] = ptx.smid()
        ids[i, 1] = ptx.warpid()
        ids[i, 2] = ptx.laneid()
        ids[i, 3] = ptx.lanemask_lt()
        ids[i, 4] = ptx.nwarpid()
        times[i, 2] = ptx.clock64()

    ids = np.zeros((6 * 40, 5), np.int64)
    times = np.zeros((6 * 40, 3), np.int64)
    kernel[6, 40](ids, times)
    thread = np.arange(240) % 40
    np.testing.assert_array_equal(ids[:, 0], np.arange(240) // 40 % ptx.SIMULATED_SMS)
    np.testing.assert_array_equal(ids[:, 1], thread // 32)
    np.testing.assert_array_equal(ids[:, 2], thread % 32)
    np.testing.assert_array_equal(ids[:, 3], (1 << thread % 32) - 1)
    assert (times[:, 2] > times[:, 0]).all()


def test_vector_accesses():
    load, store = ptx.load("f32", 1, "cs"), ptx.store("f32", 1, "wt")

    @compat.jit
    def kernel(x, y, out, wide):
        i = cuda.grid(1)
        a, b, c, d = ptx.load_v4_f32(x, 4 * i)
        e, f = ptx.load_v2_f64(y, 2 * i)
        ptx.store_v4_f32(out, 4 * i, (d, c, b, a))
        ptx.store_v2_f64(wide, 2 * i, (f, e))
        store(out, 4 * i, load(x, 4 * i) + d)

    x, y = np.arange(32, dtype=np.float32), np.arange(16.0)
    out, wide = np.zeros_like(x), np.zeros_like(y)
    kernel[2, 4](x, y, out, wide)
    a, b, c, d = x.reshape(8, 4).T
    np.testing.assert_array_equal(out, np.stack([a + d, c, b, a], 1).ravel())
    np.testing.assert_array_equal(wide, y.reshape(8, 2)[:, ::-1].ravel())


def test_misaligned_vector_is_refused():
    @compat.jit
    def kernel(x):
        ptx.load_v4_f32(x, 2)

    with pytest.raises(ValueError, match="index 2 is not a multiple of 4"):
        kernel[1, 1](np.zeros(8, np.float32))


def test_chases_follow_addresses():
    steps = 7
    follow, follow_shared = probes.chase(steps, "cg"), probes.chase_shared(steps)

    @compat.jit
    def kernel(start, order, ends, places):
        table = cuda.shared.array(16, "uint32")
        i = cuda.threadIdx.x
        base = probes.shared_address(table)
        table[i] = base + 4 * order[i]
        cuda.syncthreads()
        ends[i] = follow(start[i])
        places[i] = (follow_shared(base + 4 * i) - base) // 4

    order = np.random.default_rng(2).permutation(16)
    links = np.empty(16, np.uint64)
    base = probes.pointer(links)
    links[:] = base + 8 * order
    start = (base + 8 * np.arange(16)).astype(np.uint64)
    ends, places = np.zeros(16, np.uint64), np.zeros(16, np.int64)
    kernel[1, 16](start, order, ends, places)
    wanted = np.arange(16)
    for _ in range(steps):
        wanted = order[wanted]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal((ends - np.uint64(base)) // 8, wanted)


@pytest.mark.parametrize(("count", "width"), [(1, 1), (4, 2), (8, 4), (3, 4)])
def test_loads_in_flight_are_summed(count, width):
    batch = probes.loads(count, width, "ca")

    @compat.jit
    def kernel(x, stride, zero, out):
        address = ptx.address_of(x)
        carry = batch(address, stride, 1.0, zero)
        out[0] = batch(address, stride, carry, zero)

    x = np.arange(count * 4, dtype=np.float32)
    out = np.zeros(1, np.float32)
    kernel[1, 1](x, 16, 0, out)
    assert out[0] == 1 + 2 * x.reshape(count, 4)[:, :width].sum()


@pytest.mark.parametrize("op", OPS)
def test_chains_equal_their_reference(op):
    kind = OPS[op].kind
    several = chain(op, 3)

    @compat.jit
    def kernel(x, a, b, out):
        lane = cuda.threadIdx.x
        out[lane] = several(x[lane], a, b)

    threads = 32 if op in ("shfl.b32", "vote.b32") else 2
    x = (np.arange(threads) + 1).astype(kind.dtype)
    a, b = kind.dtype(1), kind.dtype(2)
    out = np.zeros(threads, kind.dtype)
    kernel[1, threads](x, a, b, out)
    if op == "shfl.b32":
        np.testing.assert_array_equal(out, x[np.arange(32) ^ 1])
    elif op == "vote.b32":
        np.testing.assert_array_equal(out, -1)
    else:
        np.testing.assert_array_equal(out, [chain_reference(op, 3, v, a, b) for v in x])


def test_known_values():
    assert chain_reference("fma.f32", 3, 2, 3, 1) == ((2 * 3 + 1) * 3 + 1) * 3 + 1
    assert chain_reference("mad.s32", 2, 2**20, 2**10, 0) == 2**40 % 2**32
    assert chain_reference("shl.b32", 1, 3, 30, 0) == -(2**30)
    assert chain_reference("popc.b32", 1, -1, 0, 0) == 32
    assert chain_reference("cvt.f32.s32", 1, 2.75, 0, 0) == 2


@pytest.mark.parametrize(("count", "accumulators"), [(0, 1), (1, 4), (13, 1), (13, 4), (32, 8)])
def test_fma_chain_equals_its_reference(count, accumulators):
    function = fma_chain(count, accumulators)

    @compat.jit
    def kernel(x, out):
        out[cuda.threadIdx.x] = function(x[cuda.threadIdx.x], 0.5, 0.25)

    x = np.array([1.0, -2.0, 3.0], np.float32)
    out = np.zeros(3, np.float32)
    kernel[1, 3](x, out)
    np.testing.assert_allclose(out, fma_chain_reference(count, accumulators, x, 0.5, 0.25), 1e-6)


def test_fma_chain_reference_shares_out_its_count():
    # 5 on 2 accumulators: three on v, two on the second, which starts with v * b + 1.
    v, b, c = 2.0, 3.0, 5.0
    first = ((v * b + c) * b + c) * b + c
    second = (v * b + 1) * b + c
    assert fma_chain_reference(5, 2, v, b, c) == first + second
