"""Special registers and vector accesses: what PTX has and numba lacks.

Each is a callable for kernels with a twin in the simulator, built by `kernels.assembly`.
Instruction chains are in `kernels.instructions`, pointer chases in `kernels.probes`.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

from kernels import compat
from kernels.assembly import KINDS, Base, Element, Kind, Value, Values, assembly

if TYPE_CHECKING:
    from collections.abc import Callable

# --- Special registers. ---

SIMULATED_SMS = 4
"""How many multiprocessors the simulator pretends to have; blocks go round them."""
MOST_SMS = 1024
"""More than any GPU has: the length of an array by `smid`."""


def _simulated_block() -> int:
    thread = compat.simulated_thread()
    grid, block = thread._manager._grid_dim, thread.blockIdx
    return block.x + grid[0] * (block.y + grid[1] * block.z)


def _simulated_warp() -> int:
    return compat.simulated_thread().thread_id // compat.WARP_SIZE


def _simulated_lane() -> int:
    return compat.simulated_thread().thread_id % compat.WARP_SIZE


def _register(name: str, kind: str, twin: Callable, summary: str, *, constant: bool = False) -> Any:
    size = KINDS[kind].bytes * 8
    return assembly(
        name,
        f"mov.u{size} $0, %{name};",
        KINDS[kind],
        (),
        twin,
        summary=summary,
        side_effect=not constant,
        # A clock must not slip past a load or a store either.
        memory=not constant,
    )


clock64 = _register("clock64", "s64", time.perf_counter_ns, "SM clock, cycles (int64).")
_UNSEEN = {4: "0x7fb0c1d3", 8: "0x7ff5b0c1d3e2a496"}
"""A NaN, or an address that is not canonical, that no chain comes upon, by bytes."""


@cache
def clock_after(kind: str) -> Callable:
    """SM clock once a value is there: ``f(value) -> cycles`` (int64).

    A comparison with the value stands before the clock read and feeds it. A warp issues in order,
    so that the read waits for the value; a plain `clock64` does not wait for what is in flight.
    Comparison and read add some 15 cycles, once.
    """
    chosen = KINDS[kind]
    compare = f"setp.ne.b{chosen.bytes * 8} p, $1, {_UNSEEN[chosen.bytes]};"
    return assembly(
        f"clock_after_{kind}",
        f"{{ .reg .pred p; {compare} mov.u64 $0, 0; @p mov.u64 $0, %clock64; }}",
        KINDS["s64"],
        (Value(chosen),),
        lambda value: time.perf_counter_ns(),
        summary=f"SM clock, cycles (int64), read after this {kind} has arrived.",
        memory=True,
    )


globaltimer = _register(
    "globaltimer",
    "s64",
    time.perf_counter_ns,
    "Nanoseconds on a clock that all SMs share (int64); its step is 32 ns on an H200.",
)
smid = _register(
    "smid",
    "s32",
    lambda: _simulated_block() % SIMULATED_SMS,
    "Number of the multiprocessor that runs this thread (int32).",
)
warpid = _register(
    "warpid",
    "s32",
    _simulated_warp,
    "Warp slot on the multiprocessor (int32): physical, not the warp's number in its block.",
)
nwarpid = _register(
    "nwarpid", "s32", lambda: 64, "Bound of the warp slot numbers (int32).", constant=True
)
laneid = _register(
    "laneid", "s32", _simulated_lane, "Lane in the warp, 0 to 31 (int32).", constant=True
)
lanemask_lt = _register(
    "lanemask_lt",
    "u32",
    lambda: (1 << _simulated_lane()) - 1,
    "Mask of the lanes below this one (uint32).",
    constant=True,
)


# --- Memory. ---

LOAD_CACHES = {
    "": "",  # the default of the architecture, as numba's own loads
    "ca": ".ca",  # all levels
    "cg": ".cg",  # L2, not L1
    "cs": ".cs",  # streaming: evicted first
    "lu": ".lu",  # last use
    "nc": ".nc",  # read-only path
}
"""Cache operators of ``ld.global`` (PTX ISA, table "Cache Operators for Memory Load"). ``.cv``,
fetch again, is left out: the assembler took such a load out of a loop that waited for another
SM's write. `fresh` is what waits."""

STORE_CACHES = {"": "", "wb": ".wb", "cg": ".cg", "cs": ".cs", "wt": ".wt"}
"""Cache operators of ``st.global`` (PTX ISA, table "Cache Operators for Memory Store")."""


def _checked(kind: str, width: int, operator: str, operators: dict[str, str]) -> Kind:
    if operator not in operators:
        raise ValueError(f"cache operator '{operator}' is none of {', '.join(operators)}")
    chosen = KINDS[kind]
    if width not in (1, 2, 4) or width * chosen.bytes > 16:
        raise ValueError(f"no access of {width} x {kind}: 1, 2 or 4 elements, at most 16 bytes")
    return chosen


@cache
def load(kind: str = "f32", width: int = 1, cache: str = "") -> Callable:
    """A load of `width` elements at once: ``f(array, index)``.

    ``index`` counts elements and must be a multiple of `width`, the array must start on a
    multiple of the access (CuPy's and numba's allocations do). Returns the element, or a tuple
    of `width` elements.

    Raises:
        ValueError: More than 16 bytes, or an unknown cache operator.
    """
    chosen = _checked(kind, width, cache, LOAD_CACHES)
    vector = "" if width == 1 else f".v{width}"
    results = ",".join(f"${place}" for place in range(width))
    results = results if width == 1 else f"{{{results}}}"

    def twin(array: Any, index: int) -> Any:
        _require_aligned(index, width)
        if width == 1:
            return array[index]
        return tuple(array[index + place] for place in range(width))

    return assembly(
        f"load_{kind}_v{width}{cache}",
        f"ld.global{LOAD_CACHES[cache]}{vector}.{kind} {results}, [${width}];",
        chosen if width == 1 else (chosen, width),
        (Element(chosen),),
        twin,
        summary=f"Load {width} x {kind} at array[index].",
        memory=True,
    )


@cache
def store(kind: str = "f32", width: int = 1, cache: str = "") -> Callable:
    """A store of `width` elements at once: ``f(array, index, value)``.

    ``value`` is a tuple when `width` is more than 1. Alignment and errors as for `load`.
    """
    chosen = _checked(kind, width, cache, STORE_CACHES)
    vector = "" if width == 1 else f".v{width}"
    values = ",".join(f"${place + 1}" for place in range(width))
    values = values if width == 1 else f"{{{values}}}"

    def twin(array: Any, index: int, value: Any) -> None:
        _require_aligned(index, width)
        for place, one in enumerate(value if width > 1 else (value,)):
            array[index + place] = one

    return assembly(
        f"store_{kind}_v{width}{cache}",
        f"st.global{STORE_CACHES[cache]}{vector}.{kind} [$0], {values};",
        None,
        (Element(chosen), Value(chosen) if width == 1 else Values(chosen, width)),
        twin,
        summary=f"Store {width} x {kind} at array[index].",
        memory=True,
    )


@cache
def fresh(kind: str = "s64") -> Callable:
    """A load that sees what other SMs wrote, each time it is reached: ``f(array, index)``."""
    chosen = KINDS[kind]
    return assembly(
        f"fresh_{kind}",
        f"ld.volatile.global.{kind} $0, [$1];",
        chosen,
        (Element(chosen),),
        lambda array, index: array[index],
        summary=f"Load {kind} at array[index], never from a register or L1.",
        memory=True,
    )


def _require_aligned(index: int, width: int) -> None:
    if index % width:
        raise ValueError(f"index {index} is not a multiple of {width}: misaligned on a GPU")


load_v4_f32 = load("f32", 4)
load_v2_f64 = load("f64", 2)
store_v4_f32 = store("f32", 4)
store_v2_f64 = store("f64", 2)


def host_address(array: Any) -> int:
    """Where the simulator keeps the data of an array inside a kernel."""
    inner = getattr(getattr(array, "_item", array), "_ary", array)
    return int(inner.ctypes.data)


address_of = assembly(
    "address_of",
    "mov.u64 $0, $1;",
    KINDS["u64"],
    (Base(),),
    host_address,
    summary="Address of an array's first element (uint64); in the simulator, the host's.",
    side_effect=False,
)
