"""One GPU as the CUDA driver and NVML know it; both are imported and initialised when asked.

Nothing here touches CUDA when it is imported: a process that has initialised CUDA cannot be
forked into one that uses it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any


class Unanswered(Exception):
    """The driver or NVML did not answer a question; the message is its name for the error.

    CUDA's names are those of CUresult (CUDA_ERROR_INVALID_VALUE), NVML's those of nvmlReturn_t
    as the Python package spells them (NotSupported).
    """


def cuda() -> Any:
    """The module of the CUDA driver's functions. Raises ImportError where it is not installed."""
    return import_module("cuda.bindings.driver")


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The value of a driver function.

    Raises:
        Unanswered: with the name of the CUresult.
        RuntimeError: libcuda itself was not found.
    """
    result, *values = function(*arguments)
    if int(result):
        raise Unanswered(result.name)
    return values[0] if values else None


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The module of NVML's functions, initialised until the block ends.

    Raises:
        Unanswered: the package is not installed, or NVML does not start.
    """
    try:
        library = import_module("pynvml")
    except ImportError:
        raise Unanswered("PackageNotFound") from None
    ask_nvml(library, "nvmlInit")
    try:
        yield library
    finally:
        library.nvmlShutdown()


def ask_nvml(library: Any, function: str, *arguments: Any) -> Any:
    """The value of one NVML function. Raises Unanswered with NVML's name for the error."""
    if not hasattr(library, function):  # in this version of the package
        raise Unanswered("FunctionNotFound")
    try:
        return getattr(library, function)(*arguments)
    except library.NVMLError as error:
        raise Unanswered(type(error).__name__.removeprefix("NVMLError_")) from None


@dataclass(frozen=True)
class Gpu:
    """A CUDA device and the NVML handle of the same UUID. Each method raises Unanswered."""

    driver: Any
    device: Any
    uuid: str
    """`GPU-…`, or `MIG-…` for a MIG instance."""
    library: Any
    """NVML's module, or the Unanswered that says why there is none."""
    handle: Any = None
    """NVML's handle of the physical GPU: a MIG instance has no clocks or power of its own."""
    instance: Any = None
    """NVML's handle of the MIG instance; None where the device is a whole GPU."""

    def call(self, function: str, *arguments: Any) -> Any:
        """A function of the CUDA driver."""
        return call(getattr(self.driver, function), *arguments)

    def attribute(self, name: str) -> int:
        """A device attribute, named without CU_DEVICE_ATTRIBUTE_, in the driver's own unit."""
        member = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        if member is None:
            raise Unanswered("UnknownAttribute")
        return int(self.call("cuDeviceGetAttribute", member, self.device))

    def system(self, function: str) -> Any:
        """A function of NVML that is not about one GPU."""
        if isinstance(self.library, Unanswered):
            raise self.library
        return ask_nvml(self.library, function)

    def management(self, function: str, *arguments: Any) -> Any:
        """A function of NVML about the physical GPU."""
        if isinstance(self.library, Unanswered):
            raise self.library
        return ask_nvml(self.library, function, self.handle, *arguments)


@contextlib.contextmanager
def opened(index: int) -> Iterator[Gpu]:
    """CUDA device `index`, with NVML open until the block ends.

    NVML is asked by UUID, never by index: NVML counts every GPU in PCI order, CUDA only those
    that CUDA_VISIBLE_DEVICES leaves, in its order.

    Raises:
        Unanswered: the driver does not start, or has no such device.
    """
    driver = cuda()
    call(driver.cuInit, 0)
    device = call(driver.cuDeviceGet, index)
    identity = str(uuid.UUID(bytes=bytes(call(driver.cuDeviceGetUuid, device).bytes)))
    with contextlib.ExitStack() as stack:
        try:
            gpu = _matched(driver, device, identity, stack.enter_context(nvml()))
        except Unanswered as error:
            gpu = Gpu(driver, device, f"GPU-{identity}", error)
        yield gpu


def _matched(driver: Any, device: Any, identity: str, library: Any) -> Gpu:
    """The device with its NVML handle. Raises Unanswered where NVML does not know the UUID."""
    # CUDA gives 16 bytes without saying whose they are; NVML wants the kind in front.
    try:
        name = f"GPU-{identity}"
        handle = ask_nvml(library, "nvmlDeviceGetHandleByUUID", name)
    except Unanswered:
        name = f"MIG-{identity}"
        instance = ask_nvml(library, "nvmlDeviceGetHandleByUUID", name)
        parent = ask_nvml(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance)
        return Gpu(driver, device, name, library, parent, instance)
    return Gpu(driver, device, name, library, handle)
