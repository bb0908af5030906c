"""One connection to an SQLite file, and the transactions on it.

Confined to the thread that made it. Procedures are functions over a `SqliteSession`: in that
thread they run from beginning to end, so a call is one hop to it and back, and one that is
cancelled meanwhile is whole, or did not begin. Calls that come together are one transaction: the
disk is waited for once.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

__all__ = [
    "Call",
    "CommitError",
    "FileReplacedError",
    "Outcome",
    "Procedure",
    "SqliteSession",
    "error_code",
    "is_busy",
]


class Call:
    """What is to be done: a procedure, by its name, and its arguments.

    Passed to the thread, and back, through queues; between the two the thread has it, all but
    ``is_wanted``.

    Attributes:
        procedure: The name.
        arguments: The arguments.
        is_wanted: Whether it is still to be done. Set by the loop, at any time; so the thread may
            look too early, but not if it is sent anything after.
        rows: What it has returned, once it is done.
    """

    __slots__ = ("arguments", "is_wanted", "procedure", "rows")

    def __init__(self, procedure: str, arguments: Sequence[Any]) -> None:
        self.procedure = procedure
        self.arguments = arguments
        self.is_wanted = True
        self.rows: Sequence[Any] = ()


# The rows that a call returns, or what it has raised.
Outcome: TypeAlias = "Sequence[Any] | Exception"


class Procedure(NamedTuple):
    """What a session can be asked for.

    Attributes:
        body: Is given the session and the arguments; returns rows. Runs in a transaction, as the
            only writer of the file, also with others in the same one.
        is_noop: A look that does not hold the file: whether there is nothing to do, and no row.
        single_statement: What is tried first where a call comes alone: one statement, which is a
            transaction by itself. None instead of rows if it has done nothing.
        batchable: Whether it may share a transaction: none that may take long.
    """

    body: Callable[..., Sequence[Any]]
    is_noop: Callable[..., bool] | None = None
    single_statement: Callable[..., Sequence[Any] | None] | None = None
    batchable: bool = True


_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class CommitError(Exception):
    """The file could not be written to the end; what of it is on the disk is unknown."""


class FileReplacedError(Exception):
    """The file is no longer at its path: who opens that reads and writes another one."""


def is_busy(error: BaseException | None) -> bool:
    """Whether another process has the file, and nothing was done. Any thread; never blocks."""
    return error_code(error) in _BUSY


def error_code(error: BaseException | None) -> int:
    """Return the code of an error of SQLite, without its finer distinctions; 0 of any other."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class SqliteSession(sqlite3.Connection):
    """A connection that knows procedures.

    Attributes:
        procedures: By their names; of the class that is made by `knowing`.
        transaction_time: The clock of the database (rule 2 of the contract): stands still in a
            transaction.
        hot_queues: Those in which the last claim found a task; claims there look for no others
            first. Of no consequence for what they answer.
    """

    procedures: Mapping[str, Procedure]

    def __init__(self, path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(path, *args, **kwargs)
        self._path = path
        self._file = os.stat(path)  # noqa: PTH116 - a Path's takes longer, at each check
        self.transaction_time = time.time()
        self.hot_queues: set[Any] = set()
        self.create_function(
            "rxlanggraph_now", 0, lambda: self.transaction_time, deterministic=True
        )

    @classmethod
    def knowing(cls, procedures: Mapping[str, Procedure]) -> type[SqliteSession]:
        """Return a class of sessions that know ``procedures``."""
        return type("SqliteSession", (cls,), {"procedures": procedures})

    def query(self, statement: str, *values: Any, **named: Any) -> list[Any]:
        """Run a statement of SQL, with values for each ``?`` or ``:name``; return its rows."""
        return self.execute(statement, named or values).fetchall()

    def do(self, calls: Sequence[Call]) -> list[Outcome]:
        """Do ``calls``; return what becomes of each."""
        try:
            done = self._done(calls)
        except Exception as error:
            if len(calls) == 1 or is_busy(error) or isinstance(error, CommitError):
                return [error] * len(calls)
            # Nothing was done; and the others shall not suffer from what is wrong with one.
            return [outcome for call in calls for outcome in self.do([call])]
        for call, rows in zip(calls, done, strict=True):
            call.rows = rows
        return [*done]

    def _done(self, calls: Sequence[Call]) -> list[Sequence[Any]]:
        """Do what may be done together, as a whole; return the rows of each."""
        self.transaction_time = time.time()
        self.check_path()
        if len(calls) == 1:
            done = self._in_one_statement(calls[0])
            if done is not None:
                return [done]
        rows: list[Sequence[Any]] = [[] for _ in calls]
        todo = {place: call for place, call in enumerate(calls) if not self._is_noop(call)}
        if todo:
            with self.transaction():
                for place, call in todo.items():
                    rows[place] = self.procedures[call.procedure].body(self, *call.arguments)
        return rows

    def _is_noop(self, call: Call) -> bool:
        if not call.is_wanted:
            return True
        is_noop = self.procedures[call.procedure].is_noop
        return is_noop is not None and is_noop(self, *call.arguments)

    def _in_one_statement(self, call: Call) -> Sequence[Any] | None:
        single_statement = self.procedures[call.procedure].single_statement
        if single_statement is None:
            return None
        if self._is_noop(call):
            return []
        try:
            return single_statement(self, *call.arguments)
        except sqlite3.OperationalError as error:
            # It may have been committing: a statement alone is a transaction.
            if error_code(error) == sqlite3.SQLITE_IOERR:
                raise CommitError(str(error)) from error
            raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the file as its only writer, and do all of the block or nothing.

        Raises:
            FileReplacedError: The file is no longer where it was opened; nothing was done.
            CommitError: Whether it was done is unknown.
        """
        self.query("BEGIN IMMEDIATE")
        try:
            # Others may have been writing for some time.
            self.transaction_time = time.time()
            self.check_path()
            yield
            self._commit()
        except BaseException:
            # Of some errors SQLite rolls back by itself.
            if self.in_transaction:
                self.query("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self.query("COMMIT")
        except sqlite3.Error as error:
            # For want of room the end of the transaction, which makes it one, was not written.
            if error_code(error) == sqlite3.SQLITE_FULL:
                raise
            raise CommitError(str(error)) from error

    def check_path(self) -> None:
        """Refuse a file that is not the one at its path; for reads, too.

        Raises:
            FileReplacedError: The file is no longer where it was opened.
        """
        try:
            if os.path.samestat(os.stat(self._path), self._file):  # noqa: PTH116 - as above
                return
        except OSError:  # there is none, or none that we may see
            pass
        raise FileReplacedError(
            "it was moved, deleted or replaced while it was open; close the state, and open it anew"
        )
