"""Other libraries' reductions, queued on our stream: CUB through CuPy, and numba's own."""

from __future__ import annotations

import functools
from typing import Any

from kernels.compat import cupy_stream
from kernels.reduction_problem import Problem, check, depth
from kernels.spec import Bound, Machine, Params, Unavailable, Work

CUB_LIMIT = 2**31 - 1
"""CuPy hands larger arrays to a kernel of its own (cupy/cuda/cub.pyx counts in a C int)."""

CUB_TILE = 64
"""More additions than CUB's threads make one after the other in a tile (some 16 to 24). Else
the error bound is that of numba's launch, at most 64 blocks of 128 threads, the narrower one."""


def cub(problem: Problem, params: Params, machine: Machine) -> Bound:
    """`cupy.sum` or `cupy.max`, where it is CUB's DeviceReduce that runs.

    Called without `out=`: with it CuPy copies the result once more, which is not CUB's work.

    Raises:
        Unavailable: CuPy would take another way; the reason says why.
    """
    _require_gpu(machine)
    import cupy

    data, dtype = problem.data, problem.data.dtype
    back_end = _cub_or_reason(problem)
    if back_end is not None:
        raise Unavailable(back_end)
    # int32 would be summed as int64, and by another kernel, if the type were left out.
    reduce = cupy.max if problem.op == "max" else functools.partial(cupy.sum, dtype=dtype)
    holder: list[Any] = [None]

    def queue(stream: Any) -> None:
        with cupy_stream(stream):
            # The result before goes back to the memory pool, so that nothing new is allocated.
            holder[0] = None
            holder[0] = reduce(data)

    return _bound(problem, machine, queue, lambda: holder[0], lambda: holder.__setitem__(0, None))


def _cub_or_reason(problem: Problem) -> str | None:
    """None where CuPy runs CUB on this problem, else why it does not."""
    from cupy import _core
    from cupy.cuda import cub as back_end

    if not back_end.available:
        return "this CuPy was built without CUB"
    if _core._accelerator.ACCELERATOR_CUB not in _core.get_routine_accelerators():
        return "CuPy's CUB is off: unset CUPY_ACCELERATORS or set it to cub"
    if problem.n > CUB_LIMIT:
        return f"CuPy gives CUB at most {CUB_LIMIT} elements"
    if problem.n == 0 and problem.op == "max":
        return "CuPy has no maximum of nothing"
    op = back_end.CUPY_CUB_MAX if problem.op == "max" else back_end.CUPY_CUB_SUM
    # What cupy.sum calls itself: it answers None where CUB cannot do it.
    if back_end.cub_reduction(problem.data, op, None, problem.data.dtype, None, False) is None:
        return f"CuPy does not give CUB an array of {problem.dtype}"
    return None


@functools.cache
def _numba_sum() -> Any:
    from numba import cuda

    return cuda.reduce(lambda a, b: a + b)


def numba_reduce(problem: Problem, params: Params, machine: Machine) -> Bound:
    """`cuda.reduce` of numba, its result copied on the device into an array of ours.

    Raises:
        Unavailable: an empty array, for which it launches nothing and answers on the host.
    """
    _require_gpu(machine)
    from numba import cuda

    if problem.op != "sum":
        raise Unavailable("one operation is enough for this peer: it sums")
    if problem.n == 0:
        raise Unavailable("cuda.reduce launches nothing for an empty array")
    data = cuda.as_cuda_array(problem.data, sync=False)
    result = cuda.as_cuda_array(problem.result, sync=False)
    reduce = _numba_sum()

    def queue(stream: Any) -> None:
        # Freeing its array of partials would wait for the device: put off until after.
        with cuda.defer_cleanup():
            reduce(data, res=result, stream=stream)

    def poison() -> None:
        problem.result.fill(-77)

    return _bound(problem, machine, queue, lambda: problem.result, poison)


def _require_gpu(machine: Machine) -> None:
    if machine.simulator:
        raise Unavailable("other libraries need a GPU; the simulator has none")


def _bound(problem: Problem, machine: Machine, queue: Any, found: Any, poison: Any) -> Bound:
    def checked() -> float:
        done = Problem(problem.data, problem.dtype, problem.op, found().reshape(1))
        return check(done, depth([(problem.n, 64), (64, 1)], 128) + CUB_TILE, machine)

    return Bound(
        launch=None,
        work=Work(bytes_read=problem.n * problem.itemsize, operations=max(problem.n - 1, 0)),
        check=checked,
        queue=queue,
        poison=poison,
    )
