"""Little's law with hard limits: X = min(n*m/T0, Xm, Xi).

Little (1961): items in flight = throughput * time each stays. An SM that holds n warps with m
loads each, every one gone for T0 cycles, completes n*m/T0 loads a clock, until memory (Xm) or
the issue ports (Xi) allow no more. Volkov, "Understanding Latency Hiding on GPUs" (2016), applies
it to GPUs and shows that latency and throughput limits both need the instruction mix.
"""

from analysis.model.parameters import Parameters, Workload, unloaded_time
from analysis.model.prediction import Model, ceiling


class Little(Model):
    """A straight line to a sharp knee: no load waits for another until the resource is full."""

    name = "little"

    def warps_to_saturate(self, parameters: Parameters, workload: Workload) -> float:
        """T0 * min(Xm, Xi) / m."""
        top = ceiling(parameters, workload).throughput
        return unloaded_time(parameters, workload) * top / workload.loads

    def throughput(self, parameters: Parameters, workload: Workload) -> float:
        return min(
            workload.concurrency / unloaded_time(parameters, workload),
            ceiling(parameters, workload).throughput,
        )


LITTLE = Little()
