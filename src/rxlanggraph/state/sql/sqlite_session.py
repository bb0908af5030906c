"""One connection to an SQLite file, and the transactions on it.

Confined to the thread that made it. Procedures are functions over a `Session`: in that thread they
run from beginning to end, so each call is one hop to it and back, and one that is cancelled
meanwhile is whole, or did not begin.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

__all__ = ["CommitError", "MovedError", "Procedure", "Session", "writing"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

Procedure: TypeAlias = "Callable[..., Sequence[Any]]"


class CommitError(Exception):
    """The file could not be written to the end; nobody knows what of it is on the disk."""


class MovedError(Exception):
    """The file is no longer at its path: who opens that reads and writes another one."""


class _Rows(list[Any]):
    """The rows of an answer, as a cursor gives them away."""

    def fetchall(self) -> list[Any]:
        return self


class Session(sqlite3.Connection):
    """A connection that knows procedures.

    Attributes:
        procedures: By their names; of the class that is made by `knowing`.
    """

    procedures: dict[str, Procedure]

    def __init__(self, path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(path, *args, **kwargs)
        self._path = path
        self._file = os.stat(path)  # noqa: PTH116 - a Path's takes longer, at each check
        # The clock of the database (rule 2 of the contract): stands still during a transaction.
        self.moment = time.time()
        self.create_function("rxlanggraph_now", 0, lambda: self.moment, deterministic=True)

    @classmethod
    def knowing(cls, procedures: dict[str, Procedure]) -> type[Session]:
        """Return a class of sessions that know ``procedures``."""
        return type("Session", (cls,), {"procedures": procedures})

    def execute(self, procedure: str, arguments: Iterable[Any] = (), /) -> _Rows:  # type: ignore[override]  # what aiosqlite's execute_fetchall needs
        """Run a procedure. This is how the thread is reached through aiosqlite's public methods."""
        self.moment = time.time()
        return _Rows(self.procedures[procedure](self, *arguments))

    def query(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement of SQL; return its rows."""
        return super().execute(statement, values).fetchall()

    def begin(self) -> None:
        """Hold the file as its only writer.

        Raises:
            MovedError: The file is no longer where it was opened.
        """
        self.query("BEGIN IMMEDIATE")
        # Others may have been writing for some time.
        self.moment = time.time()
        self.check_path()

    def commit_all(self) -> None:
        """Do what was asked for since `begin`, as a whole.

        Raises:
            CommitError: Nobody knows whether it was done.
        """
        try:
            self.query("COMMIT")
        except sqlite3.Error as error:
            raise CommitError(str(error)) from error

    def roll_back(self) -> None:
        """Do nothing of what was asked for since `begin`."""
        # Of some errors SQLite rolls back by itself.
        if self.in_transaction:
            self.query("ROLLBACK")

    def check_path(self) -> None:
        """Refuse a file that is not the one at its path; for reads, too.

        Raises:
            MovedError: The file is no longer where it was opened.
        """
        try:
            if os.path.samestat(os.stat(self._path), self._file):  # noqa: PTH116 - as above
                return
        except OSError:  # there is none, or none that we may see
            pass
        raise MovedError(
            "it was moved, deleted or replaced while it was open; close the state, and open it anew"
        )


def writing(
    procedure: Callable[Concatenate[Session, _P], _T],
) -> Callable[Concatenate[Session, _P], _T]:
    """Make the decorated procedure one transaction: done as a whole, or not at all."""

    @wraps(procedure)
    def whole(at: Session, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            at.begin()
            answer = procedure(at, *args, **kwargs)
            at.commit_all()
        except BaseException:
            at.roll_back()
            raise
        return answer

    return whole
