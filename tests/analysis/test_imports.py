"""Analysis works on a laptop: no module of it brings in CUDA, numba or NVML, whatever it calls."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import importlib, pkgutil, sys
import analysis
names = [m.name for m in pkgutil.walk_packages(analysis.__path__, "analysis.")]
for name in names:
    importlib.import_module(name)
found = {"numba", "cupy", "pynvml", "cuda", "kernels", "bench"} & set(sys.modules)
print(len(names), sorted(found))
"""


def test_importing_all_of_analysis_brings_in_no_cuda():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    count, found = done.stdout.split(" ", 1)
    assert int(count) >= 5
    assert found.strip() == "[]"
