"""The error that a person can mend: its message says what is wrong and what to do."""


class UserError(Exception):
    """Bad input, a missing path, no device: printed as one line, exit code 3.

    The message names the mistake and its remedy; no traceback is shown.
    """
