"""The second front hands pytest-benchmark the samples it was given, in order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.test_benchmark import Replay

ROOT = Path(__file__).parents[2]


def test_replay_gives_each_sample_as_a_difference():
    timer = Replay()
    timer.load([3e-6, 5e-6])
    assert [-(timer() - timer()) for _ in range(2)] == [3e-6, 5e-6]


def test_without_a_device_each_family_can_be_chosen_and_says_why_it_is_skipped():
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "bench", "-k", "axpy", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},  # no device, whatever the machine has
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout
    assert "1 skipped" in child.stdout
    assert "NUMBA_ENABLE_CUDASIM puts the simulator in the GPU's place" in child.stdout


REPLAYED = """
from os import environ
from bench import test_benchmark as front
from results.schema import Case, Samples

def measured(case, bench):
    times = [t * float(environ["SCALE"]) for t in (1e-5, 2e-5, 3e-5)]
    samples = Samples(times, "samples", "cold")
    return Case("axpy", "vector", {"n": 8}, "ok", samples=samples)

front.measure, front.bench_of = measured, lambda family: None
test_benchmark = front.test_benchmark

def pytest_generate_tests(metafunc):
    metafunc.parametrize(("family", "case"), [("axpy", None)], ids=["axpy-vector"])
"""
RUNS = """
import os, pytest
compare = ["--benchmark-compare", "--benchmark-compare-fail=median:10%"]
for scale, options in (
    ("1.0", ["--benchmark-json=base.json", "--benchmark-save=base"]),
    ("1.0", compare),
    ("1.5", compare),
):
    os.environ["SCALE"] = scale
    code = pytest.main(["-q", "-p", "no:cacheprovider", *options])
    print(f"\\nended with {int(code)}", flush=True)
"""


def test_json_and_compare_show_device_time(tmp_path: Path):
    """The front itself, three times in one child, with samples that no GPU had to give."""
    (tmp_path / "test_replayed.py").write_text(REPLAYED)
    # The child of an xdist worker would take itself for one, and time nothing.
    alone = {key: value for key, value in os.environ.items() if "PYTEST_XDIST" not in key}
    child = subprocess.run(
        [sys.executable, "-c", RUNS],
        cwd=tmp_path,
        env={**alone, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    saved, code, same, same_code, slower = re.split(r"ended with (\d)\n", child.stdout)
    assert code == "0", saved
    (benchmark,) = json.loads((tmp_path / "base.json").read_text())["benchmarks"]
    assert (benchmark["stats"]["median"], benchmark["stats"]["rounds"]) == (2e-5, 3)
    assert (benchmark["group"], benchmark["params"]["family"]) == ("axpy", "axpy")
    assert benchmark["extra_info"] == {"params": {"n": 8}}
    assert same_code == "0", same
    assert "(0001_base)" in same
    # A regression ends pytest itself with an error.
    assert child.returncode != 0
    assert "'median' has failed PercentageRegressionCheck: 50.0" in slower
