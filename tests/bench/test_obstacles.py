"""Each reason for which a machine cannot be measured on: one line that names the remedy."""

from __future__ import annotations

import functools
from types import ModuleType

import pytest

from bench import device, obstacles
from results.errors import UserError
from tests.bench.fake_gpu import H200, OTHER, FakeDriver, FakeNvml, Result, install


@pytest.fixture
def machine(monkeypatch):
    """A call installs a made-up driver and NVML."""
    for variable in ("CUDA_VISIBLE_DEVICES", "NUMBA_ENABLE_CUDASIM"):
        monkeypatch.delenv(variable, raising=False)
    return functools.partial(install, monkeypatch)


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
