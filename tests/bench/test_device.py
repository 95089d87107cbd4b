"""The snapshot of the GPU, against a driver and an NVML that are made up."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import uuid

import pytest

from bench import device, driver, fields, peaks
from results.errors import UserError
from tests.bench.fake_gpu import (
    H200,
    OTHER,
    FakeDriver,
    FakeNvml,
    NVMLError_DriverNotLoaded,
    install,
)


@pytest.fixture
def machine(monkeypatch):
    """A call installs a made-up driver and NVML."""
    for variable in ("CUDA_VISIBLE_DEVICES", "NUMBA_ENABLE_CUDASIM"):
        monkeypatch.delenv(variable, raising=False)
    return functools.partial(install, monkeypatch)


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
    assert found["compute_mode"] == "Default"
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
    for field in fields.FIELDS.values():
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
    assert fields.CLOCK_SM == pynvml.NVML_CLOCK_SM
    assert fields.CLOCK_MEMORY == pynvml.NVML_CLOCK_MEM
    assert fields.SENSOR_GPU == pynvml.NVML_TEMPERATURE_GPU
    assert fields.THRESHOLD_SHUTDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
    assert fields.THRESHOLD_SLOWDOWN == pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    assert fields.UNCORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert fields.SINCE_BOOT == pynvml.NVML_VOLATILE_ECC
    assert fields.NVLINKS_MAX >= pynvml.NVML_NVLINK_MAX_LINKS
