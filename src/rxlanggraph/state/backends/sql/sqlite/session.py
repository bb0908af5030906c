"""One connection to an SQLite file, whether that is still there, and the transactions on it.

Confined to the thread that made it. Procedures are functions of a `SqliteSession`. They run in that
thread from beginning to end: so a call is one hop there and back, and a cancelled call is executed
as a whole or not at all. Concurrent calls share one transaction, which waits for the disk once.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from rxlanggraph.concurrency.forking import register_after_fork
from rxlanggraph.errors import WrongProcessError

__all__ = [
    "Call",
    "CommitError",
    "FileReplacedError",
    "OpenFiles",
    "Outcome",
    "Procedure",
    "SqliteSession",
    "close_inherited",
    "error_code",
    "is_busy",
]


@dataclass(slots=True)
class Call:
    """A call of a procedure.

    Passed to the thread, and back, through queues; in between it belongs to the thread, except
    ``is_wanted``.

    Attributes:
        procedure: The name of the procedure.
        arguments: Its arguments.
        is_wanted: Whether to execute it. The loop may clear it at any time; the thread may read it
            just before that, but not after it has begun a later job.
        rows: The result, once it has been executed.
    """

    procedure: str
    arguments: Sequence[Any]
    is_wanted: bool = True
    rows: Sequence[Any] = ()


# The rows that a call returned, or the exception that it raised.
Outcome: TypeAlias = "Sequence[Any] | Exception"


class Procedure(NamedTuple):
    """A procedure of a session.

    Attributes:
        body: Takes the session and the arguments; returns rows. Runs in a transaction, as the only
            writer of the file; other calls may share the transaction.
        is_noop: Whether there is nothing to do, so that the call returns no rows. Reads only, and
            does not lock the file. Not asked if the last call for the same queue has returned rows:
            another one is likely to, so asking would be wasted.
        single_statement: Tried first for a call that is alone: one statement, which is a
            transaction by itself. Returns None instead of rows if that is not enough.
        batchable: Whether it may share a transaction; False if it may take long.
    """

    body: Callable[..., Sequence[Any]]
    is_noop: Callable[..., bool] | None = None
    single_statement: Callable[..., Sequence[Any] | None] | None = None
    batchable: bool = True


# Which folder it is, and when it was changed: not the time of modification alone, which programs
# that copy folders set back.
_FolderState: TypeAlias = tuple[int, int, int, int]

# Nanoseconds for which the times of a folder may stay the same in spite of a second change. A tick
# of the kernel is 10 ms at most; some file systems count in steps of 1 or 2 seconds.
_TICK: Final = 100_000_000
_LONG_TICK: Final = 2_000_000_000
_SECOND: Final = 1_000_000_000

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# The set is cleared when it is full.
_MAX_HOT_QUEUES: Final = 1_000


class CommitError(Exception):
    """Writing the file failed at the commit; whether the transaction is on the disk is unknown."""


class FileReplacedError(Exception):
    """A file is no longer at its path; other processes may use another file there."""


def is_busy(error: BaseException | None) -> bool:
    """Whether another process has locked the file; nothing was done. Any thread; never blocks."""
    return error_code(error) in _BUSY


def error_code(error: BaseException | None) -> int:
    """Return the primary result code of an SQLite error; 0 for any other exception."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class OpenFiles:
    """Whether a database, and the files beside it, are still where a connection has opened them.

    Confined to the thread of the connection.

    What breaks without it: after a database was replaced, its old file is written to, which no
    other process reads. Without its log (-wal), others do not see what was written last; without
    the index of that (-shm), they write at the same time.

    To look at each file before each call takes a seventh of the time of a short one. Creating,
    renaming or deleting a file changes the times of its folder, so usually the folder is looked at
    alone. Mounting another file over it does not, so each is looked at once a second in any case.

    Args:
        path: The database.

    Raises:
        FileReplacedError: It is no longer there.
    """

    def __init__(self, path: str) -> None:
        self._files = {path: _stat(path)}
        # A link may lead to another folder: then each file is looked at.
        self._folder = None if Path(path).is_symlink() else str(Path(path).parent)
        # The folder as it was while all files were in their places; None if another change might
        # not have shown by then.
        self._unchanged: _FolderState | None = None
        self._looked = 0  # when the files were last looked at

    def add_log(self) -> None:
        """Check the files beside the database, too. The connection has opened them.

        Raises:
            FileReplacedError: One is no longer there.
        """
        # Named after the file itself, not after a link to it.
        (path,) = (os.path.realpath(path) for path in self._files)
        for beside in (f"{path}-wal", f"{path}-shm"):
            self._files[beside] = _stat(beside)

    def is_database(self, path: str | Path) -> bool:
        """Whether the database is at ``path``, or what this leads to."""
        return _is_at(str(path), next(iter(self._files.values())))

    def check(self) -> None:
        """Refuse files that are no longer in their places.

        Raises:
            FileReplacedError: One of them is not.
        """
        now = time.time_ns()
        folder = self._folder_state()
        is_unchanged = folder is not None and folder == self._unchanged
        if is_unchanged and 0 <= now - self._looked < _SECOND:
            return
        for path, file in self._files.items():
            if not _is_at(path, file):
                raise _replaced(path)
        self._looked = now
        self._unchanged = folder if folder is not None and _is_settled(folder, now) else None

    def _folder_state(self) -> _FolderState | None:
        if self._folder is None:
            return None
        try:
            state = os.stat(self._folder)  # noqa: PTH116 - a Path's takes longer, at each check
        except OSError:
            return None  # which is the database's problem, too
        return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _is_settled(folder: _FolderState, now: int) -> bool:
    """Whether a change of the folder from ``now`` on shows in its times."""
    changed = folder[-1]
    return now - changed > (_TICK if changed % _SECOND else _LONG_TICK)


def _is_at(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)  # noqa: PTH116 - as above
    except OSError:  # missing, or not accessible
        return False


def _stat(path: str) -> os.stat_result:
    try:
        return Path(path).stat()
    except OSError as error:
        raise _replaced(path) from error


def _replaced(path: str) -> FileReplacedError:
    return FileReplacedError(
        f"{path!r} was moved, deleted or replaced while it was open; close the state, and open it "
        "again"
    )


class SqliteSession(sqlite3.Connection):
    """A connection with procedures.

    Attributes:
        procedures: The procedures by name; set by `with_procedures`.
        files: The file, and those beside it. Checked before reads, too.
        transaction_time: The clock of the database (rule 2 of the contract); constant within a
            transaction.
    """

    procedures: Mapping[str, Procedure]

    def __init__(self, path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(path, *args, **kwargs)
        self.files = OpenFiles(path)
        self.transaction_time = time.time()
        # Namespace and name of each queue in which the last claim has found a task.
        self._hot_queues: set[Any] = set()
        # Whether the thread may be within SQLite: a copy from then cannot even be closed.
        self._is_executing = self._is_open = True
        register_after_fork(self)
        self.create_function(
            "rxlanggraph_now", 0, lambda: self.transaction_time, deterministic=True
        )

    @classmethod
    def with_procedures(cls, procedures: Mapping[str, Procedure]) -> type[SqliteSession]:
        """Return a subclass with these procedures."""
        return type("SqliteSession", (cls,), {"procedures": procedures})

    def query(self, statement: str, *values: Any, **named: Any) -> list[Any]:
        """Run a statement of SQL, with values for each ``?`` or ``:name``; return its rows."""
        return self.execute(statement, named or values).fetchall()

    def do(self, calls: Sequence[Call]) -> list[Outcome]:
        """Execute ``calls``; return the outcome of each."""
        self._is_executing = True
        try:
            done = self._execute(calls)
        except Exception as error:
            if len(calls) == 1 or is_busy(error) or isinstance(error, CommitError):
                return [error] * len(calls)
            # All were rolled back: execute each alone, so that the error of one affects no other.
            return [outcome for call in calls for outcome in self.do([call])]
        finally:
            self._is_executing = False
        for call, rows in zip(calls, done, strict=True):
            call.rows = rows
        return [*done]

    def _execute(self, calls: Sequence[Call]) -> list[Sequence[Any]]:
        """Execute the calls in one transaction; return the rows of each."""
        self.transaction_time = time.time()
        self.files.check()
        rows: list[Sequence[Any]] = [[] for _ in calls]
        todo = {place: call for place, call in enumerate(calls) if not self._is_noop(call)}
        if len(calls) == len(todo) == 1:
            done = self._try_single_statement(calls[0])
            if done is not None:
                return [done]
        if todo:
            with self.transaction():
                for place, call in todo.items():
                    rows[place] = self.procedures[call.procedure].body(self, *call.arguments)
                    self._note_work(call, rows[place])
        return rows

    def _is_noop(self, call: Call) -> bool:
        if not call.is_wanted:
            return True
        is_noop = self.procedures[call.procedure].is_noop
        if is_noop is None or call.arguments[:2] in self._hot_queues:
            return False
        return is_noop(self, *call.arguments)

    def _note_work(self, call: Call, rows: Sequence[Any]) -> None:
        """Note whether a call that may have nothing to do has returned rows."""
        if self.procedures[call.procedure].is_noop is None:
            return
        if not rows:
            self._hot_queues.discard(call.arguments[:2])
            return
        if len(self._hot_queues) >= _MAX_HOT_QUEUES:
            self._hot_queues.clear()
        self._hot_queues.add(call.arguments[:2])

    def _try_single_statement(self, call: Call) -> Sequence[Any] | None:
        single_statement = self.procedures[call.procedure].single_statement
        if single_statement is None:
            return None
        try:
            rows = single_statement(self, *call.arguments)
        except sqlite3.OperationalError as error:
            # A statement outside of a transaction commits itself, and may have failed in that.
            if error_code(error) == sqlite3.SQLITE_IOERR:
                raise CommitError(str(error)) from error
            raise
        if rows is not None:
            self._note_work(call, rows)
        return rows

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction, as the only writer of the file.

        Raises:
            FileReplacedError: The file is no longer where it was opened; nothing was done.
            CommitError: Whether it was committed is unknown.
        """
        self.query("BEGIN IMMEDIATE")
        try:
            # Again, as it may have waited for another writer.
            self.transaction_time = time.time()
            self.files.check()
            yield
            self._commit()
        except BaseException:
            # After some errors SQLite has rolled back by itself.
            if self.in_transaction:
                self.query("ROLLBACK")
            raise

    def _commit(self) -> None:
        try:
            self.query("COMMIT")
        except sqlite3.Error as error:
            # On a full disk the commit record was not written: the transaction is not in doubt.
            if error_code(error) == sqlite3.SQLITE_FULL:
                raise
            raise CommitError(str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._is_executing = True
        super().close()
        self._is_open = False

    # -- in a forked child ---------------------------------------------------------------------

    def _after_fork(self) -> None:
        if self._is_open:
            (_interrupted if self._is_executing else _inherited).add(self)

    def _close_copy(self) -> None:
        """Close it without a checkpoint, which is for the processes that use the log."""
        if sys.version_info >= (3, 12):
            self.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
        else:
            # A checkpoint cannot be prevented, and would delete a log that has taken the place of
            # this one. Then the parent has closed the file.
            try:
                self.files.check()
            except FileReplacedError:
                return
        self.close()


# The connections of the processes that this one was forked from; and those of them that were within
# SQLite at the fork. Any thread takes one of the former, in one call.
_inherited: Final[set[SqliteSession]] = set()
_interrupted: Final[set[SqliteSession]] = set()


def close_inherited(path: str | Path) -> None:
    """In a forked child, close the copies of the parent's connections, before making one to a file.

    What breaks without it: SQLite counts the locks of its own process in memory, the copies with
    them. A connection made here would rely on the locks of the parent, and the parent, when it
    closes the file, would delete the log that is in use here.

    Any thread; blocks.

    Raises:
        WrongProcessError: The parent was within a call on the file at the fork. The locks of that
            call would never be released here.
    """
    while _inherited:
        with suppress(KeyError):  # another thread has taken it
            _inherited.pop()._close_copy()
    if any(session.files.is_database(path) for session in _interrupted):
        raise WrongProcessError(
            f"the SQLite file {str(path)!r} was being read or written by the process that this one "
            "was forked from, at that moment, and cannot be opened here: fork while no call is "
            "under way, or start processes by multiprocessing's method 'spawn'"
        )
