"""numba, the driver and cuda.core as they are where the stand-in GPU is, for one test."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from math import prod
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.kernels.stand_in import Gpu, Launched, Loaded, Overload, Refused
from tests.kernels.stand_in_arrays import STREAM

if TYPE_CHECKING:
    import pytest

GREEN_STEP = 8
"""SMs that the driver sets apart at once on compute capability 9.0 (`kernels.green`)."""


class NumbaStream:
    """A stream of numba's."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, STREAM

    def __int__(self) -> int:
        return STREAM


class Stream:
    """A stream of cuda.core's."""

    handle = STREAM

    @staticmethod
    def from_handle(handle: int) -> Stream:
        assert handle == STREAM
        return Stream()


DEVICE_CACHES = (
    "kernels.cluster:_loaded",
    "kernels.compat:_core_stream",
    "kernels.green:partition",
    "kernels.peers:_compiled",
    "kernels.reduction_cluster:load",
)
"""What keeps something that belongs to a device."""


def install(patch: pytest.MonkeyPatch) -> Gpu:
    """Put a GPU in the place of numba's, CuPy's and cuda.core's until `patch` is undone."""
    gpu = Gpu()
    _play_numba(gpu, patch)
    _play_driver(gpu, patch)
    _play_core(gpu, patch)
    forget()
    return gpu


def forget() -> None:
    """Nothing of this device may stay in a cache, nor of another one come out of it."""
    for place in DEVICE_CACHES:
        module, name = place.split(":")
        getattr(importlib.import_module(module), name).cache_clear()


def _play_numba(gpu: Gpu, patch: pytest.MonkeyPatch) -> None:
    from numba import cuda
    from numba.cuda.core.sigutils import normalize_signature
    from numba.cuda.cudadrv import driver as numba_driver
    from numba.cuda.dispatcher import CUDADispatcher

    from kernels import overload, shared_memory

    def compile_for(function: Any, signature: Any) -> Overload:
        return gpu.overload(function, normalize_signature(signature)[0])

    def call(function: Any, arguments: tuple[Any, ...], config: Any) -> None:
        taken = function.py_func.__code__.co_argcount
        if len(arguments) != taken:
            raise TypeError(f"{function.__name__} takes {taken} arguments, not {len(arguments)}")
        launched = Launched(function, config.griddim, config.blockdim, config.sharedmem, arguments)
        found = gpu.overload(function, launched.types)
        grid, block = prod(launched.grid), launched.block
        if found.cooperative and grid > found.max_cooperative_grid_blocks(
            prod(block), launched.dynamic_smem
        ):
            raise Refused(f"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: a grid of {grid} blocks")
        gpu.launch(launched, found.loaded)

    def attribute(name: str) -> Any:
        return gpu.device["attributes"][name.lower()]

    class Device:
        id = 0
        compute_capability = gpu.machine.cc

        def __getattr__(self, name: str) -> Any:
            return attribute(name)

    context = SimpleNamespace(
        device=Device(),
        get_memory_info=lambda: SimpleNamespace(total=gpu.device["memory_bytes"]),
        get_active_blocks_per_multiprocessor=lambda loaded, block, dynamic_smem: gpu.active_blocks(
            next(one for one in gpu.overloads.values() if one.loaded is loaded), block, dynamic_smem
        ),
    )
    patch.setattr(CUDADispatcher, "compile", compile_for)
    patch.setattr(CUDADispatcher, "call", call)
    patch.setattr(numba_driver, "_to_core_stream", lambda stream: stream)
    patch.setattr(cuda, "get_current_device", Device)
    patch.setattr(cuda, "current_context", lambda: context)
    patch.setattr(cuda, "external_stream", lambda handle: NumbaStream())
    patch.setattr(cuda, "synchronize", lambda: None)
    for module in (overload, shared_memory):
        patch.setattr(module, "driver_function", lambda compiled: compiled.loaded)


def _play_driver(gpu: Gpu, patch: pytest.MonkeyPatch) -> None:
    """What `kernels.shared_memory` and `kernels.green` ask of the driver."""
    from cuda.bindings import driver

    def set_attribute(attribute: Any, value: int, kernel: Loaded, device: Any) -> tuple[Any]:
        assert isinstance(value, int)
        assert int(device) == 0
        result = driver.CUresult
        return (
            result.CUDA_SUCCESS
            if kernel.set(attribute, value)
            else result.CUDA_ERROR_INVALID_VALUE,
        )

    def some(sms: int) -> Any:
        return SimpleNamespace(sm=SimpleNamespace(smCount=sms))

    def split(groups: int, whole: Any, flags: int, least: int) -> tuple[Any, ...]:
        sms = -(-least // GREEN_STEP) * GREEN_STEP
        return [some(sms)] * groups, groups, some(whole.sm.smCount - groups * sms)

    answers: dict[str, Callable[..., tuple[Any, ...]]] = {
        "cuDeviceGetDevResource": lambda device, kind: (some(gpu.machine.sms),),
        "cuDevSmResourceSplitByCount": split,
        "cuDevResourceGenerateDesc": lambda resources, count: ("description",),
        "cuGreenCtxCreate": lambda description, device, flags: ("context",),
        "cuGreenCtxStreamCreate": lambda context, flags, priority: (STREAM,),
        "cuCtxFromGreenCtx": lambda context: ("context",),
        "cuCtxPushCurrent": lambda context: (),
        "cuCtxPopCurrent": lambda: ("context",),
        "cuEventCreate": lambda flags: ("event",),
        "cuEventRecord": lambda event, stream: (),
        "cuStreamWaitEvent": lambda stream, event, flags: (),
    }

    def good(answer: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
        return lambda *arguments: (driver.CUresult.CUDA_SUCCESS, *answer(*arguments))

    patch.setattr(driver, "cuKernelSetAttribute", set_attribute)
    for name, answer in answers.items():
        patch.setattr(driver, name, good(answer))


def _play_core(gpu: Gpu, patch: pytest.MonkeyPatch) -> None:
    """cuda.core, its compiler the real one."""
    from cuda import core

    real_program, real_code = core.Program, core.ObjectCode

    class Kernel(Loaded):
        @property
        def occupancy(self) -> Any:
            def max_active_clusters(config: Any, stream: Any) -> int:
                self.refuse(config.shmem_size)
                return gpu.machine.sms // config.cluster

            return SimpleNamespace(max_active_clusters=max_active_clusters)

    class ObjectCode:
        def __init__(self, code: bytes) -> None:
            self.code = code

        from_cubin = staticmethod(lambda code: ObjectCode(code))
        from_ptx, from_library = real_code.from_ptx, real_code.from_library

        def get_kernel(self, name: str) -> Kernel:
            static_smem = gpu.static_smem(self.code, name)
            return Kernel(gpu, lambda: static_smem)

    class Program:
        def __init__(self, source: str, language: str, options: Any) -> None:
            self.program = real_program(source, language, options)

        def compile(self, target: str) -> ObjectCode:
            return ObjectCode(bytes(self.program.compile(target).code))

    class LaunchConfig:
        """`grid` counts clusters where there are some."""

        def __init__(
            self, grid: int, block: int, cluster: int | None = None, shmem_size: int = 0
        ) -> None:
            self.grid, self.block = grid, block
            self.cluster, self.shmem_size = cluster, shmem_size

    class Graph:
        def upload(self, stream: Stream) -> None:
            assert stream.handle == STREAM

        launch = upload

    class GraphBuilder:
        def begin_building(self) -> None: ...

        def end_building(self) -> GraphBuilder:
            return self

        def complete(self) -> Graph:
            return Graph()

    class Device:
        def __init__(self, device_id: int = 0) -> None:
            self.device_id, self.compute_capability = device_id, gpu.machine.cc
            self.default_stream = Stream()

        def set_current(self) -> None: ...
        def sync(self) -> None: ...

        def create_graph_builder(self) -> GraphBuilder:
            return GraphBuilder()

    def launch(stream: Any, config: LaunchConfig, kernel: Kernel, *arguments: Any) -> None:
        # The library takes foreign streams, and warns that it will not for ever.
        assert isinstance(stream, Stream | GraphBuilder)
        wrong = [value for value in arguments if not isinstance(value, np.generic)]
        if wrong:
            raise TypeError(f"cuda.core takes no {type(wrong[0]).__name__} as it is")
        shape = (config.grid * (config.cluster or 1), 1, 1), (config.block, 1, 1)
        gpu.launch(Launched(None, *shape, config.shmem_size, arguments), kernel)

    for played in (Device, LaunchConfig, ObjectCode, Program, Stream, launch):
        _plays(played, getattr(core, played.__name__))
        patch.setattr(core, played.__name__, played)
    for played in (Graph, GraphBuilder):
        _plays(played, getattr(core.graph, played.__name__))


def _plays(played: Any, real: Any) -> None:
    """The name of everything that is called here must be one of the library's own."""
    for name in vars(played):
        assert name.startswith("_") or hasattr(real, name), f"{real.__name__} has no {name}"
