"""The thread that owns the connection to an SQLite file, and executes one call after the other.

The connection is made, used and closed in that thread only. Calls come through a queue, and their
outcomes go back to the loop: one hop there and one back. Short calls that have arrived meanwhile
share one transaction, so they wait for the disk once. While idle, the thread refers neither to
its `SqliteThread` nor to the loop: so a `SqliteThread` that is dropped unclosed is collected, and
its finalizer ends the thread.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeAlias

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import StateClosedError
from rxlanggraph.state.backends.sql.sqlite.session import Call, Outcome, SqliteSession

__all__ = ["SqliteThread"]

_log = logging.getLogger("rxlanggraph")

# A call, and the future of its outcome; or the end, and the future of that, if one waits for it.
_Done: TypeAlias = "asyncio.Future[Outcome]"
_Job: TypeAlias = "tuple[Call, _Done] | tuple[None, _Done | None]"

# Bounds the time for which a transaction locks the file.
_MAX_CALLS: Final = 64
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
            outcome = await self.do(Call("nothing", ()))
        except asyncio.CancelledError:
            await self.close()
            raise
        if isinstance(outcome, Exception):
            await self.close()
            raise outcome

    def do(self, call: Call) -> _Done:
        """Queue ``call`` for the thread; return the future of its outcome.

        Cancelling that future does not cancel the call.

        Raises:
            StateClosedError: `close` was called.
        """
        if not self._is_open:
            raise StateClosedError("the state was closed while the call was under way")
        done: _Done = self._loop.create_future()
        self._jobs.put((call, done))
        return done

    async def close(self) -> None:
        """Let the thread execute all queued calls, close the file and end. Idempotent.

        Waits for that even if cancelled, but not forever: if the disk does not answer, it logs a
        warning, and leaves the file to the thread.
        """
        if not self._is_open:
            return
        self._is_open = False
        ended: _Done = self._loop.create_future()
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
            _log.warning("an SQLite file is still not closed after %g seconds", _CLOSE_TIMEOUT)
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
        session: SqliteSession | Exception
        try:
            session = stack.enter_context(closing(connect()))
        except Exception as error:
            session = error
        ended = _execute_jobs(session, jobs)
    if ended is not None:
        _resolve_on_loop([ended], [[]])


def _execute_jobs(session: SqliteSession | Exception, jobs: SimpleQueue[_Job]) -> _Done | None:
    """Execute jobs, or fail each if there is no session; return the future of the end, if any."""
    following: _Job | None = None
    while True:
        call, done = following or jobs.get()
        if call is None or done is None:
            return done
        calls, futures, following = [call], [done], None
        if isinstance(session, Exception):
            outcomes: Sequence[Outcome] = [session]
        else:
            following = _add_waiting(session, calls, futures, jobs)
            outcomes = session.do(calls)
        if not _resolve_on_loop(futures, outcomes):
            return None
        del call, done, calls, futures, outcomes  # as they refer to the loop


def _add_waiting(
    session: SqliteSession, calls: list[Call], futures: list[_Done], jobs: SimpleQueue[_Job]
) -> _Job | None:
    """Add calls that wait, if they may share a transaction; return a job that was not added."""
    while len(calls) < _MAX_CALLS and session.procedures[calls[-1].procedure].batchable:
        try:
            call, done = job = jobs.get_nowait()
        except Empty:
            return None
        if call is None or done is None or not session.procedures[call.procedure].batchable:
            return job
        calls.append(call)
        futures.append(done)
    return None


def _resolve_on_loop(futures: Sequence[_Done], outcomes: Sequence[Outcome]) -> bool:
    """Resolve ``futures`` on their loop; False if that is closed: the file has no user left."""
    try:
        futures[0].get_loop().call_soon_threadsafe(_resolve, futures, outcomes)
    except RuntimeError:
        return False
    return True


def _resolve(futures: Sequence[_Done], outcomes: Sequence[Outcome]) -> None:
    for future, outcome in zip(futures, outcomes, strict=True):
        if not future.done():
            future.set_result(outcome)
