"""`python -m analysis counters RUN`: hardware counters beside the record, and what is suspect."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from results.errors import UserError
from results.shell import no_such, not_whole

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "case",
    "DRAM read, written",
    "warps an SM",
    "issued",
    "warps' time",
    "conflicts",
    "time",
)
LEGEND = """\
DRAM read, written: over the declared bytes. warps an SM: resident on average while there is one, of
those predicted. issued: share of the issue slots of schedulers that have a warp. warps' time: the
states in which resident warps spent most of it. conflicts: share of shared memory's cycles. time:
the profiler's over ours, where both are cold."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `counters` command."""
    parser = subparsers.add_parser(
        "counters",
        help="hardware counters of a run against what is declared, predicted and timed",
        description="Exit code 2 where the counters are not whole. 'make profile' records them.",
    )
    parser.add_argument("RUN", help="folder or file of records, or the name of a baseline")
    parser.add_argument("--family", help="this family only")
    parser.add_argument("--json", action="store_true", help="one object, SI units")
    parser.set_defaults(run=counters)


def counters(arguments: argparse.Namespace) -> int:
    """Print the counters and the suspects; 2 where they are not whole, else 0.

    Raises:
        UserError: the run cannot be read, has no counters, or no such family.
    """
    from analysis.counters import of_run, strangers, suspects, table
    from results.store import load

    recording = load(arguments.RUN)
    found = of_run(recording)
    if not found:
        raise UserError(
            f"{recording.name} has no counters: 'make profile RUN={arguments.RUN}' on its GPU's "
            "machine adds them"
        )
    if arguments.family is not None:
        known = [item.family for item in found]
        found = [item for item in found if item.family == arguments.family]
        if not found:
            raise no_such("family with counters", arguments.family, known)
    rows = table(recording, found)
    l2_bytes = recording.device.get("l2_bytes")
    problems = []
    if not any(case.counters for item in found for case in item.cases):
        problems.append("no case has a counter: profile again with 'make profile'")
    if not isinstance(l2_bytes, int | float) or l2_bytes <= 0:
        problems.append("the size of L2 is not recorded: missing writes are not judged")
        l2_bytes = math.inf
    named = suspects(rows, l2_bytes)
    problems += [f"{item.family}: {problem}" for item in found for problem in item.problems]
    problems += strangers(recording, found)
    if arguments.json:
        objects = [_object(row) for row in rows.to_dict("records")]
        listed = [asdict(item) for item in named]
        print(json.dumps({"cases": objects, "suspects": listed, "problems": problems}, indent=1))
    else:
        versions = ", ".join(sorted({item.profiler for item in found}))
        print(f"{recording.name}: {len(rows)} cases, Nsight Compute {versions}, caches flushed")
        print(LEGEND)
        for family, part in rows.groupby("family", sort=False):
            print(f"\n{family}\n{_text(part)}")
        print(f"\n{len(named)} suspects")
        for kind, cause in dict.fromkeys((item.kind, item.cause) for item in named):
            print(f"{kind}: {cause}")
            for item in named:
                if (item.kind, item.cause) == (kind, cause):
                    print(f"  {item.deviation:+.1%}  {item.case}: {item.text}")
    return not_whole(problems)


def _object(row: dict[Any, Any]) -> dict[str, Any]:
    """One case; a quantity that is not there is absent."""
    return {
        key: value
        for key, value in row.items()
        if value is not None and not (isinstance(value, float) and math.isnan(value))
    }


def _text(rows: pd.DataFrame) -> str:
    """Aligned columns, one line a case; empty where a number does not apply."""
    lines = [[*COLUMNS], *([row["case"], *_cells(row)] for row in rows.to_dict("records"))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(row: dict[Any, Any]) -> list[str]:
    from analysis.counters import timed, top_states

    work = row["work"]
    parts = [
        _share(row["dram_read"], work.get("bytes_read")),
        _share(row["dram_written"], work.get("bytes_written")),
    ]
    warps = "" if math.isnan(row["achieved"]) else f"{row['achieved']:.1f}"
    if warps and not math.isnan(row["at_most"]):
        warps += f" of {row['at_most']:.0f}"
    states = [f"{name} {share:.0%}" for name, share in top_states(row)]
    return [
        " ".join(filter(None, parts)),
        warps,
        _percent(row["issue_used"]),
        ", ".join(states),
        _percent(row["conflicts"]),
        f"{row['time'] / row['seconds']:.3f}" if timed(row) else "",
    ]


def _share(counted: float, declared: float | None) -> str:
    return f"{counted / declared:.3f}" if declared and not math.isnan(counted) else ""


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.0%}"
