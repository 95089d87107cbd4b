"""AXPY with extra FMAs: how much arithmetic fits under the memory's time.

The time of a launch is the largest of what memory, the issue ports and latency each need; that is
Little's law on a workload with more arithmetic (`with_extra_fma`). The knee is the number e of
extra FMAs an element where memory stops being the largest. With E elements a lane and batch:

    throughput  R*m / (k0 + e*E) = Xm      R the FMA rate (or I), k0 the kernel's own instructions
    latency     n*m / T(e) = Xm            T grows by l_a for each FMA of a dependent chain
"""

import math
from dataclasses import dataclass, replace

from analysis.model.little import LITTLE
from analysis.model.parameters import Parameters, Workload, memory_capacity

_MOST = 2.0**40  # extra FMAs: beyond any kernel, a knee there means none


@dataclass(frozen=True)
class Knee:
    """Extra FMAs an element at which arithmetic overtakes memory, and what then binds.

    cause: 'fma' or 'issue' (throughput of the SM) or 'latency' (too few warps for the chain).
    A launch that latency binds from the start has its knee at 0.
    """

    extra_fma: float
    cause: str


def axpy(warps: float, width: int = 4, loads: int = 1, batches: float = math.inf) -> Workload:
    """y = a*x + y in float32: per batch `loads` pairs of loads of `width` bytes, FMAs, stores.

    12 bytes an element: 8 read, 4 written. Instructions: loads, FMAs and stores only; what the
    loop adds is small and amortised by unrolling.
    """
    elements = loads * width // 4
    return Workload(
        warps=warps,
        loads=2 * loads,
        bytes=32 * width,
        alpha=1,
        arithmetic=elements,
        instructions=2 * loads + elements + loads,
        written=16 * width,
        batches=batches,
    )


def with_extra_fma(
    workload: Workload, extra: float, elements: float = 1, dependent: bool = True
) -> Workload:
    """The same launch with `extra` FMAs on each of `elements` elements a lane and batch.

    A dependent chain lengthens a batch's path by `extra` (the elements' chains run beside each
    other); independent FMAs leave the path alone and fill the lanes and the issue port only.
    """
    added = extra * elements
    return replace(
        workload,
        alpha=workload.alpha + (extra if dependent else 0),
        arithmetic=workload.fma + added,
        instructions=workload.issued + added,
    )


def knee(
    parameters: Parameters, workload: Workload, elements: float = 1, dependent: bool = True
) -> Knee:
    """Extra FMAs an element at which the predicted time leaves the memory's plateau.

    workload: the kernel without extra FMAs. Found by bisection, since throughput can only fall
    with e. ValueError: the parameters give memory no bandwidth for this workload.
    """
    memory = memory_capacity(parameters, workload).throughput
    if math.isinf(memory):
        raise ValueError(f"{parameters.gpu}: no memory bandwidth, so arithmetic meets no plateau")

    def fits(extra: float) -> bool:
        loaded = with_extra_fma(workload, extra, elements, dependent)
        return LITTLE.throughput(parameters, loaded) >= memory * (1 - 1e-12)

    low, high = 0.0, 1.0
    while fits(high) and high < _MOST:
        low, high = high, 2 * high
    if not fits(0.0):
        high = 0.0
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    beyond = with_extra_fma(workload, high * (1 + 1e-6), elements, dependent)
    return Knee(high, LITTLE.predict(parameters, beyond).resource)
