"""What only a physical GPU can show: the clock, the gate, a corrupted context, every reference."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench import device
from results.store import load

ROOT = Path(__file__).parents[2]
REASON = device.why_not()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


@pytest.fixture(scope="module")
def bench() -> Any:
    from bench.session import open_bench, self_check

    made = open_bench("axpy", 0, "standard")
    self_check(made)
    return made


def test_a_kernel_that_waits_reads_as_long_as_it_waited(bench: Any):
    """200 µs by the SM's own globaltimer against the events around it."""
    from numba import cuda

    from kernels import ptx
    from kernels.compat import jit

    @jit
    def wait(nanoseconds):
        start = ptx.globaltimer()
        while ptx.globaltimer() - start < nanoseconds:
            pass

    wait[1, 1, bench.stream](1000)
    cuda.synchronize()
    queue = lambda stream: wait[1, 1, stream](200_000)  # noqa: E731
    times = [bench.clock.sample(queue, None).seconds for _ in range(11)]
    assert 200e-6 <= median(times) <= 206e-6


def test_a_launch_that_waits_for_the_device_opens_the_gate_by_itself(bench: Any):
    from numba import cuda

    sample = bench.clock.sample(lambda stream: cuda.synchronize(), None)
    assert sample.launch_bound
    assert not bench.clock.sample(lambda stream: None, None).launch_bound


def test_an_empty_sample_holds_no_launch_cost(bench: Any):
    times = [bench.clock.sample(lambda stream: None, None).seconds for _ in range(21)]
    assert 0 <= median(times) < 3e-6


def _corrupt(folder: Path) -> None:
    from bench import session
    from bench.measure import Case
    from kernels.compat import jit
    from kernels.spec import Bound, Kernel, Launch, Machine, Work

    @jit
    def illegal(x):
        """Writes far outside of anything."""
        x[1 << 40] = 1.0

    def bad(params: Any, machine: Machine) -> Bound:
        from kernels.compat import argument

        x = machine.xp.zeros(1, machine.xp.float32)
        return Bound(
            Launch.linear(1, 1), Work(), lambda: 0.0, function=illegal, arguments=(argument(x),)
        )

    family = session.declared()["axpy"]
    fine = Case(family["vector"], {"n": 1000, "dtype": "float32", "block": 64})
    session.families.cases = lambda *_: [fine, Case(Kernel("bad", "", bad, ({},)), {}), fine]
    order = session.Order("axpy", 0, "quick", 0, folder, [])
    sys.exit(0 if session.record(order) else 2)


def test_a_corrupted_context_ends_its_family_only(tmp_path: Path):
    child = multiprocessing.get_context("spawn").Process(target=_corrupt, args=(tmp_path,))
    child.start()
    child.join(120)
    assert child.exitcode == 2
    file = load(tmp_path).files[0]
    ours = [case for case in file.cases if case.family == "axpy"]
    assert [case.status for case in ours] == ["ok", "failed"]
    assert file.end.status == "failed"
    assert "cannot go on" in file.end.reason


def test_every_kernel_is_right_on_this_gpu():
    check = subprocess.run(
        [sys.executable, "-m", "bench", "check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert check.returncode == 0, check.stdout[-4000:] + check.stderr[-2000:]
