"""Where a command meets the shell: usage errors, exit codes, and what ends it from outside."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import NoReturn, TextIO

from results.errors import UserError

GOOD, REGRESSION, NOT_WHOLE, BAD_INPUT, INTERNAL = range(5)
"""Exit codes: good; a regression was found; cannot tell or not whole; bad input; our fault."""
INTERRUPTED = 130
"""What a shell reports for a process that SIGINT ended: 128 + 2."""
BROKEN_PIPE = 141
"""Likewise for SIGPIPE, 128 + 13: the reader of the output left."""


class Parser(argparse.ArgumentParser):
    """argparse whose usage errors exit with 3, since 2 says that a run is not whole."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_INPUT, f"warpgauge: {message}; '{self.prog} -h' explains\n")


def guarded(
    command: Callable[[], int], interrupted: Callable[[], int] = lambda: INTERRUPTED
) -> int:
    """The exit code of `command`. A person's mistake, and a file or output that cannot be read or
    written, is one line on stderr; a traceback is shown for our own faults alone.

    `interrupted` says what Ctrl-C means, and gives its exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a locale that has no × or µ shows ? instead
            stream.reconfigure(errors="replace")
    try:
        code = command()
        if sys.stdout is not None:  # closed by the shell: >&-
            sys.stdout.flush()
        return code
    except UserError as error:
        tell(f"warpgauge: {error}")
        return BAD_INPUT
    except BrokenPipeError:
        hush(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        where = f"'{error.filename}'"
        if error.filename is None:
            where = "the output"
            hush(sys.stdout)
        tell(f"warpgauge: cannot read or write {where}: {error.strerror}")
        return BAD_INPUT
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        if missing := missing_package(error):
            tell(f"warpgauge: {missing}")
            return BAD_INPUT
        tell(traceback.format_exc().rstrip())
        tell("warpgauge: internal error; please report it with the lines above")
        return INTERNAL


def missing_package(error: Exception) -> str:
    """Which package is not installed, with the remedy; empty where that is not what is wrong."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    package, _, rest = error.name.partition(".")
    # `cuda` is a namespace: it is there with any one of its packages, of which another is missing.
    while rest and (spec := find_spec(package)) is not None and spec.origin is None:
        part, _, rest = rest.partition(".")
        package += f".{part}"
    if find_spec(package) is not None:  # it is there, and has no such module: our fault
        return ""
    return (
        f"{sys.executable} has no package '{package}': 'make setup' installs all that is needed "
        "into .venv; another interpreter needs the dependencies in pyproject.toml"
    )


def tell(text: str) -> None:
    """A line on stderr. Where that takes none (a full disk), the exit code still says it: Python's
    own would be 1, which means a regression."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        hush(sys.stderr)


def not_whole(problems: Iterable[str]) -> int:
    """Say what is not whole, a line each; the exit code."""
    code = GOOD
    for problem in problems:
        tell(f"warpgauge: not whole: {problem}")
        code = NOT_WHOLE
    return code


def hush(stream: TextIO | None) -> None:
    """Send what is left in the stream's buffer, and all that follows, nowhere: else Python would
    complain at exit about an output that takes no more."""
    if stream is None:
        return
    try:
        place = stream.fileno()
    except OSError:  # a stream in memory, as a notebook's
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, place)
    os.close(nowhere)


def no_such(kind: str, word: str, known: Iterable[str]) -> UserError:
    """`no family 'axpi': did you mean 'axpy'? There are axpy, barrier, …`"""
    names = list(known)
    near = difflib.get_close_matches(word.lower(), names, 1)
    hint = f"did you mean {near[0]!r}? There are" if near else "there are"
    return UserError(f"no {kind} {word!r}: {hint} {', '.join(names) or 'none'}")
