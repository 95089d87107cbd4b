"""A CUDA driver and an NVML that are made up, for tests of what asks them."""

from __future__ import annotations

import enum
import sys
import uuid
from types import ModuleType, SimpleNamespace

from bench import obstacles

H200 = uuid.UUID("11111111-2222-3333-4444-555555555555")
OTHER = uuid.UUID("99999999-8888-7777-6666-555555555555")

ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "COMPUTE_MODE": 0,
    "COOPERATIVE_LAUNCH": 1,
    "CLUSTER_LAUNCH": 0,
    "CLOCK_RATE": 1_980_000,
    "MEMORY_CLOCK_RATE": 3_201_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6016,
    "ECC_ENABLED": 1,
    "HOST_NUMA_ID": -1,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "WARP_SIZE": None,  # the driver refuses this one
}


class Result(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_SYSTEM_NOT_READY = 802
    CUDA_ERROR_UNKNOWN = 999


class FakeDriver(ModuleType):
    """`cuda.bindings.driver` of a machine on which CUDA shows these UUIDs, in this order."""

    CUdevice_attribute = enum.IntEnum(
        "CUdevice_attribute", [f"CU_DEVICE_ATTRIBUTE_{name}" for name in (*ATTRIBUTES, "MAX")]
    )

    def __init__(self, *visible: uuid.UUID, **attributes: int) -> None:
        super().__init__("cuda.bindings.driver")
        self.visible = visible
        self.attributes = ATTRIBUTES | attributes
        self.init = Result.CUDA_SUCCESS if visible else Result.CUDA_ERROR_NO_DEVICE
        self.version = 13_000

    def cuDriverGetVersion(self):
        return Result.CUDA_SUCCESS, self.version

    def cuInit(self, flags):
        return (self.init,)

    def cuDeviceGetCount(self):
        return Result.CUDA_SUCCESS, len(self.visible)

    def cuDeviceGet(self, index):
        if not 0 <= index < len(self.visible):
            return Result.CUDA_ERROR_INVALID_DEVICE, None
        return Result.CUDA_SUCCESS, index

    def cuDeviceGetUuid(self, index):
        return Result.CUDA_SUCCESS, SimpleNamespace(bytes=self.visible[index].bytes)

    def cuDeviceGetName(self, length, index):
        return Result.CUDA_SUCCESS, b"NVIDIA H200".ljust(length, b"\0")

    def cuDeviceTotalMem(self, index):
        return Result.CUDA_SUCCESS, 150_000_000_000

    def cuDeviceGetAttribute(self, attribute, index):
        value = self.attributes[attribute.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]
        if value is None:
            return Result.CUDA_ERROR_INVALID_VALUE, None
        return Result.CUDA_SUCCESS, value


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class FakeNvml(ModuleType):
    """`pynvml` of a machine with these physical GPUs, by UUID; one may hold MIG instances.

    It knows the functions given here and a few fields; it has not the others.
    """

    NVMLError = NVMLError

    def __init__(self, *gpus: uuid.UUID, mig: dict[uuid.UUID, list[uuid.UUID]] | None = None):
        super().__init__("pynvml")
        self.gpus, self.mig, self.open, self.asked = gpus, mig or {}, 0, set()
        self.nvmlClocksEventReasonNone = 0
        self.nvmlClocksEventReasonGpuIdle = 1
        self.nvmlClocksEventReasonApplicationsClocksSetting = 2
        self.nvmlClocksEventReasonUserDefinedClocks = 2  # the older name of the same bit
        self.nvmlClocksEventReasonSwPowerCap = 4
        self.nvmlClocksEventReasonAll = 7

    def nvmlInit(self):
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def __getattribute__(self, name):
        if name.startswith("nvmlDevice") or name.startswith("nvmlSystem"):
            object.__getattribute__(self, "asked").add(name)
        return object.__getattribute__(self, name)

    def nvmlSystemGetDriverVersion(self):
        return "580.65.06"

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"GPU-{self.gpus[index]}"

    def nvmlDeviceGetHandleByUUID(self, name):
        known = [f"GPU-{gpu}" for gpu in self.gpus]
        known += [f"MIG-{one}" for instances in self.mig.values() for one in instances]
        if name not in known:
            raise NVMLError_NotFound
        return name

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return next(
            f"GPU-{g}" for g, many in self.mig.items() if handle in map("MIG-{}".format, many)
        )

    def nvmlDeviceGetMaxMigDeviceCount(self, handle):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        instances = self.mig[uuid.UUID(handle.removeprefix("GPU-"))]
        if index >= len(instances):
            raise NVMLError_NotFound
        return f"MIG-{instances[index]}"

    def nvmlDeviceGetMigMode(self, handle):
        return [int(uuid.UUID(handle.removeprefix("GPU-")) in self.mig), 0]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetClockInfo(self, handle, kind):
        if handle.startswith("MIG"):
            raise NVMLError_NotSupported  # a MIG instance has no clock of its own
        return {1: 1755, 2: 3201}[kind]

    def nvmlDeviceGetPowerUsage(self, handle):
        return 123_456 if str(H200) in handle else 77_000

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        raise NVMLError_NotSupported

    def nvmlDeviceGetPcieSpeed(self, handle):
        return 2**32 - 1

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle):
        return 2**32 - 1

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return 6

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if link >= 18:
            raise NVMLError_NotSupported
        return int(link != 3)

    def nvmlDeviceGetVirtualizationMode(self, handle):
        return 9


def install(monkeypatch, cuda: ModuleType | None, nvml: ModuleType | None) -> None:
    """Put these in the place of the real libraries; None is one that is not installed."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", cuda)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    for name in obstacles.PACKAGES:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
