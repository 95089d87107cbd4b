"""Machine code for tests to read, where NVIDIA's disassembler is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kernels.compile import Compiled

Disassembled = Callable[[bytes], dict[str, list[str]]]


def _disassembler() -> str | None:
    """The environment's own before one on the path, which may be too old for a new GPU."""
    nvidia = find_spec("nvidia")
    for place in (nvidia and nvidia.submodule_search_locations) or ():
        for found in Path(place).glob("*/bin/nvdisasm"):
            return str(found)
    return shutil.which("nvdisasm")


@pytest.fixture(scope="session")
def disassembled(tmp_path_factory: pytest.TempPathFactory) -> Disassembled:
    """``f(cubin)`` gives the instructions of each kernel in it, in order, without predicates."""
    tool = _disassembler()
    if tool is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm, or the CUDA toolkit")
    file = tmp_path_factory.mktemp("code") / "kernel.cubin"
    known: dict[bytes, dict[str, list[str]]] = {}

    def read(cubin: bytes) -> dict[str, list[str]]:
        if cubin in known:
            return known[cubin]
        file.write_bytes(cubin)
        listing = subprocess.run(
            [tool, "-c", str(file)], capture_output=True, text=True, check=True
        ).stdout
        sections = re.split(r"\.section\s+\.text\.", listing)[1:]
        known[cubin] = {
            section.split(",")[0]: [
                re.sub(r"^@!?U?P\w+\s+", "", found.strip())
                for found in re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(.*?);", section)
            ]
            for section in sections
        }
        return known[cubin]

    return read


@pytest.fixture(scope="session")
def machine_codes(disassembled: Disassembled) -> Callable[..., list[list[str]]]:
    """``f(kernels, max_registers=None)`` gives the instructions of each, assembled anew in one
    cubin: the disassembler takes most of a second to start."""

    def read(kernels: list[Compiled], max_registers: int | None = None) -> list[list[str]]:
        from cuda.core import Linker, LinkerOptions, ObjectCode

        (cc,) = {kernel.cc for kernel in kernels}
        options = LinkerOptions(arch=f"sm_{cc[0]}{cc[1]}", max_register_count=max_registers)
        linker = Linker(*(ObjectCode.from_ptx(k.ptx.encode()) for k in kernels), options=options)
        codes = disassembled(bytes(linker.link("cubin").code))
        names = [re.search(r"\.entry (\w+)\(", kernel.ptx).group(1) for kernel in kernels]
        assert len(codes) == len(set(names)) == len(kernels)
        return [codes[name] for name in names]

    return read
