"""A module run in a process of its own, ended at a time limit: for what may hang or break CUDA.

An error inside a kernel ends the context of its process, and a kernel that never ends holds its
process for ever; the parent must survive both.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
LIMIT_S = 60.0
"""Importing CUDA's packages and opening the device takes seconds on a busy host."""


class ChildError(Exception):
    """A child did not end well: it hung, was killed, or raised; the message says which."""


def run(module: str, *arguments: str, limit_s: float = LIMIT_S) -> str:
    """What `python -m module arguments` printed.

    Raises:
        ChildError: it took longer than `limit_s` and was killed, or its exit code is not 0.
    """
    command = [sys.executable, "-m", module, *arguments]
    try:
        ended = subprocess.run(
            command, cwd=CHECKOUT, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"hung: killed after {limit_s:g} s") from None
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["it said nothing"]
        raise ChildError(f"ended with code {ended.returncode}: {lines[-1]}")
    return ended.stdout
