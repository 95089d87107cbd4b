"""The software that makes the numbers: versions, variables, digest and commit of the sources."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PACKAGES = {
    "numba": ("numba",),
    "numba-cuda": ("numba-cuda",),
    "llvmlite": ("llvmlite",),
    "numpy": ("numpy",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuda-core": ("cuda-core",),
    "cuda-bindings": ("cuda-bindings",),
    "cuda-toolkit": ("cuda-toolkit",),
    "nvrtc": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "nvvm": ("nvidia-nvvm",),
    "nvjitlink": ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12"),
    "nvidia-ml-py": ("nvidia-ml-py",),
}
"""Name in the record -> distributions that may provide it."""

VARIABLES = re.compile(
    r"CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|LAUNCH_BLOCKING|MODULE_LOADING)|(NUMBA|CUPY)_\w+"
)
"""Environment variables that change what is measured; no other is recorded."""


def environment() -> dict[str, str]:
    """Versions of what is installed, the kernel of the system, and the whitelisted variables.

    A package that is not installed is absent. No host name, no user name, no home folder.
    """
    found = {"python": platform.python_version()}
    for name, distributions in PACKAGES.items():
        for distribution in distributions:
            try:
                found[name] = metadata.version(distribution)
                break
            except metadata.PackageNotFoundError:
                continue
    # The kernel's version alone: what builders append to it can name a site.
    version = platform.release().split("-")[0]
    found["os"] = f"{platform.system()} {version} {platform.machine()}"
    for name, value in sorted(os.environ.items()):
        if VARIABLES.fullmatch(name):
            found[name] = _anonymous(value)
    return found


def _anonymous(value: str) -> str:
    """The value with the home folder as `~`, and elsewhere in a path the user as `<user>`."""
    home = os.path.expanduser("~").rstrip("/")
    if home not in ("", "~"):
        value = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", value)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return value
    return re.sub(rf"(?<=/){re.escape(user)}(?![\w.-])", "<user>", value)


def sources_digest(root: Path = ROOT) -> str:
    """SHA-256 over names and contents of kernels/**.py and bench/**.py, its first 16 hex digits.

    It tells two measurements of different code apart where there is no git, too.
    """
    digest = hashlib.sha256()
    names = {
        path.relative_to(root).as_posix(): path
        for folder in ("kernels", "bench")
        for path in (root / folder).rglob("*.py")
    }
    for name, path in sorted(names.items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def commit(root: Path = ROOT) -> str | None:
    """The commit of the checkout, with -dirty where a tracked file differs from it.

    None without git, before the first commit, and where `root` is not the top of a work tree
    (an unpacked archive inside another repository is not that repository's commit).
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return None
    # No tag ever matches, so that this is the full hash.
    return _git(root, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None if result.returncode == 0 else None
