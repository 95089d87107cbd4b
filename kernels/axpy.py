"""AXPY, y <- a*x + y: four forms that move the same bytes, and one with extra arithmetic."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from numba import cuda

from kernels import ptx
from kernels.compat import argument, jit
from kernels.instructions import fma_chain
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work, relative_error

A = 1.25
B, C = 0.999, 0.001
"""v <- v*B + C keeps any number of FMAs near one."""
INDEPENDENT = 8
"""Accumulators of the independent chains: 8 FMAs in flight a thread cover a latency of 4 cycles
twice."""
UNROLLED = 4


@jit
def monolithic(n, a, x, y):
    """One thread an element."""
    i = cuda.grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


@jit
def grid_stride(n, a, x, y):
    """As many threads as are resident; each walks the array in steps of the grid."""
    step = cuda.gridsize(1)
    i = cuda.grid(1)
    while i < n:
        y[i] = a * x[i] + y[i]
        i += step


@jit
def unrolled(n, a, x, y):
    """Four elements a thread, one block apart, all loaded before the first is used."""
    width = cuda.blockDim.x
    i = 4 * width * cuda.blockIdx.x + cuda.threadIdx.x
    if i + 3 * width < n:
        x0, x1, x2, x3 = x[i], x[i + width], x[i + 2 * width], x[i + 3 * width]
        y0, y1, y2, y3 = y[i], y[i + width], y[i + 2 * width], y[i + 3 * width]
        y[i] = a * x0 + y0
        y[i + width] = a * x1 + y1
        y[i + 2 * width] = a * x2 + y2
        y[i + 3 * width] = a * x3 + y3
    else:
        while i < n:
            y[i] = a * x[i] + y[i]
            i += width


@jit
def vector_f32(n, a, x, y):
    """One 16-byte load of x and of y a thread: four float32."""
    i = 4 * cuda.grid(1)
    if i + 3 < n:
        x0, x1, x2, x3 = ptx.load_v4_f32(x, i)
        y0, y1, y2, y3 = ptx.load_v4_f32(y, i)
        ptx.store_v4_f32(y, i, (a * x0 + y0, a * x1 + y1, a * x2 + y2, a * x3 + y3))
    else:
        while i < n:
            y[i] = a * x[i] + y[i]
            i += 1


@jit
def vector_f64(n, a, x, y):
    """One 16-byte load of x and of y a thread: two float64."""
    i = 2 * cuda.grid(1)
    if i + 1 < n:
        x0, x1 = ptx.load_v2_f64(x, i)
        y0, y1 = ptx.load_v2_f64(y, i)
        ptx.store_v2_f64(y, i, (a * x0 + y0, a * x1 + y1))
    elif i < n:
        y[i] = a * x[i] + y[i]


@cache
def extra_fma(count: int, accumulators: int) -> Any:
    """grid_stride with `count` FMAs on x[i] before the AXPY: on one chain, or on several."""
    chain = fma_chain(count, accumulators)

    @jit
    def fma(n, a, b, c, x, y):
        """AXPY with extra FMAs an element."""
        step = cuda.gridsize(1)
        i = cuda.grid(1)
        while i < n:
            y[i] = a * chain(x[i], b, c) + y[i]
            i += step

    return fma


def extra_fma_reference(v: Any, count: int, accumulators: int) -> Any:
    """The value after `count` extra FMAs, in closed form: v*B^k + C*(1 - B^k)/(1 - B)."""
    if count == 0:
        return v
    total = 0.0
    for place in range(min(count, accumulators)):
        share = count // accumulators + (place < count % accumulators)
        power = B ** (share - 1)
        first = v * B + (place or C)
        total = total + first * power + C * (1 - power) / (1 - B)
    return total


ELEMENTS = {"monolithic": 1, "grid_stride": 1, "unrolled": UNROLLED, "vector": None}
"""Elements a thread; None: as many as 16 bytes hold."""
FUNCTIONS = {
    ("monolithic", "float32"): monolithic,
    ("monolithic", "float64"): monolithic,
    ("grid_stride", "float32"): grid_stride,
    ("grid_stride", "float64"): grid_stride,
    ("unrolled", "float32"): unrolled,
    ("unrolled", "float64"): unrolled,
    ("vector", "float32"): vector_f32,
    ("vector", "float64"): vector_f64,
}
TOLERANCE = {"float32": 2e-7, "float64": 4e-16}
"""One FMA and one rounding of the reference: 2 units in the last place."""


def _data(params: Params, machine: Machine) -> tuple[Any, Any, Any]:
    n, dtype = params["n"], params["dtype"]
    start = machine.uniform("y", n, dtype)
    y = machine.once(("out", n, dtype), lambda: machine.xp.empty_like(start))
    return machine.uniform("x", n, dtype), start, y


def axpy_work(n: int, dtype: str, extra: int = 0) -> Work:
    """x and y are read, y is written; one FMA, and the extra ones, an element."""
    size = {"float32": 4, "float64": 8}[dtype]
    return Work(2 * n * size, n * size, 2 * n * (1 + extra))


def check_axpy(params: Params, machine: Machine) -> Any:
    """(check, poison) for anything that computes y <- A*x + y in the shared arrays."""
    x, start, y = _data(params, machine)
    double = machine.xp.float64

    def check() -> float:
        return relative_error(
            y,
            lambda part: A * x[part].astype(double) + start[part],
            TOLERANCE[params["dtype"]],
            machine.xp,
        )

    def poison() -> None:
        y[:] = start

    return check, poison


def _grid(name: str, n: int, block: int, elements: int, machine: Machine) -> int:
    if name == "grid_stride":
        return min(machine.sms * (machine.max_threads_per_sm // block), -(-n // block))
    return max(1, -(-n // (block * elements)))


def _bind(name: str, params: Params, machine: Machine) -> Bound:
    n, dtype, block = params["n"], params["dtype"], params["block"]
    x, _, y = _data(params, machine)
    scalar = x.dtype.type
    elements = ELEMENTS[name] or 16 // x.dtype.itemsize
    check, poison = check_axpy(params, machine)
    return Bound(
        launch=Launch.linear(_grid(name, n, block, elements, machine), block),
        work=axpy_work(n, dtype),
        check=check,
        poison=poison,
        function=FUNCTIONS[name, dtype],
        arguments=(n, scalar(A), argument(x), argument(y)),
    )


def _bind_fma(accumulators: int, params: Params, machine: Machine) -> Bound:
    n, block, count = params["n"], params["block"], params["extra_fma"]
    x, start, y = _data(params, machine)
    scalar = x.dtype.type
    _, poison = check_axpy(params, machine)
    double = machine.xp.float64

    def check() -> float:
        def expected(part: slice) -> Any:
            v = extra_fma_reference(x[part].astype(double), count, accumulators)
            return A * v + start[part]

        # Each FMA rounds once, and a chain carries the error on.
        return relative_error(y, expected, 2e-7 * (1 + count), machine.xp)

    threads = 128 if params["warps"] == 4 else machine.max_threads_per_sm
    return Bound(
        launch=Launch.linear(machine.sms * max(1, threads // block), block),
        work=axpy_work(n, "float32", count),
        check=check,
        poison=poison,
        function=extra_fma(count, accumulators),
        arguments=(n, scalar(A), scalar(B), scalar(C), argument(x), argument(y)),
    )


def _peer(name: str, params: Params, machine: Machine) -> Bound:
    from kernels import peers

    x, _, y = _data(params, machine)
    check, poison = check_axpy(params, machine)
    return peers.AXPY[name](params, machine, x, y, A, check, poison)


_EDGES = tuple(
    {"n": n, "dtype": dtype, "block": 64} for n in (1, 31, 257) for dtype in ("float32", "float64")
)
_ARRAYS = {
    "float32": "void(int64, float32, float32[::1], float32[::1])",
    "float64": "void(int64, float64, float64[::1], float64[::1])",
}
_FMA_SIGNATURE = "void(int64, float32, float32, float32, float32[::1], float32[::1])"


def _kernel(name: str, summary: str) -> Kernel:
    return Kernel(
        name,
        summary,
        bind=partial(_bind, name),
        examples=_EDGES,
        source=FUNCTIONS[name, "float32"],
        compiled=tuple((FUNCTIONS[name, dtype], _ARRAYS[dtype]) for dtype in _ARRAYS),
    )


def _fma_kernel(name: str, accumulators: int, summary: str) -> Kernel:
    return Kernel(
        name,
        summary,
        bind=partial(_bind_fma, accumulators),
        examples=tuple(
            {"n": 100, "dtype": "float32", "block": 64, "extra_fma": count, "warps": 4}
            for count in (0, 20)
        ),
        source=extra_fma,
        compiled=((extra_fma(32, accumulators), _FMA_SIGNATURE),),
    )


def _peer_kernel(name: str, summary: str) -> Kernel:
    return Kernel(
        name,
        summary,
        bind=partial(_peer, name),
        examples=({"n": 1000, "dtype": "float32"}, {"n": 1000, "dtype": "float64"}),
        peer=True,
        simulator="another library's kernel: there is nothing of ours to run",
    )


FAMILY = Family(
    "axpy",
    "y <- a*x + y: bandwidth by form, size and block, and how much arithmetic hides behind it",
    (
        _kernel("monolithic", "One thread an element"),
        _kernel("grid_stride", "Resident threads walk the array in steps of the grid"),
        _kernel("unrolled", "Four elements a thread, loaded before use"),
        _kernel("vector", "16 bytes a load"),
        _fma_kernel("fma_dependent", 1, "Extra FMAs an element, one chain"),
        _fma_kernel("fma_independent", INDEPENDENT, "Extra FMAs an element, eight chains"),
        _peer_kernel("cublas", "cuBLAS axpy"),
        _peer_kernel("cuda_float4", "Hand-written CUDA C, one 16-byte access a thread"),
        _peer_kernel("cupy_elementwise", "CuPy ElementwiseKernel"),
        _peer_kernel("memcpy", "Device-to-device copy of x: 2 of AXPY's 3 accesses"),
    ),
)
