"""Where runs live: folders of `<process>-<family>.jsonl`, written line by line, read whole.

A run that was killed keeps every finished case: each line is flushed as it is written, a file
without an end line loads and is marked incomplete, and a torn last line is reported.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import msgspec

from results.errors import UserError
from results.schema import Case, End, Line, Run, decode, encode, key, schema_of
from results.shell import no_such

ROOT = Path(__file__).parent
BASELINES = ROOT / "baseline"
LOCAL = ROOT / "data"


@dataclass(frozen=True)
class File:
    """One process of one family."""

    path: Path
    run: Run
    cases: list[Case]
    end: End | None
    torn: bool = False

    @property
    def incomplete(self) -> str | None:
        """Why this file is not whole, in one line; None where it is."""
        if self.torn:
            return f"{self.path.name}: the last line is torn; the cases before it are kept"
        if self.end is None:
            return f"{self.path.name}: no end line: the process was killed or is still running"
        if self.end.status == "failed":
            return f"{self.path.name}: family {self.run.family} failed: {self.end.reason}"
        return None


@dataclass(frozen=True)
class Recording:
    """A run: every process of every family in one folder (or one file of it)."""

    path: Path
    files: list[File] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """Files of which nothing was kept, a line each: their process was killed before its header."""

    @property
    def name(self) -> str:
        return self.path.stem if self.path.is_file() else self.path.name

    @property
    def problems(self) -> list[str]:
        """What is not whole about the run, a line each."""
        return [*self.lost, *(text for file in self.files if (text := file.incomplete))]

    @property
    def device(self) -> dict[str, object]:
        """The snapshot of the first process."""
        return self.files[0].run.device

    @property
    def families(self) -> list[str]:
        return sorted({file.run.family for file in self.files})

    @property
    def processes(self) -> list[int]:
        return sorted({file.run.process for file in self.files})


class Writer:
    """Appends lines to one file; each is on its way to the disk before the call returns."""

    def __init__(self, path: Path) -> None:
        """Raises UserError where the folder cannot be made or the file is already there."""
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Appending, so that an end line which the parent adds is never written over.
            self._file = open(  # noqa: SIM115 - closed by close()
                path,
                "xb",
                buffering=0,
                opener=lambda name, flags: os.open(name, flags | os.O_APPEND),
            )
        except FileExistsError:
            raise UserError(
                f"{path} exists already; name another folder with --output, so that no "
                "measured case is overwritten"
            ) from None
        except OSError as error:
            raise UserError(
                f"cannot write to {path.parent}: {error.strerror}; name a folder that you may "
                "write to with --output"
            ) from None

    def write(self, line: Line) -> None:
        """Raises UserError where the disk takes no more; what was written before stays."""
        left = memoryview(encode(line))
        try:
            while left:  # a disk that fills takes a part, and says nothing
                left = left[self._file.write(left) :]
        except OSError as error:
            raise UserError(
                f"cannot write to {self._path}: {error.strerror}; the cases before this one are "
                "kept; make room and record the rest into another folder"
            ) from None

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def append_end(path: Path, end: End) -> None:
    """The parent's last word on a child that died: its end line, after a torn one is closed."""
    with open(path, "r+b") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
            file.write((b"\n" if torn else b"") + encode(end))
        else:
            file.write(encode(end))


def file_name(process: int, family: str) -> str:
    """The name of a family's record file: `0-axpy.jsonl` for process 0."""
    return f"{process}-{family}.jsonl"


def baselines() -> list[str]:
    """Names of the committed baselines."""
    if not BASELINES.is_dir():
        return []
    return sorted(folder.name for folder in BASELINES.iterdir() if any(folder.glob("*.jsonl")))


def resolve(run: str | os.PathLike[str]) -> Path:
    """What RUN names: a folder or file, a committed baseline, or `latest` of the local runs.

    Raises:
        UserError: there is none.
    """
    path = Path(run)
    try:
        if path.exists():
            return path
    except OSError as error:  # a name too long, or in a folder that this user may not search
        raise UserError(f"cannot read '{run}': {error.strerror}") from None
    if str(run) == "latest":
        runs = [folder for folder in LOCAL.glob("*/*") if any(folder.glob("*.jsonl"))]
        if not runs:
            text = "no local run yet: 'make bench' on a GPU machine records one"
            if recorded := baselines():
                text += f"; recorded are {', '.join(recorded)}: 'make report RUN={recorded[0]}'"
            raise UserError(text)
        return max(runs, key=_started)
    if str(run) in baselines():
        return BASELINES / str(run)
    unknown = no_such("run at", str(run), baselines())
    raise UserError(f"{unknown}; or name a folder or file of records")


def _started(folder: Path) -> str:
    """When the newest of its processes started; a folder may be called anything."""
    found = ""
    for path in folder.glob("*.jsonl"):
        try:
            with open(path, "rb") as file:
                header = decode(line := file.readline(), schema_of(line))
        except (OSError, LookupError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        found = max(found, header.started) if isinstance(header, Run) else found
    return found


def load(run: str | os.PathLike[str]) -> Recording:
    """A run from its folder, from one file, or from a baseline's name.

    Raises:
        UserError: missing, empty, not a record, of an unknown schema, or two records of one
            process; one line says which file and what to do.
    """
    path = resolve(run)
    try:
        records = (item for item in path.iterdir() if item.suffix == ".jsonl")
        paths = sorted(records, key=_order) if path.is_dir() else [path]
    except OSError as error:
        raise UserError(f"cannot list {path}: {error.strerror}") from None
    if not paths:
        raise UserError(f"{path} holds no .jsonl record; 'make bench' makes one")
    read = [_read(item) for item in paths]
    files = [item for item in read if isinstance(item, File)]
    lost = [item for item in read if isinstance(item, str)]
    if not files:
        raise UserError(f"{path}: {lost[0]}; delete it and record again with 'make bench'")
    _of_one_run(path, files)
    return Recording(path, files, lost)


def _of_one_run(path: Path, files: list[File]) -> None:
    models = {str(file.run.device.get("name")) for file in files}
    if len(models) > 1:
        raise UserError(
            f"{path} mixes records of {', '.join(sorted(models))}: keep one GPU model a folder"
        )
    known: dict[tuple[str, int], Path] = {}
    for file in files:
        other = known.setdefault((file.run.family, file.run.process), file.path)
        if other != file.path:
            raise UserError(
                f"{file.path} and {other.name} are both process {file.run.process} of "
                f"{file.run.family}: a copy is no further process; keep one of them"
            )


def _order(path: Path) -> tuple[int, str]:
    process, _, family = path.stem.partition("-")
    return (int(process) if process.isdigit() else 0, family)


def _read(path: Path) -> File | str:
    """The file, or why nothing of it was kept."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no file; name a record, or a folder of records")
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    torn = lines[-1] != b""
    lines = [line for line in lines if line]
    if not lines:
        return f"{path.name} is empty: its process was ended before it wrote"
    try:
        schema = schema_of(lines[0])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        if _only_ended(lines):
            return f"{path.name} has no header: its process was ended before it wrote one"
        raise UserError(f"{path} is not a warpgauge record (its first line is no header)") from None
    records: list[Line] = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(decode(line, schema))
        except LookupError as error:
            raise UserError(f"{path}: {error}; update warpgauge, or record again") from None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            # A process that was killed tears the line it was writing: the file's last, or,
            # where the parent has added the end line since, the one before it. What is JSON was
            # not torn.
            last = number == len(lines) or (
                number == len(lines) - 1
                and lines[-1].startswith(b'{"kind":"end","status":"failed"')
            )
            last = last and not isinstance(error, msgspec.ValidationError)
            if last and number > 1:
                torn = True
                continue
            raise UserError(f"{path} line {number} is malformed ({error}); record again") from None
    return _assemble(path, records, torn)


def _only_ended(lines: list[bytes]) -> bool:
    """A torn header, the parent's end line, or one after the other."""
    start = b'{"kind":"run"'
    torn = lines[0].startswith(start) or start.startswith(lines[0])
    return all(line.startswith(b'{"kind":"end"') for line in lines[torn:])


def _assemble(path: Path, records: list[Line], torn: bool) -> File:
    header = records[0]
    if not isinstance(header, Run):
        raise UserError(f"{path} is not a warpgauge record (its first line is no header)")
    if not isinstance(header.device.get("name"), str):
        raise UserError(f"{path}: its header names no GPU; record again with 'make bench'")
    cases = [line for line in records if isinstance(line, Case)]
    ends = [line for line in records if isinstance(line, End)]
    if 1 + len(cases) + len(ends) != len(records):
        raise UserError(f"{path} holds two headers; keep one process of one family a file")
    seen = set()
    for case in cases:
        if key(case) in seen:
            raise UserError(f"{path} holds {case.family}/{case.kernel} {case.params} twice")
        seen.add(key(case))
    return File(path, header, cases, ends[-1] if ends else None, torn)
