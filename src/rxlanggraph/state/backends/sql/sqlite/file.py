"""Which file a URL of SQLite means, and a look at it that changes nothing.

To open a database as `SqliteDatabase` does makes the file, its tables, and the files beside it.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["HAS_TABLES", "check_one_name", "has_tables", "path_of", "read_only"]

HAS_TABLES: Final = "SELECT 1 FROM sqlite_master WHERE name = 'rxlanggraph_schema'"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
# Where Linux tells what is mounted; other systems mount no single files.
MOUNTS: Final = Path("/proc/self/mountinfo")


def path_of(url: str) -> str:
    """Return the file of ``url``, as it is there: ``%20`` is a space.

    Raises:
        InvalidArgumentError: It names none, or something else besides.
    """
    path = unquote(url.partition(":///")[2], errors="surrogateescape")
    if not path or path == ":memory:" or "?" in url or "\0" in path:
        raise InvalidArgumentError(
            "the URL of an SQLite file is sqlite:///FILE, without anything else (a ? in its name "
            "is %3F); for shared state in memory there is memory:"
        )
    return path


def check_one_name(path: Path) -> None:
    """Refuse a file that has, or may have, another name. Blocks.

    SQLite keeps what was written last in a file beside the database, named after it. Opening the
    database by another name finds another such file: each overwrites what the other has written. A
    symbolic link is followed, and a folder that is mounted twice has one file beside it.

    Raises:
        InvalidArgumentError: It has several hard links, or is a mount of its own.
    """
    file = os.path.realpath(path)
    try:
        links = Path(file).stat().st_nlink
    except OSError:
        return  # what is not there has no second name
    if links > 1:
        raise InvalidArgumentError(
            f"{file!r} has {links} names (hard links): who opens it by another one loses what "
            "was written by this one; keep one of them, and copy instead of linking"
        )
    if file in _mount_points():
        raise InvalidArgumentError(
            f"{file!r} is mounted by itself, as a second name of a file elsewhere: who opens "
            "it there loses what was written here; mount the folder that it is in"
        )


def _mount_points() -> set[str]:
    try:
        lines = os.fsdecode(MOUNTS.read_bytes()).split("\n")
    except OSError:
        return set()
    # The fifth field; blanks and backslashes in it are three octal digits (proc_pid_mountinfo(5)).
    fields = (line.split(" ") for line in lines)
    return {_OCTAL.sub(_character, field[4]) for field in fields if len(field) > 4}


def _character(octal: re.Match[str]) -> str:
    return chr(int(octal[1], 8))


def read_only(path: Path) -> sqlite3.Connection:
    """Open a file to read it. Blocks.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    # A file that is not in use has nothing beside it, and nothing has to be made there.
    quiet = "" if os.path.exists(f"{path}-wal") else "&immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?mode=ro{quiet}", uri=True)


def has_tables(url: str) -> bool:
    """Whether the file of ``url`` is there, and has the tables. Changes nothing. Blocks.

    Raises:
        InvalidArgumentError: It is none of SQLite's, or may not be read, or has another name.
    """
    path = Path(path_of(url)).absolute()
    if not os.path.isfile(path):
        return False
    check_one_name(path)
    try:
        with closing(read_only(path)) as connection:
            return bool(connection.execute(HAS_TABLES).fetchall())
    except sqlite3.Error as error:
        raise InvalidArgumentError(f"{str(path)!r} cannot be read as SQLite: {error}") from error
