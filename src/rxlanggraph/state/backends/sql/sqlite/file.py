"""The file of an SQLite URL, and reading it without changing anything.

Opening it with `SqliteDatabase` would create the file, its tables, and the files beside it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.backends.sql.sqlite.session import (
    CommitError,
    close_inherited,
    error_code,
)

__all__ = [
    "HAS_TABLES",
    "READ_VERSION",
    "check_one_name",
    "has_log",
    "path_of",
    "read_only",
    "read_version",
    "reason_of",
]

HAS_TABLES: Final = "SELECT 1 FROM sqlite_master WHERE name = 'rxlanggraph_schema'"
READ_VERSION: Final = "SELECT version FROM rxlanggraph_schema"
# Errors that may be over when the file is opened again.
_TEMPORARY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
# The mounts of Linux; other systems cannot mount single files.
MOUNTS: Final = Path("/proc/self/mountinfo")


def path_of(url: str) -> str:
    """Return the absolute path of the file of ``url``, unquoted: ``%20`` is a space.

    Raises:
        InvalidArgumentError: It has no path, or has options; or the working directory, in which
            it is, was deleted.
    """
    path = unquote(url.partition(":///")[2], errors="surrogateescape")
    if not path or path == ":memory:" or "?" in url or "\0" in path:
        raise InvalidArgumentError(
            "the URL of an SQLite file must be sqlite:///FILE, without options (write a ? in its "
            "name as %3F); for shared state in memory use memory:"
        )
    try:
        return str(Path(path).absolute())  # the working directory may change
    except FileNotFoundError as error:
        raise InvalidArgumentError(
            f"there is no SQLite file {path!r}, as the working directory was deleted"
        ) from error


def check_one_name(path: Path) -> None:
    """Refuse a file that has, or may have, another name. Blocks.

    SQLite keeps the latest writes in a file beside the database, named after it. A database that is
    opened by two names has two such files, and each overwrites what was written through the other.
    Harmless are a symbolic link, which is followed, and a folder that is mounted twice.

    Raises:
        InvalidArgumentError: It has several hard links, or is a mount of its own.
    """
    file = os.path.realpath(path)
    try:
        links = Path(file).stat().st_nlink
    except OSError:
        return  # a missing file has no second name
    if links > 1:
        raise InvalidArgumentError(
            f"{file!r} has {links} names (hard links), and opening it by another one loses what "
            "was written by this one; keep one of them, and copy instead of linking"
        )
    if file in _mount_points():
        raise InvalidArgumentError(
            f"{file!r} is mounted by itself, as a second name of a file elsewhere, and opening it "
            "there loses what was written here; mount the folder that it is in"
        )


def _mount_points() -> set[str]:
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).split("\n")
    except OSError:
        return set()
    # The fifth field, with blanks and backslashes in octal (proc_pid_mountinfo(5)).
    fields = (line.split(" ") for line in lines)
    return {_OCTAL.sub(_character, field[4]) for field in fields if len(field) > 4}


def _character(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))


def has_log(path: Path | str) -> bool:
    """Whether a file is in use, or was when its last user was killed. Blocks."""
    # Beside the file itself, not beside a link to it.
    return os.path.exists(f"{os.path.realpath(path)}-wal")


def read_only(path: Path) -> sqlite3.Connection:
    """Open a file for reading. Blocks.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    close_inherited(path)
    # A file that is not in use has no log beside it, and "immutable" creates none.
    quiet = "" if has_log(path) else "&immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?mode=ro{quiet}", uri=True)


def read_version(url: str) -> int | None:
    """Return the version of the tables; None if there is no file, or no table. Changes nothing.

    Blocks.

    Raises:
        InvalidArgumentError: It is not an SQLite file, cannot be read, or has another name.
        StateUnavailableError: It cannot be read now.
    """
    path = Path(path_of(url))
    if not os.path.isfile(path):
        return None
    check_one_name(path)
    try:
        with closing(read_only(path)) as connection:
            if not connection.execute(HAS_TABLES).fetchall():
                return None
            rows = connection.execute(READ_VERSION).fetchall()
            return int(rows[0][0]) if rows else 0
    except sqlite3.Error as error:
        if error_code(error) in _TEMPORARY:
            raise StateUnavailableError(
                f"the SQLite file {str(path)!r}: {reason_of(error)}"
            ) from error
        raise InvalidArgumentError(f"{str(path)!r} cannot be read as SQLite: {error}") from error


def reason_of(error: BaseException) -> str:
    """Return the text of an error, with what SQLite does not say in it. Any thread."""
    if isinstance(error, CommitError) and error.__cause__ is not None:
        return reason_of(error.__cause__)
    if error_code(error) == sqlite3.SQLITE_IOERR:
        # Also if there is no room for the file beside it, by which even readers share the database.
        return f"{error} ({getattr(error, 'sqlite_errorname', '')}); the disk may be full"
    if error_code(error) in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
        return (
            f"{error}: even readers have to write to it, to the files beside it (-wal, -shm), and "
            "to its folder; get that permission, or copy it elsewhere"
        )
    return str(error)
