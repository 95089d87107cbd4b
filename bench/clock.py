"""The clock: device time of one launch, with nothing of the host's launch cost inside.

One sample is queued behind a gate, a kernel that holds the stream until the host has queued
everything: flush -> gate -> probe -> start event -> the kernel -> stop event -> probe. Then the
gate opens. The gate is bounded: it gives up by itself, and the sample is flagged. The method is
nvbench's (its "cold" measurement); the code is our own.

The gate and the probe are CUDA C, because a numba launch costs the host several times what a
cuda.core launch does and each sample needs three of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from kernels.cuda_c import compile_cubin

GATE_TIMEOUT_S = 0.5
"""The gate gives up after this. Queueing a sample takes some 100 µs; what takes half a second
has been descheduled, or waits for the device inside its own launch."""

Flush = Literal["clean", "dirty"]
"""What a cold sample finds in L2: lines that were read (clean), or lines that were written and
must go to DRAM before they make room (dirty). A kernel that writes leaves as many dirty lines
as it found, so its own traffic is counted whole; one that only reads must not pay for others'
writes."""

SOURCE = r"""
extern "C" __global__ void gate(volatile long long* flags, long long ticket, long long timeout_ns)
{
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    while (flags[0] < ticket) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - start > timeout_ns) { flags[1] = ticket; return; }
    }
}

/* globaltimer ticks coarsely (32 ns to 1 us): wait for an edge, then read both clocks. */
extern "C" __global__ void probe(volatile long long* out)
{
    long long first, edge, cycles;
    unsigned sm;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(first));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(edge)); } while (edge == first);
    asm volatile("mov.u64 %0, %clock64;" : "=l"(cycles));
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    out[0] = edge; out[1] = cycles; out[2] = sm;
}

extern "C" __global__ void sweep(const float4* data, long long n, float* sink)
{
    long long step = (long long)gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float4 v = data[i];
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum == 1.2345e30f) *sink = sum;
}
"""


@dataclass(frozen=True)
class Sample:
    """One launch, timed."""

    seconds: float
    """Between the two events around the kernel, s."""
    sm_clock_hz: float | None
    """From two probes on one SM; None where they fell on different SMs."""
    launch_bound: bool = False
    """The gate gave up first: seconds may hold launch cost and must not be used."""


class Clock(Protocol):
    """What the sampler needs of a clock; the tests have a fake one."""

    def sample(self, queue: Callable[[Any], None], flush: Flush | None) -> Sample: ...

    def now(self) -> float:
        """Wall clock, s, for the sampler's own limits."""


class GateClock:
    """Gate, flush, events and probes on one stream of one device."""

    def __init__(self, index: int, l2_bytes: int, sms: int) -> None:
        """Compiles and warms up everything, so that no first launch falls behind a gate."""
        import cupy
        from cuda.core import (
            Device,
            EventOptions,
            LaunchConfig,
            Stream,
        )
        from numba import cuda

        device = Device(index)
        device.set_current()
        self._device = device
        code = compile_cubin(SOURCE, device.compute_capability)
        self._gate = code.get_kernel("gate")
        self._probe = code.get_kernel("probe")
        self._sweep = code.get_kernel("sweep")
        self._one = LaunchConfig(grid=1, block=1)
        self._wide = LaunchConfig(grid=8 * sms, block=256)
        self._cupy_stream = cupy.cuda.Stream(non_blocking=True)
        # Inputs are drawn, outputs poisoned and answers checked on this same stream, in order.
        # Entered and never left: what use() sets is forgotten when any later `with` ends.
        self._cupy_stream.__enter__()
        self._core = Stream.from_handle(self._cupy_stream.ptr)
        self.stream = cuda.external_stream(self._cupy_stream.ptr)
        timing = EventOptions(timing_enabled=True)
        self._start = device.create_event(timing)
        self._stop = device.create_event(timing)
        self._pinned = cupy.cuda.alloc_pinned_memory(64)
        self._flags = np.frombuffer(self._pinned, np.int64, 8)
        self._flags[:] = 0
        self._address = self._pinned.ptr
        # Twice L2: one sweep over as much as L2 holds would leave the last line of some sets.
        self._buffer = cupy.zeros(2 * l2_bytes // 4, cupy.float32)
        self._l2_bytes = l2_bytes
        self._ticket = 0
        self._launch = _launcher(self._core)
        for flush in ("clean", "dirty"):
            self.sample(lambda stream: None, flush)

    def now(self) -> float:
        return time.perf_counter()

    def synchronise(self) -> None:
        """Wait for the device, which raises what went wrong on it."""
        self._device.sync()

    def flush(self, kind: Flush) -> None:
        """Replace what L2 holds."""
        self._buffer.data.memset_async(0, self._l2_bytes, self._cupy_stream)
        if kind == "clean":
            pointer = self._buffer.data.ptr
            self._launch(self._wide, self._sweep, pointer, self._buffer.size // 4, pointer)

    def sample(self, queue: Callable[[Any], None], flush: Flush | None) -> Sample:
        """Device time of what `queue(stream)` queues, L2 flushed first unless flush is None."""
        if flush:
            self.flush(flush)
        self._ticket += 1
        self._launch(self._one, self._gate, self._address, self._ticket, int(GATE_TIMEOUT_S * 1e9))
        try:
            self._launch(self._one, self._probe, self._address + 16)
            self._core.record(self._start)
            queue(self.stream)
            self._core.record(self._stop)
            self._launch(self._one, self._probe, self._address + 40)
        finally:
            self._flags[0] = self._ticket
        self._core.sync()
        # Adjacent events only: elapsed time is a float32 of milliseconds.
        seconds = float(self._stop - self._start) * 1e-3
        flags = self._flags
        edge0, cycles0, sm0, edge1, cycles1, sm1 = (int(value) for value in flags[2:8])
        clock = (cycles1 - cycles0) / ((edge1 - edge0) * 1e-9) if sm0 == sm1 else None
        return Sample(seconds, clock, launch_bound=int(flags[1]) == self._ticket)


def _launcher(stream: Any) -> Callable[..., None]:
    from cuda.core import launch

    def queue(config: Any, kernel: Any, *arguments: int) -> None:
        launch(stream, config, kernel, *(np.int64(value) for value in arguments))

    return queue
