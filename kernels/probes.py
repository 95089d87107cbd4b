"""Loads that probe the memory system: pointer chases and an exact number of loads in flight.

Python source does not say how many loads are in flight: LLVM unrolls loops, and the assembler
moves loads up over arithmetic. Here the count is written in the assembly block itself, and each
block waits for the one before it through its address.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import compat
from kernels.assembly import KINDS, Base, Value, assembly
from kernels.ptx import LOAD_CACHES, host_address

if TYPE_CHECKING:
    from collections.abc import Callable

_F32, _U32, _S64, _U64 = KINDS["f32"], KINDS["u32"], KINDS["s64"], KINDS["u64"]


def _operator(cache: str) -> str:
    if cache not in LOAD_CACHES:
        raise ValueError(f"cache operator '{cache}' is none of {', '.join(LOAD_CACHES)}")
    return LOAD_CACHES[cache]


def _counted(count: int, what: str) -> int:
    if count < 1:
        raise ValueError(f"{count} {what}: at least one is needed")
    return count


def pointer(array: Any) -> int:
    """The address of a CuPy array's data, from the host (a NumPy array's in the simulator).

    The simulator hands a kernel a copy of the array, but a chase over absolute addresses
    reads the original: keep it alive.
    """
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


def followed(address: Any, steps: int) -> np.uint64:
    """The address at which a chase of so many steps over host memory ends."""
    for _ in range(int(steps)):
        address = ctypes.c_uint64.from_address(int(address)).value
    return np.uint64(address)


@functools.cache
def chase(steps: int, cache: str = "ca") -> Callable:
    """`steps` dependent 8-byte global loads, each from the address that the last one read.

    ``f(address) -> address``, both uint64 absolute addresses (`pointer`, `ptx.address_of`).
    No index arithmetic lies between two loads. ``ca`` may hit L1, ``cg`` goes to L2.

    Raises:
        ValueError: No steps, or an unknown cache operator.
    """
    step = f"ld.global{_operator(cache)}.u64 $0, [$0];"
    lines = ["mov.u64 $0, $1;"] + [step] * _counted(steps, "steps")

    return assembly(
        f"chase_{steps}_{cache}",
        "\n".join(lines),
        _U64,
        (Value(_U64),),
        functools.partial(followed, steps=steps),
        summary=f"{steps} dependent global loads of 8 bytes.",
        memory=True,
    )


def _simulated_shared_address(array: Any) -> np.uint32:
    # Shared addresses have 32 bits: the upper half of the host's is kept with the block.
    address = host_address(array)
    compat.simulated_thread()._manager._warpgauge_window = address >> 32 << 32
    return np.uint32(address & 0xFFFFFFFF)


shared_address = assembly(
    "shared_address",
    "{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }",
    _U32,
    (Base(),),
    _simulated_shared_address,
    summary="Address of a shared array's first element in shared memory (uint32).",
    side_effect=False,
)


@functools.cache
def chase_shared(steps: int) -> Callable:
    """`steps` dependent 4-byte shared loads: ``f(address) -> address``, uint32.

    Addresses are those of `shared_address`, and the array holds such addresses.

    Raises:
        ValueError: No steps.
    """
    lines = ["mov.u32 $0, $1;"] + ["ld.shared.u32 $0, [$0];"] * _counted(steps, "steps")

    def twin(address: Any) -> np.uint32:
        window = compat.simulated_thread()._manager._warpgauge_window
        for _ in range(steps):
            address = ctypes.c_uint32.from_address(window | int(address)).value
        return np.uint32(address)

    return assembly(
        f"chase_shared_{steps}",
        "\n".join(lines),
        _U32,
        (Value(_U32),),
        twin,
        summary=f"{steps} dependent shared loads of 4 bytes.",
        memory=True,
    )


@functools.cache
def loads(count: int, width: int = 4, cache: str = "cg") -> Callable:
    """`count` independent global loads in flight: ``f(address, stride, carry, zero) -> float32``.

    Load k reads `width` float32 (1, 2 or 4: 4, 8 or 16 bytes) at ``address + k * stride``;
    ``address`` (uint64) and ``stride`` (int64) are in bytes and multiples of the access. The sum
    of all elements and ``carry`` comes back. Give it as ``carry`` to the next call, and 0 in a
    kernel argument as ``zero`` (uint32): the next addresses are formed with ``carry & zero``,
    which nobody can know to be 0 before the loads have returned, so that exactly `count` are in
    flight.

    Raises:
        ValueError: No loads, another width, or an unknown cache operator.
    """
    _counted(count, "loads")
    if width not in (1, 2, 4):
        raise ValueError(f"loads of {width} x f32: 1, 2 or 4 are possible")
    vector = "" if width == 1 else f".v{width}"
    total = count * width

    def target(load: int) -> str:
        names = ", ".join(f"v{load * width + place}" for place in range(width))
        return names if width == 1 else f"{{{names}}}"

    lines = [f".reg .b32 t; .reg .b64 a<{count}>; .reg .f32 v<{total}>;"]
    lines += ["and.b32 t, $3, $4;", "cvt.u64.u32 a0, t;", "add.s64 a0, a0, $1;"]
    lines += [f"add.s64 a{load}, a{load - 1}, $2;" for load in range(1, count)]
    lines += [
        f"ld.global{_operator(cache)}{vector}.f32 {target(load)}, [a{load}];"
        for load in range(count)
    ]
    # Summed as a tree: a chain of additions would be a latency of its own.
    gap = 1
    while gap < total:
        lines += [
            f"add.rn.f32 v{place}, v{place}, v{place + gap};"
            for place in range(0, total - gap, 2 * gap)
        ]
        gap *= 2
    lines += ["add.rn.f32 $0, v0, $3;"]

    def twin(address: Any, stride: Any, carry: Any, zero: Any) -> np.float32:
        values = [
            ctypes.c_float.from_address(int(address) + load * int(stride) + 4 * place).value
            for load in range(count)
            for place in range(width)
        ]
        return np.float32(sum(values) + carry)

    return assembly(
        f"loads_{count}_{width}_{cache}",
        "\n".join(["{", *lines, "}"]),
        _F32,
        (Value(_U64), Value(_S64), Value(_F32), Value(_U32)),
        twin,
        summary=f"{count} independent loads of {4 * width} bytes.",
        memory=True,
    )
