"""Where a journal is, and what of it is private: its server's password, its file."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from rxlanggraph.cli.errors import CommandError
from rxlanggraph.cli.stderr import print_stderr
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.addresses import check_address, has_password, masked, with_password

__all__ = [
    "JournalLocation",
    "journal_password",
    "make_private",
    "parse_location",
    "warn_of_password",
]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_URL = "sqlite:///"
# What was to be a URL, or has a password in it, and not the name of a file.
_NO_FILE = re.compile(
    r"(sqlite|postgres(ql)?|rediss?|valkeys?|unix)(\+\w+)?:|[^/@]*:.*@", re.IGNORECASE | re.DOTALL
)
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,56}")
_VARIABLE = "RXLANGGRAPH_JOURNAL_PASSWORD"
_OF_FILE = f"{_VARIABLE}_FILE"


class JournalLocation(NamedTuple):
    """Where a journal is.

    Attributes:
        name: For messages: as it was given, without a password.
        url: For `open_state`.
        namespace: For `open_state`.
        path: The SQLite file; None where it is on a server.
        exposes_password: Whether the name that was given has a password in it.
    """

    name: str
    url: str
    namespace: str
    path: Path | None
    exposes_password: bool = False

    @property
    def companion_files(self) -> tuple[str, ...]:
        """The files that SQLite keeps beside that one, whether they are there now or not."""
        if self.path is None:
            return ()
        file = os.path.realpath(self.path)  # to SQLite too a link is what it leads to
        return tuple(f"{file}-{kind}" for kind in ("journal", "wal", "shm"))


def parse_location(where: str) -> JournalLocation:
    """Return the location that a path, or the address of a server, names.

    Raises:
        CommandError: It can be neither.
    """
    if where.startswith("memory:"):
        raise CommandError(
            "a journal in memory would die with the command; name a file, or a server"
        )
    if where.startswith(_FILE_URL):
        if "?" in where:
            raise CommandError(
                f"{masked(where)} does not name a journal: a ? in the name of a file is %3F"
            )
        return _file(where, unquote(where.removeprefix(_FILE_URL), errors="surrogateescape"))
    if _URL.match(where):
        return _on_server(where)
    if _NO_FILE.match(where):
        raise CommandError(
            f"{masked(where)} does not name a journal: a server's URL begins with postgresql:// or "
            "redis://, that of a file with sqlite:///; for a file of that name write ./ before it"
        )
    return _file(where, where)


def _on_server(where: str) -> JournalLocation:
    # What follows the # names one of several journals on one server.
    url, _, run = where.partition("#")
    name = masked(where)
    try:
        # A # in a password is as wrong there as a second @.
        check_address(where.replace("#", "@", 1) if "@" in run else url)
    except InvalidArgumentError as error:
        raise CommandError(f"{name} does not name a journal: {error}") from None
    if run and not _NAME.fullmatch(run):
        raise CommandError(
            f"{name} does not name a journal: after # come up to 56 letters, digits and . _ : -"
        )
    exposes_password = has_password(url)
    if not exposes_password and (password := journal_password()):
        url = with_password(url, quote(password, safe=""))
    return JournalLocation(name, url, f"journal:{run or 'run'}", None, exposes_password)


def _file(name: str, path: str) -> JournalLocation:
    if not path:
        raise CommandError(f"{name!r} does not name a journal: give the path of a file")
    absolute = Path(path).absolute()
    return JournalLocation(
        name, f"sqlite:///{quote(os.fsencode(absolute))}", "journal:run", absolute
    )


# -- secrets --------------------------------------------------------------------------------------


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
        reason = getattr(error, "strerror", None) or "it is not text"
        raise CommandError(f"cannot read {file}, which {_OF_FILE} names: {reason}") from None


def warn_of_password(*, exposes_password: bool) -> None:
    """Print a warning if the command line shows a password to all users of this machine."""
    if exposes_password:
        print_stderr(
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
