"""The snapshot and the obstacles, against a driver and an NVML that are made up."""

from __future__ import annotations

import enum
import importlib
import json
import subprocess
import sys
import uuid
from types import ModuleType, SimpleNamespace

import pytest

from bench import device, driver, obstacles, peaks
from bench.fields import COMPUTE_MODES
from results.errors import UserError

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


@pytest.fixture
def machine(monkeypatch):
    """Put a made-up driver and NVML in the place of the real ones."""
    for variable in ("CUDA_VISIBLE_DEVICES", "NUMBA_ENABLE_CUDASIM"):
        monkeypatch.delenv(variable, raising=False)

    def build(cuda: ModuleType | None, nvml: ModuleType | None) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", cuda)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        for name in obstacles.PACKAGES:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))

    return build


# --- the snapshot ---


def test_fields_are_in_si_units_or_name_their_error(machine):
    nvml = FakeNvml(H200)
    machine(FakeDriver(H200), nvml)
    found = device.snapshot()
    assert found["name"] == "NVIDIA H200"
    assert found["uuid"] == f"GPU-{H200}"
    assert found["cc"] == "9.0"
    assert found["cuda_driver_version"] == "13.0"
    assert found["driver_version"] == "580.65.06"
    assert found["memory_bytes"] == 150_000_000_000
    assert found["sm_clock_hz"] == 1.755e9
    assert found["power_w"] == pytest.approx(123.456)
    assert found["mig"] is False
    assert found["mig_instance"] is False
    assert found["cooperative_launch"] is True
    assert found["cluster_launch"] is False
    assert found["event_reasons"] == ["ApplicationsClocksSetting", "SwPowerCap"]
    assert found["nvlinks_active"] == 17
    assert found["compute_mode"] == COMPUTE_MODES[0]
    assert found["power_limit_w"] == {"error": "NotSupported"}
    assert found["pcie_width"] == {"error": "NotAvailable"}  # all bits set
    assert found["energy_j"] == {"error": "FunctionNotFound"}  # not in this package
    assert found["warp_size"] == {"error": "CUDA_ERROR_INVALID_VALUE"}
    assert found["l2_bytes"] == {"error": "UnknownAttribute"}
    assert found["virtualization"] == {"error": "Unknown(9)"}
    assert found["numa_node"] == {"error": "FunctionNotFound"}  # and the driver says -1
    assert nvml.open == 0


def test_the_driver_answers_where_nvml_does_not(machine):
    machine(FakeDriver(H200), FakeNvml(H200))  # this NVML has no bus width and no ECC
    found = device.snapshot()
    assert found["memory_bus_width_bits"] == 6016
    assert found["ecc"] is True


def test_attributes_hold_what_the_driver_says(machine):
    machine(FakeDriver(H200), FakeNvml(H200))
    attributes = device.snapshot()["attributes"]
    assert attributes["max_grid_dim_x"] == 2**31 - 1
    assert attributes["warp_size"] == {"error": "CUDA_ERROR_INVALID_VALUE"}
    assert "max" not in attributes


def test_peaks_follow_their_formulas(machine):
    machine(FakeDriver(H200), FakeNvml(H200))
    found = device.snapshot()
    assert found["memory_bandwidth_peak"] == pytest.approx(4.814e12, rel=1e-4)
    assert found["fp32_peak"] == pytest.approx(132 * 128 * 2 * 1.98e9)
    assert peaks.fp32("8.0", 108, 1.41e9) == pytest.approx(19.5e12, rel=1e-3)  # A100, data sheet


def test_a_peak_inherits_the_error_of_what_it_is_derived_from(machine):
    machine(FakeDriver(H200, GLOBAL_MEMORY_BUS_WIDTH=None), FakeNvml(H200))
    assert device.snapshot()["memory_bandwidth_peak"] == {"error": "FunctionNotFound"}
    machine(FakeDriver(H200, COMPUTE_CAPABILITY_MAJOR=99), FakeNvml(H200))
    assert device.snapshot()["fp32_peak"] == {"error": "UnknownArchitecture"}


def test_nvml_is_found_by_uuid_where_cuda_counts_in_another_order(machine):
    machine(FakeDriver(OTHER, H200), FakeNvml(H200, OTHER))
    assert device.snapshot(0)["power_w"] == 77
    assert device.snapshot(1)["power_w"] == pytest.approx(123.456)


def test_a_mig_instance_has_the_clocks_and_power_of_its_gpu(machine):
    instance = uuid.uuid4()
    machine(FakeDriver(instance), FakeNvml(OTHER, H200, mig={H200: [instance]}))
    found = device.snapshot()
    assert found["uuid"] == f"MIG-{instance}"
    assert found["mig"] is True
    assert found["mig_instance"] is True
    assert found["power_w"] == pytest.approx(123.456)
    assert found["sm_clock_hz"] == 1.755e9


@pytest.mark.parametrize(
    ("error", "name"), [(NVMLError_DriverNotLoaded, "DriverNotLoaded"), (None, "PackageNotFound")]
)
def test_without_nvml_the_driver_still_tells(machine, error, name):
    nvml = FakeNvml(H200) if error else None
    if nvml:

        def refuse():
            raise error

        nvml.nvmlInit = refuse
    machine(FakeDriver(H200), nvml)
    found = device.snapshot()
    assert found["sms"] == 132
    assert found["uuid"] == f"GPU-{H200}"
    for field in ("power_w", "event_reasons", "nvlinks_active", "driver_version", "mig_instance"):
        assert found[field] == {"error": name}
    assert found["memory_bandwidth_peak"] == pytest.approx(4.814e12, rel=1e-4)


def test_nvml_that_does_not_know_the_uuid_is_named(machine):
    nvml = FakeNvml(OTHER)
    machine(FakeDriver(H200), nvml)
    assert device.snapshot()["power_w"] == {"error": "NotFound"}
    assert nvml.open == 0


def test_a_snapshot_is_plain_and_private(machine):
    machine(FakeDriver(H200), FakeNvml(H200))
    found = device.snapshot()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert not {"serial", "hostname", "host"} & found.keys()


def test_a_snapshot_of_no_device_is_the_persons_mistake(machine):
    machine(FakeDriver(H200), FakeNvml(H200))
    with pytest.raises(UserError, match="device 3: there is 1; use --device 0"):
        device.snapshot(3)


def test_show_has_a_line_a_field_in_units_for_people(machine):
    machine(FakeDriver(H200), FakeNvml(H200))
    found = device.snapshot()
    lines = {
        line.split("  ")[0]: line.split("  ")[-1].strip()
        for line in device.show(found).splitlines()
    }
    assert lines.keys() == found.keys()
    assert lines["shared_memory_per_sm"] == "228 KiB"
    assert lines["memory_bytes"] == "139.7 GiB"
    assert lines["memory_bandwidth_peak"] == "4.814 TB/s"
    assert lines["sm_clock_hz"] == "1.755 GHz"
    assert lines["fp32_peak"] == "66.91 TFLOP/s"
    assert lines["power_w"] == "123.456 W"
    assert lines["mig"] == "no"
    assert lines["cc"] == "9.0"
    assert lines["power_limit_w"] == "- (NotSupported)"
    assert lines["event_reasons"] == "ApplicationsClocksSetting, SwPowerCap"
    assert lines["attributes"].startswith(str(len(found["attributes"])))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA H200 MIG 1g.18gb", "nvidia-h200-mig-1g-18gb"),
        ("Quadro RTX 6000/8000 ", "quadro-rtx-6000-8000"),
    ],
)
def test_model_slug(name, slug):
    assert device.model_slug(name) == slug


# --- the obstacles ---


def test_a_good_machine_is_usable(machine):
    machine(FakeDriver(H200, OTHER), FakeNvml(H200, OTHER))
    device.usable(1)
    assert device.why_not() is None


def reason(index: int = 0) -> str:
    text = device.why_not(index)
    assert text is not None
    assert "\n" not in text
    return text


def test_no_driver(machine):
    cuda = FakeDriver(H200)

    def missing():
        raise RuntimeError("libcuda.so.1 not found")

    cuda.cuDriverGetVersion = cuda.cuInit = lambda *_: missing()
    machine(cuda, None)
    assert "libcuda was not found; install driver 580" in reason()
    with pytest.raises(UserError, match="libcuda was not found"):
        device.snapshot()


def test_no_bindings(machine):
    machine(None, None)
    assert "run 'make setup'" in reason()


def test_no_gpu(machine):
    machine(FakeDriver(), FakeNvml())
    assert reason().startswith("the NVIDIA driver finds no GPU")


@pytest.mark.parametrize(("nvml", "there"), [(FakeNvml(H200, OTHER), " (there are 2)"), (None, "")])
def test_all_gpus_hidden(machine, monkeypatch, nvml, there):
    machine(FakeDriver(), nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert reason().startswith(f"CUDA_VISIBLE_DEVICES='-1' hides every GPU{there}: unset it")


def test_hidden_devices_are_not_blamed_where_there_is_no_gpu(machine, monkeypatch):
    machine(FakeDriver(), FakeNvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert reason().startswith("the NVIDIA driver finds no GPU")


def test_no_device_without_an_error_is_no_gpu_too(machine):
    cuda = FakeDriver()
    cuda.init = Result.CUDA_SUCCESS
    machine(cuda, FakeNvml())
    assert reason().startswith("the NVIDIA driver finds no GPU")


def test_mig_without_an_instance(machine, monkeypatch):
    machine(FakeDriver(), FakeNvml(H200, mig={H200: []}))
    assert "nvidia-smi mig -cgi" in reason()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    machine(FakeDriver(), FakeNvml(H200, mig={H200: [OTHER]}))
    assert "hides every GPU" in reason()  # there is an instance: MIG is not what is missing


def test_index_out_of_range(machine, monkeypatch):
    machine(FakeDriver(H200, OTHER), FakeNvml(H200, OTHER))
    assert reason(3) == "device 3: there are 2; use --device 0..1"
    assert reason(-1) == "device -1: there are 2; use --device 0..1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert "there are 2 with CUDA_VISIBLE_DEVICES=0,1;" in reason(3)


@pytest.mark.parametrize(("nvml", "version"), [(FakeNvml(H200), " 580.65.06"), (None, "")])
def test_an_old_driver(machine, nvml, version):
    cuda = FakeDriver(H200)
    cuda.version = 12_040
    machine(cuda, nvml)
    assert reason() == (
        f"the NVIDIA driver{version} is too old: it serves CUDA 12.4, CUDA 13 needs driver 580 "
        "or newer; update it"
    )


@pytest.mark.parametrize(
    ("result", "remedy"),
    [
        (Result.CUDA_ERROR_SYSTEM_NOT_READY, "start nvidia-fabricmanager"),
        (Result.CUDA_ERROR_UNKNOWN, "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_start(machine, result, remedy):
    cuda = FakeDriver(H200)
    cuda.init = result
    machine(cuda, FakeNvml(H200))
    assert result.name in reason()
    assert remedy in reason()


def test_a_gpu_that_cuda_13_does_not_compile_for(machine):
    machine(FakeDriver(H200, COMPUTE_CAPABILITY_MAJOR=7), FakeNvml(H200))
    assert "compute capability 7.0; CUDA 13 compiles for 7.5 or newer" in reason()


def test_prohibited_compute_mode(machine):
    machine(FakeDriver(H200, COMPUTE_MODE=2), FakeNvml(H200))
    assert "compute mode Prohibited" in reason()


def test_a_gpu_that_has_fallen_off_the_bus(machine):
    machine(FakeDriver(H200, COMPUTE_CAPABILITY_MAJOR=None), FakeNvml(H200))
    assert "device 0 does not answer (CUDA_ERROR_INVALID_VALUE)" in reason()


def test_the_simulator_is_no_gpu(machine, monkeypatch):
    machine(FakeDriver(H200), FakeNvml(H200))
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert "NUMBA_ENABLE_CUDASIM" in reason()


def test_numba_cuda_that_cannot_be_imported(machine, monkeypatch):
    machine(FakeDriver(H200), FakeNvml(H200))
    # As beside NumPy 2.5: an AttributeError, not an ImportError.
    monkeypatch.setattr(obstacles, "import_module", lambda name: ModuleType(name).row_stack)
    assert reason().startswith("numba-cuda cannot be imported (module 'numba.cuda' has no")


# --- against the real libraries ---


def test_importing_touches_no_gpu_library():
    code = (
        "import sys, bench.device\n"
        "loaded = {'numba', 'cupy', 'pynvml', 'cuda.bindings', 'cuda.core'} & sys.modules.keys()\n"
        "sys.exit(', '.join(sorted(loaded)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_every_question_exists_in_the_real_libraries(machine):
    """A misspelt question would only ever be answered FunctionNotFound or UnknownAttribute."""
    real_driver = pytest.importorskip("cuda.bindings.driver", reason="needs cuda-bindings")
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    asked = []

    class Recorder(driver.Gpu):
        def attribute(self, name):
            asked.append(name)
            raise driver.Unanswered("-")

    nvml = FakeNvml(H200)
    gpu = Recorder(None, 0, "", nvml, f"GPU-{H200}")
    for field in device.FIELDS.values():
        for read in field.readers:
            try:
                read(gpu)
            except (driver.Unanswered, KeyError, AttributeError):
                continue
    assert len(asked) > 20
    attributes = real_driver.CUdevice_attribute
    assert [a for a in asked if not hasattr(attributes, f"CU_DEVICE_ATTRIBUTE_{a}")] == []
    assert len(nvml.asked) > 20
    assert [name for name in sorted(nvml.asked) if not hasattr(pynvml, name)] == []


def test_constants_are_those_of_nvml():
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    fields = importlib.import_module("bench.fields")
    assert fields.CLOCK_SM == pynvml.NVML_CLOCK_SM
    assert fields.CLOCK_MEMORY == pynvml.NVML_CLOCK_MEM
    assert fields.SENSOR_GPU == pynvml.NVML_TEMPERATURE_GPU
    assert fields.THRESHOLD_SHUTDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    assert fields.THRESHOLD_SLOWDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    assert fields.UNCORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert fields.SINCE_BOOT == pynvml.NVML_VOLATILE_ECC
    assert fields.NVLINKS_MAX >= pynvml.NVML_NVLINK_MAX_LINKS
