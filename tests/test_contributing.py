"""CONTRIBUTING's example is a whole family: it is found, listed and right in the simulator."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("kernels", "bench", "results"):
        ignore = shutil.ignore_patterns("__pycache__", "data", "baseline")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.findall(r"`((?:kernels|bench)/\w+\.py)`:\n\n```python\n(.*?)```", text, re.S)
    assert [name for name, _ in found] == ["kernels/scale.py", "bench/bench_scale.py"]
    for name, code in found:
        (folder / name).write_text(code)
    return folder


def bench(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=folder,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_is_listed(checkout: Path):
    assert "scale: y <- a*x" in bench(checkout, "list").stdout


def test_the_example_is_right_in_the_simulator(checkout: Path):
    done = bench(checkout, "check", "--family", "scale")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 cases in numba's simulator: 0 wrong" in done.stdout


@pytest.mark.thorough
def test_a_wrong_kernel_is_found(checkout: Path):
    path = checkout / "kernels" / "scale.py"
    right = path.read_text()
    path.write_text(right.replace("y[i] = a * x[i]", "y[i] = x[i]"))
    try:
        done = bench(checkout, "check", "--family", "scale")
    finally:
        path.write_text(right)
    assert done.returncode == 2
    assert "wrong answer: element" in done.stdout
