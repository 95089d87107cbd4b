"""What `make test` compiles for, and what it leaves to CI."""

from __future__ import annotations

import pytest

from kernels.compile import CAPABILITIES

FIRST = ((7, 5), (9, 0))
"""The oldest, which lacks most, and the recorded one: `make test` is content with them."""
OTHERS = tuple(cc for cc in CAPABILITIES if cc not in FIRST)
every_capability = pytest.mark.parametrize(
    "cc",
    [
        pytest.param(
            cc,
            id=f"{cc[0]}.{cc[1]}",
            marks=() if cc in FIRST else pytest.mark.thorough,
        )
        for cc in CAPABILITIES
    ],
)
