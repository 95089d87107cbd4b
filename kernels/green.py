"""Green contexts: a stream whose kernels run on so many SMs and no others (CUDA driver 12.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels.spec import Queue, Unavailable


@dataclass(frozen=True)
class Partition:
    """A stream on a share of the SMs, and the events that tie it to another stream."""

    stream: Any
    """numba's stream of the green context."""
    sms: int
    fork: Any
    join: Any

    def run(self, stream: Any, queue: Queue) -> None:
        """Queue on the partition's stream, after all before and before all behind in `stream`.

        Nothing waits on the host, so it may stand behind a gate.
        """
        from cuda.bindings import driver

        _ask(driver.cuEventRecord, self.fork, int(stream))
        _ask(driver.cuStreamWaitEvent, int(self.stream), self.fork, 0)
        queue(self.stream)
        _ask(driver.cuEventRecord, self.join, int(self.stream))
        _ask(driver.cuStreamWaitEvent, int(stream), self.join, 0)


def _ask(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        error, *values = function(*arguments)
    except RuntimeError as missing:  # what the bindings say where the driver is too old
        raise Unavailable(f"green contexts need driver 550 or newer ({missing})") from None
    if int(error):
        raise Unavailable(f"{function.__name__} answers {error.name}: no green context here")
    return values[0] if len(values) == 1 else values


@cache
def partition(sms: int) -> Partition:
    """A green context of at least `sms` SMs of the current device, all of them included.

    The driver rounds up to what it can set apart, 8 SMs on compute capability 9.0. The context
    lives as long as the process: its streams may not outlive it.

    Raises:
        Unavailable: the driver or the device has no green contexts, or not so many SMs.
    """
    from cuda.bindings import driver
    from numba import cuda

    device = driver.CUdevice(int(cuda.current_context().device.id))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    resource = _ask(driver.cuDeviceGetDevResource, device, kind)
    if sms != resource.sm.smCount:
        groups, *_ = _ask(driver.cuDevSmResourceSplitByCount, 1, resource, 0, sms)
        if not groups:
            raise Unavailable(f"the driver does not set {sms} SMs apart")
        resource = groups[0]
    described = _ask(driver.cuDevResourceGenerateDesc, [resource], 1)
    flags = int(driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM)
    context = _ask(driver.cuGreenCtxCreate, described, device, flags)
    non_blocking = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    handle = _ask(driver.cuGreenCtxStreamCreate, context, non_blocking, 0)
    untimed = int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
    fork = _ask(driver.cuEventCreate, untimed)
    # An event is recorded on streams of its own context only; any stream may wait for it.
    _ask(driver.cuCtxPushCurrent, _ask(driver.cuCtxFromGreenCtx, context))
    try:
        join = _ask(driver.cuEventCreate, untimed)
    finally:
        _ask(driver.cuCtxPopCurrent)
    return Partition(cuda.external_stream(int(handle)), resource.sm.smCount, fork, join)
