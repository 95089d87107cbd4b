"""Our clock beside NVIDIA's: the same numba AXPY timed by ours, then by theirs, on one GPU.

    python -m bench.cross_check [--exponent 28]

Needs the package cuda-bench (nvbench for Python). Prints our median, their mean (they give no
median), and what a sample costs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench.measure import Case
from bench.session import open_bench, self_check
from bench.stopping import Rule
from results.errors import UserError

KERNEL, BLOCK = "grid_stride", 256


def ours(exponent: int, samples: int) -> tuple[float, float]:
    """(median seconds, wall seconds a sample) by bench.clock, L2 flushed."""
    bench = open_bench("axpy", 0, "standard")
    self_check(bench)
    bench.rule = Rule(precision=0.0, least=samples, most=samples, seconds=60.0)
    params = {"n": 2**exponent, "dtype": "float32", "block": BLOCK}
    case = Case(bench.family[KERNEL], params)
    bound = case.kernel.bind(params, bench.machine)
    bound.poison()
    bound.queue(bench.stream)
    bench.synchronise()
    begin = time.perf_counter()
    times = [bench.clock.sample(bound.queue, "dirty").seconds for _ in range(samples)]
    wall = (time.perf_counter() - begin) / samples
    return median(times), wall


def theirs(exponent: int, samples: int) -> tuple[float, float]:
    """(mean seconds, wall seconds a sample) by cuda-bench's cold measurement, which gives no
    median."""
    import cuda.bench as nvbench
    from numba import cuda

    from bench import device
    from bench.machine import from_snapshot
    from kernels.axpy import FAMILY

    where = from_snapshot(device.snapshot(0))
    params = {"n": 2**exponent, "dtype": "float32", "block": BLOCK}
    bound = FAMILY[KERNEL].bind(params, where)

    def axpy(state: Any) -> None:
        def launch(handle: Any) -> None:
            bound.queue(cuda.external_stream(handle.get_stream().addressof()))

        state.set_min_samples(samples)
        state.exec(launch)

    nvbench.register(axpy)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cuda-bench.json"
        nvbench.run_all_benchmarks(
            ["cross_check", "--json", str(path), "--timeout", "5", "--stopping-criterion", "stdrel"]
        )
        summaries = json.loads(path.read_text())["benchmarks"][0]["states"][0]["summaries"]
    values = {item["tag"]: item["data"][0]["value"] for item in summaries if item.get("data")}
    wall = float(values["nv/cold/walltime"]) / int(values["nv/cold/sample_size"])
    return float(values["nv/cold/time/gpu/mean"]), wall


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exponent", type=int, default=28)
    parser.add_argument("--samples", type=int, default=100)
    options = parser.parse_args()
    try:
        mine, my_wall = ours(options.exponent, options.samples)
        its, its_wall = theirs(options.exponent, options.samples)
    except ImportError as error:
        print(f"{error}: pip install cuda-bench", file=sys.stderr)
        return 3
    except UserError as error:
        print(error, file=sys.stderr)
        return 3
    print(
        f"n = 2^{options.exponent}  warpgauge {mine * 1e6:.3f} µs, cuda-bench {its * 1e6:.3f} µs, "
        f"ratio {mine / its:.4f}; a sample costs {my_wall * 1e6:.0f} µs and {its_wall * 1e6:.0f} µs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
