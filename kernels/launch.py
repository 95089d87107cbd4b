"""Launching: an empty kernel by every road, grids of any size, and what the driver refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import cuda

from kernels import late_error, ptx
from kernels.compat import argument, core_stream, cupy_stream, jit
from kernels.cuda_c import compile_cubin
from kernels.graph import graph_of
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Queue, Work, WrongAnswer

THREADS = 32
ARRAY = 256
"""Elements of each array that a launch hands over; the kernel touches none."""

SOURCE = r"""
extern "C" __global__ void empty() { }
extern "C" __global__ void two_arrays(float* x, float* y) { }
"""


@jit
def empty():
    """Nothing."""


@jit
def two_arrays(x, y):
    """Nothing, with two arrays handed over."""


@jit
def mark(marks):
    """Each block leaves its mark: for the check that every block of a grid has run."""
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(marks, 0, 1)


@jit
def spin(nanoseconds, done):
    """One thread waits on the device: while it does, the launch has long returned."""
    start = ptx.globaltimer()
    while ptx.globaltimer() - start < nanoseconds:
        pass
    done[0] = ptx.globaltimer() - start


def _by_numba(pointers: list[Any]) -> Queue:
    function, arguments = (two_arrays, tuple(map(argument, pointers))) if pointers else (empty, ())

    def queue(stream: Any) -> None:
        function[1, THREADS, stream](*arguments)

    return queue


def _by_cupy(pointers: list[Any]) -> Queue:
    """The current stream is CuPy's way to choose one: setting it belongs to the launch."""
    import cupy

    kernel = cupy.RawKernel(SOURCE, "two_arrays" if pointers else "empty")
    arguments = tuple(pointers)

    def queue(stream: Any) -> None:
        with cupy_stream(stream):
            kernel((1,), (THREADS,), arguments)

    return queue


def _core(pointers: list[Any]) -> tuple[Any, Any, tuple[Any, ...]]:
    from cuda.core import Device, LaunchConfig

    code = compile_cubin(SOURCE, Device().compute_capability)
    kernel = code.get_kernel("two_arrays" if pointers else "empty")
    return (
        LaunchConfig(grid=1, block=THREADS),
        kernel,
        tuple(np.uint64(array.data.ptr) for array in pointers),
    )


def _by_cuda_core(pointers: list[Any]) -> Queue:
    """cuda.core's launch, its configuration made once."""
    from cuda.core import launch

    config, kernel, arguments = _core(pointers)

    def queue(stream: Any) -> None:
        launch(core_stream(stream), config, kernel, *arguments)

    return queue


def _by_graph(nodes: int) -> Queue:
    """A graph of so many empty kernels in a row, instantiated once, launched each time."""
    from cuda.core import launch

    config, kernel, arguments = _core([])

    def queue(builder: Any) -> None:
        for _ in range(nodes):
            launch(builder, config, kernel, *arguments)

    return graph_of(queue)


def _bind_road(make: Callable[[list[Any]], Queue], params: Params, machine: Machine) -> Bound:
    xp = machine.xp
    pointers = [xp.zeros(ARRAY, xp.float32) for _ in range(params["arguments"])]
    return _nothing(make(pointers))


def _bind_graph(params: Params, machine: Machine) -> Bound:
    return _nothing(_by_graph(params["nodes"]))


def _nothing(queue: Queue) -> Bound:
    return Bound(Launch.linear(1, THREADS), Work(), check=lambda: 0.0, queue=queue)


def _bind_blocks(params: Params, machine: Machine) -> Bound:
    """An empty grid; the check runs a grid of the same size whose blocks count themselves."""
    grid, block = params["grid"], params["block"]
    marks = machine.xp.zeros(1, machine.xp.int32)

    def check() -> float:
        mark[grid, block](argument(marks))
        cuda.synchronize()  # the count is read on another stream
        if int(marks[0]) != grid:
            raise WrongAnswer(f"{int(marks[0])} of {grid} blocks ran")
        return 0.0

    return Bound(
        Launch.linear(grid, block),
        Work(),
        check=check,
        poison=lambda: marks.fill(0),
        function=empty,
    )


def _bind_spin(params: Params, machine: Machine) -> Bound:
    nanoseconds = params["nanoseconds"]
    done = machine.xp.zeros(1, machine.xp.int64)

    def check() -> float:
        if int(done[0]) < nanoseconds:
            raise WrongAnswer(f"waited {int(done[0])} ns of {nanoseconds}")
        return 0.0

    return Bound(
        Launch.linear(1, 1),
        Work(),
        check=check,
        poison=lambda: done.fill(0),
        function=spin,
        arguments=(nanoseconds, argument(done)),
    )


LIMITS: dict[str, tuple[Launch, Launch]] = {
    "block_threads": (Launch.linear(1, 1024), Launch.linear(1, 1025)),
    "block_product": (Launch((1, 1, 1), (32, 32, 1)), Launch((1, 1, 1), (33, 32, 1))),
    "block_z": (Launch((1, 1, 1), (1, 1, 64)), Launch((1, 1, 1), (1, 1, 65))),
    "grid_y": (Launch((1, 65535, 1), (32, 1, 1)), Launch((1, 65536, 1), (32, 1, 1))),
}
"""The largest launch that is allowed and one more: CUDA C++ Programming Guide, table of technical
specifications by compute capability."""


def error_code(call: Callable[[], Any]) -> int:
    """The CUresult of a call that raises it by name, 0 where it raises nothing."""
    from cuda.bindings import driver

    try:
        call()
    except Exception as error:
        name = re.search(r"CUDA_ERROR_\w+", str(error))
        if name is None:
            raise
        return int(getattr(driver.CUresult, name.group()))
    return 0


def _bind_refused(params: Params, machine: Machine) -> Bound:
    allowed, beyond = LIMITS[params["limit"]]

    def reading() -> dict[str, float]:
        code = error_code(lambda: empty[beyond.grid, beyond.block]())
        return {"error_code": float(code)}

    return Bound(allowed, Work(), check=lambda: 0.0, function=empty, reading=reading)


def _bind_late_error(params: Params, machine: Machine) -> Bound:
    """The child runs once; what is timed beside it is an empty kernel of this process, which the
    error does not touch."""
    codes = late_error.ask(params["fault"])

    def check() -> float:
        if len(codes) != len(late_error.STEPS) or not any(codes):
            raise WrongAnswer(f"the kernel broke nothing: {codes}")
        return 0.0

    return Bound(
        Launch.linear(1, 1),
        Work(),
        check=check,
        function=empty,
        reading=lambda: {"error_codes": codes},
    )


_DRIVER = "it has no driver that launches"

FAMILY = Family(
    "launch",
    "what a launch costs the host and the device, and what is refused",
    (
        Kernel(
            "numba",
            "An empty kernel launched by numba",
            partial(_bind_road, _by_numba),
            examples=({"arguments": 0}, {"arguments": 2}),
            source=empty,
            compiled=((empty, "void()"), (two_arrays, "void(float32[::1], float32[::1])")),
        ),
        Kernel(
            "cupy",
            "An empty kernel launched by CuPy's RawKernel",
            partial(_bind_road, _by_cupy),
            examples=({"arguments": 0}, {"arguments": 2}),
            source=_by_cupy,
            simulator=_DRIVER,
        ),
        Kernel(
            "cuda_core",
            "An empty kernel launched by cuda.core",
            partial(_bind_road, _by_cuda_core),
            examples=({"arguments": 0}, {"arguments": 2}),
            source=_by_cuda_core,
            simulator=_DRIVER,
        ),
        Kernel(
            "graph",
            "Empty kernels in a row, launched as one CUDA graph",
            _bind_graph,
            examples=({"nodes": 1}, {"nodes": 4}),
            source=_by_graph,
            simulator=_DRIVER,
        ),
        Kernel(
            "blocks",
            "An empty grid: blocks dispatched a second",
            _bind_blocks,
            examples=({"grid": 1, "block": 32}, {"grid": 3, "block": 64}),
            source=empty,
            compiled=((mark, "void(int32[::1])"),),
        ),
        Kernel(
            "spin",
            "A kernel that waits on the device: the launch returns before it ends",
            _bind_spin,
            examples=({"nanoseconds": 10_000},),
            source=spin,
            compiled=((spin, "void(int64, int64[::1])"),),
        ),
        Kernel(
            "refused",
            "One thread or block more than is allowed: refused at the launch",
            _bind_refused,
            examples=tuple({"limit": limit} for limit in LIMITS),
            source=empty,
            simulator=_DRIVER,
        ),
        Kernel(
            "late_error",
            "An error inside a kernel: which call tells of it",
            _bind_late_error,
            examples=tuple({"fault": fault} for fault in late_error.FAULTS),
            source=late_error.codes,
            simulator="nothing can go wrong on a device there",
        ),
    ),
)
