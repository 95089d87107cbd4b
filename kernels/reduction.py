"""Reductions: the course's variants in its order, each a step from the one before.

The kernels are in reduction_tree (shared memory), reduction_warp (shuffles, 16-byte loads and
finishes) and reduction_cluster, their launches in reduction_launches, other libraries in
reduction_peers. `reduce_array` is for callers outside: docs/reductions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels import compat, reduction_cluster, reduction_peers, reduction_problem
from kernels import reduction_launches as launches
from kernels import reduction_tree as tree
from kernels import reduction_warp as warp
from kernels.reduction_launches import Assemble
from kernels.spec import Bound, Family, Kernel, Machine, Params, Unavailable

Source = Callable[[str], Any]
"""The kernel for a dtype."""


def _kernel(
    name: str,
    summary: str,
    assemble: Assemble,
    make: Source | None,
    examples: tuple[Params, ...],
    signature: str = "void(T, int64, T)",
    dtypes: tuple[str, ...] = ("float32",),
    **more: Any,
) -> Kernel:
    """`make` is None where nothing is numba's; `signature` holds ``T`` for an array of a dtype,
    one of `dtypes`: what is compiled for every architecture."""

    def bind(params: Params, machine: Machine) -> Bound:
        return assemble(reduction_problem.from_params(params, machine), params, machine)

    ASSEMBLE[name] = assemble
    if make is None:
        return Kernel(name, summary, bind, examples, **more)
    compiled = tuple((make(dtype), signature.replace("T", f"{dtype}[::1]")) for dtype in dtypes)
    return Kernel(name, summary, bind, examples, make("float32"), compiled, **more)


ASSEMBLE: dict[str, Assemble] = {}
"""How each kernel that gives a result is launched, by its name."""


def _examples(*sizes: int, **params: Any) -> tuple[Params, ...]:
    floats = tuple({"n": n, "dtype": "float32", **params} for n in sizes)
    return (*floats, {**floats[-1], "dtype": "int32"}, {**floats[-1], "dtype": "float64"})


_TREE = _examples(0, 31, 100, block=32)
_STRIDE = _examples(0, 31, 100, block=32, blocks_per_sm=1)
_WIDE = _examples(0, 33, 1023, block=64, blocks_per_sm=1, items=4)
_PUBLISHED = _examples(1023, block=256, blocks_per_sm=1)


def _fixed(function: Any) -> Source:
    """One function serves every dtype."""
    return lambda dtype: function


def _one_a_thread(block: int) -> int:
    return block


def _one_a_warp(block: int) -> int:
    return warp.WARPS


KERNELS = (
    _kernel(
        "interleaved_divergent",
        "Tree in shared memory, neighbours first; the adding threads lie ever farther apart",
        launches.shrinking(tree.interleaved_divergent, 1),
        _fixed(tree.interleaved_divergent),
        _TREE,
    ),
    _kernel(
        "interleaved",
        "The same pairs added by the first threads: no divergence, but bank conflicts",
        launches.shrinking(tree.interleaved, 1),
        _fixed(tree.interleaved),
        _TREE,
    ),
    _kernel(
        "sequential",
        "Upper half added to lower half: no bank conflicts",
        launches.shrinking(tree.sequential, 1),
        _fixed(tree.sequential),
        _TREE,
    ),
    _kernel(
        "first_add",
        "First addition while loading: half as many blocks",
        launches.shrinking(tree.first_add, 2),
        _fixed(tree.first_add),
        _TREE,
    ),
    _kernel(
        "reduce4_as_published",
        "The course's reduce4, guards and barriers as published: blocks of 256 to 512 only",
        launches.grid_stride(launches.published, _one_a_thread),
        _fixed(tree.reduce4_as_published),
        _PUBLISHED,
    ),
    _kernel(
        "reduce4",
        "reduce4 corrected: grid-stride sum in shared memory, any block of whole warps",
        launches.grid_stride(launches.summing(tree.reduce4), _one_a_thread),
        _fixed(tree.reduce4),
        _STRIDE,
    ),
    _kernel(
        "register_sum",
        "reduce4 with the running sum in a register",
        launches.grid_stride(launches.summing(tree.register_sum), _one_a_thread),
        _fixed(tree.register_sum),
        _STRIDE,
    ),
    _kernel(
        "unrolled",
        "Tree completely unrolled for one block size",
        launches.grid_stride(launches.unrolled, _one_a_thread),
        _fixed(tree.unrolled(launches.BLOCK)),
        _STRIDE,
    ),
    _kernel(
        "shuffle",
        "Warp shuffles instead of the tree: one shared element a warp",
        launches.grid_stride(
            lambda problem, block: warp.shuffle(problem.dtype, problem.op), _one_a_warp
        ),
        warp.shuffle,
        _STRIDE,
    ),
    _kernel(
        "vector_shuffle",
        "16-byte loads, several in flight, and warp shuffles; a second launch finishes",
        launches.vector,
        warp.vector,
        _WIDE,
    ),
    _kernel(
        "one_block",
        "Every element in flight at once on a single block: nothing to loop, nothing to finish",
        launches.one_block,
        warp.tile,
        _examples(0, 1, 1023),
    ),
    _kernel(
        "block_atomics",
        "16-byte loads; one atomic addition a block, after a memset",
        launches.block_atomics,
        warp.block_atomics,
        _WIDE,
    ),
    _kernel(
        "last_block",
        "16-byte loads; the last block done finishes in the same launch",
        launches.last_block,
        warp.last_block,
        (*_WIDE, {"n": 1023, "dtype": "float32", "block": 64, "items": 8, "op": "max"}),
        "void(T, int64, T, uint32[::1], T)",
        tuple(warp.PTX_KIND),
    ),
    _kernel(
        "grid_sync",
        "16-byte loads; the first block finishes after a grid-wide barrier",
        launches.grid_sync,
        warp.grid_sync,
        _WIDE,
        "void(T, int64, T, T)",
        simulator="the simulator runs blocks one after another, so none can wait for the others",
    ),
    _kernel(
        "cluster",
        "16-byte loads; totals cross a cluster's blocks through distributed shared memory",
        launches.clusters,
        None,
        _WIDE,
        source=reduction_cluster.load,
        simulator="the simulator has no clusters",
    ),
    _kernel(
        "reduce4_outside",
        "reduce4 as published with 1024 threads a block: the share of the sum it loses",
        launches.outside_range,
        _fixed(tree.reduce4_as_published),
        ({"n": 1024, "dtype": "float32", "block": 1024},),
    ),
    _kernel(
        "cub",
        "CUB's DeviceReduce through CuPy",
        reduction_peers.cub,
        None,
        _examples(1, 1023),
        source=reduction_peers.cub,
        peer=True,
        simulator="other libraries need a GPU",
    ),
    _kernel(
        "numba_reduce",
        "numba's cuda.reduce",
        reduction_peers.numba_reduce,
        None,
        _examples(1, 1023),
        source=reduction_peers.numba_reduce,
        peer=True,
        simulator="other libraries need a GPU",
    ),
)

# It shows what is lost, and never joins its blocks' sums to a result.
del ASSEMBLE["reduce4_outside"]

FAMILY = Family("reduction", "Sum (or maximum) of an array: the course's variants", KERNELS)


def reduce_array(array: Any, op: str = "sum", kernel: str = "last_block") -> Any:
    """The sum or the maximum of a device array, by one of the kernels above.

    Args:
        array: CuPy array (NumPy in the simulator) of float32, float64 or int32, of any shape,
            contiguous. Kernels with 16-byte loads want it to start on a multiple of 16 bytes, as
            every allocation does.
        op: "sum" or "max"; int32 sums wrap around.
        kernel: A name of this family but `reduce4_outside`, which gives no result. Those that
            stand before `shuffle`, and `block_atomics` and `cluster`, only sum.

    Returns:
        A Python number. Without elements, 0 or the least value of the type.

    Raises:
        ValueError: an array, an op or a kernel that does not fit; the message says what would.
        Unavailable: a kernel that this machine cannot run.
    """
    from numba import cuda

    if kernel not in ASSEMBLE:
        raise ValueError(f"no kernel '{kernel}': there are {', '.join(ASSEMBLE)}")
    if compat.SIMULATOR and FAMILY[kernel].simulator:
        raise Unavailable(FAMILY[kernel].simulator)
    machine = _this_machine()
    problem = reduction_problem.of(array, op, machine)
    bound = ASSEMBLE[kernel](problem, {}, machine)
    cuda.synchronize()  # whatever wrote the array, on whichever stream
    stream = cuda.stream()
    bound.queue(stream)
    stream.synchronize()
    return problem.result[0].item()


def _this_machine() -> Machine:
    """The current device, as far as launches depend on it."""
    xp = compat.array_module()
    if compat.SIMULATOR:
        return Machine((9, 0), 4, 2048, 32, 1 << 22, 1 << 30, xp, simulator=True)
    from numba import cuda

    device = cuda.get_current_device()
    return Machine(
        cc=device.compute_capability,
        sms=device.MULTIPROCESSOR_COUNT,
        max_threads_per_sm=device.MAX_THREADS_PER_MULTIPROCESSOR,
        max_blocks_per_sm=device.MAX_BLOCKS_PER_MULTIPROCESSOR,
        l2_bytes=device.L2_CACHE_SIZE,
        memory_bytes=cuda.current_context().get_memory_info().total,
        xp=xp,
    )
