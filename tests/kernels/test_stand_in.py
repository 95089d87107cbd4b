"""What the host does for a GPU alone, on a stand-in for one; and that records are of this code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from kernels import compat

if compat.SIMULATOR:
    pytest.skip("the simulator has no host side of a GPU's", allow_module_level=True)
if find_spec("cupy") is None or find_spec("cuda") is None or find_spec("cuda.core") is None:
    pytest.skip("no CUDA toolkit packages: run `make setup`", allow_module_level=True)

from numba import cuda, float32, types
from numba.cuda.core.sigutils import normalize_signature

from bench.machine import from_snapshot
from kernels.block_log import allow_shared, whole_sm
from kernels.compat import jit, queue_zero
from kernels.reduction import _this_machine
from kernels.shared_memory import prepare_shared_memory
from kernels.spec import (
    Bound,
    Kernel,
    Launch,
    Params,
    Unavailable,
    Work,
    WrongAnswer,
    families,
)
from results import schema
from tests.kernels import stand_in, stand_in_libraries
from tests.kernels.stand_in import Gpu, recorded_device

pytestmark = pytest.mark.ptx

OTHER_LIBRARY = "another library's kernel: only its own device code launches it"
OUT_OF_REACH = {
    ("axpy", "cublas"): OTHER_LIBRARY,
    ("axpy", "cupy_elementwise"): OTHER_LIBRARY,
    ("launch", "cupy"): OTHER_LIBRARY,
    ("memory", "chase_texture"): OTHER_LIBRARY,
    ("reduction", "cub"): OTHER_LIBRARY,
    ("reduction", "numba_reduce"): OTHER_LIBRARY,
    ("launch", "late_error"): "a child process asks the driver itself",
}
NOTHING_RAN = (WrongAnswer, ZeroDivisionError, ValueError, IndexError)
"""What a check or a reading may find wrong with arrays that no kernel has written."""

Types = tuple[Any, ...]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    with monkeypatch.context() as patch:
        yield stand_in_libraries.install(patch)
    stand_in_libraries.forget()


def examples() -> list[Any]:
    return [
        pytest.param(
            *(family.name, kernel, example),
            id=f"{family.name}-{kernel.name}-{index}",
            marks=pytest.mark.thorough if index > 1 else (),
        )
        for family in families().values()
        for kernel in family.kernels
        if (family.name, kernel.name) not in OUT_OF_REACH
        for index, example in enumerate(kernel.examples)
    ]


def declared() -> dict[Any, set[Types]]:
    """Argument types that the PTX tier compiles, by code: what differs between functions of one
    code is the number of its loads, registers and the like, never the arguments."""
    found: dict[Any, set[Types]] = {}
    for family in families().values():
        for kernel in family.kernels:
            for function, signature in kernel.compiled:
                known = found.setdefault(function.py_func.__code__, set())
                known.add(normalize_signature(signature)[0])
    return found


DECLARED = declared()


def as_of(given: Types, dtype: str) -> Types:
    """The types of a kernel that is declared for float32, for another element."""
    element = getattr(types, dtype)
    return tuple(
        one.copy(dtype=element)
        if isinstance(one, types.Array) and one.dtype == types.float32
        else element
        if one == types.float32
        else one
        for one in given
    )


def use(bound: Bound) -> None:
    """Whatever a run does with what is bound."""
    bound.poison()
    bound.queue(stand_in_libraries.NumbaStream())
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # means of nothing
        for look in (bound.check, bound.reading):
            try:
                if look is not None:
                    look()
            except NOTHING_RAN:
                pass


@pytest.mark.parametrize(("family", "kernel", "example"), examples())
def test_every_example_binds_and_launches(family: str, kernel: Kernel, example: Params, gpu: Gpu):
    bound = kernel.bind(example, gpu.machine_for(family))
    use(bound)
    assert gpu.launches or kernel.name == "memcpy"
    for launched in gpu.launches:
        if launched.function is None:
            continue
        known = DECLARED[launched.function.py_func.__code__]
        if "dtype" in example:
            known = {as_of(one, example["dtype"]) for one in known}
        assert launched.types in known, launched.function.__name__


# --- What the stand-in is strict about ---


@jit
def staged(out):
    """A block's own 512 bytes of shared memory, besides what its launch asks for."""
    own = cuda.shared.array(128, float32)
    own[cuda.threadIdx.x] = out[cuda.threadIdx.x]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = own[127 - cuda.threadIdx.x]


def staged_bound(gpu: Gpu, dynamic_smem: int) -> Bound:
    out = gpu.machine.xp.zeros(128, "float32")
    launch = Launch.linear(1, 128, dynamic_smem)
    return Bound(launch, Work(), check=lambda: 0.0, function=staged, arguments=(out,))


def test_shared_memory_needs_leave_and_ends_where_the_device_ends(gpu: Gpu):
    without_leave = gpu.device["shared_memory_per_block"] - 512
    most = gpu.device["shared_memory_per_block_optin"] - 512
    stream = stand_in_libraries.NumbaStream()
    staged_bound(gpu, without_leave).queue(stream)
    with pytest.raises(stand_in.Refused, match=f"may have {without_leave}, for it was allowed no"):
        staged_bound(gpu, without_leave + 1).queue(stream)
    prepare_shared_memory(staged_bound(gpu, 0).overload())
    staged_bound(gpu, most).queue(stream)
    with pytest.raises(stand_in.Refused, match="beside 512 of its own"):
        staged_bound(gpu, most + 1).queue(stream)
    assert [launched.dynamic_smem for launched in gpu.launches] == [without_leave, most]


def test_a_launch_that_wants_the_whole_sm_gets_what_the_kernels_own_arrays_leave(gpu: Gpu):
    bound = allow_shared(staged_bound(gpu, whole_sm()))
    bound.queue(stand_in_libraries.NumbaStream())
    assert gpu.launches[0].dynamic_smem + 512 == gpu.device["shared_memory_per_block_optin"]


def test_wrong_arguments_are_noticed(gpu: Gpu):
    with pytest.raises(TypeError, match="staged takes 1 arguments, not 2"):
        staged[1, 128](1, 2)
    with pytest.raises(TypeError, match="sequence of integers"):
        staged[1.5, 128](1)


def test_the_public_helper_asks_the_device_for_what_it_has(gpu: Gpu, monkeypatch: Any):
    monkeypatch.setattr(compat, "array_module", lambda: gpu.machine.xp)
    machine, of_bench = _this_machine(), from_snapshot(recorded_device())
    for name in ("cc", "sms", "max_threads_per_sm", "max_blocks_per_sm", "l2_bytes"):
        assert getattr(machine, name) == getattr(of_bench, name), name


def test_launches_that_the_driver_refuses(gpu: Gpu):
    kernel = families()["launch"]["refused"]
    for example in kernel.examples:
        assert kernel.bind(example, gpu.machine).reading() == {"error_code": 1.0}, example
    assert not gpu.launches
    params = {"block": 64, "blocks_per_sm": "most", "beyond": 1}
    with pytest.raises(Unavailable, match="COOPERATIVE_LAUNCH_TOO_LARGE"):
        families()["barrier"]["grid_sync"].bind(params, gpu.machine)


def test_arrays_are_as_strict_as_those_of_cupy(gpu: Gpu):
    xp = gpu.machine.xp
    array = xp.empty(4, "int32")
    assert (array.get() == -1).all()
    queue_zero(array, stand_in_libraries.NumbaStream())
    assert not array.get().any()
    with pytest.raises(AssertionError, match="8 bytes of 16"):
        array.data.memset_async(0, 8, compat.cupy_stream(stand_in_libraries.NumbaStream()))
    with pytest.raises(TypeError, match="no array of the host's"):
        array + np.zeros(4)
    with pytest.raises(AttributeError, match="cupy"):
        xp.char.upper("CuPy has none")


# --- Records are evidence of this code ---

SIZES = {"n": 4096, "bytes": 1 << 16}
"""Arrays are made this small: no kernel's code depends on it."""


def recorded(family: str) -> dict[str, list[schema.Case]]:
    """Cases of the baseline's process 0 by the hash of their machine code."""
    found: dict[str, list[schema.Case]] = {}
    with (stand_in.BASELINE / f"0-{family}.jsonl").open("rb") as lines:
        for line in map(schema.decode, lines):
            if isinstance(line, schema.Case) and line.launch and line.launch.code:
                found.setdefault(line.launch.code, []).append(line)
    return found


def recorded_families() -> list[str]:
    return sorted(path.stem.removeprefix("0-") for path in stand_in.BASELINE.glob("0-*.jsonl"))


def small(params: Params) -> dict[str, Any]:
    return {
        name: min(value, SIZES[name]) if name in SIZES else value for name, value in params.items()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("family", recorded_families())
def test_what_was_recorded_is_what_the_code_says_today(family: str, gpu: Gpu):
    """One case for each code: the same machine code and shared memory, in a legal launch.

    Registers are left out: the driver counts those of the functions that a kernel calls, the
    assembler's log does not.
    """
    different = {}
    for code, cases in recorded(family).items():
        case = cases[0]
        launch = case.launch
        kernel = families()[case.family][case.kernel]  # some families measure another's beside
        bound = kernel.bind(small(case.params), gpu.machine_for(case.family))
        overload = bound.overload()
        overload.loaded.refuse(bound.launch.dynamic_smem, easy=0)
        today = overload.compiled.text_hash, overload.shared_mem_per_block
        if today != (code, launch.static_smem):
            different[case.kernel, str(case.params)] = {"recorded": code, "today": today}
    assert not different, (
        f"the records of {family} in {stand_in.BASELINE.name} are of other code: "
        f"record the family again (python -m bench run --family {family})"
    )
