"""Little's law in which the time grows with the load: n*m = X * T(X).

    T(X) = T0 + (1 - theta)*L0 * rm/(1 - rm) + (1 - theta_i)*S * ri/(1 - ri)

with rm = X/Xm the utilisation of memory, ri = X/Xi that of the issue port, S = 4*m/Xi the cycles
for which a batch occupies its scheduler. The first two terms for a lone load are the
loaded-latency curve L(rho)/L0 = (1 - theta*rho)/(1 - rho): the wait of a queue of one server
(Kleinrock, "Queueing Systems", 1975). The right side rises from 0 without end, so that there is
one answer, below both capacities. Where the curve itself was measured (`Stream`), T0*(s(rho) - 1)
stands for the wait in memory. theta -> 1 gives back the hard minimum of Little's law.

For memory alone it is a quadratic, `utilisation`, with x = n*m/(T0*Xm). Of T0 only L0 queues:
a warp in arithmetic does not stand in memory's line, so that the knee sharpens to
theta' = 1 - (1 - theta)*L0/T0.
"""

import math
from collections.abc import Callable

from analysis.model.little import LITTLE
from analysis.model.parameters import (
    SCHEDULERS,
    Parameters,
    Workload,
    batch_time,
    block_capacity,
    issue_capacity,
    memory_capacity,
    memory_latency,
    unloaded_time,
)
from analysis.model.prediction import Model

_STEPS = 50  # halvings: 1 - 2**-50 is still below 1 in float64


def utilisation(x: float, theta: float) -> float:
    """rho = [(1+x) - sqrt((1+x)^2 - 4*theta*x)] / (2*theta), dimensionless, in 0..1.

    x: loads in flight over those that saturate, n*m/(T0*Xm). It solves
    x = rho*(1 - theta*rho)/(1 - rho). ValueError: x < 0 or theta outside 0..1.
    """
    _check_theta(theta)
    if x < 0:
        raise ValueError(f"x cannot be negative: {x}")
    # the same root, written so that theta -> 0 and small x lose no digits
    return 2 * x / ((1 + x) + math.sqrt((1 + x) ** 2 - 4 * theta * x))


def loaded_latency(rho: float, theta: float) -> float:
    """L(rho)/L0 = (1 - theta*rho)/(1 - rho), for 0 <= rho < 1."""
    _check_theta(theta)
    if not 0 <= rho < 1:
        raise ValueError(f"a utilisation lies in 0 <= rho < 1, not {rho}")
    return (1 - theta * rho) / (1 - rho)


def _check_theta(theta: float) -> None:
    if not 0 < theta <= 1:
        raise ValueError(f"theta lies in 0 < theta <= 1, not {theta}")


class Queueing(Model):
    """Two queues in series, memory and the issue port, each with a knee of its own."""

    name = "queueing"

    def warps_to_saturate(self, parameters: Parameters, workload: Workload) -> float:
        """The crossing of the two straight lines, as in Little's law."""
        return LITTLE.warps_to_saturate(parameters, workload)

    def throughput(self, parameters: Parameters, workload: Workload) -> float:
        unloaded = unloaded_time(parameters, workload)
        memory = memory_capacity(parameters, workload).throughput
        issue = issue_capacity(parameters, workload).throughput
        wait = _memory_wait(parameters, workload)
        # a theta shifted by its uncertainty may pass 1, the hard minimum
        issue_wait = (1 - min(parameters.theta_issue.value, 1.0)) * (
            SCHEDULERS * workload.loads / issue
        )

        low = 0.0
        high = min(memory, issue, block_capacity(parameters, workload).throughput)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            time = unloaded + issue_wait * middle / (issue - middle)
            if math.isfinite(memory):
                time += wait(middle / memory)
            if middle * time < workload.concurrency:
                low = middle
            else:
                high = middle
        return (low + high) / 2


def _memory_wait(parameters: Parameters, workload: Workload) -> Callable[[float], float]:
    """Cycles that a batch waits in memory's queue, by rho."""
    stream = parameters.stream(workload)
    if stream is not None and stream.stretch and workload.dram_share == 1:
        batch = batch_time(parameters, workload)
        return lambda rho: batch * (stream.slowdown(rho) - 1)
    service = (1 - min(parameters.theta.value, 1.0)) * memory_latency(parameters, workload)
    return lambda rho: service * rho / (1 - rho)


QUEUEING = Queueing()
