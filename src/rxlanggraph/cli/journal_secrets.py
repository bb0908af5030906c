"""What of a journal is not for everybody: the password of its server, and its file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rxlanggraph.cli.errors import CommandError
from rxlanggraph.cli.progress import say

__all__ = ["journal_password", "make_private", "warn_of_password"]

_VARIABLE = "RXLANGGRAPH_JOURNAL_PASSWORD"
_OF_FILE = f"{_VARIABLE}_FILE"


def journal_password() -> str | None:
    """Return the password that the environment has for the server of a journal whose URL has none.

    Raises:
        CommandError: It says so twice, or names a file that cannot be read.
    """
    password, file = os.environ.get(_VARIABLE), os.environ.get(_OF_FILE)
    if password and file:
        raise CommandError(f"{_VARIABLE} and {_OF_FILE} are both set; unset one of them")
    if not file:
        return password
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise CommandError(f"cannot read {file}, which {_OF_FILE} names: {reason}") from None


def warn_of_password(*, tells: bool) -> None:
    """Say so if the command line tells a password to everybody on this machine."""
    if tells:
        say(
            "others can see the password of the journal in the list of processes; leave it out of "
            f"the URL, and put it into {_VARIABLE}, or into a file that {_OF_FILE} names"
        )


def make_private(path: Path | None) -> None:
    """Make the file of a journal that has none yet, for its owner alone.

    SQLite gives what it keeps beside a file the same mode.
    """
    if path is None:
        return
    # Not opened if it is there: closing it would take this process's locks of it away. What else
    # stands in the way is told by the opening of the journal.
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(os.path.realpath(path), flags, 0o600))
