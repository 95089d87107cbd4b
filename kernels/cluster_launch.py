"""CUDA C kernels launched in clusters of blocks, through cuda.core.

numba and CuPy cannot give cluster dimensions at a launch. A cluster's blocks are resident
together on one GPC, read each other's shared memory and have a barrier of their own. Needs
compute capability 9.0.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.compat import core_stream
from kernels.spec import Machine, Unavailable

FIRST_CC = (9, 0)
PORTABLE_SIZE = 8
"""Blocks a cluster may have on every GPU with clusters (CUDA programming guide, Thread Block
Clusters); more must be allowed kernel by kernel."""
LARGEST_SIZE = 16
STATIC_SMEM_LIMIT = 48 * 1024
"""Dynamic shared memory over this many bytes must be allowed kernel by kernel (the same guide)."""


def require(machine: Machine) -> None:
    """Raises Unavailable with the reason where there are no clusters."""
    if machine.simulator:
        raise Unavailable("numba's simulator has no clusters; a GPU of cc 9.0 or later has")
    if machine.cc < FIRST_CC:
        major, minor = machine.cc
        raise Unavailable(f"clusters need cc 9.0, this GPU is {major}.{minor}")


def driver_error() -> type[Exception]:
    """What cuda.core raises where the driver refuses; cuda-core 1.2 gives it no public name."""
    from cuda.core._utils.cuda_utils import CUDAError

    return CUDAError


class ClusterKernel:
    """One loaded kernel of the current device, launched in clusters of `size` blocks."""

    def __init__(
        self,
        code: Any,
        name: str,
        size: int,
        block: int,
        dynamic_smem: int = 0,
        permitted: bool = True,
    ) -> None:
        """
        Args:
            code: What `kernels.cuda_c.compile_cubin` returned.
            size: Blocks a cluster, 1 to 16; more than 8 is not portable.
            block: Threads a block.
            dynamic_smem: Bytes a block.
            permitted: Whether to ask for leave where the size is not portable.

        Raises:
            ValueError: a size outside 1 to 16.
            Unavailable: the device cannot hold even one such cluster.
        """
        if not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"{size} blocks a cluster: 1 to {LARGEST_SIZE} can be had")
        from cuda.core import Device
        from numba import cuda

        self._device = Device(cuda.get_current_device().id)
        self._device.set_current()
        self.kernel = code.get_kernel(name)
        self.size, self.block, self.dynamic_smem = size, block, dynamic_smem
        if size > PORTABLE_SIZE and permitted:
            self._allow("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
        if dynamic_smem > STATIC_SMEM_LIMIT:
            self._allow("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", dynamic_smem)
        if self.max_active_clusters < 1:
            raise Unavailable(f"no {size} blocks of {block} threads fit one GPC at once")

    def _allow(self, attribute: str, value: int) -> None:
        from cuda.bindings import driver

        chosen = getattr(driver.CUfunction_attribute, attribute)
        device = driver.CUdevice(self._device.device_id)
        (status,) = driver.cuKernelSetAttribute(chosen, value, self.kernel.handle, device)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise Unavailable(f"the driver refuses {attribute} = {value}: {status.name}")

    @functools.cache  # noqa: B019 - a launch of the same shape is configured once
    def _config(self, clusters: int) -> Any:
        from cuda.core import LaunchConfig

        # Here `grid` counts clusters.
        return LaunchConfig(
            grid=clusters, cluster=self.size, block=self.block, shmem_size=self.dynamic_smem
        )

    @functools.cached_property
    def max_active_clusters(self) -> int:
        """Clusters that the device holds at once, by the driver's occupancy calculator."""
        occupancy = self.kernel.occupancy
        return int(
            occupancy.max_active_clusters(self._config(1), stream=self._device.default_stream)
        )

    def launch(self, stream: Any, clusters: int, *arguments: Any) -> None:
        """Queue `clusters` clusters on a numba stream (or 0, the default stream).

        Args:
            arguments: CuPy arrays (their address), NumPy scalars as they are, Python integers
                as 64-bit ones.
        """
        from cuda.core import launch

        config = self._config(clusters)
        launch(core_stream(stream), config, self.kernel, *map(_argument, arguments))


def _argument(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value
    return np.int64(value if isinstance(value, int) else value.data.ptr)
