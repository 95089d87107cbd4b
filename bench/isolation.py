"""Kernels that may never end, run in a child process that is ended at a time limit.

A kernel waiting at a barrier cannot be interrupted from within its process: synchronising never
returns. When the process is killed, the driver tears its context down, and the kernel with it.
Several jobs share a child, for opening the device takes longer than they do; one that hangs costs
the others only a new child.
"""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bench.inspection import launch_record
from bench.machine import from_snapshot, simulated
from kernels.compat import SIMULATOR
from kernels.spec import Machine, Params, Unavailable, WrongAnswer
from results import schema
from results.errors import in_one_line

LIMIT_S = 1.0
"""A launch may take so long. Those that are meant to end do so in milliseconds."""
PREPARE_S = 60.0
"""Opening the device, compiling and binding may take so long, also on a busy host."""
KILL_S = 10.0
"""How long to wait for a killed child to be gone before leaving it to the system."""
ORPHAN_S = 60.0
"""After so long a child ends itself."""
PRELOADED = ["numba.cuda", "cupy", "bench.session"]


@dataclass(frozen=True)
class Job:
    """One launch of one kernel; `family` is a module of kernels/."""

    family: str
    kernel: str
    params: Params
    package: str = "kernels"


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    status: schema.Status
    reason: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    """What the kernel read, and `hung`: 1 where it never ended, 0 where it did."""
    launch: schema.Launch | None = None


Target = Callable[[Connection, list[Job], Mapping[str, Any], int], None]


def run(
    jobs: list[Job],
    snapshot: Mapping[str, Any],
    *,
    limit_s: float = LIMIT_S,
    prepare_s: float = PREPARE_S,
    target: Target | None = None,
) -> list[Outcome]:
    """The outcome of each job, in order; whatever a kernel does, this returns.

    Args:
        jobs: what to launch, in order.
        snapshot: `device.snapshot` of the GPU, as the parent sees it.
        limit_s: a launch that takes longer has hung.
        prepare_s: a child that takes longer before a launch has failed.
        target: what the child runs (`serve`); tests have others.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(jobs):
        outcomes += _some(jobs[len(outcomes) :], snapshot, limit_s, prepare_s, target or serve)
    return outcomes


def _some(
    jobs: list[Job], snapshot: Mapping[str, Any], limit_s: float, prepare_s: float, target: Target
) -> list[Outcome]:
    """Outcomes of the first jobs, at least one: up to where the child ended."""
    outcomes: list[Outcome] = []
    with _child(jobs, snapshot, target) as messages:
        for _ in jobs:
            launch = None
            try:
                # A Launch says that it comes next, an Outcome that the job is over.
                message = _next(messages, prepare_s)
                if isinstance(message, schema.Launch):
                    launch = message
                    message = _next(messages, limit_s)
                outcomes.append(message)
            except TimeoutError:
                if launch is None:
                    reason = f"its process was not ready after {prepare_s:g} s"
                    return [*outcomes, Outcome("failed", reason)]
                return [*outcomes, Outcome("ok", None, {"hung": 1.0}, launch)]
            except EOFError:
                if outcomes and launch is None:
                    return outcomes  # it ended after a failure: the next job gets a new child
                reason = "its process ended without an answer; what it said is above"
                return [*outcomes, Outcome("failed", reason, launch=launch)]
    return outcomes


def _next(messages: Connection, seconds: float) -> Any:
    if not messages.poll(seconds):
        raise TimeoutError
    return messages.recv()


@contextmanager
def _child(jobs: list[Job], snapshot: Mapping[str, Any], target: Target) -> Any:
    """The receiving end of a child's messages; the child is gone afterwards."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(theirs, jobs, snapshot, _index()), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(0.5)
        if process.is_alive():
            process.kill()
            process.join(KILL_S)


def _index() -> int:
    """CUDA's number of the device that this process measures on: the same in its children."""
    from numba import cuda

    return 0 if SIMULATOR else int(cuda.get_current_device().id)


def serve(messages: Connection, jobs: list[Job], snapshot: Mapping[str, Any], index: int) -> None:
    """The child: a Launch before each launch, an Outcome after it."""
    from numba import cuda

    if SIMULATOR:
        where = simulated()
    else:
        cuda.select_device(index)
        where = from_snapshot(snapshot)
    for job in jobs:
        try:
            messages.send(_outcome(job, where, messages))
        except Exception as error:
            messages.send(Outcome("failed", in_one_line(error)))
            if not isinstance(error, Unavailable | WrongAnswer | ValueError):
                return  # the context may be broken: the others get a new child


def _outcome(job: Job, where: Machine, messages: Connection) -> Outcome:
    from numba import cuda

    kernel = importlib.import_module(f"{job.package}.{job.family}").FAMILY[job.kernel]
    try:
        bound = kernel.bind(job.params, where)
    except Unavailable as reason:
        return Outcome("skipped", str(reason))
    bound.poison()
    launch = launch_record(bound)  # compiles
    cuda.synchronize()
    messages.send(launch)
    # Should the parent be gone by then, nobody else would end a kernel that hangs.
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(ORPHAN_S, exit=True, file=nowhere)
        try:
            started = time.perf_counter()
            bound.queue(0)
            cuda.synchronize()
            seconds = time.perf_counter() - started
        finally:
            faulthandler.cancel_dump_traceback_later()
    try:
        bound.check()
    except WrongAnswer as wrong:
        return Outcome("failed", f"wrong answer: {wrong}", launch=launch)
    reading = bound.reading() if bound.reading else {}
    return Outcome(
        "ok", None, {**reading, "hung": 0.0, "roundtrip_seconds": round(seconds, 6)}, launch
    )
