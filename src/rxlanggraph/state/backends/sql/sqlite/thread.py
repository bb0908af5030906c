"""The thread that owns the connection to an SQLite file, and executes one job after the other.

The connection is made, used and closed in that thread only. Jobs come through a queue, and their
outcomes go back to the loop: one hop there and one back. While idle, the thread refers neither to
its `SqliteThread` nor to the loop: so a `SqliteThread` that is dropped unclosed is collected, and
its finalizer ends the thread.
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

# The calls of a job, and the future of their outcomes. None instead of calls ends the thread, and
# resolves the future if there is one.
_Job: TypeAlias = "tuple[Sequence[Call] | None, asyncio.Future[list[Outcome]] | None]"

# Seconds to wait for the end of the thread, which a failing disk may block forever.
_CLOSE_TIMEOUT: Final = 10.0


class SqliteThread:
    """A thread with a connection to one file. Confined to the loop on which it is made.

    It is a daemon: left open, it does not keep the process from exiting.

    Args:
        connect: Makes the connection; called in the thread.
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
        """Start the thread, and connect. If cancelled, it ends the thread before it raises.

        Raises:
            Exception: Whatever ``connect`` raised; the thread has ended.
        """
        start_detached(self._thread)
        self._is_open = True
        try:
            await self.do([])
        except (Exception, asyncio.CancelledError):
            await self.close()
            raise

    def do(self, calls: Sequence[Call]) -> asyncio.Future[list[Outcome]]:
        """Queue ``calls`` for the thread; return the future of their outcomes.

        Cancelling that future does not cancel the calls.

        Raises:
            StateClosedError: `close` was called.
        """
        if not self._is_open:
            raise StateClosedError("the state was closed while the call was under way")
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self._jobs.put((calls, done))
        return done

    async def close(self) -> None:
        """Let the thread execute all queued jobs, close the file and end. Idempotent.

        Waits for that even if cancelled, but not forever: if the disk does not answer, it logs a
        warning, and leaves the file to the thread.
        """
        if not self._is_open:
            return
        self._is_open = False
        ended: asyncio.Future[list[Outcome]] = self._loop.create_future()
        self._jobs.put((None, ended))
        cancelled: asyncio.CancelledError | None = None
        until = self._loop.time() + _CLOSE_TIMEOUT
        while not ended.done() and (left := until - self._loop.time()) > 0:
            try:
                await asyncio.wait([ended], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
        if ended.done():
            self._thread.join()  # its last action was to resolve `ended`
        else:
            _logger.warning("an SQLite file is still not closed after %g seconds", _CLOSE_TIMEOUT)
        if cancelled is not None:
            raise cancelled

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        """End the thread if it was left open."""
        if self._is_open:
            self._jobs.put((None, None))
            warn(f"{self!r} was not closed", ResourceWarning, source=self)


# -- in the thread ---------------------------------------------------------------------------------


def _serve(connect: Callable[[], SqliteSession], jobs: SimpleQueue[_Job]) -> None:
    """Connect, execute jobs until the end, and disconnect."""
    with ExitStack() as stack:
        session = failure = None
        try:
            session = stack.enter_context(closing(connect()))
        except Exception as error:
            failure = error
        ended = _execute_jobs(session, failure, jobs)
    if ended is not None:
        _resolve_on_loop(ended, [])


def _execute_jobs(
    session: SqliteSession | None, failure: Exception | None, jobs: SimpleQueue[_Job]
) -> asyncio.Future[list[Outcome]] | None:
    """Execute jobs, or fail each with ``failure``; return the future of the end, if any."""
    while True:
        calls, done = jobs.get()
        if calls is None or done is None:
            return done
        resolved = (
            _resolve_on_loop(done, session.do(calls))
            if session
            else _resolve_on_loop(done, error=failure)
        )
        if not resolved:
            return None
        del calls, done  # as they refer to the loop


def _resolve_on_loop(
    future: asyncio.Future[Any], result: Any = None, error: Exception | None = None
) -> bool:
    """Resolve ``future`` on its loop; False if that is closed: the file has no user left."""
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
