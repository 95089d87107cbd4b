"""Other libraries' AXPY, measured beside ours. CuPy is imported when they bind."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from kernels.compat import core_stream, cupy_stream
from kernels.cuda_c import compile_cubin
from kernels.spec import Bound, Machine, Params, Queue, Work, relative_error

SOURCE = r"""
extern "C" __global__ void axpy_float4(long long n, float a, const float4* x, float4* y)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 4) {
        float4 u = x[i], v = y[i];
        v.x += a * u.x; v.y += a * u.y; v.z += a * u.z; v.w += a * u.w;
        y[i] = v;
    }
    if (i < n % 4) {
        long long j = n / 4 * 4 + i;
        ((float*)y)[j] += a * ((const float*)x)[j];
    }
}
extern "C" __global__ void axpy_double2(long long n, double a, const double2* x, double2* y)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n / 2) {
        double2 u = x[i], v = y[i];
        v.x += a * u.x; v.y += a * u.y;
        y[i] = v;
    }
    if (i == 0 && n % 2) ((double*)y)[n - 1] += a * ((const double*)x)[n - 1];
}
"""


@cache
def _compiled() -> tuple[Any, Any]:
    from cuda.core import Device

    code = compile_cubin(SOURCE, Device().compute_capability)
    return code.get_kernel("axpy_float4"), code.get_kernel("axpy_double2")


def _cublas(n: int, x: Any, y: Any, a: Any) -> Queue:
    from cupy.cuda import cublas as cublas_api
    from cupy.cuda import device

    handle = device.get_cublas_handle()
    alpha = np.array(a, x.dtype)  # read by the host at the call
    call = cublas_api.saxpy if x.dtype == np.float32 else cublas_api.daxpy

    def queue(stream: Any) -> None:
        with cupy_stream(stream):  # CuPy's binding sets cuBLAS' stream to the current
            call(handle, n, alpha.ctypes.data, x.data.ptr, 1, y.data.ptr, 1)

    return queue


def _cuda_float4(n: int, x: Any, y: Any, a: Any) -> Queue:
    from cuda.core import LaunchConfig, launch

    single, double = _compiled()
    kernel, width = (single, 4) if x.dtype == np.float32 else (double, 2)
    config = LaunchConfig(grid=max(1, -(-(n // width) // 256)), block=256)
    arguments = (np.int64(n), x.dtype.type(a), np.uint64(x.data.ptr), np.uint64(y.data.ptr))

    def queue(stream: Any) -> None:
        launch(core_stream(stream), config, kernel, *arguments)

    return queue


@cache
def _elementwise() -> Any:
    import cupy

    return cupy.ElementwiseKernel("T a, T x", "T y", "y += a * x", "axpy_elementwise")


def _cupy_elementwise(n: int, x: Any, y: Any, a: Any) -> Queue:
    kernel, scalar = _elementwise(), x.dtype.type(a)

    def queue(stream: Any) -> None:
        with cupy_stream(stream):
            kernel(scalar, x, y)

    return queue


def _axpy(
    make: Callable[..., Queue],
    params: Params,
    machine: Machine,
    x: Any,
    y: Any,
    a: float,
    check: Callable[[], float],
    poison: Callable[[], None],
) -> Bound:
    n, size = params["n"], x.dtype.itemsize
    return Bound(
        launch=None,
        work=Work(2 * n * size, n * size, 2 * n),
        check=check,
        poison=poison,
        queue=make(n, x, y, a),
    )


def _memcpy(params: Params, machine: Machine, x: Any, y: Any, *_: Any) -> Bound:
    """A copy does less work than AXPY: it is a line to look at, not a competitor."""
    copy = machine.once(("copy", params["n"], params["dtype"]), lambda: machine.xp.empty_like(x))

    def queue(stream: Any) -> None:
        copy.data.copy_from_device_async(x.data, x.nbytes, cupy_stream(stream))

    return Bound(
        launch=None,
        work=Work(x.nbytes, x.nbytes),
        check=lambda: relative_error(
            copy, lambda part: x[part].astype(np.float64), 0.0, machine.xp
        ),
        poison=lambda: copy.fill(np.nan),
        queue=queue,
    )


AXPY: dict[str, Callable[..., Bound]] = {
    "cublas": partial(_axpy, _cublas),
    "cuda_float4": partial(_axpy, _cuda_float4),
    "cupy_elementwise": partial(_axpy, _cupy_elementwise),
    "memcpy": _memcpy,
}
