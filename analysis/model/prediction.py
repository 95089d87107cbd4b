"""The one interface of all models: parameters and a workload in, a prediction with its band out."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from analysis.model.parameters import (
    Capacity,
    Parameters,
    Workload,
    block_capacity,
    issue_capacity,
    memory_capacity,
)


@dataclass(frozen=True)
class Prediction:
    """What a model says of one launch.

    throughput: warp-loads per clock per SM. bandwidth: B/s of the chip, reads and writes.
    limiter: 'latency', 'bandwidth', 'issue' or 'blocks'; resource: which one of that kind.
    band: (low, high) of the bandwidth at one standard uncertainty of the parameters.
    """

    model: str
    throughput: float
    bandwidth: float
    limiter: str
    resource: str
    band: tuple[float, float]

    def time(self, traffic: float) -> float:
        """Seconds to move `traffic` bytes, reads and writes, launch cost apart."""
        return traffic / self.bandwidth


def ceiling(parameters: Parameters, workload: Workload) -> Capacity:
    """min(Xm, Xi, Xb): what no number of warps can exceed."""
    return min(
        memory_capacity(parameters, workload),
        issue_capacity(parameters, workload),
        block_capacity(parameters, workload),
        key=lambda capacity: capacity.throughput,
    )


def to_bandwidth(parameters: Parameters, workload: Workload, throughput: float) -> float:
    """B/s of the chip, reads and writes: X * f * SMs * (b + written)."""
    sms = workload.sms or parameters.sms
    return throughput * parameters.clock.value * sms * (workload.bytes + workload.written)


class Model(ABC):
    """A law for the throughput of a launch. Subclasses give `name` and `throughput`."""

    name: str

    @abstractmethod
    def throughput(self, parameters: Parameters, workload: Workload) -> float:
        """X in warp-loads per clock per SM."""

    @abstractmethod
    def warps_to_saturate(self, parameters: Parameters, workload: Workload) -> float:
        """Warps per SM at which, without queueing, the kernel meets its ceiling."""

    def predict(self, parameters: Parameters, workload: Workload) -> Prediction:
        """The prediction for one launch. ValueError: a parameter that it needs is absent."""
        throughput = self.throughput(parameters, workload)
        capacity = ceiling(parameters, workload)
        bound = workload.warps < self.warps_to_saturate(parameters, workload)
        return Prediction(
            model=self.name,
            throughput=throughput,
            bandwidth=to_bandwidth(parameters, workload, throughput),
            limiter="latency" if bound else capacity.limiter,
            resource="latency" if bound else capacity.resource,
            band=self._band(parameters, workload),
        )

    def warps_to(
        self,
        share: float,
        parameters: Parameters,
        workload: Workload,
        plateau: float | None = None,
    ) -> int | None:
        """Fewest warps per SM that reach `share` of the plateau; None: not reached by max_warps.

        The plateau, in warp-loads per clock per SM, is this model's own limit for endless warps
        unless one is given (a curve measured up to max_warps has only its highest point).
        """
        if not 0 < share <= 1:
            raise ValueError(f"a share lies between 0 and 1, not {share}")
        top = ceiling(parameters, workload).throughput if plateau is None else plateau
        for warps in range(1, parameters.max_warps + 1):
            reached = self.throughput(parameters, replace(workload, warps=warps))
            if reached >= share * top * (1 - 1e-12):
                return warps
        return None

    def _band(self, parameters: Parameters, workload: Workload) -> tuple[float, float]:
        """First-order propagation by differences of one sigma, each side in quadrature.

        The two sides are kept apart because a launch at a knee can only lose by it.
        """

        def bandwidth(shifted: Parameters) -> float:
            return to_bandwidth(shifted, workload, self.throughput(shifted, workload))

        centre = bandwidth(parameters)
        down = up = 0.0
        for pair in parameters.shifted():
            changes = [bandwidth(shifted) - centre for shifted in pair]
            down += min(0.0, *changes) ** 2
            up += max(0.0, *changes) ** 2
        return centre - math.sqrt(down), centre + math.sqrt(up)
