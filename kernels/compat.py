"""The same kernel source on a GPU and in numba's simulator.

Kernels import `jit`, `device` and `numba.cuda` as usual; which of the two runs is decided by
the environment variable ``NUMBA_ENABLE_CUDASIM`` before numba is imported. Importing this
module in the simulator adds to it what it lacks: warp shuffles, votes, matches, ``syncwarp``,
``nanosleep`` and the cache hints.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from numba import config, cuda
from numba.cuda.core import config as cuda_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SIMULATOR: bool = bool(config.ENABLE_CUDASIM)
"""True when kernels run in numba's simulator, on the CPU."""

# Small grids are what many of these kernels are about.
cuda_config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

FULL_MASK = 0xFFFFFFFF
WARP_SIZE = 32

WARP_TIMEOUT_S = 20.0
"""How long a lane waits in the simulator for the other lanes of its mask, in seconds. A warp
exchange takes milliseconds there; a lane that is still missing then has returned or diverged."""

# What the simulator's `jit` rejects, because it says how to compile and nothing is compiled.
_COMPILE_ONLY = frozenset(
    {
        "cache",
        "extensions",
        "forceinline",
        "inline",
        "launch_bounds",
        "lineinfo",
        "link",
        "lto",
        "max_registers",
        "opt",
        "shared_memory_carveout",
    }
)


class WarpError(RuntimeError):
    """Lanes of a warp did not meet in the simulator.

    Caused by a warp function (shuffle, vote, match, ``syncwarp``) whose mask names a lane that
    has returned or took another branch, or that the calling lane is not part of.
    """


def jit(function: Callable | None = None, **options: Any) -> Any:
    """`numba.cuda.jit` for a kernel, with the options that the simulator rejects dropped there.

    Link-time optimisation is off unless asked for, so that what runs is the PTX that
    `kernels.compile` reads, assembled by the same assembler.
    """

    def decorate(decorated: Callable) -> Any:
        if SIMULATOR:
            kept = {name: value for name, value in options.items() if name not in _COMPILE_ONLY}
            return cuda.jit(**kept)(decorated)
        # The function goes in directly: numba's decorator with options loses `lto` on the way.
        return cuda.jit(decorated, **{"lto": False, **options})

    return decorate if function is None else decorate(function)


def device(function: Callable | None = None, **options: Any) -> Any:
    """Like `jit`, for a function that kernels call."""
    return jit(function, device=True, **options)


def array_module() -> ModuleType:
    """CuPy on a GPU, NumPy in the simulator.

    Raises:
        ModuleNotFoundError: CuPy is needed and not installed.
    """
    if SIMULATOR:
        import numpy

        return numpy
    import cupy

    return cupy


def argument(array: Any) -> Any:
    """`array` as a kernel takes it: no copy, and no stream synchronisation at the launch."""
    if SIMULATOR or not hasattr(array, "__cuda_array_interface__"):
        return array
    return cuda.as_cuda_array(array, sync=False)


def on_host(array: Any) -> Any:
    """`array` as NumPy, copied from the device where it lies there; waits for CuPy's stream."""
    return array.get() if hasattr(array, "get") else array


def cupy_stream(stream: Any) -> Any:
    """numba's stream, as CuPy knows it."""
    import cupy

    return cupy.cuda.Stream.from_external(stream)


@cache
def _core_stream(handle: int) -> Any:
    from cuda.core import Device, Stream

    return Stream.from_handle(handle) if handle else Device().default_stream


def core_stream(stream: Any) -> Any:
    """numba's stream (0: the default one) as cuda.core knows it; made once, for a launch is timed.

    cuda.core takes foreign streams as they are too, and warns at each launch that it will stop.
    """
    return _core_stream(int(stream))


def queue_zero(array: Any, stream: Any) -> None:
    """Queue a memset of `array` to 0 on numba's stream; at once in the simulator."""
    if hasattr(array.data, "memset_async"):
        array.data.memset_async(0, array.nbytes, cupy_stream(stream))
    else:
        array.fill(0)


# --- The simulator: one Python thread is one CUDA thread, blocks run one after another. ---


class _Rendezvous:
    """Where the lanes of one (block, warp, mask) meet and show each other a value."""

    def __init__(self, lanes: list[int]) -> None:
        self.lanes = lanes
        self.barrier = threading.Barrier(len(lanes))
        # Two boards used in turn let one barrier do: nobody writes on a board again before
        # every lane has passed the next barrier, and so has read it.
        self.boards: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        self.turns = dict.fromkeys(lanes, 0)


_rendezvous_lock = threading.Lock()


def simulated_thread() -> Any:
    """The CUDA thread that runs now: ``thread_id`` in its block, ``blockIdx``, ``threadIdx``."""
    return threading.current_thread()


def _signed(mask: int) -> int:
    """`mask` as numba returns it on a GPU: a signed 32-bit integer."""
    return mask - (1 << 32) if mask & 0x80000000 else mask


def _lanes_of_warp(thread: Any) -> int:
    x, y, z = thread._manager._block_dim
    return min(WARP_SIZE, x * y * z - thread.thread_id // WARP_SIZE * WARP_SIZE)


def _exchange(mask: Any, value: Any, what: str) -> dict[int, Any]:
    """Wait for the lanes of `mask` and return the value that each brought, by lane."""
    thread = simulated_thread()
    manager, (warp, lane) = thread._manager, divmod(thread.thread_id, WARP_SIZE)
    members = int(mask) & FULL_MASK
    with _rendezvous_lock:
        places = manager.__dict__.setdefault("_warpgauge_places", {})
        place = places.get((warp, members))
        if place is None:
            lanes = [one for one in range(_lanes_of_warp(thread)) if members >> one & 1]
            place = places[warp, members] = _Rendezvous(lanes)
    where = f"{what} in kernel '{manager._f.__name__}', warp {warp}, mask 0x{members:08x}"
    if lane not in place.turns:
        raise WarpError(f"{where}: lane {lane} calls it and is not in the mask")
    turn = place.turns[lane]
    board = place.boards[turn % 2]
    board[lane] = value
    place.turns[lane] = turn + 1
    try:
        place.barrier.wait(WARP_TIMEOUT_S)
    except threading.BrokenBarrierError:
        missing = [one for one in place.lanes if place.turns[one] <= turn]
        raise WarpError(
            f"{where}: lanes {missing} did not arrive within {WARP_TIMEOUT_S:g} s; "
            "they returned or took another branch: name only lanes that call it in the mask"
        ) from None
    return board


def _shuffle(source: Callable[[int, int], int]) -> Callable:
    def shuffle(_module: Any, mask: int, value: Any, operand: int) -> Any:
        lane = simulated_thread().thread_id % WARP_SIZE
        board = _exchange(mask, value, "shuffle")
        # A lane outside the warp or the mask gives back the caller's own value.
        return board.get(source(lane, int(operand)), value)

    return shuffle


def _vote(decide: Callable[[dict[int, Any]], Any]) -> Callable:
    def vote(_module: Any, mask: int, predicate: Any) -> Any:
        return decide(_exchange(mask, bool(predicate), "vote"))

    return vote


def _ballot(board: dict[int, Any]) -> int:
    return _signed(sum(1 << lane for lane, value in board.items() if value))


def _match_any(_module: Any, mask: int, value: Any) -> int:
    board = _exchange(mask, value, "match")
    return _signed(sum(1 << lane for lane, other in board.items() if other == value))


def _match_all(_module: Any, mask: int, value: Any) -> tuple[int, bool]:
    board = _exchange(mask, value, "match")
    same = all(other == value for other in board.values())
    return (_signed(sum(1 << lane for lane in board)) if same else 0), same


def _syncwarp(_module: Any, mask: int = FULL_MASK) -> None:
    _exchange(mask, None, "syncwarp")


def _activemask(_module: Any) -> int:
    # The simulator does not know who diverged: the lanes that exist stand for those that run.
    return _signed((1 << _lanes_of_warp(simulated_thread())) - 1)


def _lanemask_lt(_module: Any) -> int:
    return (1 << simulated_thread().thread_id % WARP_SIZE) - 1


def _nanosleep(_module: Any, nanoseconds: int) -> None:
    time.sleep(min(int(nanoseconds), 1_000_000) * 1e-9)


def _hinted_load(_module: Any, array: Any, index: Any) -> Any:
    return array[index]


def _hinted_store(_module: Any, array: Any, index: Any, value: Any) -> None:
    array[index] = value


def _unsigned_bits(name: str) -> Callable:
    """The simulator's bit function `name`, right for the negative masks that votes return."""
    from numba.cuda.simulator.kernelapi import FakeCUDAModule

    original = getattr(FakeCUDAModule, name)

    def bits(module: Any, value: Any) -> int:
        return original(module, int(value) & FULL_MASK if value < 0 else int(value))

    return bits


_allocating = threading.Lock()


def _shared_array(self: Any, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
    """`cuda.shared.array` with one array a block and line, as numba means it. Numba's own lets two
    threads that come at once each make one, and their writes are never seen by the others."""
    import numpy as np
    from numba.cuda import types
    from numba.cuda.np import numpy_support

    if alignment is not None:
        raise RuntimeError("the simulator knows no alignment of arrays")
    kind = numpy_support.as_dtype(dtype) if isinstance(dtype, types.Type) else np.dtype(dtype)
    if shape == 0:  # dynamic: whatever the launch gave
        return np.frombuffer(
            self._dynshared.data, dtype=kind, count=self._dynshared_size // kind.itemsize
        )
    caller = sys._getframe(1)
    place = caller.f_code.co_filename, caller.f_lineno
    with _allocating:
        if place not in self._allocations:
            self._allocations[place] = np.empty(shape, kind)
        return self._allocations[place]


_ADDED: dict[str, Callable] = {
    "activemask": _activemask,
    "lanemask_lt": _lanemask_lt,
    "syncwarp": _syncwarp,
    "shfl_sync": _shuffle(lambda lane, source: source % WARP_SIZE),
    "shfl_up_sync": _shuffle(lambda lane, delta: lane - delta),
    "shfl_down_sync": _shuffle(lambda lane, delta: lane + delta),
    "shfl_xor_sync": _shuffle(lambda lane, bits: lane ^ bits),
    "all_sync": _vote(lambda board: all(board.values())),
    "any_sync": _vote(lambda board: any(board.values())),
    "eq_sync": _vote(lambda board: len(set(board.values())) == 1),
    "ballot_sync": _vote(_ballot),
    "match_any_sync": _match_any,
    "match_all_sync": _match_all,
    "nanosleep": _nanosleep,
    **dict.fromkeys(("ldca", "ldcg", "ldcs", "ldlu", "ldcv"), _hinted_load),
    **dict.fromkeys(("stcg", "stcs", "stwb", "stwt"), _hinted_store),
}


def install() -> None:
    """Add what is missing to the simulator's `cuda` module; without effect on a GPU."""
    if not SIMULATOR:
        return
    from numba.cuda.simulator.kernelapi import FakeCUDAModule, FakeCUDAShared

    if getattr(FakeCUDAModule, "_warpgauge_installed", False):
        return
    FakeCUDAShared.array = _shared_array
    for name in ("popc", "clz", "ffs", "brev"):
        setattr(FakeCUDAModule, name, _unsigned_bits(name))
    for name, function in _ADDED.items():
        if not hasattr(FakeCUDAModule, name):
            setattr(FakeCUDAModule, name, function)
    # numba watches a block's threads from a loop that never sleeps, and that would keep the
    # interpreter for Python's 5 ms each time: a third of the time is enough with 0.2 ms.
    sys.setswitchinterval(2e-4)
    FakeCUDAModule._warpgauge_installed = True


install()


def warp_exchange(value: Any, what: str) -> dict[int, Any]:
    """What every lane of the calling thread's whole warp brought, by lane (simulator only)."""
    return _exchange(FULL_MASK, value, what)
