"""Errors in one line: those that a person can mend, and those that nobody foresaw."""


class UserError(Exception):
    """Bad input, a missing path, no device: printed as one line, exit code 3.

    The message names the mistake and its remedy; no traceback is shown.
    """


def in_one_line(error: BaseException) -> str:
    """`ValueError: what it says`, its first line: an unforeseen error as a record's reason."""
    said = str(error).strip() or "no message"
    return f"{type(error).__name__}: {said.splitlines()[0]}"
