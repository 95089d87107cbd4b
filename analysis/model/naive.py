"""The course notes' rule: warps = latency / work between accesses. Kept to be compared, not used.

    N = L0 / w        100 cycles, one access per 4 instructions: 25 warps

Its flaws, each with a function that mends it alone:
- the warp that waits is itself one of those resident: 25 others hide its latency, so 26;
- it is the count for one scheduler that issues an instruction a clock, and an SM has four: 100;
- it takes an instruction for a clock, though a dependent one waits l_a = 4 clocks for the last;
- it knows neither bandwidth nor loads in flight: more arithmetic is all that can help.
"""

from analysis.model.parameters import SCHEDULERS, Parameters, Workload, memory_latency
from analysis.model.prediction import Model, ceiling


def warps_needed(latency: float, work: float) -> float:
    """latency / work: warps that keep a scheduler busy while one waits. ValueError: work <= 0."""
    if work <= 0:
        raise ValueError(f"work between accesses must be positive, not {work}")
    return latency / work


def counting_the_waiting_warp(latency: float, work: float) -> float:
    """Resident warps a scheduler: those that hide the latency and the one that waits."""
    return warps_needed(latency, work) + 1


def warps_needed_per_sm(latency: float, work: float, schedulers: int = SCHEDULERS) -> float:
    """The rule for a whole SM, each of whose schedulers needs its own warps."""
    return warps_needed(latency, work) * schedulers


class Naive(Model):
    """Throughput rises in proportion to the warps and is full at L0 / w.

    w is the arithmetic between two accesses; a kernel with none still issues the load, w = 1.
    """

    name = "naive"

    def warps_to_saturate(self, parameters: Parameters, workload: Workload) -> float:
        work = max(workload.fma / workload.loads, 1.0)
        return warps_needed(memory_latency(parameters, workload), work)

    def throughput(self, parameters: Parameters, workload: Workload) -> float:
        share = min(1.0, workload.warps / self.warps_to_saturate(parameters, workload))
        return share * ceiling(parameters, workload).throughput


NAIVE = Naive()
