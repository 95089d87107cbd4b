"""Compile and link a kernel without a GPU, and read what the assembler says about it.

The tests' compiler; what measures reads the cubin that the driver has loaded (`kernels.cubin`).
"""

from __future__ import annotations

import contextlib
import functools
import re
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels import compat
from kernels.cubin import sections, text_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numba.cuda.codegen import CUDACodeLibrary

CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
"""Compute capabilities for which every kernel must compile: Turing to Blackwell."""


@dataclass(frozen=True)
class Compiled:
    """A kernel assembled for one compute capability.

    `registers` are per thread, the byte counts too except `static_smem`, which is per block.
    `spill_bytes` adds spill stores and loads; `local_bytes` is the stack frame; `static_smem`
    includes what the system reserves a block (1,024 bytes from compute capability 9.0 on).
    """

    cc: tuple[int, int]
    ptx: str
    cubin: bytes
    registers: int
    spill_bytes: int
    local_bytes: int
    static_smem: int
    text_hash: str


def compile_kernel(
    function: Any,
    signature: Any,
    cc: tuple[int, int],
    *,
    max_registers: int | None = None,
    launch_bounds: Any = None,
    fastmath: bool | None = None,
) -> Compiled:
    """Compile `function` for the argument types of `signature` and link it to a cubin.

    Args:
        function: A kernel made by `kernels.compat.jit`, or a plain Python function.
        signature: A numba signature such as ``"void(float32[::1], int64)"``, or argument types.
        cc: Compute capability, for instance ``(9, 0)``.
        max_registers: Registers a thread; as `launch_bounds` and `fastmath`, taken from the
            kernel's own options when left out.

    Raises:
        RuntimeError: In the simulator, or when the linker refuses the kernel (with its log).
    """
    if compat.SIMULATOR:
        raise RuntimeError("nothing is compiled in the simulator: unset NUMBA_ENABLE_CUDASIM")
    options = getattr(function, "targetoptions", {})
    if max_registers is None:
        max_registers = options.get("max_registers")
    if launch_bounds is None:
        launch_bounds = options.get("launch_bounds")
    if fastmath is None:
        fastmath = bool(options.get("fastmath", False))
    lowered = _lowered(
        getattr(function, "py_func", function),
        signature,
        fastmath,
        bool(options.get("lineinfo", False)),
        launch_bounds,
    )
    (ptx,) = lowered.get_asm_strs(cc=cc)
    cubin, log = _link(ptx, cc, max_registers)
    return Compiled(
        cc=cc,
        ptx=ptx,
        cubin=cubin,
        registers=max(_numbers(r"Used (\d+) registers", log), default=0),
        spill_bytes=sum(_numbers(r"(\d+) bytes spill (?:stores|loads)", log)),
        local_bytes=sum(_numbers(r"(\d+) bytes stack frame", log)),
        static_smem=sum(
            size for name, size, _ in sections(cubin) if name.startswith(".nv.shared.")
        ),
        text_hash=text_hash(cubin),
    )


def _link(ptx: str, cc: tuple[int, int], max_registers: int | None) -> tuple[bytes, str]:
    from cuda.core import Linker, LinkerOptions, ObjectCode

    objects = [ObjectCode.from_ptx(ptx.encode())]
    if "cudaCGGetIntrinsicHandle" in ptx:
        objects.append(ObjectCode.from_library(_device_runtime()))
    options = LinkerOptions(
        arch=f"sm_{cc[0]}{cc[1]}",
        max_register_count=max_registers,
        ptxas_options=["-v"],
    )
    linker = Linker(*objects, options=options)
    try:
        cubin = linker.link("cubin")
        return bytes(cubin.code), linker.get_info_log()
    except Exception as error:
        raise RuntimeError(f"cannot link for cc {cc}: {error}\n{linker.get_error_log()}") from error
    finally:
        linker.close()


def _device_runtime() -> str:
    """The path of CUDA's device runtime, which grid-wide synchronisation calls."""
    from numba.cuda.cudadrv.libs import get_cudalib

    return get_cudalib("cudadevrt", static=True)


def _numbers(pattern: str, text: str) -> list[int]:
    return [int(found) for found in re.findall(pattern, text)]


@functools.lru_cache(maxsize=256)
def _lowered(
    function: Any, signature: Any, fastmath: bool, lineinfo: bool, launch_bounds: Any
) -> CUDACodeLibrary:
    """LLVM IR of a kernel, of which NVVM makes the PTX of each capability.

    Typing and lowering take two thirds of a compilation, and numba-cuda 0.30 lowers in the same
    way for all of `CAPABILITIES`: the code that it chooses by capability, atomics on float64 and a
    fast tanh, changes at 6.0 and at 7.5.
    """
    from numba.cuda.compiler import _compile_pyfunc_with_fixup

    with _current_capability(CAPABILITIES[0]):
        library, _ = _compile_pyfunc_with_fixup(
            function,
            signature,
            device=False,
            abi="numba",
            cc=CAPABILITIES[0],
            fastmath=fastmath,
            lineinfo=lineinfo,
            launch_bounds=launch_bounds,
        )
    return library


@contextlib.contextmanager
def _current_capability(cc: tuple[int, int]) -> Iterator[None]:
    """Let numba believe that the current device has capability `cc`.

    When a kernel calls a device function, its dispatcher asks the current device for the
    capability instead of taking the one that is being compiled for, and there may be no device.
    """
    from numba.cuda import dispatcher

    original = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=cc)
    try:
        yield
    finally:
        dispatcher.get_current_device = original
