"""Kernels that never end, and one that does, for the test of what ends them."""

from __future__ import annotations

from typing import Any

from kernels import ptx
from kernels.compat import jit
from kernels.spec import Bound, Family, Kernel, Launch, Machine, Params, Work


@jit
def endless(hour):
    """Waits for an hour that does not come."""
    while ptx.clock64() != hour:
        pass


@jit
def ending(hour):
    """Waits for nothing."""


def _kernel(name: str, function: Any) -> Kernel:
    def bind(params: Params, machine: Machine) -> Bound:
        return Bound(
            Launch.linear(1, 1),
            Work(),
            check=lambda: 0.0,
            function=function,
            arguments=(-1,),
            reading=lambda: {"gave_up": 0.0},
        )

    return Kernel(name, "made up", bind, examples=({},), source=function, may_hang=True)


FAMILY = Family("never_ending", "", (_kernel("endless", endless), _kernel("ending", ending)))
