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
    def run(scale: float, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_replayed.py").write_text(
            textwrap.dedent(f"""
            import pytest
            from bench.test_benchmark import Replay
            TIMER = Replay()
            @pytest.mark.benchmark(timer=TIMER)
            def test_case(benchmark):
                TIMER.load([t * {scale} for t in (1e-5, 2e-5, 3e-5)])
                benchmark.pedantic(lambda: None, rounds=3, iterations=1)
            """)
        )
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(1.0, "--benchmark-json=base.json", "--benchmark-save=base").returncode == 0
    stats = json.loads((tmp_path / "base.json").read_text())["benchmarks"][0]["stats"]
    assert stats["median"] == 2e-5
    assert stats["rounds"] == 3
    slower = run(1.5, "--benchmark-compare", "--benchmark-compare-fail=median:10%")
    assert slower.returncode != 0
    assert "has failed" in slower.stdout + slower.stderr or "Performance" in slower.stdout
    same = run(1.0, "--benchmark-compare", "--benchmark-compare-fail=median:10%")
    assert same.returncode == 0, same.stdout
