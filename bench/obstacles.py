"""What stands between this machine and a measurement, in one line, with its remedy."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from typing import Any

from bench import driver
from bench.driver import Unanswered
from results.errors import UserError

NEEDED_CUDA = 13_000
"""The CUDA toolkit that is installed (1000 × major + 10 × minor), and so the oldest CUDA that the
driver must serve."""
NEEDED_DRIVER = 580
"""The first driver branch that serves it: CUDA Toolkit release notes, table of driver versions."""
NEEDED_CC = (7, 5)
"""The oldest architecture that CUDA 13 compiles for: its release notes."""
PACKAGES = {"numba.cuda": "numba-cuda", "cupy": "cupy"}
"""Module -> package without which nothing can be measured."""

NO_LIBRARY = (
    f"no NVIDIA driver: libcuda was not found; install driver {NEEDED_DRIVER} or newer, and start "
    "a container with its GPUs ('--gpus all')"
)
REMEDIES = {
    "CUDA_ERROR_STUB_LIBRARY": "libcuda is the toolkit's stub, not the driver's: take its folder "
    "out of LD_LIBRARY_PATH",
    "CUDA_ERROR_SYSTEM_NOT_READY": "the GPUs' fabric is not up: start nvidia-fabricmanager",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "libcuda and the kernel module are of different "
    "versions: reboot, or match the container's driver to the host's",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "the forward-compatibility libcuda does not "
    f"serve this GPU: install driver {NEEDED_DRIVER} or newer instead",
    "CUDA_ERROR_MPS_CONNECTION_FAILED": "the MPS server does not answer: restart it, or unset "
    "CUDA_MPS_PIPE_DIRECTORY",
}
"""Why cuInit fails, by its error, and what to do."""
PROHIBITED = 2
"""CU_COMPUTEMODE_PROHIBITED of cuda.h."""


def usable(index: int = 0) -> None:
    """Return where CUDA device `index` can be measured on. Initialises CUDA in this process.

    Raises:
        UserError: it cannot; one line names what is missing and the remedy.
    """
    if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
        raise UserError("NUMBA_ENABLE_CUDASIM puts the simulator in the GPU's place: unset it")
    try:
        library = driver.cuda()
    except ImportError as error:
        raise UserError(f"cuda-bindings cannot be imported ({error}): run 'make setup'") from None
    _initialise(library)
    try:
        _find(library, index)
    except Unanswered as error:
        raise UserError(
            f"device {index} does not answer ({error}): see whether 'nvidia-smi' does, and "
            "reboot if it does not"
        ) from None
    _import_packages()


def why_not(index: int = 0) -> str | None:
    """Why CUDA device `index` cannot be measured on, in one line; None where it can."""
    try:
        usable(index)
    except UserError as error:
        return str(error)
    return None


def _initialise(library: Any) -> None:
    try:
        serves = driver.call(library.cuDriverGetVersion)
    except (RuntimeError, Unanswered):
        raise UserError(NO_LIBRARY) from None
    if serves < NEEDED_CUDA:
        raise UserError(
            f"the NVIDIA driver{_driver_version()} is too old: it serves CUDA {serves // 1000}."
            f"{serves % 1000 // 10}, CUDA {NEEDED_CUDA // 1000} needs driver {NEEDED_DRIVER} or "
            "newer; update it"
        )
    try:
        driver.call(library.cuInit, 0)
    except Unanswered as error:
        name = str(error)
        if name == "CUDA_ERROR_NO_DEVICE":
            raise UserError(_no_device()) from None
        remedy = REMEDIES.get(name, "see whether 'nvidia-smi' works, and reboot if it does not")
        raise UserError(f"the NVIDIA driver does not start ({name}): {remedy}") from None


def _find(library: Any, index: int) -> None:
    count = driver.call(library.cuDeviceGetCount)
    if count == 0:
        raise UserError(_no_device())
    if not 0 <= index < count:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        among = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
        there = f"there are {count}" if count > 1 else "there is 1"
        choice = f"0..{count - 1}" if count > 1 else "0"
        raise UserError(f"device {index}: {there}{among}; use --device {choice}")
    gpu = driver.Gpu(library, driver.call(library.cuDeviceGet, index), "", None)
    cc = gpu.attribute("COMPUTE_CAPABILITY_MAJOR"), gpu.attribute("COMPUTE_CAPABILITY_MINOR")
    if cc < NEEDED_CC:
        raise UserError(
            f"device {index} has compute capability {cc[0]}.{cc[1]}; CUDA {NEEDED_CUDA // 1000} "
            f"compiles for {NEEDED_CC[0]}.{NEEDED_CC[1]} or newer: use another GPU with --device"
        )
    if gpu.attribute("COMPUTE_MODE") == PROHIBITED:
        raise UserError(
            f"device {index} is in compute mode Prohibited: 'nvidia-smi -i ID -c DEFAULT' allows "
            "work on it"
        )


def _import_packages() -> None:
    for module, package in PACKAGES.items():
        try:
            import_module(module)
        except Exception as error:  # beside a wrong NumPy, numba-cuda fails with AttributeError
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"{package} cannot be imported ({reason}): run 'make setup', which installs "
                "the versions that fit"
            ) from None


def _driver_version() -> str:
    """The driver's version with a space in front; empty where NVML does not tell it."""
    with contextlib.suppress(Unanswered), driver.nvml() as library:
        return f" {driver.ask_nvml(library, 'nvmlSystemGetDriverVersion')}"
    return ""


def _no_device() -> str:
    """Why the driver shows no GPU: none there, all hidden, or MIG without an instance."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    instances = None
    with contextlib.suppress(Unanswered), driver.nvml() as library:
        instances = _instances(library)
    if instances and not any(instances):
        return (
            "MIG mode is on and no GPU has an instance: 'nvidia-smi mig -cgi 0 -C' makes one, "
            "'nvidia-smi -mig 0' turns the mode off"
        )
    if visible is not None and instances != []:
        there = f" (there are {len(instances)})" if instances else ""
        return (
            f"CUDA_VISIBLE_DEVICES='{visible}' hides every GPU{there}: unset it, or name the "
            "GPUs to use, as in CUDA_VISIBLE_DEVICES=0"
        )
    return (
        "the NVIDIA driver finds no GPU: 'nvidia-smi -L' lists what it sees; a container must be "
        "started with its GPUs ('--gpus all')"
    )


def _instances(library: Any) -> list[bool]:
    """For each physical GPU: does CUDA have anything to run on (no MIG, or a MIG instance)?"""
    found = []
    for index in range(driver.ask_nvml(library, "nvmlDeviceGetCount")):
        handle = driver.ask_nvml(library, "nvmlDeviceGetHandleByIndex", index)
        try:
            mig = driver.ask_nvml(library, "nvmlDeviceGetMigMode", handle)[0]
            most = driver.ask_nvml(library, "nvmlDeviceGetMaxMigDeviceCount", handle)
        except Unanswered:  # this model has no MIG
            mig, most = 0, 0
        found.append(not mig or any(_has_instance(library, handle, i) for i in range(most)))
    return found


def _has_instance(library: Any, handle: Any, index: int) -> bool:
    try:
        driver.ask_nvml(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
    except Unanswered:
        return False
    return True
