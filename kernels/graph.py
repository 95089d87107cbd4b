"""What is queued, as one CUDA graph: instantiated once, then launched as a whole."""

from __future__ import annotations

from typing import Any

from kernels.compat import core_stream
from kernels.spec import Queue


def graph_of(queue: Queue) -> Queue:
    """Launch as a graph what `queue` queues, on numba's current device.

    Args:
        queue: Is given the graph's builder as its stream. Whatever it launches must have its code
            on the device already, which a stream that records cannot load: a numba kernel's first
            launch does.
    """
    from cuda.core import Device
    from numba import cuda

    device = Device(cuda.get_current_device().id)
    device.set_current()
    builder = device.create_graph_builder()
    builder.begin_building()
    queue(builder)
    graph = builder.end_building().complete()
    uploaded: set[int] = set()

    def launch(stream: Any) -> None:
        target = core_stream(stream)
        if int(stream) not in uploaded:
            uploaded.add(int(stream))
            graph.upload(target)
        graph.launch(target)

    return launch
