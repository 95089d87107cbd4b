"""Which fields a snapshot of the GPU has, their units, and who is asked for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bench import driver
from bench.driver import Gpu, Unanswered

Reader = Callable[[Gpu], Any]


@dataclass(frozen=True)
class Field:
    """One field of a snapshot: its unit, and who is asked, in this order, until one answers."""

    unit: str
    readers: tuple[Reader, ...]


# nvmlClockType_t, nvmlTemperatureSensors_t, nvmlTemperatureThresholds_t, nvmlMemoryErrorType_t
# and nvmlEccCounterType_t of nvml.h
CLOCK_SM, CLOCK_MEMORY = 1, 2
SENSOR_GPU = 0
THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN = 0, 1
UNCORRECTED, SINCE_BOOT = 1, 0

COMPUTE_MODES = {0: "Default", 2: "Prohibited", 3: "Exclusive_Process"}
"""CUcomputemode of cuda.h, as nvidia-smi spells it."""
VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vGPU", 3: "host vGPU", 4: "host vSGA"}
"""nvmlGpuVirtualizationMode_t of nvml.h."""
NVLINKS_MAX = 36
"""NVML_NVLINK_MAX_LINKS of nvml.h."""
NOT_AVAILABLE = (-1, 2**32 - 1, 2**64 - 1)
"""How CUDA and NVML say "no such thing" in an answer that is an integer."""


def known(value: Any) -> Any:
    """The value itself. Raises Unanswered where it is one of NOT_AVAILABLE."""
    if not isinstance(value, bool) and value in NOT_AVAILABLE:
        raise Unanswered("NotAvailable")
    return value


def _cuda(attribute: str, scale: int = 1) -> Reader:
    return lambda gpu: gpu.attribute(attribute) * scale


def _cuda_flag(attribute: str) -> Reader:
    return lambda gpu: bool(gpu.attribute(attribute))


def _nvml(function: str, *arguments: Any) -> Reader:
    return lambda gpu: gpu.management(function, *arguments)


def _nvml_mega(function: str, *arguments: Any) -> Reader:
    return lambda gpu: known(gpu.management(function, *arguments)) * 1_000_000


def _nvml_milli(function: str) -> Reader:
    return lambda gpu: known(gpu.management(function)) / 1000


def _name(gpu: Gpu) -> str:
    name: bytes = gpu.call("cuDeviceGetName", 256, gpu.device)
    return name.split(b"\0")[0].decode()


def _capability(gpu: Gpu) -> str:
    major = gpu.attribute("COMPUTE_CAPABILITY_MAJOR")
    return f"{major}.{gpu.attribute('COMPUTE_CAPABILITY_MINOR')}"


def _performance_state(gpu: Gpu) -> str:
    return f"P{gpu.management('nvmlDeviceGetPerformanceState')}"


def _mig_instance(gpu: Gpu) -> bool:
    if isinstance(gpu.library, Unanswered):
        raise gpu.library
    return gpu.instance is not None


def _version(value: int) -> str:
    """CUDA's 1000 × major + 10 × minor as text."""
    return f"{value // 1000}.{value % 1000 // 10}"


def _runtime_version(gpu: Gpu) -> str:
    try:
        runtime = import_module("cuda.bindings.runtime")
        return _version(driver.call(runtime.getLocalRuntimeVersion))
    except (ImportError, AttributeError, RuntimeError):
        raise Unanswered("LibraryNotFound") from None


def _event_reasons(gpu: Gpu) -> list[str]:
    """Names of the reasons for which the clocks are not at their highest now."""
    try:
        mask = gpu.management("nvmlDeviceGetCurrentClocksEventReasons")
    except Unanswered:  # the name before driver 535
        mask = gpu.management("nvmlDeviceGetCurrentClocksThrottleReasons")
    prefix = "nvmlClocksEventReason"
    names: dict[int, str] = {}
    for constant in sorted(vars(gpu.library)):
        if constant.startswith(prefix) and not constant.endswith(("All", "None")):
            names.setdefault(getattr(gpu.library, constant), constant.removeprefix(prefix))
    return [name for bit, name in sorted(names.items()) if bit & mask]


def _nvlinks_active(gpu: Gpu) -> int:
    """NvLink links that are up."""
    active = 0
    for link in range(NVLINKS_MAX):
        try:
            active += int(gpu.management("nvmlDeviceGetNvLinkState", link))
        except Unanswered:
            if link == 0:
                raise
            break  # past the links that this GPU has
    return active


FIELDS: dict[str, Field] = {
    name: Field(unit, tuple(readers))
    for name, unit, *readers in (
        ("name", "", _name),
        ("uuid", "", lambda gpu: gpu.uuid),
        ("cc", "", _capability),
        ("sms", "", _cuda("MULTIPROCESSOR_COUNT")),
        ("warp_size", "", _cuda("WARP_SIZE")),
        ("max_threads_per_sm", "", _cuda("MAX_THREADS_PER_MULTIPROCESSOR")),
        ("max_blocks_per_sm", "", _cuda("MAX_BLOCKS_PER_MULTIPROCESSOR")),
        ("max_threads_per_block", "", _cuda("MAX_THREADS_PER_BLOCK")),
        ("registers_per_sm", "", _cuda("MAX_REGISTERS_PER_MULTIPROCESSOR")),
        ("registers_per_block", "", _cuda("MAX_REGISTERS_PER_BLOCK")),
        ("shared_memory_per_sm", "B", _cuda("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")),
        ("shared_memory_per_block", "B", _cuda("MAX_SHARED_MEMORY_PER_BLOCK")),
        ("shared_memory_per_block_optin", "B", _cuda("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")),
        ("reserved_shared_memory_per_block", "B", _cuda("RESERVED_SHARED_MEMORY_PER_BLOCK")),
        ("l2_bytes", "B", _cuda("L2_CACHE_SIZE")),
        ("l2_persisting_max_bytes", "B", _cuda("MAX_PERSISTING_L2_CACHE_SIZE")),
        ("memory_bytes", "B", lambda gpu: int(gpu.call("cuDeviceTotalMem", gpu.device))),
        ("memory_used_bytes", "B", lambda gpu: gpu.management("nvmlDeviceGetMemoryInfo").used),
        ("bar1_bytes", "B", lambda gpu: gpu.management("nvmlDeviceGetBAR1MemoryInfo").bar1Total),
        (
            "memory_bus_width_bits",
            "bit",
            _nvml("nvmlDeviceGetMemoryBusWidth"),
            _cuda("GLOBAL_MEMORY_BUS_WIDTH"),
        ),
        (
            "memory_clock_max_hz",
            "Hz",
            _nvml_mega("nvmlDeviceGetMaxClockInfo", CLOCK_MEMORY),
            _cuda("MEMORY_CLOCK_RATE", 1000),
        ),
        ("memory_clock_hz", "Hz", _nvml_mega("nvmlDeviceGetClockInfo", CLOCK_MEMORY)),
        (
            "sm_clock_max_hz",
            "Hz",
            _nvml_mega("nvmlDeviceGetMaxClockInfo", CLOCK_SM),
            _cuda("CLOCK_RATE", 1000),
        ),
        ("sm_clock_hz", "Hz", _nvml_mega("nvmlDeviceGetClockInfo", CLOCK_SM)),
        ("event_reasons", "", _event_reasons),
        ("performance_state", "", _performance_state),
        (
            "ecc",
            "",
            lambda gpu: bool(gpu.management("nvmlDeviceGetEccMode")[0]),
            _cuda_flag("ECC_ENABLED"),
        ),
        (
            "ecc_errors_uncorrected",
            "",
            _nvml("nvmlDeviceGetTotalEccErrors", UNCORRECTED, SINCE_BOOT),
        ),
        ("mig", "", lambda gpu: bool(gpu.management("nvmlDeviceGetMigMode")[0])),
        ("mig_instance", "", _mig_instance),
        ("persistence", "", lambda gpu: bool(gpu.management("nvmlDeviceGetPersistenceMode"))),
        ("compute_mode", "", lambda gpu: COMPUTE_MODES[gpu.attribute("COMPUTE_MODE")]),
        (
            "compute_processes",
            "",
            lambda gpu: len(gpu.management("nvmlDeviceGetComputeRunningProcesses")),
        ),
        (
            "virtualization",
            "",
            lambda gpu: VIRTUALIZATION[gpu.management("nvmlDeviceGetVirtualizationMode")],
        ),
        ("power_limit_w", "W", _nvml_milli("nvmlDeviceGetEnforcedPowerLimit")),
        (
            "power_limit_default_w",
            "W",
            _nvml_milli("nvmlDeviceGetPowerManagementDefaultLimit"),
        ),
        ("power_w", "W", _nvml_milli("nvmlDeviceGetPowerUsage")),
        ("energy_j", "J", _nvml_milli("nvmlDeviceGetTotalEnergyConsumption")),
        (
            "temperature_c",
            "°C",
            _nvml("nvmlDeviceGetTemperatureV", SENSOR_GPU),
            _nvml("nvmlDeviceGetTemperature", SENSOR_GPU),
        ),
        (
            "temperature_slowdown_c",
            "°C",
            _nvml("nvmlDeviceGetTemperatureThreshold", THRESHOLD_SLOWDOWN),
        ),
        (
            "temperature_shutdown_c",
            "°C",
            _nvml("nvmlDeviceGetTemperatureThreshold", THRESHOLD_SHUTDOWN),
        ),
        ("pcie_generation", "", _nvml("nvmlDeviceGetCurrPcieLinkGeneration")),
        ("pcie_generation_max", "", _nvml("nvmlDeviceGetMaxPcieLinkGeneration")),
        ("pcie_width", "", _nvml("nvmlDeviceGetCurrPcieLinkWidth")),
        ("pcie_width_max", "", _nvml("nvmlDeviceGetMaxPcieLinkWidth")),
        ("nvlinks_active", "", _nvlinks_active),
        ("numa_node", "", _nvml("nvmlDeviceGetNumaNodeId"), _cuda("HOST_NUMA_ID")),
        ("async_engines", "", _cuda("ASYNC_ENGINE_COUNT")),
        ("concurrent_kernels", "", _cuda_flag("CONCURRENT_KERNELS")),
        ("cooperative_launch", "", _cuda_flag("COOPERATIVE_LAUNCH")),
        ("cluster_launch", "", _cuda_flag("CLUSTER_LAUNCH")),
        ("vbios_version", "", _nvml("nvmlDeviceGetVbiosVersion")),
        ("driver_version", "", lambda gpu: gpu.system("nvmlSystemGetDriverVersion")),
        ("cuda_driver_version", "", lambda gpu: _version(gpu.call("cuDriverGetVersion"))),
        ("cuda_runtime_version", "", _runtime_version),
    )
}
"""Every field that is asked for, in the order of the table. No serial number, no host name."""
