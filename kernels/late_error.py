"""An error inside a kernel, and the calls after it: which of them tells?

Asked in a child process, for the error ends the process's CUDA context, and ended at a time limit.
The child is a program of its own, whose host calls are what is asked; kernels of a family that may
never end are launched by `bench.isolation`, many to a child, which kernels cannot import.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.cuda_c import compile_cubin
from kernels.spec import Unavailable

STEPS = ("launch", "launch behind it", "query", "synchronise", "launch after", "allocate after")
"""The calls in turn; the answer is a CUresult for each."""
FAULTS = ("address", "misaligned", "trap")
WAIT_NS = 5_000_000
"""The kernel breaks so late that both launches have returned."""
CHECKOUT = Path(__file__).parent.parent
LIMIT_S = 60.0
"""Importing CUDA's packages and opening the device takes seconds on a busy host."""

SOURCE = r"""
extern "C" __global__ void broken(int fault, long long wait_ns, char* memory)
{
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < wait_ns);
    if (fault == 0) *(volatile int*)8 = 1;
    if (fault == 1) *(volatile int*)(memory + 1) = 1;
    if (fault == 2) asm volatile("trap;");
}
extern "C" __global__ void empty() { }
"""


def ask(fault: str) -> list[int]:
    """`codes` as a child process found them.

    Raises:
        Unavailable: the child did not end well.
    """
    found: list[int] = json.loads(printed("kernels.late_error", fault))
    return found


def printed(module: str, *arguments: str, limit_s: float = LIMIT_S) -> str:
    """What `python -m module arguments` printed.

    Raises:
        Unavailable: it took longer than `limit_s` and was killed, or its exit code is not 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        ended = subprocess.run(
            command, cwd=CHECKOUT, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the child process hung: killed after {limit_s:g} s") from None
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["it said nothing"]
        raise Unavailable(f"the child process ended with code {ended.returncode}: {lines[-1]}")
    return ended.stdout


def codes(fault: str) -> list[int]:
    """The CUresult of each of STEPS. The calling process cannot use CUDA afterwards."""
    from cuda.bindings import driver
    from cuda.core import Device

    device = Device()
    device.set_current()
    stream = device.create_stream()
    handle = int(stream.handle)
    code = compile_cubin(SOURCE, device.compute_capability)
    empty, broken = (
        _good(driver.cuKernelGetFunction, code.get_kernel(name).handle)
        for name in ("empty", "broken")
    )
    memory = int(_good(driver.cuMemAlloc, 64))
    arguments = (
        (FAULTS.index(fault), WAIT_NS, memory),
        (ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p),
    )

    def launch(function: Any, given: Any) -> int:
        return _code(driver.cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, handle, given, 0)

    launch(empty, 0)
    _good(driver.cuStreamSynchronize, handle)
    return [
        launch(broken, arguments),
        launch(empty, 0),
        _code(driver.cuStreamQuery, handle),
        _code(driver.cuStreamSynchronize, handle),
        launch(empty, 0),
        _code(driver.cuMemAlloc, 64),
    ]


def _code(function: Callable[..., Any], *arguments: Any) -> int:
    return int(function(*arguments)[0])


def _good(function: Callable[..., Any], *arguments: Any) -> Any:
    error, *values = function(*arguments)
    if int(error):
        raise RuntimeError(f"{function.__name__}: {error.name}")
    return values[0] if values else None


if __name__ == "__main__":
    print(json.dumps(codes(sys.argv[1])), flush=True)
    os._exit(0)  # what Python would tear down belongs to a context that is broken
