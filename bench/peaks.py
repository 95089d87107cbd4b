"""What the device could do at most: peaks derived from its limits and clocks."""

from __future__ import annotations

FP32_LANES_PER_SM = {
    (7, 0): 64,
    (7, 2): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (10, 3): 128,
    (11, 0): 128,
    (12, 0): 128,
    (12, 1): 128,
}
"""FP32 add, multiply or multiply-add results a clock an SM, by compute capability: CUDA C++
Programming Guide, table "Throughput of Native Arithmetic Instructions"; for 8.7, 10.3, 11.0 and
12.1, CUDA cores over SMs in NVIDIA's data sheets."""


def memory_bandwidth(bus_width_bits: int, memory_clock_hz: float) -> float:
    """Peak DRAM bandwidth, B/s: bus width / 8 × memory clock × 2.

    The factor 2 is for two transfers a clock: NVML gives the clock of every DRAM type in that
    convention. An H200, 6016 bits at 3201 MHz, has 4.814 TB/s.
    """
    return bus_width_bits / 8 * memory_clock_hz * 2


def fp32(cc: str, sms: int, sm_clock_hz: float) -> float:
    """Peak FP32 rate, FLOP/s: SMs × FP32 lanes an SM × 2 × SM clock; an FMA counts as two.

    Raises:
        LookupError: a compute capability that FP32_LANES_PER_SM does not list.
    """
    major, minor = cc.split(".")
    return float(sms * FP32_LANES_PER_SM[int(major), int(minor)] * 2 * sm_clock_hz)
