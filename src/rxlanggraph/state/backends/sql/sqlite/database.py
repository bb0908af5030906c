"""SQLite through aiosqlite: the thread that has the file, and what its errors mean."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextvars import Context
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

import aiosqlite
from sqlalchemy import CompoundSelect, Select
from sqlalchemy.dialects.sqlite import dialect as sqlite_dialect

from rxlanggraph.errors import InvalidArgumentError, StateClosedError, StateUnavailableError
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.batcher import Batcher
from rxlanggraph.state.backends.sql.schema import VERSION, check_version, definitions
from rxlanggraph.state.backends.sql.sqlite.claims import (
    claim_in_one_statement,
    complete_in_one_statement,
    nothing_to_claim,
    task_claim,
    task_complete,
    task_fail,
    task_release,
)
from rxlanggraph.state.backends.sql.sqlite.file import HAS_TABLES, check_one_name, path_of
from rxlanggraph.state.backends.sql.sqlite.keys import (
    commit,
    commit_in_one_statement,
    increment,
    increment_in_one_statement,
    lock_acquire,
)
from rxlanggraph.state.backends.sql.sqlite.numbers import COUNTER
from rxlanggraph.state.backends.sql.sqlite.queues import (
    sweep_step,
    tasks_add,
    tasks_purge_step,
    tasks_requeue,
    tasks_requeue_step,
)
from rxlanggraph.state.backends.sql.sqlite.session import (
    Call,
    CommitError,
    FileReplacedError,
    Outcome,
    Procedure,
    SqliteSession,
    error_code,
    is_busy,
)
from rxlanggraph.state.backends.sql.statements import Statement, compiled
from rxlanggraph.state.retry import TransientError, compensate, retry_transient, run_shielded

__all__ = ["SESSION", "SqliteDatabase", "open_sqlite"]

_DIALECT: Final = sqlite_dialect(paramstyle="qmark")
# Of SQLite, which comes with Python or with the system: the first that knows RETURNING.
_OLDEST: Final = (3, 35, 0)
# Seconds for which the thread waits for another process, before it serves its other calls.
_WAIT_IN_THREAD: Final = 0.05


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

    One thread has the connection, and does one thing after the other: SQLite has one writer at a
    time in any case. Short calls that write, and come at the same time, are one transaction. A call
    that is cancelled is done all the same, or has not begun.

    Args:
        path: Of the file; made, if it is not there.
    """

    def __init__(self, path: str) -> None:
        self._path = str(Path(path).absolute())  # whatever becomes the working directory
        self._connection: aiosqlite.Connection | None = None
        self._batcher: Batcher[Call, Outcome] = Batcher(self._send)

    async def open(self) -> None:
        """Connect, and make the tables.

        Raises:
            InvalidArgumentError: The file cannot be one, or is none of SQLite's, or has another
                name, or has tables of another version.
            StateUnavailableError: It cannot be read or written now.
        """
        try:
            await self._open()
        except BaseException as error:
            await self.close()
            if error_code(error.__cause__) == sqlite3.SQLITE_NOTADB:
                raise self._unusable(error.__cause__) from error
            raise

    def run(self, statement: Statement, **values: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """Run one of the common statements; return its rows."""
        known = compiled(statement, _DIALECT)
        how = "read" if isinstance(statement, Select | CompoundSelect) else "write"
        return self.call(how, known.text, known.ordered(values))

    def call(self, procedure: str, *arguments: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; return its rows."""
        return retry_transient(self._call, Call(procedure, arguments))

    async def call_with_compensation(
        self, undo: Callable[[Sequence[Row]], Awaitable[object]], procedure: str, *arguments: Any
    ) -> Sequence[Row]:
        """Call a procedure; cancelled, it has ``undo`` take back what it did, and then raises.

        So there is no task for a call that is not cancelled.
        """
        call = Call(procedure, arguments)
        try:
            return await retry_transient(self._call, call)
        except asyncio.CancelledError:
            call.is_wanted = False
            await run_shielded(self._undo(call, undo))
            raise

    async def _undo(self, call: Call, undo: Callable[[Sequence[Row]], Awaitable[object]]) -> None:
        # The thread does one thing after the other: either it has done the call before it comes to
        # this, or it finds that it is not wanted any more.
        with contextlib.suppress(StateClosedError):
            await self._send([])
            if call.rows:
                await compensate(undo, call.rows)

    def names(self, names: Collection[str]) -> str:
        """Return names as a JSON array."""
        return json.dumps(list(names), ensure_ascii=False)

    async def close(self) -> None:
        """Close the file. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _open(self) -> None:
        failures: list[sqlite3.Error | InvalidArgumentError] = []
        self._connection = _made(partial(self._connect, failures))
        await asyncio.create_task(self._start(self._connection), context=Context())
        if failures:
            (failure,) = failures
            if isinstance(failure, InvalidArgumentError):
                raise failure
            raise self._unusable(failure) from failure
        await self.call("prepare")

    async def _start(self, connection: _Connection) -> None:
        """Start the thread; in an empty context, which it may keep (see concurrency.threads)."""
        try:
            await connection
        finally:
            await connection.wait_until_stopped()

    def _connect(self, failures: list[sqlite3.Error | InvalidArgumentError]) -> sqlite3.Connection:
        """Connect, in the thread. Where aiosqlite sees this fail, it lets its thread go astray."""
        try:
            if os.path.exists(self._path) and not os.path.isfile(self._path):
                raise sqlite3.OperationalError("it is no regular file")
            check_one_name(Path(self._path))
            return sqlite3.connect(
                self._path, factory=SESSION, isolation_level=None, timeout=_WAIT_IN_THREAD
            )
        except (sqlite3.Error, InvalidArgumentError) as failure:
            failures.append(failure)
            return sqlite3.connect(":memory:")

    async def _call(self, call: Call) -> Sequence[Row]:
        if _PROCEDURES[call.procedure].batchable:
            outcome = await self._batcher.call(call)
        else:
            (outcome,) = await self._send([call])
        if not isinstance(outcome, Exception):
            return outcome
        if is_busy(outcome):
            raise TransientError from outcome
        if _is_final(outcome):
            raise InvalidArgumentError(
                f"the SQLite file {self._path!r} refuses the call: {outcome}"
            ) from outcome
        if isinstance(outcome, sqlite3.Error | FileReplacedError | CommitError):
            raise self._unavailable(outcome) from outcome
        raise outcome

    def _send(self, calls: Sequence[Call]) -> Awaitable[Sequence[Outcome]]:
        if self._connection is None:
            raise StateClosedError("the state was closed while the call was under way")
        # To aiosqlite a statement, and whatever can be iterated over.
        return self._connection.execute_fetchall("calls", calls)  # type: ignore[return-value]

    def _unusable(self, error: BaseException | None) -> InvalidArgumentError:
        folder = Path(self._path).parent
        why = (
            str(error) if os.path.isdir(folder) else f"{error}: there is no folder {str(folder)!r}"
        )
        return InvalidArgumentError(f"{self._path!r} cannot be opened as an SQLite file: {why}")

    def _unavailable(self, error: Exception) -> StateUnavailableError:
        return StateUnavailableError(
            f"the SQLite file {self._path!r}: {error}", in_doubt=isinstance(error, CommitError)
        )


def _is_final(outcome: Exception) -> bool:
    """Whether the file refuses this now and later: a value, or a user who may only read it."""
    if isinstance(outcome, sqlite3.DataError | sqlite3.IntegrityError):
        return True
    is_moved = getattr(outcome, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED
    return error_code(outcome) == sqlite3.SQLITE_READONLY and not is_moved


class _Connection(aiosqlite.Connection):
    """One that can be waited for, if it is stopped because its beginning was cancelled.

    Else its thread would still have something to tell to a loop that may be closed by then.
    """

    _stopped: asyncio.Future[Any] | None = None

    def stop(self) -> asyncio.Future[Any] | None:
        self._stopped = super().stop()
        return self._stopped

    async def wait_until_stopped(self) -> None:
        """Return when the thread is about to end, if it was told to; not earlier if cancelled."""
        while self._stopped is not None and not self._stopped.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._stopped])


def _made(connect: Callable[[], sqlite3.Connection]) -> _Connection:
    """Make a connection whose thread keeps no process from ending, if it is not closed.

    It cannot be where the loop is closed already. aiosqlite does not ask whether its thread is to
    be a daemon; so it is made in one, and inherits that.
    """
    made: list[_Connection] = []
    maker = Thread(target=lambda: made.append(_Connection(connect, 64)), daemon=True)
    maker.start()
    maker.join()
    return made[0]


# -- procedures that are here alone ----------------------------------------------------------------


def _statement(at: SqliteSession, statement: str, values: Sequence[Any]) -> Sequence[Any]:
    return at.query(statement, *values)


def _prepare(at: SqliteSession) -> Sequence[Any]:
    """Make what the file does not have yet."""
    # Of a file that is made now. A transaction here touches a few pages of a few bytes each, and
    # writes them whole.
    at.query("PRAGMA page_size = 2048")
    at.query("PRAGMA journal_mode = WAL")
    # What was acknowledged outlives a loss of power.
    at.query("PRAGMA synchronous = FULL")
    if not _has_tables(at):
        with at.transaction():
            if not _has_tables(at):  # by another process, before this one held the file
                _make_tables(at)
    rows = at.query("SELECT version FROM rxlanggraph_schema")
    check_version(rows[0][0] if rows else 0)
    return []


def _has_tables(at: SqliteSession) -> bool:
    return bool(at.query(HAS_TABLES))


def _make_tables(at: SqliteSession) -> None:
    for definition in (*definitions(_DIALECT), *COUNTER):
        at.query(definition)
    at.query("INSERT INTO rxlanggraph_schema (version) VALUES (?)", VERSION)


_PROCEDURES: Final[Mapping[str, Procedure]] = {
    "prepare": Procedure(_prepare, single_statement=_prepare, batchable=False),
    "read": Procedure(_statement, single_statement=_statement, batchable=False),
    "write": Procedure(_statement, single_statement=_statement),
    "commit": Procedure(commit, single_statement=commit_in_one_statement),
    "increment": Procedure(increment, single_statement=increment_in_one_statement),
    "lock_acquire": Procedure(lock_acquire),
    "tasks_add": Procedure(tasks_add, batchable=False),
    "task_claim": Procedure(
        task_claim, is_noop=nothing_to_claim, single_statement=claim_in_one_statement
    ),
    "task_complete": Procedure(task_complete, single_statement=complete_in_one_statement),
    "task_fail": Procedure(task_fail),
    "task_release": Procedure(task_release),
    "sweep_step": Procedure(sweep_step, batchable=False),
    "tasks_requeue": Procedure(tasks_requeue, batchable=False),
    "tasks_requeue_step": Procedure(tasks_requeue_step, batchable=False),
    "tasks_purge_step": Procedure(tasks_purge_step, batchable=False),
}
SESSION: Final = SqliteSession.knowing(_PROCEDURES)
