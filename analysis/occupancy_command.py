"""`python -m analysis occupancy`: one launch, a CSV file of launches, or the curves around one."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.occupancy import Occupancy, occupancy, resident
from analysis.occupancy_limits import (
    KB,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    WARP,
    limits_of,
)
from results.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("threads", "regs", "static_smem", "dynamic_smem")  # beside cc
OPTIONAL = ("carveout", "barriers")  # an empty cell means the default
ADDED = ("blocks", "limiters")

_EPILOG = """\
The batch file is CSV with the columns cc, threads, regs, static_smem, dynamic_smem (and carveout,
barriers where wanted); lines that start with # are ignored. It comes back on standard output with
every column kept and blocks and limiters added; a column that already has one of these names
becomes blocks_given or limiters_given. Shared memory is in bytes a block, registers a thread.
"""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `occupancy` command; its `run` default takes the parsed arguments."""
    parser = subparsers.add_parser(
        "occupancy",
        help="blocks resident on one SM by the allocation rules, and what would raise them",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cc", help="compute capability, such as 9.0")
    parser.add_argument("--threads", type=int, help="threads a block")
    parser.add_argument("--regs", type=int, help="registers a thread")
    parser.add_argument("--static-smem", type=int, default=0, metavar="B", help="bytes a block")
    parser.add_argument("--dynamic-smem", type=int, default=0, metavar="B", help="bytes a block")
    parser.add_argument(
        "--carveout", type=int, metavar="PERCENT", help="preferred share of shared memory"
    )
    parser.add_argument("--barriers", type=int, default=1, help="named barriers a block uses")
    parser.add_argument("--elements", type=int, help="also show the grid for one thread an element")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--batch", type=Path, metavar="FILE.csv", help="answer every row of a file")
    parser.add_argument(
        "--curves", type=Path, metavar="FILE.svg", help="draw occupancy around this launch"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Answer one launch or a batch; return the exit code 0. Raises UserError for bad input."""
    launch = (args.cc, args.threads, args.regs)
    if args.batch is not None:
        single = (*launch, args.carveout, args.elements, args.curves)
        sizes = (args.static_smem, args.dynamic_smem, args.barriers)
        if args.json or any(value is not None for value in single) or sizes != (0, 0, 1):
            raise UserError("--batch takes its launches from the file: give it no other option")
        print_batch(args.batch)
        return 0
    if any(value is None for value in launch):
        raise UserError("occupancy needs --cc, --threads and --regs, or --batch FILE.csv")
    answer = occupancy(*launch, args.static_smem, args.dynamic_smem, args.carveout, args.barriers)
    grid = [] if args.elements is None else [grid_line(args.elements, answer.threads)]
    answer = dataclasses.replace(answer, working=(*grid, *answer.working))
    if args.curves is not None:
        draw_curves(answer, args.curves)
    if args.json:
        print(json.dumps(dataclasses.asdict(answer), indent=2))
    else:
        print(text(answer))
    return 0


def text(answer: Occupancy) -> str:
    """Return the answer as lines for a person."""
    sm = limits_of(answer.cc)
    lines = [
        f"cc {answer.cc}, {answer.threads} threads a block, {answer.regs} registers a thread, "
        f"{answer.static_smem} + {answer.dynamic_smem} bytes of shared memory a block",
        f"resident on one SM: {answer.blocks} block{'' if answer.blocks == 1 else 's'}, "
        f"{answer.warps} of {sm.warps} warps, occupancy {answer.occupancy:.1%}",
        f"limited by: {', '.join(answer.limiters)}",
    ]
    if answer.reason:
        lines.append(f"cannot run: {answer.reason}")
    lines += ["working:", *(f"  {line}" for line in answer.working)]
    if answer.advice:
        lines += ["any one of these raises it, cheapest first:"]
        lines += [f"  {step}" for step in answer.advice]
    return "\n".join(lines)


def grid_line(elements: int, threads: int) -> str:
    """Return the line that shows the blocks of a grid with one thread an element.

    Raises UserError for fewer than one element.
    """
    if elements < 1:
        raise UserError(f"--elements is {elements}: give 1 or more")
    blocks = -(-elements // threads)
    line = f"grid: {elements} elements / {threads} threads = {blocks} blocks"
    numbers = (elements, threads, blocks)
    if all(number & (number - 1) == 0 for number in numbers):
        powers = [f"2^{number.bit_length() - 1}" for number in numbers]
        line += f" ({powers[0]} / {powers[1]} = {powers[2]})"
    return line


def print_batch(path: Path) -> None:
    """Print the CSV file with blocks and limiters added, or nothing at all.

    Raises UserError, naming the row, for a file that cannot be read, a missing column, a cell that
    is not a whole number, or a launch that no GPU of the table can have.
    """
    # All rows are answered before the first is printed: no half table that looks whole.
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows(list(batch(path)))


def batch(path: Path) -> Iterator[list[str]]:
    """Yield the header and the rows of `print_batch`. Raises UserError as it does."""
    rows = _numbered_rows(path)
    _, header = next(rows, (0, []))
    header = [name.strip() for name in header]
    if not header:
        raise UserError(f"{path} is empty: its first row must name the columns {_required()}")
    missing = [name for name in ("cc", *COLUMNS) if name not in header]
    if missing:
        raise UserError(f"{path} has no column {', '.join(missing)}: it needs {_required()}")
    if twice := [name for name in dict.fromkeys(header) if header.count(name) > 1]:
        raise UserError(f"{path} has the column {', '.join(twice)} twice: name each once")
    cc_at = header.index("cc")
    columns = [(name, header.index(name)) for name in COLUMNS]
    optional = [(name, header.index(name)) for name in OPTIONAL if name in header]
    yield [f"{name}_given" if name in ADDED else name for name in header] + list(ADDED)
    count = 0
    for count, (line, row) in enumerate(rows, 1):
        try:
            if len(row) != len(header):
                raise UserError(f"{len(row)} cells under {len(header)} columns: mend the row")
            numbers = {name: _number(name, row[at]) for name, at in columns}
            numbers |= {name: _number(name, row[at]) for name, at in optional if row[at].strip()}
            static, dynamic = numbers.pop("static_smem"), numbers.pop("dynamic_smem")
            threads, regs = numbers.pop("threads"), numbers.pop("regs")
            blocks, limiters = resident(row[cc_at], threads, regs, static, dynamic, **numbers)
        except UserError as error:
            raise UserError(f"{path} row {count} (line {line}): {error}") from None
        yield [*row, str(blocks), "+".join(limiters)]
    if not count:
        raise UserError(f"{path} has no rows under its header: add one launch a row")


def _required() -> str:
    return ", ".join(("cc", *COLUMNS))


def _number(name: str, cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise UserError(f"{name} is {cell!r}: give a whole number") from None


def _numbered_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of its line; comments and blank lines are left out."""
    line = 0

    def lines(file: Iterator[str]) -> Iterator[str]:
        nonlocal line
        for content in file:
            line += 1
            # Before the CSV reader sees it: a quote in a comment would swallow the rows below.
            if not content.startswith("#"):
                yield content

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.reader(lines(file), strict=True):
                if any(cell.strip() for cell in row):
                    yield line, row
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text in UTF-8: save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise UserError(f"{path} line {line} is not CSV ({error}): mend the line") from None


def curve(answer: Occupancy, axis: str) -> tuple[list[int], list[float]]:
    """Return the values of one axis and the occupancy at each, all else as in `answer`.

    `axis` is 'threads' (whole warps), 'regs' or 'dynamic_smem' (bytes, beside the static ones).
    """
    sm = limits_of(answer.cc)
    most = max(sm.shared_per_block - answer.static_smem, answer.dynamic_smem)
    values = {
        "threads": range(WARP, MAX_THREADS_PER_BLOCK + 1, WARP),
        "regs": range(MAX_REGISTERS_PER_THREAD + 1),
        "dynamic_smem": range(0, most + sm.shared_unit + 1, sm.shared_unit),
    }[axis]
    shares = []
    for value in values:
        launch = {
            "threads": answer.threads,
            "regs": answer.regs,
            "dynamic_smem": answer.dynamic_smem,
            axis: value,
        }
        blocks, _ = resident(
            answer.cc,
            static_smem=answer.static_smem,
            carveout=answer.carveout,
            barriers=answer.barriers,
            **launch,
        )
        shares.append(blocks * -(-launch["threads"] // WARP) / sm.warps)
    return list(values), shares


def draw_curves(answer: Occupancy, path: Path) -> None:
    """Draw occupancy against block size, registers and shared memory, the launch marked.

    Raises UserError when the file cannot be written or has an ending that names no image format.
    """
    if path.suffix == "" or path.is_dir():
        raise UserError(f"--curves {str(path)!r} names no image: give a file such as curves.svg")
    # matplotlib takes a second to import: only those who draw pay for it.
    import matplotlib
    from matplotlib import style
    from matplotlib.figure import Figure

    axes_of = (
        ("threads", "threads a block", 1),
        ("regs", "registers a thread", 1),
        ("dynamic_smem", "dynamic shared memory a block (KB)", KB),
    )
    # A fixed salt and no date: the same launch gives the same file.
    salt = matplotlib.rc_context({"svg.hashsalt": "warpgauge"})
    with style.context("seaborn-v0_8-whitegrid"), salt:
        figure = Figure(figsize=(13, 4), layout="constrained")
        figure.suptitle(
            f"cc {answer.cc}: {answer.blocks} blocks, occupancy {answer.occupancy:.1%}, "
            f"limited by {', '.join(answer.limiters)}"
        )
        panels = figure.subplots(1, len(axes_of), sharey=True)
        for panel, (axis, label, unit) in zip(panels, axes_of, strict=True):
            _draw_panel(panel, answer, axis, label, unit)
        panels[0].set_ylabel("occupancy (share of the SM's warps)")
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        try:
            figure.savefig(path, metadata=metadata)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}; check the folder") from None
        except ValueError:
            raise UserError(f"cannot draw {path}: give a file name that ends in .svg") from None


def _draw_panel(panel: Axes, answer: Occupancy, axis: str, label: str, unit: int) -> None:
    values, shares = curve(answer, axis)
    # Each block size stands alone; along the other two axes occupancy falls in steps.
    shape = {"marker": ".", "linewidth": 0.8} if axis == "threads" else {"linewidth": 1.5}
    panel.plot([value / unit for value in values], shares, **shape)
    panel.plot(
        [getattr(answer, axis) / unit],
        [answer.occupancy],
        marker="o",
        markersize=9,
        color="tab:red",
        linestyle="none",
        label="this launch",
    )
    panel.set_xlabel(label)
    panel.set_ylim(0, 1.05)
    panel.legend(loc="best")
