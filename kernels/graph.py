"""What is queued, as one CUDA graph: instantiated once, then launched as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.compat import core_stream

Queue = Callable[[Any], None]
"""Queues work on the stream that it is given."""


def graph_of(queue: Queue) -> Queue:
    """Launch as a graph what `queue` queues; it is given the graph's builder as its stream."""
    from cuda.core import Device

    device = Device()
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
