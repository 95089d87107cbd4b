"""GPUs that others measured: parameters from published figures, and the error of each model there.

Latencies, read bandwidth and saturation points come from results/reference/published.csv; what a
data sheet states comes from `ARCHITECTURE`. The read bandwidth that is to be predicted is not an
input: the bandwidth parameter is the data sheet's peak.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from analysis.model.parameters import Parameters, Value, Workload
from analysis.model.prediction import Model

PUBLISHED = Path(__file__).parents[2] / "results" / "reference" / "published.csv"

# Not published for these GPUs; carried over from the H200, hence the wide uncertainty.
THETA = Value(0.9, 0.05, "", "loaded latency on an H200, assumed alike")
# The lowest point of gpu-stream on an H200 (te42kyfo/gpu-benches, gpu-stream/h200.txt): 123 GB/s
# with 2 warps an SM are 549 ns a load, 1090 cycles at 1.98 GHz, of which DRAM latency is 690.
TURNOVER = Value(400, 0.25, "cycle", "gpu-stream on an H200, assumed alike; no scored GPU")


@dataclass(frozen=True)
class Architecture:
    """What the data sheet states; published.csv has the clock at which latency was measured."""

    key: str  # the gpu column of published.csv
    sms: int
    max_warps: int  # per SM, CUDA programming guide, table of compute capabilities
    clock: float  # Hz
    peak_bandwidth: float  # B/s
    fma_rate: float  # warp-FMAs a clock and SM: FP32 lanes / 32
    source: str


ARCHITECTURE = {
    "v100": Architecture(
        "V100", 80, 64, 1.380e9, 900e9, 2, "NVIDIA V100 data sheet: PCIe 16 GB, 900 GB/s"
    ),
    "a100-80gb": Architecture(
        "A100-80GB", 108, 64, 1.410e9, 2039e9, 2, "NVIDIA A100 data sheet: SXM4; PCIe has 1935"
    ),
    "a40": Architecture("A40", 84, 48, 1.740e9, 696e9, 4, "NVIDIA A40 data sheet: 696 GB/s"),
    "l40": Architecture("L40", 142, 48, 2.490e9, 864e9, 4, "NVIDIA L40 data sheet: 864 GB/s"),
    "h100-pcie": Architecture(
        "H100-PCIe", 114, 64, 1.755e9, 2039e9, 4, "NVIDIA H100 data sheet: PCIe, 2 TB/s"
    ),
}

# gpu-stream's read kernel: 8 bytes a thread, one load, one element a thread, not persistent.
READ = Workload(warps=1, loads=1, bytes=32 * 8, batches=1)


@dataclass(frozen=True)
class Figure:
    """One row of published.csv."""

    value: float
    unit: str
    source: str
    cc: str
    architecture: str


@dataclass(frozen=True)
class Comparison:
    """A model's prediction beside a published figure. predicted None: not reached."""

    gpu: str
    architecture: str
    quantity: str
    unit: str
    published: float
    model: str
    predicted: float | None
    source: str

    @property
    def relative_error(self) -> float | None:
        """predicted/published - 1: below 0, the model says too little."""
        return None if self.predicted is None else self.predicted / self.published - 1


@cache
def figures(path: Path = PUBLISHED) -> dict[tuple[str, str], Figure]:
    """published.csv by (gpu, quantity). Lines that begin with # are comments."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {
            (row["gpu"], row["quantity"]): Figure(
                float(row["value"]), row["unit"], row["source"], row["cc"], row["arch"]
            )
            for row in rows
        }


def published_parameters(gpu: str) -> Parameters:
    """Parameters of a GPU named in `ARCHITECTURE`. KeyError: another name."""
    known = ARCHITECTURE[gpu]

    def latency(level: str) -> Value:
        figure = figures()[known.key, f"{level}_latency"]
        return Value(figure.value, 0.05, figure.unit, figure.source)

    return Parameters(
        gpu=gpu,
        cc=figures()[known.key, "dram_latency"].cc,
        sms=known.sms,
        max_warps=known.max_warps,
        clock=Value(known.clock, 0, "Hz", "published.csv"),
        dram_latency=latency("dram"),
        l2_latency=latency("l2"),
        l1_latency=latency("l1"),
        dram_bandwidth=Value(known.peak_bandwidth, 0.05, "B/s", known.source),
        fma_rate=Value(known.fma_rate, 0, "warp-FMA/clock/SM", "FP32 lanes / 32"),
        theta=THETA,
        block_turnover=TURNOVER,
    )


def compare(gpu: str, models: tuple[Model, ...]) -> Iterator[Comparison]:
    """Each model beside the published read bandwidth and warps to 90% of this GPU.

    The bandwidth is that of a full SM. The published saturation point is 90% of the highest
    point that was measured, so the model's is 90% of its own value for a full SM.
    """
    parameters = published_parameters(gpu)
    full = replace(READ, warps=parameters.max_warps)
    for model in models:
        top = model.predict(parameters, full)
        predictions = {
            "read_bandwidth": top.bandwidth,
            "read_warps_to_90pct": model.warps_to(0.9, parameters, READ, top.throughput),
        }
        for quantity, predicted in predictions.items():
            figure = figures()[ARCHITECTURE[gpu].key, quantity]
            yield Comparison(
                gpu=gpu,
                architecture=figure.architecture,
                quantity=quantity,
                unit=figure.unit,
                published=figure.value,
                model=model.name,
                predicted=predicted,
                source=figure.source,
            )
