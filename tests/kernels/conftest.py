"""Machine code for tests to read, where NVIDIA's disassembler is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest


def _disassembler() -> str | None:
    found = shutil.which("nvdisasm")
    places = (find_spec("nvidia") or object()).__dict__.get("submodule_search_locations") or ()
    for place in places:
        found = found or next(map(str, Path(place).glob("cu*/bin/nvdisasm")), None)
    return found


@pytest.fixture
def disassembled(tmp_path: Path) -> Callable[[bytes], dict[str, list[str]]]:
    """``f(cubin)`` gives the instructions of each kernel in it, in order, without predicates."""
    tool = _disassembler()
    if tool is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm, or the CUDA toolkit")

    def read(cubin: bytes) -> dict[str, list[str]]:
        file = tmp_path / "kernel.cubin"
        file.write_bytes(cubin)
        listing = subprocess.run(
            [tool, "-c", str(file)], capture_output=True, text=True, check=True
        ).stdout
        sections = re.split(r"\.section\s+\.text\.", listing)[1:]
        return {
            section.split(",")[0]: [
                re.sub(r"^@!?U?P\w+\s+", "", found.strip())
                for found in re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(.*?);", section)
            ]
            for section in sections
        }

    return read
