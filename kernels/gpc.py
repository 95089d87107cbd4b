"""Which SMs share a GPC: a cluster's blocks run on one GPC, so SMs that ever hold one are joined.

A launch is small and takes microseconds; blocks that stay an uneven time leave other gaps in each,
so that clusters of 2 to 16 blocks come to lie differently until all SMs of a GPC have met.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kernels import cluster_launch as cluster
from kernels.block_log import whole_sm
from kernels.compat import on_host
from kernels.cuda_c import compile_cubin
from kernels.ptx import MOST_SMS
from kernels.spec import Bound, Launch, Machine, Params, Unavailable, Work, WrongAnswer

SIZES = range(2, 17)
"""Blocks a cluster: 8 are portable, 16 the most with leave (CUDA C++ Programming Guide)."""
LONGEST = 8192
"""A cluster stays up to so many cycles."""
THREADS = 1024
UNSEEN = -1
NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)
"""What a block that did not run leaves in its place."""

SOURCE = r"""
extern "C" __global__ void places(unsigned long long* out, unsigned seed, unsigned most)
{
    unsigned sm, cluster;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %clusterid.x;" : "=r"(cluster));
    /* Each cluster another stay in each launch: Knuth's multiplicative hash, then the mixing steps
       of xxHash's 32-bit avalanche. */
    unsigned stay = (cluster + 1) * 2654435761u ^ seed;
    stay = (stay ^ stay >> 15) * 2246822519u;
    stay = (stay ^ stay >> 13) % most;
    long long begin = clock64();
    while (clock64() - begin < stay) { }
    if (threadIdx.x == 0) out[blockIdx.x] = (unsigned long long)cluster << 32 | sm;
}
"""


def join(parents: list[int], members: Iterable[int]) -> None:
    """Unite the sets of `members` in a forest of parents (union-find)."""
    roots = sorted({root(parents, member) for member in members})
    for other in roots[1:]:
        parents[other] = roots[0]


def root(parents: list[int], member: int) -> int:
    """The member that stands for the set of `member`; shortens the way to it in `parents`."""
    while parents[member] != member:
        parents[member] = parents[parents[member]]
        member = parents[member]
    return member


class Groups:
    """SMs joined so far."""

    def __init__(self) -> None:
        self.parents = list(range(MOST_SMS))
        self.seen: set[int] = set()

    def add(self, clusters: np.ndarray) -> None:
        """Join the SMs of each cluster; int array of shape (clusters, blocks a cluster)."""
        self.seen.update(np.unique(clusters).tolist())
        roots = np.array([root(self.parents, sm) for sm in range(MOST_SMS)])[clusters]
        for row in np.flatnonzero(roots.min(axis=1) != roots.max(axis=1)):
            join(self.parents, clusters[row].tolist())

    def numbers(self) -> list[int]:
        """A group's number for each SM up to the last one seen, by its lowest SM; UNSEEN: none."""
        names: dict[int, int] = {}
        return [
            names.setdefault(root(self.parents, sm), len(names)) if sm in self.seen else UNSEEN
            for sm in range(max(self.seen, default=-1) + 1)
        ]


def _launchers(machine: Machine) -> list[cluster.ClusterKernel]:
    """Every cluster size that the driver takes, with an SM a block and with two blocks an SM."""
    code = compile_cubin(SOURCE, machine.cc)
    found = []
    for smem in (whole_sm(), 0):
        for size in SIZES:
            # Not every size above the portable one fits every GPC; how the driver says so differs.
            with contextlib.suppress(Unavailable, cluster.driver_error()):
                found.append(cluster.ClusterKernel(code, "places", size, THREADS, smem))
    if not found:
        raise Unavailable("the driver takes no cluster here")
    return found


def bind(params: Params, machine: Machine) -> Bound:
    """One round: a launch of each cluster size, each of twice as many blocks as there are SMs."""
    cluster.require(machine)
    launchers = _launchers(machine)
    counts = [2 * machine.sms // kernel.size for kernel in launchers]
    out = machine.xp.empty((len(launchers), 2 * machine.sms), machine.xp.uint64)
    groups = Groups()
    seed = 0

    def queue(stream: Any) -> None:
        nonlocal seed
        for kernel, clusters, row in zip(launchers, counts, out, strict=True):
            seed += 1
            kernel.launch(stream, clusters, row, np.uint32(seed), np.uint32(LONGEST))

    def places() -> Iterator[np.ndarray]:
        for kernel, clusters, row in zip(launchers, counts, on_host(out), strict=True):
            yield row[: clusters * kernel.size].reshape(clusters, kernel.size)

    def check() -> float:
        for seen in places():
            if (seen == NOTHING).any():
                raise WrongAnswer(f"a block of the clusters of {seen.shape[1]} did not run")
            if (seen >> np.uint64(32) != np.arange(len(seen))[:, None]).any():
                raise WrongAnswer(f"the clusters of {seen.shape[1]} are not blocks in a row")
        return 0.0

    def reading() -> dict[str, Any]:
        for seen in places():
            groups.add((seen & np.uint64(0xFFFFFFFF)).astype(np.int64))
        numbers = groups.numbers()
        return {"sm_group": numbers, "sm_groups": float(max(numbers) + 1)}

    return Bound(
        launch=Launch.linear(2 * machine.sms, THREADS),
        work=Work(),
        check=check,
        poison=lambda: out.fill(NOTHING),
        queue=queue,
        reading=reading,
    )
