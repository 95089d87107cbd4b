"""NVTX ranges: what a profiler knows a case's kernels by.

Nsight Systems shows the ranges; Nsight Compute counts only what is launched between the
profiler's start and stop, and says in which range it was. Without a profiler both do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from bench.measure import Case
from kernels.spec import Bound, Machine, Params
from results.counters import label

Range = Callable[[str], AbstractContextManager[None]]


@contextmanager
def profiled(name: str) -> Iterator[None]:
    """The launches within are named `name`, and counted."""
    import cupy
    from cupy.cuda import nvtx

    nvtx.RangePush(name)
    cupy.cuda.runtime.profilerStart()
    try:
        yield
    finally:
        cupy.cuda.runtime.profilerStop()
        nvtx.RangePop()


def marked(case: Case, family: str, enter: Range = profiled) -> Case:
    """The case with its queue, and nothing else of it, in a range of its name.

    Random inputs, poison and the check launch kernels too; those must not be counted.
    """
    name = label(family, case.kernel.name, case.params)

    def bind(params: Params, machine: Machine) -> Bound:
        bound = case.kernel.bind(params, machine)
        queue = bound.queue

        def named(stream: Any) -> None:
            with enter(name):
                queue(stream)

        bound.queue = named
        return bound

    return replace(case, kernel=replace(case.kernel, bind=bind))
