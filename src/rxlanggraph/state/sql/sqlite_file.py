"""Which file a URL of SQLite means, and a look at it that changes nothing.

To open a database as `SqliteDatabase` does makes the file, its tables, and the files beside it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["HAS_TABLES", "has_tables", "path_of", "read_only"]

HAS_TABLES: Final = "SELECT 1 FROM sqlite_master WHERE name = 'rxlanggraph_schema'"


def path_of(url: str) -> str:
    """Return the file of ``url``, as it is there: ``%20`` is a space.

    Not by SQLAlchemy, of which some versions decode it and some do not.

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


def read_only(path: Path) -> sqlite3.Connection:
    """Open a file to read it. Blocks.

    Raises:
        sqlite3.Error: It cannot be opened.
    """
    # Whom nobody uses at the moment has nothing beside it, and nothing has to be made there.
    quiet = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    return sqlite3.connect(f"{path.as_uri()}?mode=ro{quiet}", uri=True)


def has_tables(url: str) -> bool:
    """Whether the file of ``url`` is there, and has the tables. Changes nothing. Blocks.

    Raises:
        InvalidArgumentError: It is none of SQLite's, or may not be read.
    """
    path = Path(path_of(url)).absolute()
    if not path.is_file():
        return False
    try:
        with closing(read_only(path)) as connection:
            return bool(connection.execute(HAS_TABLES).fetchall())
    except sqlite3.Error as error:
        raise InvalidArgumentError(f"{str(path)!r} cannot be read as SQLite: {error}") from error
