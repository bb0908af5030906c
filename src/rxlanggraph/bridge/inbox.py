"""LoopInbox: the only crossing from a thread to the loop.

What crosses is always the same: "look at this run". On the loop, the engine starts it, or cancels
it, or sees that there is nothing left to do. One ``run_coroutine_threadsafe`` carries everything
queued since the last one, so that ten thousand messages cost a few wake-ups rather than ten
thousand tasks, handles and writes to the loop's pipe. What comes on the loop's own thread needs no
wake-up: a callback of the loop's next step looks at it.

Invariants kept here (numbers as in docs/design.md):

1. A run that was let in is looked at, or is resolved by `Engine.loop_stopped` when the loop is
   gone: each append to the queue has a drain come after it, also where a signal handler raises
   between.
4. ``lock`` is released before the loop, a future or the engine is called.
5. ``lock`` is an RLock, and each section is one check and one write.
8. A drain that will never run is closed.

The race that shaped ``_drain_due``: (a) a thread appends and sees a drain due; (b) that
drain has just taken the last run and is about to say that none is due; (c) it says so, and the run
waits for ever. Hence both look and write under ``lock``, and the drain says so only in the section
in which it found the queue empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeAlias

from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.concurrency.tasks import close_left_behind
from rxlanggraph.errors import LoopUnavailableError, WrongProcessError

__all__ = ["LoopInbox"]

# A drain that was sent from a thread; or True for one that the loop's own thread has scheduled.
_Drain: TypeAlias = "Coroutine[Any, Any, None] | Literal[True]"
# Runs looked at before the loop gets to do something else. A guess: half a millisecond's work.
_BATCH = 256


class LoopInbox:
    """The queue of runs to look at, and the wake-up of the loop that does.

    Args:
        registry: Where a run is entered before its submitter gets it back.
        process: What to do with a run, on the loop. Must not raise.
        lost: Called, from whichever thread noticed, when the loop turns out to be closed; calls
            `refuse`.
        lock: The lock of the bridge.
    """

    def __init__(
        self,
        registry: RunRegistry,
        process: Callable[[Run], None],
        lost: Callable[[LoopUnavailableError], None],
        lock: threading.RLock,
    ) -> None:
        # Of the bridge, for `waits`. Written once, by the engine.
        self.max_concurrency = sys.maxsize
        # Set once, before the first run is submitted.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._registry = registry
        self._process = process
        self._lost = lost
        # The lock of the bridge: guards the three below, and the fields of every run's future.
        self.lock = lock
        self._queue: deque[Run] = deque()
        # The drain that is due, or at work: beside one, none need be sent.
        self._drain_due: _Drain | None = None
        self._refusal: LoopUnavailableError | None = None
        # Written in a forked child, before its own code goes on: why nothing of the parent ends.
        self.elsewhere: WrongProcessError | None = None

    def submit(self, run: Run) -> None:
        """Register ``run`` and have the loop look at it.

        Any thread, also the loop's; never blocks. If a clean-up is sweeping, it is cancelled at
        once and never starts.

        Raises:
            RegistryClosedError: The registry is closed; the run is not registered.
            LoopUnavailableError: The loop is gone; the run is not registered.
        """
        if self._refusal is not None:  # looked at again, under the lock, in attend()
            self._raise_refusal()
        welcome = self._registry.enter(run, run.options.name, run.message.thread_id)
        if not welcome:
            run.cancel()
        elif not self.post(run):
            # The loop went between the check and here: whoever let go of it may have missed us.
            self._registry.leave(run, "failed")
            self._raise_refusal()

    def post(self, run: Run) -> bool:
        """Have the loop look at ``run`` soon. Any thread, also the loop's; never blocks.

        Returns:
            False if the loop is gone: whoever let go of it resolves what it had.
        """
        drain: _Drain | None = None
        try:
            with self.lock:
                if self._refusal is not None or self.loop is None:
                    return False
                self._queue.append(run)
                if self._drain_due is not None:
                    return True
                drain = self._drain_due = self._new_drain()
            self._send(drain)
        except BaseException:  # of a signal handler: how far it had got is not known
            self._send_another(drain)
            raise
        return True

    def is_due(self) -> bool:
        """Whether the loop still has to look at something. Any thread; never blocks."""
        with self.lock:
            return self._drain_due is not None

    def refuse(self, error: LoopUnavailableError) -> None:
        """Let nothing in any more: the loop is going. Any thread; never blocks."""
        with self.lock:
            self._refusal = error

    def refuses(self) -> bool:
        """Whether the loop is going, or gone. Any thread; never blocks."""
        with self.lock:
            return self._refusal is not None

    def _raise_refusal(self) -> None:
        with self.lock:
            refusal = self._refusal
        if refusal is not None:
            raise type(refusal)(*refusal.args)

    def after_fork(self, error: WrongProcessError) -> None:
        """Let go of the loop of the parent without touching it. See `forking`.

        What is queued stays, or it would complain of coroutines that never ran.
        """
        self.elsewhere = self._refusal = error
        self.loop = None

    def discard_pending(self) -> None:
        """Drop what is queued, and close the drain that was sent to a loop which is gone."""
        with self.lock:
            self._queue.clear()
            drain, self._drain_due = self._drain_due, None
        if isinstance(drain, Coroutine) and self.loop is not None:
            close_left_behind(drain, self.loop)

    def _new_drain(self) -> _Drain:
        # On the loop itself the next step of the loop will do, without a task and a wake-up.
        return True if asyncio._get_running_loop() is self.loop else self._drain()

    def _send(self, drain: _Drain) -> None:
        loop = self.loop
        if loop is None:  # a signal handler forked in the middle of this: the child has none
            if drain is not True:
                drain.close()
            return
        try:
            if drain is True:
                loop.call_soon(self._drain_here)
            else:
                sent = asyncio.run_coroutine_threadsafe(drain, loop)
                sent.add_done_callback(partial(self._drained, drain))
        except RuntimeError:
            error = LoopUnavailableError(f"the event loop {loop!r} of this bridge is closed")
            self._lost(error)

    async def _drain(self) -> None:
        while self._look():  # noqa: ASYNC110 - not to wait, but to let the loop do other things
            await asyncio.sleep(0)

    def _drain_here(self) -> None:
        try:
            more = self._look()
        except BaseException:
            self._send_another(True)
            raise
        if more:
            asyncio.get_running_loop().call_soon(self._drain_here)

    def _look(self) -> bool:
        """Look at a batch of what is queued; return whether there may be more."""
        for _ in range(_BATCH):
            try:
                run = self._queue.popleft()  # a deque is safe without the lock, for one call
            except IndexError:
                with self.lock:
                    if not self._queue:
                        self._drain_due = None
                        return False
            else:
                self._process(run)
        return True

    def _drained(self, drain: _Drain, future: Future[None]) -> None:
        # A drain that was cancelled with everything else on its loop leaves its work behind.
        if future.cancelled() or future.exception() is not None:
            self._send_another(drain)

    def _send_another(self, instead_of: _Drain | None) -> None:
        """Have a drain on its way if there is anything to look at; ``instead_of`` is none."""
        if isinstance(instead_of, Coroutine):
            with contextlib.suppress(ValueError):  # it was sent, and is at work
                instead_of.close()
        with self.lock:
            if self._drain_due is instead_of:
                self._drain_due = None
            if self._drain_due is not None or not self._queue or self._refusal is not None:
                return
            drain = self._drain_due = self._new_drain()
        self._send(drain)
