"""A word that one thread writes while another waits for it: read and written each time anew."""

from __future__ import annotations

from typing import Any

from kernels.assembly import KINDS, Element, Value, assembly

_S32 = KINDS["s32"]


def _put(array: Any, index: int, value: int) -> None:
    array[index] = value


# Addresses are generic: the same code serves shared and global arrays.
look = assembly(
    "look",
    "ld.volatile.s32 $0, [$1];",
    _S32,
    (Element(_S32),),
    lambda array, index: array[index],
    summary="array[index] as it is now (int32), in shared or global memory: ``f(array, index)``.",
    memory=True,
)
put = assembly(
    "put",
    "st.volatile.s32 [$0], $1;",
    None,
    (Element(_S32), Value(_S32)),
    _put,
    summary="Write array[index] now (int32): ``f(array, index, value)``.",
    memory=True,
)
