"""How each reduction is launched: grids, scratch memory, and everything up to the final scalar.

What is queued ends with the scalar in device memory, second launch or memset included, so that
variants compare with each other and with other libraries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernels import cluster_launch as cluster
from kernels import reduction_cluster, reduction_problem
from kernels import reduction_tree as tree
from kernels import reduction_warp as warp
from kernels.compat import argument, queue_zero
from kernels.reduction_problem import Problem
from kernels.spec import Bound, Launch, Machine, Params, Work, scalar_error, whole_warps

BLOCK = 256
LOADS = 4
"""16-byte loads a thread has in flight."""
RESIDENT_THREADS = 1536
"""Threads an SM that the grids of the wide kernels fill: their 40 registers allow 1536 at once
(65,536 / 40), and a block that waits for a slot would end long after the others."""
ONE_BLOCK_BYTES = 1 << 16
"""Up to so much input one block is done sooner than many blocks and their finish."""

Assemble = Callable[[Problem, Params, Machine], Bound]


@dataclass(frozen=True)
class Step:
    """One launch of a numba kernel."""

    function: Any
    launch: Launch
    arguments: tuple[Any, ...]

    def queue(self, stream: Any) -> None:
        launch = self.launch
        self.function[launch.grid, launch.block, stream, launch.dynamic_smem](*self.arguments)


def work(problem: Problem) -> Work:
    """Bytes read and additions. The one scalar written is left out, so that a kernel that only
    reads finds clean lines in L2 and pays for nobody's writes."""
    return Work(bytes_read=problem.n * problem.itemsize, operations=max(problem.n - 1, 0))


def _bound(problem: Problem, machine: Machine, steps: list[Step], depth: int, **more: Any) -> Bound:
    """A reduction done by these launches, the first of which stands for it in the record."""

    def queue(stream: Any) -> None:
        for step in steps:
            step.queue(stream)

    more.setdefault("queue", queue)
    return Bound(
        launch=steps[0].launch,
        work=work(problem),
        check=lambda: reduction_problem.check(problem, depth, machine),
        poison=lambda: problem.result.fill(-77),
        function=steps[0].function,
        arguments=steps[0].arguments,
        **more,
    )


def _block(params: Params, default: int = BLOCK) -> int:
    return whole_warps(params.get("block", default))


def _wave(block: int, params: Params, machine: Machine, threads: int) -> int:
    """The most blocks of a grid: `blocks_per_sm`, or as many as `threads` an SM are."""
    per_sm = params.get("blocks_per_sm") or max(
        1, min(threads, machine.max_threads_per_sm) // block
    )
    return per_sm * machine.sms


# --- One partial a block, and the same kernel again until one is left. ---


def _passes(
    problem: Problem, machine: Machine, block: int, smem: int, grids: list[int], function: Any
) -> Bound:
    """One launch for each of `grids`, the last of which is 1."""
    steps, passes = [], []
    source, n = problem.data, problem.n
    for grid in grids:
        target = problem.result if grid == 1 else machine.xp.empty(grid, problem.dtype)
        arguments = (argument(source), n, argument(target))
        steps.append(Step(function, Launch.linear(grid, block, smem), arguments))
        passes.append((n, grid))
        source, n = target, grid
    return _bound(problem, machine, steps, reduction_problem.depth(passes, block))


def shrinking(function: Any, elements: int) -> Assemble:
    """`elements` a thread, so that each pass leaves 1 / (block * elements) of the values; a sum."""

    def assemble(problem: Problem, params: Params, machine: Machine) -> Bound:
        _require_sum(problem)
        block = _block(params)
        if block & (block - 1):
            raise ValueError(f"{block} threads a block: this tree needs a power of two")
        grids, n = [], problem.n
        while not grids or grids[-1] > 1:
            n = max(1, math.ceil(n / (block * elements)))
            grids.append(n)
        return _passes(problem, machine, block, block * problem.itemsize, grids, function)

    return assemble


def grid_stride(make: Callable[[Problem, int], Any], smem: Callable[[int], int]) -> Assemble:
    """One element a thread and turn, on as many blocks as the SMs hold; then one block."""

    def assemble(problem: Problem, params: Params, machine: Machine) -> Bound:
        block = _block(params)
        function = make(problem, block)
        most = _wave(block, params, machine, machine.max_threads_per_sm)
        grid = max(1, min(most, math.ceil(problem.n / block)))
        grids = [grid, 1] if grid > 1 else [1]
        return _passes(problem, machine, block, smem(block) * problem.itemsize, grids, function)

    return assemble


def _require_sum(problem: Problem) -> None:
    if problem.op != "sum":
        raise ValueError(f"this variant sums; there is no '{problem.op}'")


def summing(function: Any) -> Callable[[Problem, int], Any]:
    """`function` for any block. ValueError: another op than a sum."""

    def make(problem: Problem, block: int) -> Any:
        _require_sum(problem)
        return function

    return make


def published(problem: Problem, block: int) -> Any:
    """The course's kernel. ValueError: no sum, or a block outside 256 to 512 threads."""
    _require_sum(problem)
    if not 256 <= block <= 512:
        raise ValueError(f"{block} threads a block: as published it is right for 256 to 512 only")
    return tree.reduce4_as_published


def unrolled(problem: Problem, block: int) -> Any:
    """The tree unrolled for `block` threads. ValueError: no sum, or no power of two."""
    _require_sum(problem)
    if block & (block - 1):
        raise ValueError(f"{block} threads a block: the unrolled tree needs a power of two")
    return tree.unrolled(block)


# --- 16-byte loads: a grid chosen by n, then one of the finishes. ---


@dataclass(frozen=True)
class Shape:
    """The launch of a kernel with 16-byte loads."""

    grid: int
    block: int
    loads: int

    def launch(self, itemsize: int) -> Launch:
        return Launch.linear(self.grid, self.block, warp.WARPS * itemsize)


def shape(problem: Problem, params: Params, machine: Machine) -> Shape:
    """Few elements go to one block, just large enough; more to `block` threads with `items`
    elements each, on at most `blocks_per_sm` blocks an SM.

    Raises:
        ValueError: `items` that are not a whole number of 16-byte loads, or data that does not
            start on 16 bytes.
    """
    places = warp.width(problem.dtype)
    items = params.get("items", LOADS * places)
    if items % places or items < places:
        raise ValueError(f"{items} items: a multiple of {places} {problem.dtype} is needed")
    _require_aligned(problem.data)
    chosen = {"block", "blocks_per_sm", "items"} & set(params)
    if not chosen and problem.n * problem.itemsize <= ONE_BLOCK_BYTES:
        return _one_block(problem, items // places)
    block = _block(params)
    most = _wave(block, params, machine, RESIDENT_THREADS)
    grid = max(1, min(most, math.ceil(problem.n / (block * items))))
    return Shape(grid, block, items // places)


def _one_block(problem: Problem, loads: int) -> Shape:
    """As many warps as give each thread `loads` loads: more would cost more to start and to join
    than they save (n = 4096: 8 warps of 4 loads a thread beat 32 warps of one)."""
    warps = math.ceil(problem.n / warp.width(problem.dtype) / 32 / loads)
    return Shape(1, 32 * min(max(warps, 1), 32), loads)


def _require_aligned(data: Any) -> None:
    address = data.data.ptr if hasattr(data.data, "ptr") else data.ctypes.data
    if data.size and address % warp.VECTOR_BYTES:
        raise ValueError("the array does not start on a multiple of 16 bytes: pass a copy")


def vector(problem: Problem, params: Params, machine: Machine) -> Bound:
    """One partial a block, then one block over the partials. ValueError: as `shape`."""
    chosen = shape(problem, params, machine)
    function = warp.vector(problem.dtype, problem.op, chosen.loads)
    grids = [chosen.grid, 1] if chosen.grid > 1 else [1]
    smem = warp.WARPS * problem.itemsize
    return _passes(problem, machine, chosen.block, smem, grids, function)


def one_block(problem: Problem, params: Params, machine: Machine) -> Bound:
    """One block of up to 1024 threads, which loops only over more than it holds in registers.

    Raises:
        ValueError: data that does not start on 16 bytes.
    """
    _require_aligned(problem.data)
    chosen = _one_block(problem, LOADS)
    held = chosen.block * chosen.loads * warp.width(problem.dtype)
    make = warp.tile if problem.n <= held else warp.vector
    function = make(problem.dtype, problem.op, chosen.loads)
    smem = warp.WARPS * problem.itemsize
    return _passes(problem, machine, chosen.block, smem, [1], function)


def block_atomics(problem: Problem, params: Params, machine: Machine) -> Bound:
    """The result zeroed, then one atomic addition a block. ValueError: as `shape`."""
    chosen = shape(problem, params, machine)
    function = warp.block_atomics(problem.dtype, problem.op, chosen.loads)
    arguments = (argument(problem.data), problem.n, argument(problem.result))
    step = Step(function, chosen.launch(problem.itemsize), arguments)

    def queue(stream: Any) -> None:
        queue_zero(problem.result, stream)
        step.queue(stream)

    depth = reduction_problem.depth([(problem.n, chosen.grid)], chosen.block) + chosen.grid
    return _bound(problem, machine, [step], depth, queue=queue)


def _one_launch(
    problem: Problem, machine: Machine, chosen: Shape, function: Any, *middle: Any
) -> Bound:
    """A kernel ``(data, n, partials, *middle, result)`` that finishes by itself."""
    partials = machine.xp.empty(chosen.grid, problem.dtype)
    arrays = (*map(argument, (partials, *middle, problem.result)),)
    arguments = (argument(problem.data), problem.n, *arrays)
    step = Step(function, chosen.launch(problem.itemsize), arguments)
    passes = [(problem.n, chosen.grid), (chosen.grid, 1)]
    return _bound(problem, machine, [step], reduction_problem.depth(passes, chosen.block))


def last_block(problem: Problem, params: Params, machine: Machine) -> Bound:
    """One launch; the block that is counted last joins the partials. ValueError: as `shape`."""
    chosen = shape(problem, params, machine)
    function = warp.last_block(problem.dtype, problem.op, chosen.loads)
    counter = machine.xp.zeros(1, "uint32")
    return _one_launch(problem, machine, chosen, function, counter)


def grid_sync(problem: Problem, params: Params, machine: Machine) -> Bound:
    """One cooperative launch of at most as many blocks as are resident at once.

    Raises:
        ValueError: as `shape`.
    """
    chosen = shape(problem, params, machine)
    function = warp.grid_sync(problem.dtype, problem.op, chosen.loads)
    bound = _one_launch(problem, machine, chosen, function)
    most = bound.overload().max_cooperative_grid_blocks(chosen.block, bound.launch.dynamic_smem)
    if chosen.grid <= most:
        return bound
    return _one_launch(problem, machine, Shape(most, chosen.block, chosen.loads), function)


def clusters(problem: Problem, params: Params, machine: Machine) -> Bound:
    """One launch of clusters of `cluster` blocks, at most as many as are resident at once.

    Raises:
        ValueError: as `shape`, or an op that is not a sum.
        Unavailable: the device has no clusters, or none of this size.
    """
    cluster.require(machine)
    _require_sum(problem)
    chosen = shape(problem, {"block": BLOCK, **params}, machine)
    size = params.get("cluster", cluster.PORTABLE_SIZE)
    kernel = reduction_cluster.load(problem.dtype, chosen.loads, machine.cc, size, chosen.block)
    clusters = max(1, min(kernel.max_active_clusters, math.ceil(chosen.grid / size)))
    partials = machine.xp.empty(clusters, problem.dtype)
    counter = machine.xp.zeros(1, "uint32")
    passes = [(problem.n, clusters * size), (clusters, 1)]
    # Between the two, one addition after the other over the blocks of a cluster at worst.
    depth = reduction_problem.depth(passes, chosen.block) + size

    def queue(stream: Any) -> None:
        kernel.launch(stream, clusters, problem.data, problem.n, partials, counter, problem.result)

    return Bound(
        launch=Launch((clusters * size, 1, 1), (chosen.block, 1, 1), cluster=size),
        work=work(problem),
        check=lambda: reduction_problem.check(problem, depth, machine),
        poison=lambda: problem.result.fill(-77),
        queue=queue,
    )


# --- What the published version does outside its range. ---

KEPT = 512
"""Threads of a block whose sums the published steps reach."""


def outside_range(problem: Problem, params: Params, machine: Machine) -> Bound:
    """One launch with any block of 256 threads and more; the share of the sum that is lost."""
    block = _block(params, 1024)
    if block < 256 or problem.n % block or problem.dtype == "int32":
        raise ValueError("256 threads a block at least, n a multiple of them, and floats")
    grid = min(machine.sms, problem.n // block)
    partials = machine.xp.empty(grid, problem.dtype)
    arguments = (argument(problem.data), problem.n, argument(partials))
    smem = block * problem.itemsize
    step = Step(tree.reduce4_as_published, Launch.linear(grid, block, smem), arguments)
    depth = reduction_problem.depth([(problem.n, grid)], block)

    def found() -> float:
        return float(partials.sum(dtype="float64"))

    def check() -> float:
        reached = problem.data.reshape(-1, block)[:, :KEPT].sum(dtype="float64")
        return scalar_error(
            found(), float(reached), reduction_problem.tolerance(depth, problem.dtype)
        )

    def reading() -> dict[str, float | list[float]]:
        whole = float(problem.data.sum(dtype="float64"))
        return {"lost_share": 1 - found() / whole}

    return Bound(
        launch=step.launch,
        work=work(problem),
        check=check,
        function=step.function,
        arguments=step.arguments,
        poison=lambda: partials.fill(-77),
        reading=reading,
    )
