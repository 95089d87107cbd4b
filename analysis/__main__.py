"""`python -m analysis`: every module `analysis/*_command.py` adds its commands here.

A command module has `add_commands(subparsers)`; each parser there sets
`set_defaults(run=function)`, and the function takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import analysis
from results.errors import UserError

GOOD, REGRESSION, NOT_WHOLE, BAD_INPUT, INTERNAL = range(5)
"""Exit codes: good; a regression was found; cannot tell or not whole; bad input; our fault."""
BROKEN_PIPE = 141  # what a shell reports for a process that SIGPIPE ended: 128 + 13
INTERRUPTED = 130  # likewise for SIGINT: 128 + 2


class Parser(argparse.ArgumentParser):
    """argparse whose usage errors exit with 3, since 2 says that a run is not whole."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_INPUT, f"warpgauge: {message}; '{self.prog} -h' explains\n")


def parser() -> Parser:
    """The parser with every command of this package."""
    top = Parser(prog="python -m analysis", description="What a recorded run means.")
    subparsers = top.add_subparsers(title="commands", metavar="COMMAND")
    for module in pkgutil.iter_modules(analysis.__path__):
        if module.name.endswith("_command"):
            importlib.import_module(f"analysis.{module.name}").add_commands(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a person's mistake is one line on stderr, never a traceback."""
    try:
        top = parser()
        arguments = top.parse_args(argv)
        if not hasattr(arguments, "run"):
            top.print_help(sys.stderr)
            return BAD_INPUT
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"warpgauge: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader has left; without this the interpreter would complain when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("warpgauge: internal error; please report it with the lines above", file=sys.stderr)
        return INTERNAL


if __name__ == "__main__":
    sys.exit(main())
