"""The tree reductions of the classic course in shared memory, each a step from the one before.

All take ``(data, n, partials)``: `data` of shape (n,), one partial sum a block in `partials`, of
shape (grid,). A sum of everything takes another launch over the partials, until one is left. The
dynamic shared memory is one element a thread. int32 wraps around, as in C.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda

from kernels.compat import jit


@jit
def interleaved_divergent(data, n, partials):
    """Pairs at distance 1, 2, 4...: the threads that add lie ever farther apart, so that every
    warp takes both sides of the branch until the end. Blocks of a power of two."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    values[thread] = 0
    if i < n:
        values[thread] = data[i]
    cuda.syncthreads()
    distance = 1
    while distance < cuda.blockDim.x:
        if thread % (2 * distance) == 0:
            values[thread] += values[thread + distance]
        cuda.syncthreads()
        distance *= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@jit
def interleaved(data, n, partials):
    """The same pairs added by the first threads, so that whole warps drop out together; their
    addresses are 2, 4, 8... apart, and fall on the same banks."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    values[thread] = 0
    if i < n:
        values[thread] = data[i]
    cuda.syncthreads()
    distance = 1
    while distance < cuda.blockDim.x:
        left = 2 * distance * thread
        if left < cuda.blockDim.x:
            values[left] += values[left + distance]
        cuda.syncthreads()
        distance *= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@jit
def sequential(data, n, partials):
    """The upper half is added to the lower one: neighbouring threads, neighbouring addresses, no
    bank conflict."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    values[thread] = 0
    if i < n:
        values[thread] = data[i]
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if thread < half:
            values[thread] += values[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@jit
def first_add(data, n, partials):
    """Each thread adds two elements while loading: half as many blocks, and no thread idles in
    the first step."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    i = 2 * cuda.blockDim.x * cuda.blockIdx.x + thread
    values[thread] = 0
    if i < n:
        values[thread] = data[i]
    if i + cuda.blockDim.x < n:
        values[thread] += data[i + cuda.blockDim.x]
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if thread < half:
            values[thread] += values[thread + half]
        cuda.syncthreads()
        half //= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@jit
def reduce4_as_published(data, n, partials):
    """The course's reduce4 with its steps, guards and barriers. Right for blocks of 256 to 512
    threads only: with 1024 the upper half is never added, with 128 the second step reads past
    the end of shared memory."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    values[thread] = 0
    i = cuda.grid(1)
    while i < n:
        values[thread] += data[i]
        i += cuda.gridsize(1)
    cuda.syncthreads()
    if thread < 256 and thread + 256 < cuda.blockDim.x:
        values[thread] += values[thread + 256]
    cuda.syncthreads()
    if thread < 128:
        values[thread] += values[thread + 128]
    cuda.syncthreads()
    if thread < 64:
        values[thread] += values[thread + 64]
    cuda.syncthreads()
    if thread < 32:
        values[thread] += values[thread + 32]
        cuda.syncwarp()
        if thread < 16:
            values[thread] += values[thread + 16]
        cuda.syncwarp()
        if thread < 8:
            values[thread] += values[thread + 8]
        cuda.syncwarp()
        if thread < 4:
            values[thread] += values[thread + 4]
        cuda.syncwarp()
        if thread < 2:
            values[thread] += values[thread + 2]
        cuda.syncwarp()
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0] + values[1]


@jit
def reduce4(data, n, partials):
    """reduce4 with every step guarded by the block's size, from 512 down: right for every block
    of whole warps, 32 to 1024 threads."""
    values = cuda.shared.array(0, data.dtype)
    thread = cuda.threadIdx.x
    values[thread] = 0
    i = cuda.grid(1)
    while i < n:
        values[thread] += data[i]
        i += cuda.gridsize(1)
    cuda.syncthreads()
    half = 512
    while half >= 32:
        if thread < half and thread + half < cuda.blockDim.x:
            values[thread] += values[thread + half]
        cuda.syncthreads()
        half //= 2
    while half > 0:
        if thread < half:
            values[thread] += values[thread + half]
        cuda.syncwarp()
        half //= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@jit
def register_sum(data, n, partials):
    """reduce4 with the running sum in a register, which the compiler unrolls and loads ahead
    for; shared memory is written once."""
    values = cuda.shared.array(0, data.dtype)
    element = data.dtype.type
    thread = cuda.threadIdx.x
    total = element(0)
    i = cuda.grid(1)
    while i < n:
        # Numba adds two int32 to an int64: back to the element's own type.
        total = element(total + data[i])
        i += cuda.gridsize(1)
    values[thread] = total
    cuda.syncthreads()
    half = 512
    while half >= 32:
        if thread < half and thread + half < cuda.blockDim.x:
            values[thread] += values[thread + half]
        cuda.syncthreads()
        half //= 2
    while half > 0:
        if thread < half:
            values[thread] += values[thread + half]
        cuda.syncwarp()
        half //= 2
    if thread == 0:
        partials[cuda.blockIdx.x] = values[0]


@functools.cache
def unrolled(block: int) -> Any:
    """register_sum with the block's size known to the compiler, so that neither loop nor guard
    is left of the tree. `block` is a power of two from 32 to 1024."""

    @jit
    def unrolled(data, n, partials):
        """Completely unrolled for one block size."""
        values = cuda.shared.array(0, data.dtype)
        element = data.dtype.type
        thread = cuda.threadIdx.x
        total = element(0)
        i = cuda.grid(1)
        while i < n:
            total = element(total + data[i])
            i += cuda.gridsize(1)
        values[thread] = total
        cuda.syncthreads()
        if block >= 1024:
            if thread < 512:
                values[thread] += values[thread + 512]
            cuda.syncthreads()
        if block >= 512:
            if thread < 256:
                values[thread] += values[thread + 256]
            cuda.syncthreads()
        if block >= 256:
            if thread < 128:
                values[thread] += values[thread + 128]
            cuda.syncthreads()
        if block >= 128:
            if thread < 64:
                values[thread] += values[thread + 64]
            cuda.syncthreads()
        if thread < 32:
            if block >= 64:
                values[thread] += values[thread + 32]
            cuda.syncwarp()
            if thread < 16:
                values[thread] += values[thread + 16]
            cuda.syncwarp()
            if thread < 8:
                values[thread] += values[thread + 8]
            cuda.syncwarp()
            if thread < 4:
                values[thread] += values[thread + 4]
            cuda.syncwarp()
            if thread < 2:
                values[thread] += values[thread + 2]
            cuda.syncwarp()
            if thread == 0:
                partials[cuda.blockIdx.x] = values[0] + values[1]

    return unrolled
