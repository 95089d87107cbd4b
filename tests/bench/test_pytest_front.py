"""The second front hands pytest-benchmark the samples it was given, in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from bench.test_benchmark import Replay

ROOT = Path(__file__).parents[2]


def test_replay_gives_each_sample_as_a_difference():
    timer = Replay()
    timer.load([3e-6, 5e-6])
    assert [-(timer() - timer()) for _ in range(2)] == [3e-6, 5e-6]


def test_json_and_compare_show_device_time(tmp_path: Path):
    """The front itself, with samples that no GPU had to give."""

    def run(scale: float, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_replayed.py").write_text(
            textwrap.dedent(f"""
            from bench import test_benchmark as front
            from results.schema import Case, Samples

            def measured(case, bench):
                times = [t * {scale} for t in (1e-5, 2e-5, 3e-5)]
                samples = Samples(times, "samples", "cold")
                return Case("axpy", "vector", {{"n": 8}}, "ok", samples=samples)

            front.measure, front.bench_of = measured, lambda family: None
            test_benchmark = front.test_benchmark

            def pytest_generate_tests(metafunc):
                metafunc.parametrize(("family", "case"), [("axpy", None)], ids=["axpy-vector"])
            """)
        )
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(1.0, "--benchmark-json=base.json", "--benchmark-save=base").returncode == 0
    (benchmark,) = json.loads((tmp_path / "base.json").read_text())["benchmarks"]
    assert (benchmark["stats"]["median"], benchmark["stats"]["rounds"]) == (2e-5, 3)
    assert (benchmark["group"], benchmark["params"]["family"]) == ("axpy", "axpy")
    assert benchmark["extra_info"] == {"params": {"n": 8}}
    slower = run(1.5, "--benchmark-compare", "--benchmark-compare-fail=median:10%")
    assert slower.returncode != 0
    assert "(0001_base)" in slower.stdout
    assert "'median' has failed PercentageRegressionCheck: 50.0" in slower.stdout + slower.stderr
    same = run(1.0, "--benchmark-compare", "--benchmark-compare-fail=median:10%")
    assert same.returncode == 0, same.stdout
