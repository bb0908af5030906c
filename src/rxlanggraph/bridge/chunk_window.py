"""ChunkWindow: the latest chunks of one run, for readers that take them one by one.

What breaks without it: the chunks of a slow reader fill the memory, and a client that reconnects
has lost those in between. One reader may hold the run up: the run waits while the window is full of
chunks that this reader has not taken, until it detaches itself. All other readers join a run that
does not wait for them, and get a `ChunksLostError` if their next chunk has left the window.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Literal, Self

from rxlanggraph.bridge.deadlocks import begin_wait, end_wait
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.bridge.task_waits import RunWait
from rxlanggraph.concurrency.closing import AsyncClosingContext
from rxlanggraph.concurrency.waiters import Waiter
from rxlanggraph.errors import ChunksLostError, InvalidTypeError, WrongProcessError
from rxlanggraph.messages import StreamMessage, failure_of

__all__ = ["ChunkReader", "ChunkWindow", "joinable_run"]


class ChunkWindow:
    """The latest chunks of a run, at most ``size``, until the run has ended and they are read.

    Args:
        lock: The lock of the bridge: guards everything here.
        size: How many chunks are kept.
        held_up: Whether the run waits for the reader that reports what it has taken.
        joinable: Whether others may read the chunks too.
    """

    def __init__(
        self, lock: threading.RLock, size: int, *, held_up: bool = False, joinable: bool = True
    ) -> None:
        self._lock = lock
        self.joinable = joinable
        self._chunks: deque[StreamMessage] = deque(maxlen=size)
        self._count = 0  # how many chunks there have been
        self._taken: int | None = 0 if held_up else None  # how many the holding reader has taken
        self._result: StreamMessage | None = None
        self._readers: list[Waiter] = []  # those that wait for something new
        self._run: Waiter | None = None  # the run, if it waits for room
        # One reference, replaced as a whole by any thread; read without the lock.
        self._loop: asyncio.AbstractEventLoop | None = asyncio._get_running_loop()

    @property
    def window(self) -> ChunkWindow | None:
        """What a late reader may join, if it may: see `joinable_run`. Any thread; never blocks."""
        return self if self.joinable else None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Where the reader that holds the run up was last seen. See `ChunkSink.loop`."""
        with self._lock:
            holds_up = self._taken is not None
        return self._loop if holds_up else None

    def see_reader(self) -> None:
        """Note the loop of the reader that holds the run up. On that loop; never blocks."""
        self._loop = asyncio._get_running_loop()

    def put(self, chunk: StreamMessage) -> Awaitable[None] | None:
        """Add ``chunk``. On the loop, in the run's task. See `ChunkSink.put`."""
        self.add(chunk)
        return self._room() if self._is_full() else None

    def add(self, chunk: StreamMessage) -> None:
        """Add ``chunk``; the oldest leaves a full window. Any thread; never blocks."""
        with self._lock:
            if self._result is not None:
                return
            self._chunks.append(chunk)
            self._count += 1
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.wake_threadsafe()

    def end(self, run: object) -> None:
        """Take the end of the run, once. A done-callback of the run; any thread; never blocks."""
        assert isinstance(run, Run)
        run.sink = None
        result = run.result_nowait()
        if result is None:
            result = run.unanswered("cancelled")
        with self._lock:
            self._result = result
            readers, self._readers = self._readers, []
            waiting, self._run = self._run, None
        for each in (*readers, *(() if waiting is None else (waiting,))):
            each.wake_threadsafe()

    def read(self, sequence: int) -> StreamMessage | None:
        """Return the chunk of that number, or the result behind the last chunk. Any thread.

        Returns:
            None if it is still to come.

        Raises:
            ChunksLostError: It has left the window.
        """
        with self._lock:
            first = self._count - len(self._chunks)
            if sequence < first:
                raise ChunksLostError(
                    f"chunk {sequence} is no longer kept; the first one that is kept is {first}. "
                    "Read faster, or let the run keep more of them with resumable="
                )
            if sequence < self._count:
                return self._chunks[sequence - first]
            return self._result

    def taken(self, sequence: int) -> None:
        """Let the run go on: the holding reader has taken all up to ``sequence``. Any thread."""
        self._hold_until(sequence + 1)

    def let_go(self) -> None:
        """Let no reader hold the run up any more. Any thread; never blocks."""
        self._hold_until(None)

    def _hold_until(self, taken: int | None) -> None:
        with self._lock:
            if self._taken is None:  # a reader that has detached itself reads on
                return
            self._taken = taken
            waiting = None if self._is_full() else self._run
            if waiting is not None:
                self._run = None
        if waiting is not None:
            waiting.wake_threadsafe()

    async def wait(self, sequence: int, is_closed: Callable[[], bool]) -> None:
        """Wait until there is something to read at ``sequence``. Any loop; can be cancelled.

        Args:
            sequence: The number of a chunk.
            is_closed: Whether there is no need to wait; `wake_readers` comes after a change.
        """
        waiter = Waiter()
        waiter.prepare()
        with self._lock:
            if sequence < self._count or self._result is not None or is_closed():
                return
            self._readers.append(waiter)
        try:
            await waiter.wait()
        finally:
            with self._lock:
                if waiter in self._readers:
                    self._readers.remove(waiter)

    def wake_readers(self) -> None:
        """Make those that wait check again, since one of them is closed. Any thread."""
        with self._lock:
            readers, self._readers = self._readers, []
        for reader in readers:
            reader.wake_threadsafe()

    def _is_full(self) -> bool:
        with self._lock:
            if self._taken is None or self._result is not None:
                return False
            return self._count - self._taken >= (self._chunks.maxlen or 0)

    async def _room(self) -> None:
        waiter = Waiter()
        while True:
            waiter.prepare()
            with self._lock:
                if not self._is_full():
                    return
                self._run = waiter
            await waiter.wait()


class ChunkReader(AsyncClosingContext, AsyncIterator[StreamMessage]):
    """``async for`` over the chunks of a run, and its result as the last item.

    Made by `RxPyLangGraphBridge.astream`, which ends its run when it is closed, dropped or left
    (``break``), unless it was detached; and by `RxPyLangGraphBridge.join_stream`, which leaves the
    run alone. On any loop; one task at a time. As an async context manager it is closed at the end
    of the block.

    Args:
        run: The run.
        window: Its chunks.
        sequence: The number of the first chunk to read.
        errors: ``"raise"`` raises the exception of a run that did not succeed, ``"emit"`` returns
            its result, with its ``status`` and ``error``.
        owns_run: Whether the run waits for this reader, and ends with it.
    """

    def __init__(
        self,
        run: Run,
        window: ChunkWindow,
        sequence: int,
        errors: Literal["raise", "emit"],
        *,
        owns_run: bool,
    ) -> None:
        self._run = run
        self._window = window
        self._sequence = sequence
        self._errors = errors
        self._owns_run = owns_run  # may become False, in any thread
        # Only ever set, by any thread; one that waits reads it under the lock of the window.
        self._done = False

    @property
    def run(self) -> Run:
        """The future of the run's result. Cancelling it ends the stream too."""
        return self._run

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        self._seen()
        return self

    def _seen(self) -> None:
        if self._owns_run:
            self._window.see_reader()

    async def __anext__(self) -> StreamMessage:
        """Return the next chunk, or the result. Any loop.

        If cancelled, it has taken nothing; the run goes on until the stream is closed or dropped.

        Raises:
            StopAsyncIteration: The result was the last item, or the stream was closed.
            ChunksLostError: The next chunk is no longer kept.
            DeadlockError: It would wait forever: in a run that this one can only begin after.
            WrongProcessError: The next chunk is one that the parent of this process gets.
            BaseException: That of a run that did not succeed, with ``errors="raise"``.
        """
        while not self._done:
            item = self._window.read(self._sequence)
            if item is None:
                await self._wait()
            elif item.sequence is None:
                self._done = True
                failure = failure_of(item) if self._errors == "raise" else None
                if failure is not None:
                    raise failure
                return item
            else:
                if self._owns_run:
                    self._window.taken(self._sequence)
                self._sequence += 1
                return item
        raise StopAsyncIteration

    async def _wait(self) -> None:
        self._seen()
        elsewhere = self._run.inbox.elsewhere
        if elsewhere is not None:  # callbacks are not called here: the window never ends
            raise WrongProcessError(*elsewhere.args)
        waiting = current_run()
        if waiting is None:
            await self._window.wait(self._sequence, self._is_done)
            return
        wait = RunWait(waiting, self._run)
        begin_wait(waiting, wait)
        try:
            await self._window.wait(self._sequence, self._is_done)
        finally:
            end_wait(waiting, wait)

    def _is_done(self) -> bool:
        return self._done

    def detach(self) -> None:
        """Leave the run to itself: it neither waits for this stream any more, nor ends with it.

        For a client that goes away and may come back. Any thread; never blocks. The stream can be
        read on like one of `RxPyLangGraphBridge.join_stream`, and others can join if the run is
        resumable. The run is still in the registry, and ends with its bridge. Calling it again,
        after the end of the run, or on a stream of `join_stream`, changes nothing.
        """
        if self._owns_run:
            self._owns_run = False
            self._window.let_go()

    async def aclose(self) -> None:
        """End the stream, and the run if the stream is its own. Any loop; never waits.

        A step that waits for its chunk ends too.
        """
        self._done = True
        if self._owns_run:
            self._run.cancel()
        self._window.wake_readers()

    def __del__(self) -> None:
        """Cancel a run that is not read any more."""
        if self._owns_run and not self._done:
            self._run.cancel()


def joinable_run(tasks: Iterable[object], message: StreamMessage | str) -> tuple[Run, ChunkWindow]:
    """Find the run on ``message`` among ``tasks``, and its chunks. Any thread; never blocks.

    Args:
        tasks: Those in flight.
        message: The message, a chunk or result of it, or its id.

    Raises:
        InvalidTypeError: ``message`` is neither a message nor an id.
        ChunksLostError: None of them works on it, or its chunks are not kept.
    """
    if isinstance(message, StreamMessage):
        message = message.id if message.source is None else message.source.id
    elif not isinstance(message, str):
        raise InvalidTypeError(f"message must be a StreamMessage or the id of one, not {message!r}")
    for run in tasks:
        if isinstance(run, Run) and run.message.id == message:
            window = getattr(run.sink, "window", None)
            if window is not None:
                return run, window
    raise ChunksLostError(
        f"no run on message {message} is in flight that keeps its chunks; stream with resumable=, "
        "and join before the run has ended"
    )
