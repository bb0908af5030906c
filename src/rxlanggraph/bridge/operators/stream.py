"""stream: the chunks of every message's run, and then its result.

What breaks with `invoke` alone: a person who waits sees nothing until the whole answer is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextvars import copy_context
from typing import Any

from reactivex import abc

from rxlanggraph.bridge.chunk_window import ChunkWindow
from rxlanggraph.bridge.deadlocks import begin_wait, end_wait
from rxlanggraph.bridge.operators.on_loop import OnLoop
from rxlanggraph.bridge.operators.readers import HeldUpRun, ReaderRoom
from rxlanggraph.bridge.operators.subscription import OBSERVER_RAISED, Ended, Subscription
from rxlanggraph.bridge.run import Run
from rxlanggraph.concurrency.user_code import contain, raise_on_loop
from rxlanggraph.concurrency.waiters import Waiter
from rxlanggraph.errors import DeadlockError
from rxlanggraph.messages import StreamMessage

__all__ = ["StreamSubscription"]

_log = logging.getLogger("rxlanggraph")

# Chunks of a run that are held back behind earlier runs (ordered), before the run is held up; and
# chunks on their way to the loop that awaits the stream. A guess: enough to keep a run busy while
# another thread takes its turn.
_HELD_BACK = 64
_ON_THE_WAY = 16


class _RunChunks:
    """The `ChunkSink` of one run. Guarded by the lock of the bridge."""

    __slots__ = ("_subscription", "held", "index", "run", "waiter", "window")

    def __init__(
        self, subscription: StreamSubscription, run: Run, index: int, window: ChunkWindow | None
    ) -> None:
        self._subscription = subscription
        self.run = run
        self.index = index
        self.window = window
        self.held: list[Ended] = []  # chunks that wait for the end of earlier runs
        self.waiter: Waiter | None = None  # of the run, if it waits for that

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """See `ChunkSink.loop`."""
        return self._subscription.loop

    def put(self, chunk: StreamMessage) -> Awaitable[None] | None:
        """See `ChunkSink.put`."""
        return self._subscription.put_chunk(self, chunk)

    def take(self) -> list[Ended]:
        """Take what is held. Under the lock."""
        held, self.held = self.held, []
        return held


class StreamSubscription(Subscription):
    """A subscription that emits the chunks of its runs too.

    A run takes its next chunk when the observer has returned from the last one; where a reader with
    a bound iterates over the stream, when that has room for one item of each run. With look-ahead,
    the first unfinished run is live, and the chunks of later ones are held back.

    Args:
        arguments: Those of `Subscription`.
        observer: Receives chunks and results.
        resumable: How many chunks of each run are kept for late readers.
        options: Those of `Subscription`.
    """

    def __init__(
        self,
        *arguments: Any,
        observer: abc.ObserverBase[StreamMessage],
        resumable: int | None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, observer=observer, **options)
        self._resumable = resumable
        self._on_loop = observer if isinstance(observer, OnLoop) else None
        # Guarded by the lock of the bridge, as all of `Subscription`: with look-ahead, by index.
        self._held: dict[int, _RunChunks] = {}
        # Likewise, with a reader: the runs that it holds up.
        self._held_up: list[HeldUpRun] = []

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that awaits the stream, if one does. Any thread; never blocks."""
        return None if self._on_loop is None else self._on_loop.loop

    def put_chunk(self, chunks: _RunChunks, chunk: StreamMessage) -> Awaitable[None] | None:
        """Emit ``chunk``, or hold it back. On the loop, in the task of its run.

        Returns:
            What the run has to await before its next chunk, if anything.
        """
        with self._lock:
            if chunks.run not in self._indexes:  # nothing follows its result, or a dispose
                return asyncio.sleep(0)  # until it is cancelled
            if chunks.window is not None:
                chunks.window.add(chunk)
            held_back = self._look_ahead is not None and chunks.index != self._head
            if held_back:
                chunks.held.append((chunk, copy_context()))
            else:
                self._emitter.put_next(chunk, copy_context())
        reader, wait = self._reader, None
        if held_back:
            # What is held back is emitted all at once; a reader has room for one item of each run.
            if len(chunks.held) < (_HELD_BACK if reader is None else 1):
                return None
            wait = self._until_first(chunks)
        else:
            self._flush_chunk()
            on_its_way = self._on_loop is not None and self._on_loop.backlog >= _ON_THE_WAY
            if on_its_way or self._emitter.is_busy():
                wait = self._until_emitted()
        return wait if reader is None else self._until_read(chunks.run, reader, wait)

    def _flush_chunk(self) -> None:
        # What the observer raises is not the run's: it is logged, as for results.
        try:
            self._flush()
        except BaseException as error:
            interrupt = contain(error, _log, OBSERVER_RAISED, self._engine.name)
            if interrupt is not None:
                raise_on_loop(interrupt)

    async def _until_emitted(self) -> None:
        waiter = Waiter()
        waiter.prepare()

        def emitted() -> None:
            if self._on_loop is None:
                waiter.wake_threadsafe()
            else:
                self._on_loop.call(waiter.wake_threadsafe)

        if self._emitter.put_call(emitted):
            self._flush_chunk()
            await waiter.wait()

    async def _until_first(self, chunks: _RunChunks) -> None:
        """Wait until no earlier run is left, unless that run needs what this one holds."""
        waiter = Waiter()
        while True:
            waiter.prepare()
            with self._lock:
                first = self._held.get(self._head)
                if first is None or first is chunks or chunks.run not in self._indexes:
                    return
                chunks.waiter = waiter
            useless: list[bool] = []

            def go_on(useless: list[bool] = useless) -> None:
                useless.append(True)
                waiter.wake_threadsafe()

            try:
                begin_wait(chunks.run, first.run, go_on)
            except DeadlockError:
                return
            try:
                await waiter.wait()
            finally:
                end_wait(chunks.run, first.run)
            if useless:
                return

    # -- a reader with a bound -------------------------------------------------------------------

    async def _until_read(
        self, run: Run, reader: ReaderRoom, before: Awaitable[None] | None
    ) -> None:
        """Wait for ``before``, and until ``reader`` has room for one item of each run."""
        if before is not None:
            await before
        reading = reader.reader
        while reading is not None:
            with self._lock:
                if self._disposed or self._may_follow(reader):
                    return
                held_up = HeldUpRun(reading)
                self._held_up.append(held_up)
            begin_wait(run, held_up, refused_last=True)
            try:
                await held_up.waiter.wait()
            finally:
                end_wait(run, held_up)

    def _may_follow(self, reader: ReaderRoom) -> bool:
        return reader.may_follow(self, self._due_to_reader(), self._let_go_on)

    def _let_go_on(self) -> None:
        assert self._reader is not None
        with self._lock:
            if not self._held_up or not self._may_follow(self._reader):
                return
            held_up, self._held_up = self._held_up, []
            for each in held_up:
                each.over = True
        for each in held_up:
            each.waiter.wake_threadsafe()

    # -- what a subscription does with a run -----------------------------------------------------

    def _take(self, run: Run, *, to_start: bool = True) -> bool:
        with self._lock:
            if not super()._take(run, to_start=to_start):
                return False
            window = None if self._resumable is None else ChunkWindow(self._lock, self._resumable)
            chunks = _RunChunks(self, run, self._indexes[run], window)
            if self._look_ahead is not None:
                self._held[chunks.index] = chunks
            run.sink = chunks
            return True

    def _ended(self, future: object) -> None:
        assert isinstance(future, Run)
        chunks, future.sink = future.sink, None  # it refers to the run
        if isinstance(chunks, _RunChunks) and chunks.window is not None:
            chunks.window.end(future)
        super()._ended(future)
        with self._lock:
            first = self._held.get(self._head)
            waiter = None if first is None else first.waiter
        if waiter is not None:
            waiter.wake_threadsafe()

    def _due(self, index: int, ended: Ended) -> Sequence[Ended]:
        self._early[index] = ended
        due: list[Ended] = []
        while (first := self._held.get(self._head)) is not None:
            due += first.take()
            if (result := self._early.pop(self._head, None)) is None:
                break  # it is live from now on
            due.append(result)
            del self._held[self._head]
            self._head += 1
        return due

    def _release(self) -> None:
        with self._lock:
            self._held.clear()
        super()._release()
