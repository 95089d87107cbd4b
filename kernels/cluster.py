"""Clusters: a barrier over the blocks of one, and reads of each other's shared memory.

One block fills an SM here, so that every other block of its cluster is on another SM.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from kernels import cluster_source as source
from kernels.barrier_block import LATE, all_saw
from kernels.cluster_launch import PORTABLE_SIZE, ClusterKernel, driver_error, require
from kernels.compat import on_host
from kernels.cuda_c import compile_cubin
from kernels.shared_memory import block_limit
from kernels.spec import (
    Bound,
    Family,
    Kernel,
    Launch,
    Machine,
    Params,
    Unavailable,
    Work,
    WrongAnswer,
)

TURNS = 16
"""Rounds between the clock reads: 256 barriers, or 1,024 loads one after another."""
STREAM_TURNS = 128
"""The same for a window that is streamed: 8 MiB an SM."""
WINDOW = source.THREADS * source.LOADS * 16
"""Bytes of each block's shared memory that are streamed."""
WORD = 2_654_435_761
"""What `word` in the source multiplies by: 2^32 over the golden ratio (Knuth, TAOCP 3, 6.4)."""
NOWHERE = 0xFFFFFFFF
"""What a chase that did not run leaves as its end."""
ORDERS = {"release_acquire": "sync_release", "relaxed": "sync_relaxed"}


@cache
def _cubin(cc: tuple[int, int]) -> bytes:
    return bytes(compile_cubin(source.SOURCE, cc, source.DEFINES).code)


@cache
def _loaded(cc: tuple[int, int], name: str, size: int, block: int) -> ClusterKernel:
    """A kernel with one block an SM. Each has its own module: permissions stay with a kernel."""
    from cuda.core import ObjectCode

    code = ObjectCode.from_cubin(_cubin(cc))
    try:
        return ClusterKernel(code, name, size, block, block_limit())
    except driver_error() as error:  # not every size above the portable one fits every GPC
        raise Unavailable(f"the driver takes no clusters of {size} blocks: {error}") from None


class _Outputs:
    """What every kernel here writes: a word, cycles and an SM for each block or cluster."""

    def __init__(self, xp: Any, words: int, kind: Any, places: int) -> None:
        self.words = xp.empty(words, kind)
        self.cycles, self.sms = xp.zeros(places, np.int64), xp.zeros(places, np.int32)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.words, self.cycles, self.sms


def _bound(
    kernel: ClusterKernel, first: tuple[Any, ...], outputs: _Outputs, nothing: int, **more: Any
) -> Bound:
    """As many clusters of it as the device holds at once."""
    clusters = kernel.max_active_clusters
    grid = (clusters * kernel.size, 1, 1)

    def queue(stream: Any) -> None:
        kernel.launch(stream, clusters, *first, *outputs.arguments)

    return Bound(
        launch=Launch(grid, (kernel.block, 1, 1), kernel.dynamic_smem, cluster=kernel.size),
        work=Work(),
        poison=lambda: outputs.words.fill(nothing),
        queue=queue,
        cache_resident=True,
        **more,
    )


def _bind_sync(params: Params, machine: Machine) -> Bound:
    """`permitted=0` asks for a size that is not portable without the leave that it needs."""
    require(machine)
    size, block = params["cluster"], params["block"]
    if not params.get("permitted", 1):
        _ask_without_leave(size, block, machine)
    kernel = _loaded(machine.cc, ORDERS[params["order"]], size, block)
    blocks = kernel.max_active_clusters * size
    outputs = _Outputs(machine.xp, blocks * block, np.int32, blocks)

    def reading() -> dict[str, Any]:
        cycles = float(np.median(on_host(outputs.cycles)))
        return {"latency_cycles": cycles / (TURNS * source.BARRIERS)}

    return _bound(
        kernel,
        (np.int32(TURNS), np.int32(LATE)),
        outputs,
        -1,
        check=lambda: all_saw(outputs.words, "cluster_sync"),
        reading=reading,
    )


def _ask_without_leave(size: int, block: int, machine: Machine) -> None:
    """Raises Unavailable with the driver's message where it refuses a cluster of this size."""
    from cuda.core import ObjectCode

    try:
        code = ObjectCode.from_cubin(_cubin(machine.cc))
        ClusterKernel(code, "sync_release", size, block, permitted=False)
    except Exception as error:  # the library's own class, and ours where nothing fits
        message = " ".join(str(error).split())
        raise Unavailable(
            f"clusters of {size} blocks were refused without leave ({message}): up to "
            f"{PORTABLE_SIZE} are portable, more need the kernel's attribute "
            "NON_PORTABLE_CLUSTER_SIZE_ALLOWED"
        ) from None


def _bind_most(params: Params, machine: Machine) -> Bound:
    """One launch of as many clusters as the driver says are active at once."""
    require(machine)
    size = params["cluster"]
    kernel = _loaded(machine.cc, "sync_release", size, params["block"])
    blocks = kernel.max_active_clusters * size
    outputs = _Outputs(machine.xp, blocks * params["block"], np.int32, blocks)

    def reading() -> dict[str, Any]:
        return {
            "max_active_clusters": float(kernel.max_active_clusters),
            "sms_used": float(len(np.unique(on_host(outputs.sms)))),
        }

    return _bound(
        kernel,
        (np.int32(1), np.int32(LATE)),
        outputs,
        -1,
        check=lambda: all_saw(outputs.words, "max_active_clusters"),
        reading=reading,
    )


def _rank(params: Params) -> int:
    rank, size = params.get("distance", 0), params["cluster"]
    if not 0 <= rank < size:
        raise ValueError(f"distance {rank} is outside 0 to {size - 1} in clusters of {size}")
    return rank


def _bind_latency(name: str, params: Params, machine: Machine) -> Bound:
    """Block 0 of each cluster chases through the shared memory of block `distance`."""
    require(machine)
    kernel = _loaded(machine.cc, name, params["cluster"], 32)
    clusters = kernel.max_active_clusters
    outputs = _Outputs(machine.xp, clusters, np.uint32, clusters)
    loads = TURNS * source.STEPS
    expected = source.REPEATS * loads * source.STRIDE % source.WORDS

    def check() -> float:
        ends = on_host(outputs.words)
        if (ends != expected).any():
            raise WrongAnswer(
                f"a chase ended at word {int(ends[ends != expected][0])}, not {expected}"
            )
        return 0.0

    def reading() -> dict[str, Any]:
        latency = on_host(outputs.cycles) / loads
        return {
            "latency_cycles": float(np.median(latency)),
            "block_latency": latency.tolist(),
            "block_sm": on_host(outputs.sms).tolist(),
        }

    first = (np.uint32(_rank(params)), np.int32(TURNS))
    return _bound(kernel, first, outputs, NOWHERE, check=check, reading=reading)


def _bind_bandwidth(name: str, params: Params, machine: Machine) -> Bound:
    """Every block streams the shared memory of the block `distance` places on in its cluster."""
    require(machine)
    size, distance = params["cluster"], _rank(params)
    kernel = _loaded(machine.cc, name, size, source.THREADS)
    blocks = kernel.max_active_clusters * size
    outputs = _Outputs(machine.xp, blocks, np.uint32, blocks)
    expected = np.array([_total((block + distance) % size) for block in range(size)], np.uint32)

    def check() -> float:
        sums = on_host(outputs.words).reshape(-1, size)
        if (sums != expected).any():
            cluster, rank = np.argwhere(sums != expected)[0]
            raise WrongAnswer(
                f"block {rank} of cluster {cluster} read words that add up to "
                f"{int(sums[cluster, rank])}, should be {int(expected[rank])}"
            )
        return 0.0

    def reading() -> dict[str, Any]:
        cycles = float(np.median(on_host(outputs.cycles)))
        return {"bytes_per_clock_per_sm": STREAM_TURNS * WINDOW / cycles}

    first = (np.uint32(distance), np.int32(STREAM_TURNS))
    return _bound(kernel, first, outputs, 0, check=check, reading=reading)


def _total(rank: int) -> int:
    """What the words of block `rank` add up to when all of them are read in each turn, mod 2^32."""
    words = WINDOW // 4
    total = words * (words - 1) // 2 * WORD + words * rank
    return total * STREAM_TURNS * source.REPEATS & NOWHERE


_NO_CLUSTERS = "it has no clusters"


def _kernel(name: str, summary: str, bind: Any, *examples: Params) -> Kernel:
    # CUDA C has no Python function of its own: the one that binds it leads there.
    place = getattr(bind, "func", bind)
    return Kernel(name, summary, bind, examples, source=place, simulator=_NO_CLUSTERS)


FAMILY = Family(
    "cluster",
    "the cluster's barrier, and shared memory of the other blocks in it",
    (
        _kernel(
            "cluster_sync",
            "The cluster's barrier, with and without ordering memory",
            _bind_sync,
            {"cluster": 2, "block": 64, "order": "release_acquire"},
            {"cluster": 8, "block": 32, "order": "relaxed"},
        ),
        _kernel(
            "max_active_clusters",
            "Clusters that are resident at once, one block an SM",
            _bind_most,
            {"cluster": 2, "block": 64},
        ),
        _kernel(
            "dsmem_latency",
            "Dependent loads from another block's shared memory",
            partial(_bind_latency, "chase_cluster"),
            {"cluster": 2, "distance": 1},
        ),
        _kernel(
            "shared_latency",
            "Dependent loads from the block's own shared memory, as shared loads",
            partial(_bind_latency, "chase_block"),
            {"cluster": 1},
        ),
        _kernel(
            "dsmem_bandwidth",
            "Every block streams another block's shared memory",
            partial(_bind_bandwidth, "stream_cluster"),
            {"cluster": 2, "distance": 1},
        ),
        _kernel(
            "shared_bandwidth",
            "Every block streams its own shared memory, as shared loads",
            partial(_bind_bandwidth, "stream_block"),
            {"cluster": 1},
        ),
    ),
)
