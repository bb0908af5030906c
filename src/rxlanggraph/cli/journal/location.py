"""JournalLocation: the file or server of a journal, kept private.

No message shows the password of the server, and only the owner of the file may read it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from rxlanggraph.cli.errors import CommandError
from rxlanggraph.cli.passwords import JOURNAL_PASSWORD, read_password, warn_of_visible_password
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.addresses import check_address, has_password, masked, with_password

__all__ = [
    "NAMESPACE",
    "NOT_A_FILE",
    "URL",
    "JournalLocation",
    "journal_password",
    "make_private",
    "parse_location",
    "warn_of_password",
]

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
"""How a place begins that is a URL."""

NOT_A_FILE = re.compile(
    r"(sqlite|postgres(ql)?|rediss?|valkeys?|unix)(\+\w+)?:|[^/@]*:.*@", re.IGNORECASE | re.DOTALL
)
"""A place that is a mistyped URL, or one with a password in it, rather than the name of a file."""

_FILE_URL = "sqlite:///"
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,56}")

NAMESPACE = "journal:run"
"""The namespace of a journal that has no name of its own on its server."""


class JournalLocation(NamedTuple):
    """Where a journal is.

    Attributes:
        name: The location as it was given, without a password, for messages.
        url: The URL, for `open_state`.
        namespace: The namespace, for `open_state`.
        path: The SQLite file; None where it is on a server.
        exposes_password: Whether the location as it was given has a password in it.
    """

    name: str
    url: str
    namespace: str
    path: Path | None
    exposes_password: bool = False

    @property
    def companion_files(self) -> tuple[str, ...]:
        """The files that SQLite creates beside `path`, whether they exist now or not."""
        if self.path is None:
            return ()
        file = os.path.realpath(self.path)  # SQLite too follows links
        return tuple(f"{file}-{kind}" for kind in ("journal", "wal", "shm"))


def parse_location(where: str) -> JournalLocation:
    """Return the location that a path, or the address of a server, names.

    Raises:
        CommandError: It names neither.
    """
    if where.startswith("memory:"):
        raise CommandError(
            "a journal in memory would be lost with the command; name a file, or a server"
        )
    if where.startswith(_FILE_URL):
        if "?" in where:
            raise CommandError(
                f"{masked(where)} does not name a journal: write a ? in the name of a file as %3F"
            )
        return _file(where, unquote(where.removeprefix(_FILE_URL), errors="surrogateescape"))
    if URL.match(where):
        return _on_server(where)
    if NOT_A_FILE.match(where):
        raise CommandError(
            f"{masked(where)} does not name a journal: the URL of a server begins with "
            "postgresql:// or redis://, that of a file with sqlite:///; if it is the name of a "
            "file, write ./ before it"
        )
    return _file(where, where)


def _on_server(where: str) -> JournalLocation:
    # What follows the # names one of several journals on one server.
    url, _, run = where.partition("#")
    name = masked(where)
    try:
        # An unescaped # in a password is refused like a second @.
        check_address(where.replace("#", "@", 1) if "@" in run else url)
    except InvalidArgumentError as error:
        raise CommandError(f"{name} does not name a journal: {error}") from None
    if run and not _NAME.fullmatch(run):
        raise CommandError(
            f"{name} does not name a journal: the name after # may have up to 56 letters, digits "
            "and . _ : -"
        )
    exposes_password = has_password(url)
    if not exposes_password and (password := journal_password()):
        url = with_password(url, quote(password, safe=""))
    namespace = f"journal:{run}" if run else NAMESPACE
    return JournalLocation(name, url, namespace, None, exposes_password)


def _file(name: str, path: str) -> JournalLocation:
    if not path:
        raise CommandError(f"{name!r} does not name a journal: give the path of a file")
    try:
        absolute = Path(path).absolute()
    except FileNotFoundError as error:
        raise CommandError(
            f"there is no journal {name}, as the working directory was deleted"
        ) from error
    return JournalLocation(name, f"sqlite:///{quote(os.fsencode(absolute))}", NAMESPACE, absolute)


# -- secrets --------------------------------------------------------------------------------------


def journal_password() -> str | None:
    """Return the password that the environment sets for a journal's server; None if it sets none.

    Raises:
        CommandError: It is set twice, or in a file that cannot be read.
    """
    return read_password(JOURNAL_PASSWORD)


def warn_of_password(*, exposes_password: bool) -> None:
    """Print a warning if the command line shows a password to all users of this machine."""
    if exposes_password:
        warn_of_visible_password("journal", JOURNAL_PASSWORD)


def make_private(path: Path | None) -> None:
    """Create the file of a new journal, readable by its owner alone.

    SQLite gives the files beside it the same mode. Has no effect if the file exists.
    """
    if path is None:
        return
    # An existing file is not opened: closing it would release this process's locks on it. Any other
    # error occurs again, with a better message, when the journal is opened.
    with suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(os.path.realpath(path), flags, 0o600))
