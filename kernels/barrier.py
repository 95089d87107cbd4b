"""Making threads meet: warp, block, grid, and the next launch. What each costs, and that it works.

The steps are in barrier_steps, the kernels in barrier_block, barrier_grid and barrier_relaunch;
clusters, which lie between block and grid, are a family of their own.
"""

from __future__ import annotations

from functools import partial

from kernels import barrier_grid as grids
from kernels import barrier_relaunch as relaunch
from kernels.barrier_block import SIGNATURE, bind, timed
from kernels.spec import Family, Kernel

_SMALL = ({"block": 64, "blocks_per_sm": 1}, {"block": 32, "blocks_per_sm": 2})


def _chain(name: str, summary: str) -> Kernel:
    function = timed(name)
    return Kernel(
        name,
        summary,
        partial(bind, name),
        examples=_SMALL,
        source=function,
        compiled=((function, SIGNATURE),),
    )


FAMILY = Family(
    "barrier",
    "what it costs to make threads meet, from a warp to a new launch",
    (
        _chain("syncwarp", "syncwarp in converged code: its mask is a constant"),
        _chain("syncwarp_masked", "syncwarp with a full mask that the assembler cannot know"),
        _chain("syncwarp_halves", "syncwarp of each half-warp with a mask of its own"),
        _chain("syncwarp_diverged", "syncwarp after a loop that half the lanes leave early"),
        _chain("diverged", "That loop alone: what to take off"),
        _chain("shuffle", "A word from the next lane"),
        _chain("ballot", "One bit of every lane, to every lane"),
        _chain("syncthreads", "The block's barrier"),
        _chain("syncthreads_diverged", "The block's barrier after that loop"),
        _chain("syncthreads_count", "The block's barrier, counting votes"),
        _chain("syncthreads_and", "The block's barrier: whether all vote yes"),
        _chain("syncthreads_or", "The block's barrier: whether any votes yes"),
        Kernel(
            "grid_sync",
            "The grid's barrier in a cooperative launch",
            grids.bind_grid_sync,
            examples=(
                {"block": 64, "blocks_per_sm": 1},
                {"block": 1024, "blocks_per_sm": "most"},
            ),
            source=grids.grid_sync,
            compiled=((grids.grid_sync, grids.GRID_SIGNATURE),),
            simulator="it takes a grid's barrier for a block's: its blocks run one after another",
        ),
        Kernel(
            "atomic_barrier",
            "A barrier over the grid made of atomics, each wait bounded by the clock",
            grids.bind_atomic,
            examples=(
                {"block": 64, "blocks_per_sm": 1},
                {"block": 128, "blocks_per_sm": "most", "beyond": 1},
            ),
            source=grids.atomic_barrier,
            compiled=((grids.atomic_barrier, grids.ATOMIC_SIGNATURE),),
        ),
        Kernel(
            "relaunch",
            "The end of a launch and the start of the next, queued ahead",
            relaunch.bind_relaunch,
            examples=_SMALL,
            source=relaunch.note,
            compiled=(
                (relaunch.note, relaunch.NOTE),
                (relaunch.pass_on, relaunch.PASS_ON),
                (relaunch.empty, "void()"),
            ),
        ),
        Kernel(
            "graph_relaunch",
            "The same between the nodes of a CUDA graph",
            relaunch.bind_graph,
            examples=_SMALL,
            source=relaunch.note,
            simulator="it has no graphs",
        ),
    ),
)
