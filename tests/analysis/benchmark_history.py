"""1,000 runs of 500 cases: read and searched in under 15 s and 2 GiB on 2 cores.

Not a part of the tests, for it writes 1.5 GB: `pytest -s tests/analysis/benchmark_history.py`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

from results.schema import MAXIMUM_SAMPLES, SCHEMA, Case, End, Launch, Run, Samples, Work, encode

RUNS, CASES = 1000, 500
SECONDS, BYTES = 15.0, 2 << 30
FAMILIES = 10
NOISE = 0.003
DEVICE = {"name": "Imaginary GPU", "attributes": {f"attribute_{i}": i for i in range(150)}}
STEP_AT, STEP = 600, 1.02
MEASURE = """
import json, os, resource, sys, time
from pathlib import Path
from analysis.history import history
if __name__ == "__main__":
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    begin = time.perf_counter()
    found = history(Path(sys.argv[1]))
    seconds = time.perf_counter() - begin
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({
        "seconds": seconds,
        "cpu": sum(u.ru_utime + u.ru_stime for u in used),
        # KiB on Linux: this process, and two workers of which the larger counts twice.
        "bytes": 1024 * (used[0].ru_maxrss + 2 * used[1].ru_maxrss),
        "runs": found.runs,
        "steps": [[s.key[2], [step.index for step in s.steps]] for s in found.series],
    }))
"""


def write_years(folder: Path) -> None:
    """RUNS folders of one process each; a tenth of the cases becomes slower by STEP at one run.

    Everything but the times is encoded once a case: writing shall take seconds, not minutes.
    """
    generator = random.Random(1)
    shape = [1 + 0.002 * generator.gauss(0, 1) for _ in range(MAXIMUM_SAMPLES)]
    texts = [_text(case).split(b"[1.0]") for case in range(CASES)]
    for run in range(RUNS):
        start = f"{2000 + run // 300}-{1 + run // 25 % 12:02}-{1 + run % 25:02}T00:00:00Z"
        (folder / f"run-{run:04}").mkdir()
        for family in range(FAMILIES):
            name = f"family_{family}"
            header = Run(SCHEMA, name, 0, start, "standard", [], DEVICE, {}, f"{run // 50:016}")
            lines = [encode(header)]
            for case in range(family, CASES, FAMILIES):
                level = (10e-6 + 2e-6 * case) * generator.lognormvariate(0, NOISE)
                level *= STEP if case % 10 == 0 and run >= STEP_AT else 1
                times = ",".join([f"{level * factor:.9f}" for factor in shape])
                before, after = texts[case]
                lines += [before, b"[", times.encode(), b"]", after]
            lines.append(encode(End("ok", start, 30.0)))
            (folder / f"run-{run:04}" / f"0-{name}.jsonl").write_bytes(b"".join(lines))


def _text(case: int) -> bytes:
    clocks = [1.755e9 + 1e4 * (i % 90) for i in range(MAXIMUM_SAMPLES)]
    return encode(
        Case(
            f"family_{case % FAMILIES}",
            f"kernel_{case % 7}",
            {"n": 1 << 20, "block": 256, "case": case},
            "ok",
            work=Work(1 << 20, 1 << 20, 1 << 21),
            launch=Launch((4096, 1, 1), (256, 1, 1), registers=32, code="0" * 16),
            samples=Samples([1.0], "samples", "cold", sm_clock_hz=clocks),
            metrics={"relative_error": 1e-7},
            source="kernels/family.py:100",
            summary="one line of summary for the table",
        )
    )


def test_a_thousand_runs(tmp_path: Path) -> None:
    years = tmp_path / "years"
    years.mkdir()
    write_years(years)
    script = years.parent / "measure.py"
    script.write_text(MEASURE)
    root = Path(__file__).parents[2]
    tries = []
    while len(tries) < 3 and not any(found["seconds"] < SECONDS for found in tries):
        # The fastest counts: what else a shared machine does is not the program's time.
        answer = subprocess.run(
            [sys.executable, str(script), str(years)],
            cwd=root,
            env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        tries.append(json.loads(answer.stdout))
    found = min(tries, key=lambda found: found["seconds"])
    size = sum(path.stat().st_size for path in years.rglob("*.jsonl"))
    print(
        f"\n{found['runs']} runs, {len(found['steps'])} series, {size / 1e9:.2f} GB: "
        f"{found['seconds']:.1f} s ({found['cpu']:.1f} s of CPU), {found['bytes'] / 2**30:.2f} GiB"
    )
    assert (found["runs"], len(found["steps"])) == (RUNS, CASES)
    for params, indices in found["steps"]:
        changed = dict(params)["case"] % 10 == 0
        assert any(abs(index - STEP_AT) <= 1 for index in indices) == changed
    assert found["seconds"] < SECONDS
    assert found["bytes"] < BYTES
