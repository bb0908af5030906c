"""SQLite through `sqlite3`: its statements and procedures, and its errors as those of a state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from rxlanggraph.concurrency.tasks import run_undo
from rxlanggraph.errors import (
    InvalidArgumentError,
    StateClosedError,
    StateUnavailableError,
    UndecodableError,
)
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.schema import VERSION, definitions, migrations_from
from rxlanggraph.state.backends.sql.sqlite.claims import (
    claim_in_one_statement,
    complete_in_one_statement,
    no_place_to_claim,
    nothing_to_claim,
    task_claim,
    task_complete,
    task_fail,
    task_release,
    task_renew_within,
    tasks_claim,
    tasks_claim_within,
    tasks_complete,
)
from rxlanggraph.state.backends.sql.sqlite.file import (
    HAS_TABLES,
    READ_VERSION,
    check_one_name,
    has_log,
    path_of,
    reason_of,
)
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
    tasks_cancel,
    tasks_delete,
    tasks_purge_step,
    tasks_requeue,
    tasks_requeue_step,
)
from rxlanggraph.state.backends.sql.sqlite.session import (
    Call,
    CommitError,
    FileReplacedError,
    Procedure,
    SqliteSession,
    close_inherited,
    error_code,
    is_busy,
)
from rxlanggraph.state.backends.sql.sqlite.thread import SqliteThread
from rxlanggraph.state.retry import TransientError, compensate, repeat_transient

__all__ = ["SESSION", "SqliteDatabase", "open_sqlite"]

# SQLite compares text as bytes by default.
_TYPES: Final = {"name": "text", "counted": "integer", "clustered": " WITHOUT ROWID"}
# The first version of SQLite with RETURNING; the installed one comes with Python or the system.
_MIN_VERSION: Final = (3, 35, 0)
# Seconds that the thread waits for a file locked by another process, before it continues with other
# calls.
_WAIT_IN_THREAD: Final = 0.05


async def open_sqlite(url: str) -> SqliteDatabase:
    """Open the file of ``url``.

    Raises:
        InvalidArgumentError: The URL, or the file, cannot be used.
        StateUnavailableError: The file cannot be read or written now.
    """
    if sqlite3.sqlite_version_info < _MIN_VERSION:
        raise InvalidArgumentError(
            f"SQLite {sqlite3.sqlite_version} is too old for shared state: install 3.35 or later "
            "(Python's sqlite3 module brings it, or loads the system's)"
        )
    database = SqliteDatabase(path_of(url))
    await database.open()
    return database


class SqliteDatabase:
    """A `Database` in a file. Confined to the loop on which it was opened.

    One thread owns the connection, and executes one call after the other: SQLite has one writer at
    a time in any case. A call that is cancelled either has not begun, and is skipped, or is
    executed nevertheless.

    Args:
        path: The absolute path of the file; it is created if it does not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = SqliteThread(partial(_connect, self._path))

    async def open(self) -> None:
        """Connect, and create the tables if there are none, or migrate those of an older release.

        Raises:
            InvalidArgumentError: The file cannot be created, is not an SQLite file, has another
                name, or has tables that this release cannot migrate.
            StateUnavailableError: It cannot be read or written now.
        """
        try:
            await self._thread.start()
        except sqlite3.Error as failure:
            raise self._unusable(failure) from failure
        except FileReplacedError as failure:
            raise self._unavailable(failure) from failure
        try:
            await self.call("prepare")
        except (Exception, asyncio.CancelledError) as error:
            await self.close()
            if error_code(error.__cause__) == sqlite3.SQLITE_NOTADB:
                raise self._unusable(error.__cause__) from error
            raise

    def run(self, statement: str, **values: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """See `Database.run`."""
        how, text = _translated(statement)
        return self.call(how, text, values)

    async def call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        """See `Database.call`."""
        return await self._call(Call(procedure, arguments))

    async def call_with_compensation(
        self, undo: Callable[[Sequence[Row]], Awaitable[object]], procedure: str, *arguments: Any
    ) -> Sequence[Row]:
        """See `Database.call_with_compensation`. A call that is not cancelled needs no task."""
        call = Call(procedure, arguments)
        try:
            return await self._call(call)
        except asyncio.CancelledError:
            await run_undo(partial(self._undo, call), undo)
            raise

    async def _undo(self, call: Call, undo: Callable[[Sequence[Row]], Awaitable[object]]) -> None:
        # The thread executes this one after the call: by then the call has been executed, or was
        # skipped as not wanted.
        with contextlib.suppress(StateClosedError):
            await self._thread.do(Call("nothing", ()))
            if call.rows:
                await compensate(undo, call.rows)

    def names(self, names: Collection[str]) -> str:
        """See `Database.names`. A JSON array."""
        return json.dumps(list(names), ensure_ascii=False)

    async def close(self) -> None:
        """Close the file. Idempotent."""
        await self._thread.close()

    async def _call(self, call: Call) -> Sequence[Row]:
        try:
            return await self._attempt(call)
        except TransientError as refusal:
            return await repeat_transient(refusal, self._attempt, call)

    async def _attempt(self, call: Call) -> Sequence[Row]:
        try:
            outcome = await self._thread.do(call)
        except asyncio.CancelledError:
            call.is_wanted = False
            raise
        if not isinstance(outcome, Exception):
            return outcome
        if is_busy(outcome):
            raise TransientError from outcome
        if _is_final(outcome):
            raise InvalidArgumentError(
                f"the SQLite file {self._path!r} refuses the call: {reason_of(outcome)}"
            ) from outcome
        if str(outcome).startswith("Could not decode to UTF-8"):
            raise UndecodableError(
                f"the SQLite file {self._path!r} has text that is not UTF-8, so another program "
                f"has written it: {outcome}; have that program write JSON, or delete it"
            ) from outcome
        if isinstance(outcome, sqlite3.Error | FileReplacedError | CommitError):
            raise self._unavailable(outcome) from outcome
        raise outcome

    def _unusable(self, error: BaseException | None) -> InvalidArgumentError:
        folder = Path(self._path).parent
        why = (
            str(error) if os.path.isdir(folder) else f"{error}: there is no folder {str(folder)!r}"
        )
        return InvalidArgumentError(f"{self._path!r} cannot be opened as an SQLite file: {why}")

    def _unavailable(self, error: Exception) -> StateUnavailableError:
        return StateUnavailableError(
            f"the SQLite file {self._path!r}: {reason_of(error)}",
            in_doubt=isinstance(error, CommitError),
        )


def _is_final(outcome: Exception) -> bool:
    """Whether the file refuses the call permanently: for its values, or as it is read-only."""
    if isinstance(outcome, sqlite3.DataError | sqlite3.IntegrityError):
        return True
    is_moved = getattr(outcome, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_DBMOVED
    return error_code(outcome) == sqlite3.SQLITE_READONLY and not is_moved


def _connect(path: str) -> SqliteSession:
    """Connect. In the thread."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise sqlite3.OperationalError("it is not a regular file")
    check_one_name(Path(path))
    if os.path.exists(path) and not os.access(path, os.W_OK) and not has_log(path):
        raise sqlite3.OperationalError(
            "you may not write to it, as even readers have to: the files that SQLite would leave "
            "beside it might keep its owner from writing"
        )
    close_inherited(path)
    return sqlite3.connect(
        path,
        factory=SESSION,
        isolation_level=None,
        timeout=_WAIT_IN_THREAD,
        check_same_thread=False,  # another one closes a forked copy
    )


@cache
def _translated(statement: str) -> tuple[str, str]:
    """Return the procedure that runs a shared statement, and its text in SQLite's SQL."""
    how = "read" if statement.lstrip().startswith(("SELECT", "WITH")) else "write"
    return how, statement.replace(" IN :names", " IN (SELECT value FROM json_each(:names))")


# -- procedures that only SQLite has ---------------------------------------------------------------


def _run_statement(
    session: SqliteSession, statement: str, values: Mapping[str, Any]
) -> Sequence[Any]:
    return session.query(statement, **values)


def _prepare(session: SqliteSession) -> Sequence[Any]:
    """Set the options of the file, and create the tables, or migrate those of an older release."""
    # For a new file. Transactions change a few bytes on a few pages, and write whole pages.
    session.query("PRAGMA page_size = 2048")
    ((mode,),) = session.query("PRAGMA journal_mode = WAL")
    # Acknowledged writes survive a power cut.
    session.query("PRAGMA synchronous = FULL")
    # 4 MB, as by default with larger pages. A checkpoint waits for the disk; but while the log is
    # still growing, each call waits longer for it.
    session.query("PRAGMA wal_autocheckpoint = 2000")
    # 16 MB: with the default, a long queue would be read from the disk at every few calls.
    session.query("PRAGMA cache_size = -16000")
    if not _has_tables(session):
        with session.transaction():
            if not _has_tables(session):  # another process may have created them meanwhile
                _make_tables(session)
    if migrations_from(_version(session)):
        with session.transaction():
            # Again: another process may have migrated them meanwhile.
            for migration in migrations_from(_version(session)):
                for statement in migration.statements:
                    session.query(statement)
                session.query("UPDATE rxlanggraph_schema SET version = ?", migration.version)
    if mode == "wal":  # not where processes cannot share memory
        session.files.add_log()
    return []


def _version(session: SqliteSession) -> int:
    rows = session.query(READ_VERSION)
    return int(rows[0][0]) if rows else 0


def _has_tables(session: SqliteSession) -> bool:
    return bool(session.query(HAS_TABLES))


def _make_tables(session: SqliteSession) -> None:
    for definition in (*definitions(**_TYPES), *COUNTER):
        session.query(definition)
    session.query("INSERT INTO rxlanggraph_schema (version) VALUES (?)", VERSION)


def _nothing(_: SqliteSession) -> Sequence[Any]:
    return []


_PROCEDURES: Final[Mapping[str, Procedure]] = {
    "nothing": Procedure(_nothing, single_statement=_nothing, batchable=False),
    "prepare": Procedure(_prepare, single_statement=_prepare, batchable=False),
    "read": Procedure(_run_statement, single_statement=_run_statement, batchable=False),
    "write": Procedure(_run_statement, single_statement=_run_statement),
    "commit": Procedure(commit, single_statement=commit_in_one_statement),
    "increment": Procedure(increment, single_statement=increment_in_one_statement),
    "lock_acquire": Procedure(lock_acquire),
    "tasks_add": Procedure(tasks_add, batchable=False),
    "task_claim": Procedure(
        task_claim, is_noop=nothing_to_claim, single_statement=claim_in_one_statement
    ),
    "task_complete": Procedure(task_complete, single_statement=complete_in_one_statement),
    "tasks_claim": Procedure(tasks_claim, is_noop=nothing_to_claim),
    "tasks_claim_within": Procedure(tasks_claim_within, is_noop=no_place_to_claim),
    "tasks_complete": Procedure(tasks_complete),
    "task_fail": Procedure(task_fail),
    "task_release": Procedure(task_release),
    "task_renew_within": Procedure(task_renew_within),
    "tasks_cancel": Procedure(tasks_cancel, batchable=False),
    "tasks_delete": Procedure(tasks_delete, batchable=False),
    "sweep_step": Procedure(sweep_step, batchable=False),
    "tasks_requeue": Procedure(tasks_requeue, batchable=False),
    "tasks_requeue_step": Procedure(tasks_requeue_step, batchable=False),
    "tasks_purge_step": Procedure(tasks_purge_step, batchable=False),
}
SESSION: Final = SqliteSession.with_procedures(_PROCEDURES)
