"""A barrier in a branch: what `syncthreads` does where not all threads of the block reach it."""

from __future__ import annotations

from functools import partial

from kernels import meeting
from kernels.spec import Family, Kernel

PROGRAMS = meeting.programs(meeting.block_barrier)
SUMMARIES = {
    "uniform": "A barrier in a branch that all threads take",
    "returned": "Threads that skip the barrier return",
    "later": "Threads that skip the barrier meet the next one",
    "spinning": "Threads that skip the barrier wait for a flag set after it",
    "both_sides": "An if/else with a barrier in each branch",
    "after": "The barrier after the if/else",
}
EXAMPLES = ({"block": 64, "split": 32}, {"block": 64, "split": 48})
"""Split on a warp edge, and inside a warp."""

FAMILY = Family(
    "branch",
    "barriers that not all threads reach",
    tuple(
        Kernel(
            name,
            SUMMARIES[name],
            partial(meeting.bind, name, function),
            examples=EXAMPLES,
            source=function,
            compiled=((function, meeting.signature(name)),),
            may_hang=True,
        )
        for name, function in PROGRAMS.items()
    ),
)
