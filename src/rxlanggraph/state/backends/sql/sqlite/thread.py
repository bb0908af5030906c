"""The thread that has the connection to an SQLite file, and does one job after the other.

The connection is made, used and closed in that thread alone. Jobs come through a queue, and their
outcomes go back to the loop: one hop there and one back. While it has nothing to do, the thread
refers neither to its `SqliteThread` nor to the loop: one that is dropped unclosed is collected, and
that ends the thread.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import StateClosedError
from rxlanggraph.state.backends.sql.sqlite.session import Call, Outcome, SqliteSession

__all__ = ["SqliteThread"]

_logger = logging.getLogger(__name__)

# Calls that are one job, and the future of their outcomes. Without calls: the end, and its future.
_Job: TypeAlias = "tuple[Sequence[Call] | None, asyncio.Future[list[Outcome]] | None]"

# Seconds to wait for the end of the thread, which a disk may hold up forever.
_PATIENCE: Final = 10.0


class SqliteThread:
    """A thread with a connection to one file. Confined to the loop on which it is made.

    It is a daemon: left open, it keeps no process from ending.

    Args:
        connect: Makes the connection; called in the thread, which keeps it.
    """

    def __init__(self, connect: Callable[[], SqliteSession]) -> None:
        self._is_open = False
        self._loop = asyncio.get_running_loop()
        # Any thread may put, a finalizer too: a SimpleQueue is reentrant.
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._thread = Thread(
            target=_serve, args=(connect, self._jobs), name="rxlanggraph-sqlite", daemon=True
        )

    async def start(self) -> None:
        """Start the thread, and connect. Cancelled, it ends the thread before it raises.

        Raises:
            Exception: What ``connect`` has raised; the thread has ended.
        """
        start_detached(self._thread)
        self._is_open = True
        try:
            await self.do([])
        except (Exception, asyncio.CancelledError):
            await self.close()
            raise

    def do(self, calls: Sequence[Call]) -> asyncio.Future[list[Outcome]]:
        """Have the thread do ``calls``, after all before; return the future of their outcomes.

        Cancelling that future does not change what the thread does.

        Raises:
            StateClosedError: The thread was told to end.
        """
        if not self._is_open:
            raise StateClosedError("the state was closed while the call was under way")
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self._jobs.put((calls, done))
        return done

    async def close(self) -> None:
        """Have the thread do what it was sent, close the file and end. Idempotent.

        Waits for that, also if cancelled; but not forever: a disk that does not answer is left to
        the thread.
        """
        if not self._is_open:
            return
        self._is_open = False
        ended: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self._jobs.put((None, ended))
        cancelled: asyncio.CancelledError | None = None
        until = self._loop.time() + _PATIENCE
        while not ended.done() and (left := until - self._loop.time()) > 0:
            try:
                await asyncio.wait([ended], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
        if ended.done():
            self._thread.join()  # it has nothing left to do
        else:
            _logger.warning("an SQLite file is still not closed after %g seconds", _PATIENCE)
        if cancelled is not None:
            raise cancelled

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """End the thread if it was left open."""
        if self._is_open:
            self._jobs.put((None, None))
            warn(f"{self!r} was not closed", ResourceWarning, source=self)


# -- in the thread ---------------------------------------------------------------------------------


def _serve(connect: Callable[[], SqliteSession], jobs: SimpleQueue[_Job]) -> None:
    """Connect, do jobs until the end, and disconnect."""
    with ExitStack() as stack:
        session = failure = None
        try:
            session = stack.enter_context(closing(connect()))
        except Exception as error:
            failure = error
        ended = _do_jobs(session, failure, jobs)
    if ended is not None:
        _tell(ended, [])


def _do_jobs(
    session: SqliteSession | None, failure: Exception | None, jobs: SimpleQueue[_Job]
) -> asyncio.Future[list[Outcome]] | None:
    """Do jobs, or fail each; return the future of the end, if there is one to be told of it."""
    while True:
        calls, done = jobs.get()
        if calls is None or done is None:
            return done
        is_told = _tell(done, session.do(calls)) if session else _tell(done, error=failure)
        if not is_told:
            return None
        del calls, done  # which refer to the loop


def _tell(future: asyncio.Future[Any], result: Any = None, error: Exception | None = None) -> bool:
    """Resolve ``future``; return False if its loop was closed: then no caller can use the file."""
    try:
        future.get_loop().call_soon_threadsafe(_resolve, future, result, error)
    except RuntimeError:
        return False
    return True


def _resolve(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
