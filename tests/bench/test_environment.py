"""What is recorded of the software: versions, whitelisted variables, digest, commit."""

from __future__ import annotations

import platform
import shutil
import subprocess

import pytest

from bench import environment


def test_versions_and_the_kernel_of_the_system():
    found = environment.environment()
    assert found["python"] == platform.python_version()
    assert found["numpy"][0].isdigit()
    assert found["numba-cuda"][0].isdigit()
    assert platform.release().split("-")[0] in found["os"]
    assert "-" not in found["os"]


def test_a_package_that_is_not_installed_is_absent(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", {"none": ("no-such-distribution",)})
    assert "none" not in environment.environment()


def test_the_first_distribution_that_is_there_counts(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", {"array": ("no-such-distribution", "numpy")})
    assert environment.environment()["array"] == environment.metadata.version("numpy")


def test_only_whitelisted_variables(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.setenv("NUMBA_CUDA_LOG_LEVEL", "DEBUG")
    monkeypatch.setenv("CUPY_ACCELERATORS", "cub")
    monkeypatch.setenv("CUDA_SECRET", "x")
    monkeypatch.setenv("MY_NUMBA_TOKEN", "x")
    found = environment.environment()
    assert found["CUDA_VISIBLE_DEVICES"] == "1,0"
    assert found["NUMBA_CUDA_LOG_LEVEL"] == "DEBUG"
    assert found["CUPY_ACCELERATORS"] == "cub"
    assert "CUDA_SECRET" not in found
    assert "MY_NUMBA_TOKEN" not in found


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("/home/ada/.cupy", "~/.cupy"),
        ("-I/home/ada/include:/home/ada", "-I~/include:~"),
        ("/home/adam/.cupy", "/home/adam/.cupy"),
        ("/scratch/ada/cache", "/scratch/<user>/cache"),
        ("ada", "ada"),
    ],
)
def test_home_and_user_are_masked(monkeypatch, value, masked):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr(environment.getpass, "getuser", lambda: "ada")
    monkeypatch.setenv("CUPY_CACHE_DIR", value)
    assert environment.environment()["CUPY_CACHE_DIR"] == masked


def test_a_user_without_a_name_is_no_error(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr(environment.getpass, "getuser", nobody)
    monkeypatch.setenv("CUPY_CACHE_DIR", "/scratch/x")
    assert environment.environment()["CUPY_CACHE_DIR"] == "/scratch/x"


@pytest.fixture
def checkout(tmp_path):
    for name in ("kernels/a.py", "kernels/deep/b.py", "bench/c.py", "analysis/d.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    return tmp_path


def test_the_digest_follows_contents_and_names_of_kernels_and_bench_alone(checkout):
    digest = environment.sources_digest(checkout)
    assert len(digest) == 16
    assert int(digest, 16) >= 0
    (checkout / "analysis/d.py").write_text("changed")
    (checkout / "kernels/notes.txt").write_text("not code")
    assert environment.sources_digest(checkout) == digest
    (checkout / "kernels/deep/b.py").write_text("changed")
    changed = environment.sources_digest(checkout)
    assert changed != digest
    (checkout / "bench/c.py").rename(checkout / "bench/e.py")
    assert environment.sources_digest(checkout) != changed


def git(root, *arguments):
    subprocess.run(
        ["git", "-C", str(root), "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments],
        check=True,
        capture_output=True,
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_and_whether_it_is_dirty(checkout):
    assert environment.commit(checkout) is None  # no work tree
    git(checkout, "init", "-q")
    assert environment.commit(checkout) is None  # no commit yet
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "first", "--no-gpg-sign")
    git(checkout, "tag", "v1")
    clean = environment.commit(checkout)
    assert clean is not None
    assert len(clean) == 40
    assert int(clean, 16) > 0
    (checkout / "kernels/a.py").write_text("changed")
    assert environment.commit(checkout) == f"{clean}-dirty"
    assert environment.commit(checkout / "kernels") is None  # inside another's work tree


def test_no_git(checkout, monkeypatch):
    monkeypatch.setenv("PATH", str(checkout))
    assert environment.commit(checkout) is None
