"""`python -m analysis verdict BASE NEW` and `accept BASE NEW --case … --reason …`."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

from analysis import accepted
from analysis.evidence import MINIMUM, PROMISE, QUIET, STEADY, Suite, processes_for
from analysis.readings import sides
from analysis.units import BY_UNIT, percent
from analysis.verdict import CaseVerdict, Comparison, compare
from results.errors import UserError
from results.shell import no_such
from results.store import Recording, load

ORDER = ("SLOWER", "FASTER", "AMBIGUOUS", "NO_DATA", "SAME")
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What a reason may hold and XML 1.0 may not."""
SCREEN = 40
"""Lines of text from which the summary is repeated at the end, where a terminal stands."""
FEW = 3
"""So many cases without data of one family and reason are named each; --all names all."""
MOST = 10
"""Lines that a list has of cases that are neither slower nor faster; --all prints all."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `verdict` and `accept` commands."""
    parser = subparsers.add_parser(
        "verdict",
        help="BASE against NEW, case by case; exit code 1 on a regression",
        description="Exit code 0: nothing slower. 1: a case is slower or newly fails. 2: cannot "
        "tell, or a run is not whole. docs/verdict.md has the rule.",
    )
    parser.add_argument("BASE", help="folder or file of records, or the name of a baseline")
    parser.add_argument("NEW", help="likewise")
    parser.add_argument("--family", nargs="+", metavar="F", help="judge these alone")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--all", action="store_true", help=f"every case that is not SAME, not {MOST}")
    form.add_argument("--json", action="store_true", help="print JSON instead of text: every case")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="also write JUnit XML for a CI")
    parser.set_defaults(run=verdict)

    parser = subparsers.add_parser(
        "accept",
        help="mark a known change with its reason; verdict and history start anew there",
        description="Appends to results/accepted.jsonl, which is committed.",
    )
    parser.add_argument("BASE", help="the run before the change")
    parser.add_argument("NEW", help="the run that shows it")
    parser.add_argument(
        "--case",
        required=True,
        help="FAMILY/KERNEL[name=value,…] as verdict prints it; FAMILY/KERNEL: all that changed",
    )
    parser.add_argument("--reason", required=True, help="why the change is right")
    parser.set_defaults(run=accept)


def verdict(arguments: argparse.Namespace) -> int:
    """Print the comparison and return its exit code.

    Raises:
        UserError: a run cannot be read, the GPU models differ, or the file cannot be written.
    """
    base, new = _only(load(arguments.BASE), load(arguments.NEW), arguments.family)
    found = compare(base, new, accepted.load())
    print(as_json(found) if arguments.json else as_text(found, whole=arguments.all))
    if arguments.junit:
        try:
            arguments.junit.parent.mkdir(parents=True, exist_ok=True)
            arguments.junit.write_bytes(as_junit(found))
        except OSError as error:
            raise UserError(f"cannot write {arguments.junit}: {error.strerror}") from None
    return found.exit_code


def _only(base: Recording, new: Recording, families: list[str] | None) -> list[Recording]:
    """The runs as if they had these families alone; one that a run lacks has no data there.

    Raises:
        UserError: a family that neither run has.
    """
    if not families:
        return [base, new]
    known = sorted({*base.families, *new.families})
    for name in families:
        if name not in known:
            raise no_such("family of the two runs", name, known)
    return [
        replace(run, files=[file for file in run.files if file.run.family in families])
        for run in (base, new)
    ]


def accept(arguments: argparse.Namespace) -> int:
    """Store the changes of the named cases. Always 0.

    Raises:
        UserError: no reason, no such case, or the case did not change.
    """
    if not arguments.reason.strip():
        raise UserError("--reason is empty: say why the change is right")
    base, new = load(arguments.BASE), load(arguments.NEW)
    found = compare(base, new, accepted.load())
    named = [c for c in found.cases if arguments.case in (c.label, f"{c.family}/{c.kernel}")]
    if not named:
        raise UserError(f"no case '{arguments.case}': name it as 'verdict' prints it")
    changed = [case for case in named if case.verdict in ("SLOWER", "FASTER")]
    if not changed:
        told = ", ".join(sorted({case.verdict for case in named}))
        raise UserError(f"'{arguments.case}' is {told}: only SLOWER or FASTER can be accepted")
    started = {name: side.started for name, side in sides(new).items()}
    items = [
        accepted.Acceptance(
            gpu=found.gpu,
            family=case.family,
            kernel=case.kernel,
            params=case.params,
            reason=arguments.reason.strip(),
            since=started[case.family, case.kernel, tuple(sorted(case.params.items()))],
            base=found.base,
            new=found.new,
            metric=case.metric,
            ratio=None if case.effect is None else 1 + case.effect,
        )
        for case in changed
    ]
    accepted.add(items)
    for case in changed:
        print(f"accepted {case.label}: {_effect(case)}")
    return 0


def _effect(case: CaseVerdict) -> str:
    """`+2.1% (time 3.33 µs → 3.40 µs)`."""
    if case.effect is None or case.base is None or case.new is None:
        return "no number"
    spell = BY_UNIT.get(case.unit or "", lambda value: f"{value:.4g}")
    return f"{case.effect:+.2%} ({case.metric} {spell(case.base)} → {spell(case.new)})"


def summary(found: Comparison) -> str:
    """`2 SLOWER, 498 SAME` and the like."""
    counts = [f"{len(found.of(kind))} {kind}" for kind in ORDER if found.of(kind)]  # type: ignore[arg-type]
    return ", ".join(counts) or "no case"


def as_text(found: Comparison, whole: bool = False) -> str:
    """For people: the summary, then the cases that are not the same, with their reasons.

    Everything that is slower or faster is there; of the rest MOST lines a verdict, unless `whole`.
    """
    first = f"{found.base} → {found.new} on {found.gpu}: {summary(found)}"
    lines = [first]
    if found.problems:
        lines += ["", "Not whole", *(f"  {problem}" for problem in found.problems)]
    for kind in ("SLOWER", "FASTER"):
        if cases := found.of(kind):
            lines += ["", kind, *_aligned(cases)]
    if cases := found.of("AMBIGUOUS"):
        lines += ["", f"AMBIGUOUS: {_unsettled(cases)}", *_strict(found.suite)]
        lines += _first(_furthest(cases), whole)
    cases = found.of("NO_DATA")
    if not whole:  # what neither side can measure here is no news
        cases = [case for case in cases if case.lost or not case.reason.startswith("skipped")]
    if cases:
        lines += ["", "NO_DATA", *(_aligned(cases) if whole else _grouped(cases))]
    notes = [case for case in found.of("SAME") if case.reason or case.accepted]
    if notes:
        lines += ["", "SAME, with a note", *_first(_furthest(notes), whole)]
    coarse = [case for case in found.of("SAME") if (case.threshold or 0) > PROMISE]
    if coarse:
        worst = max(coarse, key=lambda case: case.threshold or 0)
        lines += [
            "",
            f"{len(coarse)} SAME cases are so short that two ticks of the timer are over "
            f"{PROMISE:.0%} (at most {percent(worst.threshold or 0)}, {worst.label})",
        ]
    if found.environment:
        lines += ["", "Changed around the kernels", *(f"  {c}" for c in found.environment)]
    if len(lines) > SCREEN:
        lines += ["", first]
    return "\n".join(lines)


def _strict(suite: Suite) -> list[str]:
    """Why the suite's own noise makes every threshold wider, where it does."""
    if suite.quiet:
        return []
    needed = processes_for(STEADY, suite)
    helps = f"{needed} processes a side" if needed else "quieter cases"
    return [
        f"  {suite.noisy} of {suite.cases} cases spread over {QUIET:.2%}, too many for the "
        f"quiet line: Student's bound holds for all, and {helps} would show {PROMISE:.0%} at a "
        f"spread of {percent(STEADY)} (docs/verdict.md); so would fewer short kernels"
    ]


def _unsettled(cases: list[CaseVerdict]) -> str:
    """Why cases are ambiguous, how many for each reason, and what helps."""
    few = sum(min(case.processes) < MINIMUM for case in cases)
    noisy = sum(case.reason.startswith("too noisy") for case in cases)
    told = {
        f"have fewer than {MINIMUM} processes on a side": few,
        f"spread too widely between processes to show {PROMISE:.0%}": noisy,
        "have another reason": len(cases) - few - noisy,
    }
    counts = ", ".join(f"{count} {reason}" for reason, count in told.items() if count)
    helps = "; more processes help: 'python -m bench run --processes N'" if few or noisy else ""
    return f"{counts}{helps}"


def _furthest(cases: list[CaseVerdict]) -> list[CaseVerdict]:
    """The largest effect first, to the digits that are printed; among equals the widest spread."""
    return sorted(
        cases,
        key=lambda case: (round(abs(case.effect or 0.0), 4), case.spread or 0.0),
        reverse=True,
    )


def _first(cases: list[CaseVerdict], whole: bool) -> list[str]:
    """A line a case, at most MOST, and how many are left out."""
    if whole or len(cases) <= MOST:
        return _aligned(cases)
    return [*_aligned(cases[:MOST]), _more(len(cases) - MOST)]


def _more(count: int) -> str:
    return f"  … and {count} more (--all)"


def _words(case: CaseVerdict) -> tuple[str, str, str]:
    """Label, effect and reason."""
    known = f"[beyond what was accepted: {case.accepted}]  " if case.accepted else ""
    effect = "" if case.effect is None else _effect(case)
    return case.label, effect, known + case.reason


def _line(case: CaseVerdict) -> str:
    return "  ".join(filter(None, _words(case)))


def _aligned(cases: list[CaseVerdict]) -> list[str]:
    """A line a case; effects and reasons stand below each other."""
    rows = [_words(case) for case in cases]
    label, effect = (max(len(row[column]) for row in rows) for column in (0, 1))
    gap = "  " if effect else ""
    return [f"  {a:<{label}}  {b:<{effect}}{gap}{c}".rstrip() for a, b, c in rows]


def _grouped(cases: list[CaseVerdict]) -> list[str]:
    """A line a case, or for more than FEW of one family with one reason a line for them all; at
    most MOST lines, what NEW should have and lacks first."""
    groups: dict[tuple[str, str], list[CaseVerdict]] = {}
    for case in sorted(cases, key=lambda case: not case.lost):
        groups.setdefault((case.family, case.reason), []).append(case)
    lines: list[str] = []
    left = len(cases)
    for (family, reason), members in groups.items():
        together = len(members) > FEW
        if len(lines) + (1 if together else len(members)) > MOST:
            return [*lines, _more(left)]
        if together:
            lines.append(f"  {family}: {len(members)} cases  {reason}")
        else:
            lines += _aligned(members)
        left -= len(members)
    return lines


def as_json(found: Comparison) -> str:
    """One object: the runs, the exit code, the counts and every case; absent numbers are null."""
    return json.dumps(
        {
            "base": found.base,
            "new": found.new,
            "gpu": found.gpu,
            "exit_code": found.exit_code,
            "suite": {**asdict(found.suite), "quiet": found.suite.quiet},
            "counts": {kind: len(found.of(kind)) for kind in ORDER},  # type: ignore[arg-type]
            "problems": found.problems,
            "environment": [asdict(change) for change in found.environment],
            "cases": [asdict(case) for case in found.cases],
        },
        indent=1,
    )


def as_junit(found: Comparison) -> bytes:
    """JUnit XML: a testcase a case; SLOWER fails, AMBIGUOUS and NO_DATA are skipped with the
    reason, and what makes a run not whole is an error."""
    cases = found.cases
    suite = ElementTree.Element(
        "testsuite",
        name=f"warpgauge {found.gpu}: {found.base} → {found.new}",
        tests=str(len(cases) + len(found.problems)),
        failures=str(len(found.of("SLOWER"))),
        errors=str(len(found.problems)),
        skipped=str(len(found.of("AMBIGUOUS")) + len(found.of("NO_DATA"))),
    )
    for case in cases:
        name = case.label.partition("/")[2]
        element = ElementTree.SubElement(suite, "testcase", classname=case.family, name=name)
        tag = {"SLOWER": "failure", "AMBIGUOUS": "skipped", "NO_DATA": "skipped"}.get(case.verdict)
        if tag:
            ElementTree.SubElement(element, tag, message=f"{case.verdict}: {_line(case)}")
    for problem in found.problems:
        element = ElementTree.SubElement(suite, "testcase", classname="run", name=problem)
        ElementTree.SubElement(element, "error", message=f"not whole: {problem}")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    for element in root.iter():
        for name, text in element.items():
            element.set(name, NOT_XML.sub("\ufffd", text))
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
