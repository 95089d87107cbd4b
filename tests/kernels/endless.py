"""A kernel that never ends, for the test of what ends it: python -m tests.kernels.endless."""

from __future__ import annotations

from numba import cuda

from kernels import ptx
from kernels.compat import jit


@jit
def endless():
    """Waits for an hour that does not come."""
    while ptx.clock64() != -1:
        pass


if __name__ == "__main__":
    endless[1, 1]()
    cuda.synchronize()
    print("it ended")
