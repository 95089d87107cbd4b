"""The reduction by clusters: partial sums cross blocks through distributed shared memory.

The first block of each cluster reads the totals of the others out of their shared memory; the
last cluster done adds up what the clusters left. CUDA C, because numba has no cluster launch.
"""

from __future__ import annotations

import functools
from typing import Any

from kernels import cluster_launch as cluster
from kernels.cuda_c import compile_cubin

NAME = "reduce_cluster"

DEFINES = {
    # int32 wraps around, and only unsigned arithmetic may do so in C.
    "float32": {"T": "float", "V": "float4", "PTX": '"f32"', "IN": '"=f"'},
    "float64": {"T": "double", "V": "double2", "PTX": '"f64"', "IN": '"=d"'},
    "int32": {"T": "unsigned", "V": "uint4", "PTX": '"u32"', "IN": '"=r"'},
}
"""Element, 16-byte vector, and how PTX and inline assembly spell the element."""

SOURCE = r"""
__device__ T total(float4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ T total(uint4 v) { return (v.x + v.y) + (v.z + v.w); }
__device__ T total(double2 v) { return v.x + v.y; }

__device__ T fold_warp(T value)
{
    #pragma unroll
    for (int lanes = 16; lanes; lanes /= 2)
        value += __shfl_down_sync(0xffffffffu, value, lanes);
    return value;
}

/* The block's total, valid in its first warp. */
__device__ T fold_block(T value, T* warps)
{
    value = fold_warp(value);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : T(0);
    return threadIdx.x < 32 ? fold_warp(value) : value;
}

__device__ T thread_total(const T* data, long long n)
{
    const int width = sizeof(V) / sizeof(T);
    const V* vectors = (const V*)data;
    long long whole = n / width, threads = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    T sum = whole * width + i < n ? data[whole * width + i] : T(0);
    for (; i + (LOADS - 1) * threads < whole; i += LOADS * threads) {
        V v[LOADS];
        #pragma unroll
        for (int k = 0; k < LOADS; k++) v[k] = vectors[i + k * threads];
        #pragma unroll
        for (int k = 0; k < LOADS; k++) sum += total(v[k]);
    }
    for (; i < whole; i += threads) sum += total(vectors[i]);
    return sum;
}

__device__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

/* The variable at this shared address in block `rank` of the cluster. */
__device__ T read_remote(const T* mine, unsigned rank)
{
    unsigned local = (unsigned)__cvta_generic_to_shared(mine), remote;
    T value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("ld.shared::cluster." PTX " %0, [%1];" : IN(value) : "r"(remote) : "memory");
    return value;
}

/* Count up and fence: 0 again after `last`, so that the next launch finds it so. */
__device__ unsigned take_ticket(unsigned* counter, unsigned last)
{
    unsigned ticket;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(ticket) : "l"(counter), "r"(last) : "memory");
    return ticket;
}

extern "C" __global__ void __launch_bounds__(1024)
reduce_cluster(const T* data, long long n, T* partials, unsigned* counter, T* result)
{
    __shared__ T warps[32], block_total;
    __shared__ unsigned ticket;
    unsigned rank, size;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    T sum = fold_block(thread_total(data, n), warps);
    if (threadIdx.x == 0) block_total = sum;
    cluster_sync();
    if (rank == 0 && threadIdx.x < 32)
        sum = fold_warp(threadIdx.x < size ? read_remote(&block_total, threadIdx.x) : T(0));
    cluster_sync();  /* no block leaves while its shared memory is read */
    if (rank != 0) return;

    unsigned clusters = gridDim.x / size;
    if (clusters == 1) {
        if (threadIdx.x == 0) *result = sum;
        return;
    }
    if (threadIdx.x == 0) {
        partials[blockIdx.x / size] = sum;
        ticket = take_ticket(counter, clusters - 1);
    }
    __syncthreads();
    if (ticket != clusters - 1) return;
    sum = 0;
    for (unsigned i = threadIdx.x; i < clusters; i += blockDim.x) sum += __ldcg(partials + i);
    sum = fold_block(sum, warps);
    if (threadIdx.x == 0) *result = sum;
}
"""


@functools.cache
def load(dtype: str, loads: int, cc: tuple[int, int], size: int, block: int) -> Any:
    """The kernel ``(data, n, partials, counter, result)`` for clusters of `size` blocks."""
    defines = {**DEFINES[dtype], "LOADS": str(loads)}
    code = compile_cubin(SOURCE, cc, defines)
    return cluster.ClusterKernel(code, NAME, size, block)
