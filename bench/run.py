"""The parent: one child process a family, processes as the outer loop, nothing lost on the way."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import device
from bench.session import Order, record
from bench.speech import say
from results.errors import UserError
from results.schema import End
from results.store import LOCAL, append_end

FAMILY_SECONDS = 300.0
"""A family that takes longer hangs; its process is ended and the reason recorded."""
NOT_WRITTEN = 3
"""A child ends so that could not write its file, and has said why: nothing is to be added."""
PRELOADED = ["numba.cuda", "cupy", "cuda.core", "bench.session"]
"""Imported once in the server that children are forked from. None of them opens the device."""


def run(
    chosen: list[str],
    profile: str,
    index: int,
    processes: int,
    output: Path | None,
    argv: list[str],
) -> int:
    """Record the families; returns 0, or 2 where one is not whole.

    Raises:
        UserError: no usable device, or the output holds records already.
    """
    device.usable(index)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    folder = output or _new_folder(context, index)
    order = Order("", 0, profile, index, folder, argv)
    orders = [
        replace(order, family=family, process=process)
        for process in range(processes)
        for family in chosen
    ]
    for item in orders:
        if item.path.exists():
            raise UserError(f"{item.path} exists already; name another folder with --output")
    failures = [item for item in orders if not child(context, item, _measure)]
    say(f"recorded in {folder}")
    if failures:
        names = ", ".join(sorted({item.family for item in failures}))
        print(f"not whole: {names}; the reasons are above and in the records", file=sys.stderr)
    return 2 if failures else 0


def _new_folder(context: multiprocessing.context.ForkServerContext, index: int) -> Path:
    """results/data/<gpu>/<UTC time>; the name is asked in a child, so that no CUDA context of
    the parent's stays on the device."""
    with context.Pool(1) as pool:
        name = pool.apply(_device_name, (index,))
    while True:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        folder = LOCAL / device.model_slug(name) / stamp
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # a run on another device took this second
            time.sleep(0.1)
        except OSError as error:
            raise UserError(
                f"cannot write to {LOCAL}: {error.strerror}; name a folder that you may write to "
                "with --output"
            ) from None
        else:
            return folder


def _device_name(index: int) -> str:
    return str(device.snapshot(index)["name"])


def child(
    context: Any, order: Order, target: Callable[[Order], None], limit_s: float = FAMILY_SECONDS
) -> bool:
    """Measure one family in a process of its own; whatever happens to it, its file is closed."""
    say(f"[{order.process}] {order.family}")
    if order.path.exists():
        print(f"{order.family}: {order.path} exists already, by another run", file=sys.stderr)
        return False
    started = time.monotonic()
    process = context.Process(target=target, args=(order,))
    process.start()
    reason = None
    try:
        process.join(limit_s)
        if process.is_alive():
            reason = f"hung: ended after {limit_s:.0f} s"
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    finally:
        if reason:
            process.kill()
            process.join()
        elif process.exitcode not in (0, 2, NOT_WRITTEN):
            reason = _why(process.exitcode)
        if reason and order.path.exists():
            _close(order.path, reason, time.monotonic() - started)
    if reason:
        print(f"{order.family}: {reason}", file=sys.stderr)
    return process.exitcode == 0


def _measure(order: Order) -> None:
    try:
        sys.exit(0 if record(order) else 2)
    except UserError as error:
        print(f"{order.family}: {error}", file=sys.stderr)
        sys.exit(NOT_WRITTEN)


def _why(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by signal {-code}"
    return f"its process ended with code {code}; the traceback is above"


def _close(path: Path, reason: str, seconds: float) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        append_end(path, End("failed", now, round(seconds, 3), reason))
    except OSError as error:  # without an end line the file says itself that it is not whole
        print(f"cannot write to {path}: {error.strerror}", file=sys.stderr)
