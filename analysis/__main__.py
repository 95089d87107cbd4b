"""`python -m analysis`: every module `analysis/*_command.py` adds its commands here.

A command module has `add_commands(subparsers)`; each parser there sets
`set_defaults(run=function)`, and the function takes the parsed arguments and returns an exit code.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence

import analysis
from results.shell import BAD_INPUT, Parser, guarded


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
    return guarded(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if not hasattr(arguments, "run"):
        top.print_help(sys.stderr)
        return BAD_INPUT
    return int(arguments.run(arguments))


if __name__ == "__main__":
    sys.exit(main())
