"""`python -m analysis report RUN`: the page and its figures; `--readme`: the README's figures."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
RECORDED = "nvidia-h200"
"""The baseline that the README shows."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `report` command."""
    parser = subparsers.add_parser(
        "report",
        help="one self-contained page that answers every question from the data of a run",
        description="Exit code 2 where a run is not whole (the page says why), 4 where a question "
        "could not be answered because of an error in this program; the page is written all the "
        "same.",
    )
    parser.add_argument(
        "RUN", nargs="*", help="folder or file of records, or a baseline's name; several: abreast"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder (default: report)")
    parser.add_argument(
        "--readme",
        action="store_true",
        help=f"draw the README's figures into docs/figures from RUN (default: {RECORDED})",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="with --readme: draw nothing, exit with 2 where the figures' data have changed",
    )
    parser.set_defaults(run=report)


def report(arguments: argparse.Namespace) -> int:
    """Write the page, or the README's figures.

    Raises:
        UserError: arguments that do not fit together, or a run that cannot be read.
    """
    from results.errors import UserError
    from results.shell import not_whole
    from results.store import load

    if arguments.readme:
        return _readme(arguments)
    if arguments.check:
        raise UserError("--check goes with --readme: it compares the README's figures")
    if not arguments.RUN:
        raise UserError("name a run: a folder of records, or a baseline such as nvidia-h200")
    recordings = [load(run) for run in arguments.RUN]
    output = arguments.output or Path("report")

    from analysis.report.build import build

    start = time.perf_counter()
    try:
        errors, problems = build(recordings, output)
    except OSError as error:
        raise UserError(
            f"cannot write to {output}: {error.strerror}; name another folder with --output"
        ) from None
    page = output / "index.html"
    megabytes = page.stat().st_size / 1e6
    print(f"{page} ({megabytes:.1f} MB, {time.perf_counter() - start:.0f} s)")
    code = not_whole(problems)
    for text in errors:
        print(f"warpgauge: internal error, please report it: {text}", file=sys.stderr)
    return 4 if errors else code


def _readme(arguments: argparse.Namespace) -> int:
    from analysis.report import readme
    from results.errors import UserError
    from results.store import load

    if len(arguments.RUN) > 1 or arguments.output is not None:
        raise UserError("--readme takes one run and writes to docs/figures: leave out the rest")
    recording = load(arguments.RUN[0] if arguments.RUN else RECORDED)
    if not arguments.check:
        for name in readme.write(recording, FIGURES):
            print(FIGURES / f"{name}.svg")
        return 0
    stale = readme.stale(recording, FIGURES)
    for text in stale:
        print(f"warpgauge: {text}; 'python -m analysis report --readme' redraws", file=sys.stderr)
    return 2 if stale else 0
