"""A tool of NVIDIA's and the program that it watches: started and ended together."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent


def start(
    command: Sequence[str], stderr: int, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start it in the checkout, in a session of its own, so that `end` ends its program too.

    Its stdout is a pipe, of text in which what is no UTF-8 is replaced.

    Args:
        stderr: subprocess.PIPE or STDOUT.
        env: The whole environment; None is ours.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def end(child: subprocess.Popen[str]) -> None:
    """Kill the tool and what it watches; without effect where both have ended."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
