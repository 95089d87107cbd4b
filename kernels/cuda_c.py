"""CUDA C compiled for one compute capability, where numba has no word or launches slowly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compile_cubin(
    source: str, cc: tuple[int, int], defines: Mapping[str, str] | None = None
) -> Any:
    """The CUDA C `source` compiled for `cc` (no GPU needed): a cuda.core ObjectCode.

    Args:
        source: Free of includes, so that NVRTC needs no include path; kernels are ``extern "C"``.
        cc: Compute capability, for instance ``(9, 0)``.
        defines: Macros, name to text.

    Raises:
        cuda.core's NVRTCError: with the compiler's log.
    """
    from cuda.core import Program, ProgramOptions

    major, minor = cc
    macros = "".join(f"#define {name} {text}\n" for name, text in (defines or {}).items())
    options = ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
    return Program(macros + source, "c++", options).compile("cubin")
