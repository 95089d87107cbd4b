"""Commands at the shell: one line and the right exit code, whatever the output is connected to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from results.shell import BAD_INPUT, BROKEN_PIPE, INTERNAL, INTERRUPTED, guarded, no_such

ROOT = Path(__file__).parents[2]
PRINTS = """
import sys
from results.shell import guarded
def command():
    for _ in range(20000):
        print("2\u00d7 \u00b5s")
    return 0
sys.exit(guarded(command))
"""


def ended(shell: str, **environment: str) -> tuple[int, str]:
    """Exit code and stderr of the command, its output redirected as the shell text says."""
    done = subprocess.run(
        f"{sys.executable} -c '{PRINTS}' {shell}",
        shell=True,
        executable="/bin/bash",
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_output_on_a_full_disk_is_one_line():
    code, said = ended("> /dev/full")
    assert (code, said) == (
        BAD_INPUT,
        "warpgauge: cannot read or write the output: No space left on device\n",
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("error", ["UserError", "RuntimeError", "ModuleNotFoundError"])
def test_errors_on_a_full_disk_keep_their_exit_code(error: str):
    program = (
        "import sys; from results.shell import guarded; from results.errors import UserError\n"
        f"def command(): raise {error}('no')\n"
        "sys.exit(guarded(command))"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stderr=full, check=False)
    assert done.returncode == (BAD_INPUT if error == "UserError" else INTERNAL)


def test_a_closed_output_is_no_fault():
    assert ended(">&-") == (0, "")


def test_a_reader_that_leaves():
    assert ended("| head -1; exit ${PIPESTATUS[0]}") == (BROKEN_PIPE, "")


def test_a_locale_without_the_letters():
    assert ended("> /dev/null", PYTHONIOENCODING="ascii") == (0, "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied", "/root/x"), "'/root/x': Permission denied"),
        (IsADirectoryError(21, "Is a directory", "a"), "'a': Is a directory"),
        (OSError(28, "No space left on device"), "the output: No space left on device"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(error, said, capsys):
    def command() -> int:
        raise error

    assert guarded(command) == BAD_INPUT
    assert capsys.readouterr().err == f"warpgauge: cannot read or write {said}\n"


def test_interrupted():
    def command() -> int:
        raise KeyboardInterrupt

    assert guarded(command) == INTERRUPTED
    assert guarded(command, lambda: 2) == 2


def test_the_nearest_name_is_offered():
    names = ["axpy", "barrier", "memory"]
    assert str(no_such("family", "Axpi", names)) == (
        "no family 'Axpi': did you mean 'axpy'? There are axpy, barrier, memory"
    )
    assert str(no_such("run at", "/nowhere", names)).startswith("no run at '/nowhere': there are")
    assert "\n" not in str(no_such("run at", "a\nb", names))


@pytest.mark.parametrize(
    ("module", "code", "told"),
    [
        ("not_installed.part", BAD_INPUT, "has no package 'not_installed': 'make setup' installs"),
        ("cuda.not_there.part", BAD_INPUT, "has no package 'cuda.not_there'"),
        ("kernels.axpi", INTERNAL, "internal error; please report it"),
        ("numpy.axpi", INTERNAL, "internal error; please report it"),
        (None, INTERNAL, "internal error; please report it"),
    ],
)
def test_a_package_that_is_not_installed_is_no_fault_of_ours(
    module: str | None, code: int, told: str, capsys: pytest.CaptureFixture[str]
):
    def command() -> int:
        raise ModuleNotFoundError("no such module", name=module)

    assert guarded(command) == code
    said = capsys.readouterr().err
    assert told in said
    assert ("Traceback" in said) == (code == INTERNAL)
