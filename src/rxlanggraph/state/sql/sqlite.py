"""SQLite through aiosqlite: the thread that has the file, and what its errors mean."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import aiosqlite
from sqlalchemy import Select
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.sql.backend import Row
from rxlanggraph.state.sql.repeating import Refused, repeated
from rxlanggraph.state.sql.sqlite_file import HAS_TABLES, path_of
from rxlanggraph.state.sql.sqlite_keys import commit, increment, lock_acquire
from rxlanggraph.state.sql.sqlite_session import CommitError, MovedError, Session, writing
from rxlanggraph.state.sql.sqlite_tasks import (
    task_claim,
    task_complete,
    task_fail,
    task_release,
    tasks_add,
    tasks_purge,
    tasks_requeue,
)
from rxlanggraph.state.sql.statements import Statement, compiled
from rxlanggraph.state.sql.tables import VERSION, check_version, definitions

__all__ = ["SqliteDatabase", "open_sqlite"]

_DIALECT: Final = sqlite_dialect(paramstyle="qmark")
# Of SQLite, which comes with Python or with the system: the first that knows RETURNING.
_OLDEST: Final = (3, 35, 0)
# Seconds for which the thread waits for another process, before others of its calls get a turn.
_WAIT_IN_THREAD: Final = 0.05
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


async def open_sqlite(url: str) -> SqliteDatabase:
    """Open the file of ``url``.

    Raises:
        InvalidArgumentError: The URL, or the file, cannot be used.
        StateUnavailableError: The file cannot be read or written now.
    """
    if sqlite3.sqlite_version_info < _OLDEST:
        raise InvalidArgumentError(
            f"SQLite {sqlite3.sqlite_version} is too old for shared state: it takes 3.35 or later"
        )
    database = SqliteDatabase(path_of(url))
    await database.open()
    return database


class SqliteDatabase:
    """A `Database` in a file. Confined to the loop on which it was opened.

    One thread has the connection, and does one call after the other: SQLite has one writer at a
    time in any case. A call that is cancelled is done all the same, or has not begun.

    Args:
        path: Of the file; made, if it is not there.
    """

    def __init__(self, path: str) -> None:
        self._path = str(Path(path).absolute())  # whatever becomes the working directory
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        """Connect, and make the tables.

        Raises:
            InvalidArgumentError: The file cannot be one, or is none of SQLite's, or has tables of
                another version.
            StateUnavailableError: It cannot be read or written now.
        """
        try:
            await self._open()
        except BaseException as error:
            await self.close()
            if _code(error.__cause__) == sqlite3.SQLITE_NOTADB:
                raise self._unusable(error.__cause__) from error
            raise

    async def run(self, statement: Statement, **values: Any) -> Sequence[Row]:
        """Run one of the common statements; return its rows."""
        known = compiled(statement, _DIALECT)
        how = "read" if isinstance(statement, Select) else "write"
        return await self.call(how, known.text, known.ordered(values))

    async def call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        """Call a procedure; return its rows."""
        return await repeated(self._call, procedure, arguments)

    def names(self, names: Collection[str]) -> str:
        """Return names as a JSON array."""
        return json.dumps(list(names), ensure_ascii=False)

    async def close(self) -> None:
        """Let go of the file. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> None:
        failures: list[sqlite3.Error] = []
        self._connection = _made(partial(self._connect, failures))
        await self._connection
        if failures:
            raise self._unusable(failures[0]) from failures[0]
        await self.call("prepare")

    def _connect(self, failures: list[sqlite3.Error]) -> sqlite3.Connection:
        """Connect, in the thread. Where aiosqlite sees this fail, it lets its thread go astray."""
        try:
            return sqlite3.connect(
                self._path, factory=_SESSION, isolation_level=None, timeout=_WAIT_IN_THREAD
            )
        except sqlite3.Error as failure:
            failures.append(failure)
            return sqlite3.connect(":memory:")

    async def _call(self, procedure: str, arguments: Sequence[Any]) -> Sequence[Row]:
        assert self._connection is not None, "a call after close"
        try:
            rows = await self._connection.execute_fetchall(procedure, arguments)
        except CommitError as error:
            raise self._unavailable(error, in_doubt=True) from error
        except (sqlite3.Error, MovedError) as error:
            if _code(error) in _BUSY:
                raise Refused from error
            raise self._unavailable(error, in_doubt=False) from error
        return rows  # type: ignore[return-value]  # to aiosqlite any iterable of rows

    def _unusable(self, error: BaseException | None) -> InvalidArgumentError:
        folder = Path(self._path).parent
        why = str(error) if folder.is_dir() else f"{error}: there is no folder {str(folder)!r}"
        return InvalidArgumentError(f"{self._path!r} cannot be opened as an SQLite file: {why}")

    def _unavailable(self, error: Exception, *, in_doubt: bool) -> StateUnavailableError:
        return StateUnavailableError(f"the SQLite file {self._path!r}: {error}", in_doubt=in_doubt)


def _made(connect: Callable[[], sqlite3.Connection]) -> aiosqlite.Connection:
    """Make a connection whose thread keeps no process from ending, if nobody closes it.

    Nobody can where the loop is closed already. aiosqlite does not ask whether its thread is to be
    a daemon; so it is made in one, and inherits that.
    """
    made: list[aiosqlite.Connection] = []
    maker = Thread(target=lambda: made.append(aiosqlite.Connection(connect, 64)), daemon=True)
    maker.start()
    maker.join()
    return made[0]


def _code(error: BaseException | None) -> int:
    # The lower byte; above it are the finer distinctions.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


# -- procedures that are here alone ----------------------------------------------------------------


def _read(at: Session, statement: str, values: Sequence[Any]) -> Sequence[Any]:
    at.check_path()
    return at.query(statement, *values)


@writing
def _write(at: Session, statement: str, values: Sequence[Any]) -> Sequence[Any]:
    return at.query(statement, *values)


def _prepare(at: Session) -> Sequence[Any]:
    """Make what the file does not have yet."""
    at.query("PRAGMA journal_mode = WAL")
    # What was acknowledged outlives a loss of power.
    at.query("PRAGMA synchronous = FULL")
    if not _has_tables(at):
        _make_tables(at)
    ((version,),) = at.query("SELECT version FROM rxlanggraph_schema")
    check_version(version)
    return []


def _has_tables(at: Session) -> bool:
    return bool(at.query(HAS_TABLES))


@writing
def _make_tables(at: Session) -> None:
    if not _has_tables(at):  # by another process, before this one held the file
        for definition in definitions(_DIALECT):
            at.query(definition)
        at.query("INSERT INTO rxlanggraph_schema (version) VALUES (?)", VERSION)


_SESSION: Final = Session.knowing(
    {
        "prepare": _prepare,
        "read": _read,
        "write": _write,
        "commit": commit,
        "increment": increment,
        "lock_acquire": lock_acquire,
        "tasks_add": tasks_add,
        "task_claim": task_claim,
        "task_complete": task_complete,
        "task_fail": task_fail,
        "task_release": task_release,
        "tasks_requeue": tasks_requeue,
        "tasks_purge": tasks_purge,
    }
)
