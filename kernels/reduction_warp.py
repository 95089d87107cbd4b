"""The later steps of a reduction: warp shuffles, 16-byte loads, and four ways to finish.

Each factory builds a kernel for a dtype and an operation, so that identity, element type and the
width of a load are constants. Dynamic shared memory: 32 elements, one a warp. Blocks of whole
warps; `data` of shape (n,), starting on a multiple of 16 bytes where loads are 16 bytes wide.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda

from kernels.assembly import KINDS, Element, Value, assembly
from kernels.compat import FULL_MASK, device, jit
from kernels.ptx import load

PTX_KIND = {"float32": KINDS["f32"], "float64": KINDS["f64"], "int32": KINDS["s32"]}
"""Element types that can be reduced."""
OPS = ("sum", "max")
VECTOR_BYTES = 16
WARPS = 32
"""Most warps a block has, and so the elements of shared memory it folds through."""

MOST_THREADS = 1024
"""Launch bound of the kernels with several loads in flight. Without one the assembler keeps to
32 registers and, to do so, waits for four loads before it issues the next."""


def width(dtype: str) -> int:
    """Elements in a 16-byte load."""
    return VECTOR_BYTES // PTX_KIND[dtype].bytes


def identity(dtype: str, op: str) -> Any:
    """The value that changes nothing, and the result for n = 0: 0 for a sum, the least value of
    the type (minus infinity for floats) for a maximum."""
    kind = PTX_KIND[dtype].dtype
    if op == "sum":
        return kind(0)
    return kind(np.iinfo(kind).min) if dtype.startswith("int") else kind(-np.inf)


@functools.cache
def combine(dtype: str, op: str) -> Any:
    """Device function ``f(a, b)``: their sum or the larger one, in the element's own type."""
    kind = PTX_KIND[dtype].dtype

    @device
    def add(a, b):
        # Numba adds two int32 to an int64: back to the element's own type.
        return kind(a + b)

    @device
    def larger(a, b):
        return kind(b) if b > a else kind(a)

    return add if op == "sum" else larger


@functools.cache
def block_total(dtype: str, op: str) -> Any:
    """Device function ``f(value)``: the block's total, valid in its first warp.

    Five shuffles fold a warp, one shared element a warp passes the barrier, five more fold those.
    """
    join, nothing, element = combine(dtype, op), identity(dtype, op), np.dtype(dtype)

    @device
    def fold(value):
        value = join(value, cuda.shfl_down_sync(FULL_MASK, value, 16))
        value = join(value, cuda.shfl_down_sync(FULL_MASK, value, 8))
        value = join(value, cuda.shfl_down_sync(FULL_MASK, value, 4))
        value = join(value, cuda.shfl_down_sync(FULL_MASK, value, 2))
        return join(value, cuda.shfl_down_sync(FULL_MASK, value, 1))

    @device
    def block_total(value):
        warps = cuda.shared.array(0, element)
        thread = cuda.threadIdx.x
        value = fold(value)
        if thread % 32 == 0:
            warps[thread // 32] = value
        cuda.syncthreads()
        value = nothing
        if thread < cuda.blockDim.x // 32:
            value = warps[thread]
        if thread < 32:
            value = fold(value)
        return value

    return block_total


@functools.cache
def guarded_load(dtype: str) -> Any:
    """16 bytes where they are inside the array: ``f(array, index, left, otherwise)``.

    `left` is the number of elements from `index` to the end; with too few of them nothing is
    loaded and each place is `otherwise`. Predicated, not branched, so that several of them are
    in flight together.
    """
    kind, places = PTX_KIND[dtype], width(dtype)
    t = [f"t{place}" for place in range(places)]
    address, left, otherwise = (f"${places + place}" for place in range(3))
    template = "\n".join(
        (
            f"{{ .reg .pred inside; .reg .{kind.name} t<{places}>;",
            f"setp.ge.s64 inside, {left}, {places};",
            *(f"mov.{kind.name} {one}, {otherwise};" for one in t),
            f"@inside ld.global.v{places}.{kind.name} {{{', '.join(t)}}}, [{address}];",
            *(f"mov.{kind.name} ${place}, {one};" for place, one in enumerate(t)),
            "}",
        )
    )

    def twin(array: Any, index: int, left: int, otherwise: Any) -> tuple:
        if left < places:
            return (otherwise,) * places
        return tuple(array[index + place] for place in range(places))

    return assembly(
        f"guarded_load_{kind.name}",
        template,
        (kind, places),
        (Element(kind), Value(KINDS["s64"]), Value(kind)),
        twin,
        summary=f"Load {places} x {kind.name} at array[index] where at least as many are left.",
        memory=True,
    )


@functools.cache
def gather(dtype: str, op: str, loads: int, guarded: bool) -> Any:
    """Device function ``f(data, index, step, n)``: `loads` times 16 bytes, `step` elements apart.

    Returns a flat tuple. The loads stand before any use of a value, so that all are in flight
    together (recursion over halves: a loop would wait for each). Unguarded, all must be inside.
    """
    if loads > 1:
        half = loads // 2
        low, high = gather(dtype, op, half, guarded), gather(dtype, op, loads - half, guarded)

        @device
        def several(data, index, step, n):
            return low(data, index, step, n) + high(data, index + half * step, step, n)

        return several
    if guarded:
        guarded_one, nothing = guarded_load(dtype), identity(dtype, op)

        @device
        def one_guarded(data, index, step, n):
            return guarded_one(data, index, n - index, nothing)

        return one_guarded
    plain = load(PTX_KIND[dtype].name, width(dtype))

    @device
    def one(data, index, step, n):
        return plain(data, index)

    return one


@functools.cache
def fold_tuple(dtype: str, op: str, count: int) -> Any:
    """Device function ``f(values)``: the total of a tuple of `count`, pairwise."""
    join = combine(dtype, op)
    if count == 1:

        @device
        def fold_one(values):
            return values[0]

        return fold_one
    half = count // 2
    low, high = fold_tuple(dtype, op, half), fold_tuple(dtype, op, count - half)

    @device
    def fold_more(values):
        return join(low(values[:half]), high(values[half:]))

    return fold_more


@functools.cache
def thread_total(dtype: str, op: str, loads: int) -> Any:
    """Device function ``f(data, n)``: what this thread of the grid finds, by 16-byte loads."""
    join, nothing, places = combine(dtype, op), identity(dtype, op), width(dtype)
    fold = fold_tuple(dtype, op, loads * places)
    load_inside, load_rest = (gather(dtype, op, loads, guarded) for guarded in (False, True))

    @device
    def thread_total(data, n):
        total = nothing
        index = cuda.grid(1)
        threads = cuda.gridsize(1)
        tail = n // places * places + index
        if tail < n:  # the few elements after the last whole 16 bytes
            total = join(total, data[tail])
        index *= places
        step = places * threads
        while index + (loads - 1) * step + places <= n:
            total = join(total, fold(load_inside(data, index, step, n)))
            index += loads * step
        if index < n:
            total = join(total, fold(load_rest(data, index, step, n)))
        return total

    return thread_total


@functools.cache
def shuffle(dtype: str, op: str = "sum") -> Any:
    """Kernel ``(data, n, partials)``: register_sum folded by warp shuffles, so that two barriers
    and 32 elements of shared memory are left of the tree."""
    join, nothing, fold_block = combine(dtype, op), identity(dtype, op), block_total(dtype, op)

    @jit
    def shuffle(data, n, partials):
        """One element a load, warp shuffles; one partial a block."""
        total = nothing
        i = cuda.grid(1)
        while i < n:
            total = join(total, data[i])
            i += cuda.gridsize(1)
        total = fold_block(total)
        if cuda.threadIdx.x == 0:
            partials[cuda.blockIdx.x] = total

    return shuffle


@functools.cache
def vector(dtype: str, op: str = "sum", loads: int = 4) -> Any:
    """Kernel ``(data, n, partials)``: shuffle with 16-byte loads, `loads` of them in flight. On
    a grid of one block it is also the second launch that finishes."""
    total_of, fold_block = thread_total(dtype, op, loads), block_total(dtype, op)

    @jit(launch_bounds=MOST_THREADS)
    def vector(data, n, partials):
        """16-byte loads, warp shuffles; one partial a block."""
        total = fold_block(total_of(data, n))
        if cuda.threadIdx.x == 0:
            partials[cuda.blockIdx.x] = total

    return vector


@functools.cache
def tile(dtype: str, op: str = "sum", loads: int = 4) -> Any:
    """Kernel ``(data, n, partials)``: one block that holds all elements at once, so that nothing
    loops. After an L2 flush each line of code comes from DRAM: short code starts sooner."""
    join, places = combine(dtype, op), width(dtype)
    fold, fold_block = fold_tuple(dtype, op, loads * places), block_total(dtype, op)
    load_all = gather(dtype, op, loads, guarded=True)

    @jit(launch_bounds=MOST_THREADS)
    def tile(data, n, partials):
        """Every element in flight at once, warp shuffles; one block, nothing loops."""
        thread = cuda.threadIdx.x
        total = fold(load_all(data, places * thread, places * cuda.blockDim.x, n))
        tail = (n & -places) + thread
        if tail < n:  # the few elements after the last whole 16 bytes
            total = join(total, data[tail])
        total = fold_block(total)
        if thread == 0:
            partials[0] = total

    return tile


@functools.cache
def block_atomics(dtype: str, op: str = "sum", loads: int = 4) -> Any:
    """Kernel ``(data, n, result)``: each block adds its total to `result[0]`, which holds the
    identity before the launch. The order of the blocks, and so the rounding, changes from launch
    to launch."""
    if op != "sum":
        raise ValueError(f"block_atomics sums; there is no '{op}'")
    total_of, fold_block = thread_total(dtype, op, loads), block_total(dtype, op)

    @jit(launch_bounds=MOST_THREADS)
    def block_atomics(data, n, result):
        """16-byte loads, warp shuffles; one atomic addition a block."""
        total = fold_block(total_of(data, n))
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(result, 0, total)

    return block_atomics


def _take_ticket(counter: Any, index: int, last: int) -> Any:
    ticket = counter[index]
    counter[index] = 0 if ticket >= last else ticket + 1
    return ticket


take_ticket = assembly(
    "take_ticket",
    "atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;",
    KINDS["u32"],
    (Element(KINDS["u32"]), Value(KINDS["u32"])),
    _take_ticket,
    summary="""Count up and fence: ``f(counter, index, last)``, the count before.

After `last` the counter is 0 again. Release: what this thread wrote before is visible to
whoever takes a later ticket (acquire), the two halves of a `threadfence` on either side of the
atomic (PTX ISA, memory consistency model).""",
    memory=True,
)


@functools.cache
def last_block(dtype: str, op: str = "sum", loads: int = 4) -> Any:
    """Kernel ``(data, n, partials, counter, result)``: the block that is done last adds up the
    partials of all, so that one launch does everything.

    `counter` (uint32, one element) is 0 before the first launch, and after each: the ticket wraps.
    """
    total_of, fold_block = thread_total(dtype, op, loads), block_total(dtype, op)
    join, nothing, read = combine(dtype, op), identity(dtype, op), _read_l2(dtype)

    @jit(launch_bounds=MOST_THREADS)
    def last_block(data, n, partials, counter, result):
        """16-byte loads, warp shuffles; the last block finishes in the same launch."""
        thread, blocks = cuda.threadIdx.x, cuda.gridDim.x
        total = fold_block(total_of(data, n))
        if blocks == 1:
            if thread == 0:
                result[0] = total
            return
        last = 0
        if thread == 0:
            partials[cuda.blockIdx.x] = total
            last = int(take_ticket(counter, 0, blocks - 1) == blocks - 1)
        if cuda.syncthreads_or(last):
            total = nothing
            i = thread
            while i < blocks:
                total = join(total, read(partials, i))
                i += cuda.blockDim.x
            total = fold_block(total)
            if thread == 0:
                result[0] = total

    return last_block


@functools.cache
def grid_sync(dtype: str, op: str = "sum", loads: int = 4) -> Any:
    """Kernel ``(data, n, partials, result)``, launched cooperatively: a barrier over the grid,
    then the first block adds up the partials. The grid must be resident as a whole."""
    total_of, fold_block = thread_total(dtype, op, loads), block_total(dtype, op)
    join, nothing, read = combine(dtype, op), identity(dtype, op), _read_l2(dtype)

    @jit(launch_bounds=MOST_THREADS)
    def grid_sync(data, n, partials, result):
        """16-byte loads, warp shuffles; the first block finishes after a grid-wide barrier."""
        thread = cuda.threadIdx.x
        total = fold_block(total_of(data, n))
        if thread == 0:
            partials[cuda.blockIdx.x] = total
        cuda.cg.this_grid().sync()
        if cuda.blockIdx.x == 0:
            # The grid's barrier holds the block's, but racecheck cannot see it, and the shared
            # elements of the first fold are used again.
            cuda.syncthreads()
            total = nothing
            i = thread
            while i < cuda.gridDim.x:
                total = join(total, read(partials, i))
                i += cuda.blockDim.x
            total = fold_block(total)
            if thread == 0:
                result[0] = total

    return grid_sync


def _read_l2(dtype: str) -> Any:
    """A load that passes L1 by: other blocks have just written what it reads."""
    return load(PTX_KIND[dtype].name, 1, "cg")
