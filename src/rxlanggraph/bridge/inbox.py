"""LoopInbox: the only way from other threads to the loop.

What crosses is always the same: "process this run". On the loop, the dispatcher then starts the
run, or cancels it, or finds nothing left to do. One ``run_coroutine_threadsafe`` carries everything
queued since the last one, so ten thousand messages cost a few wake-ups rather than ten thousand
tasks, handles and writes to the loop's self-pipe. A run posted on the loop's own thread needs no
wake-up: a callback in the loop's next iteration processes it.

Invariants kept here (numbers as in docs/design.md):

1. A run that was accepted is processed, or is resolved by `Engine.loop_stopped` when the loop is
   gone: each append to the queue is followed by a drain, even if a signal handler raises in
   between.
4. ``lock`` is released before the loop, a future or the dispatcher is called.
5. ``lock`` is an RLock, and each section is one check and one write.
8. A drain that will never run is closed.

The race that shaped ``_drain_due``: (a) a thread appends and sees that a drain is due; (b) that
drain has just taken the last run and is about to record that none is due; (c) it does so, and the
new run waits forever. Hence both read and write under ``lock``, and the drain clears
``_drain_due`` only in the critical section in which it found the queue empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Literal, TypeAlias

from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.concurrency.clock import Clock
from rxlanggraph.concurrency.tasks import close_left_behind
from rxlanggraph.errors import LoopUnavailableError, WrongProcessError

__all__ = ["LoopInbox"]

# A drain that was sent from a thread; or True for one that was scheduled on the loop's own thread.
_Drain: TypeAlias = "Coroutine[Any, Any, None] | Literal[True]"
# Runs processed before other callbacks of the loop get a chance. A guess: half a millisecond.
_BATCH = 256


class LoopInbox:
    """The queue of runs to process, and the wake-up of the loop that processes them.

    Args:
        registry: Where a run is registered before its submitter gets it back.
        lost: Called when the loop turns out to be closed, from the thread that noticed; calls
            `refuse`.
        lock: The lock of the bridge.
        max_concurrency: That of the bridge.
        clock: That of the bridge, for its runs.
    """

    def __init__(
        self,
        registry: RunRegistry,
        lost: Callable[[LoopUnavailableError], None],
        lock: threading.RLock,
        max_concurrency: int,
        clock: Clock,
    ) -> None:
        self.max_concurrency = max_concurrency
        self.clock = clock
        # What processes a run, on the loop; must not raise. Written once, by the engine.
        self.process: Callable[[Run], None]
        # Set once, before the first run is submitted.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._registry = registry
        self._lost = lost
        # The lock of the bridge: guards the three below, and the fields of every run's future. The
        # drain takes runs out of the queue without it, each in a single call.
        self.lock = lock
        self._queue: deque[Run] = deque()
        # The drain that is due or at work: while there is one, no other need be sent.
        self._drain_due: _Drain | None = None
        self._refusal: LoopUnavailableError | None = None
        # Set in a forked child, before its own code continues: why the parent's runs never end
        # here.
        self.elsewhere: WrongProcessError | None = None

    def post(self, run: Run, *, admit: bool = False) -> bool:
        """Have the loop process ``run`` soon. Any thread, also the loop's; never blocks.

        Args:
            run: The run.
            admit: Register it, in the same critical section. During the sweep of a cleanup, it is
                cancelled at once and never starts.

        Returns:
            False if the loop is gone: the code that stopped it resolves the remaining runs. With
            ``admit``, the run is not registered then: see `why_refused`.

        Raises:
            RegistryClosedError: With ``admit``: the registry is closed; the run is not registered.
        """
        now = self.clock.now() if admit else 0.0
        drain: _Drain | None = None
        try:
            with self.lock:
                # Without a loop nothing can be admitted: the bridge was closed before its start.
                if self._refusal is not None or (self.loop is None and not admit):
                    return False
                welcome = not admit or self._registry.insert(
                    run, run.options.name, run.message.thread_id, now
                )
                if welcome:
                    self._queue.append(run)
                    if self._drain_due is not None:
                        return True
                    drain = self._drain_due = self._new_drain()
            if drain is None:
                if not run.cancel():  # it was dropped just before
                    self.post(run)
            else:
                self._send(drain)
        except BaseException:  # it was not admitted; or from a signal handler, at any point
            self._send_another(drain)
            raise
        return True

    def look_soon(self) -> None:
        """Look at the queue in the next iteration of the loop, even if it is empty. On the loop.

        What is posted until then, by a thread that is about to, does not have to wake the loop.
        """
        drain: _Drain | None = None
        try:
            with self.lock:
                if self._drain_due is not None or self._refusal is not None:
                    return
                drain = self._drain_due = True
            self._send(drain)
        except BaseException:  # from a signal handler
            self._send_another(drain)
            raise

    def withdraw(self, run: Run) -> bool:
        """Take ``run`` back, if the loop has not seen it yet. Any thread; never blocks.

        What breaks without it: while the loop is held up, what was dropped stays in the queue. The
        oldest are dropped, so the search ends soon.
        """
        try:
            self._queue.remove(run)  # a single deque operation, as in _process_batch
        except ValueError:
            return False
        return True

    def is_due(self) -> bool:
        """Whether the loop still has to process something. Any thread; never blocks."""
        with self.lock:
            return self._drain_due is not None

    def refuse(self, error: LoopUnavailableError) -> None:
        """Accept nothing any more: the loop is stopping. Any thread; never blocks."""
        with self.lock:
            self._refusal = error

    def refuses(self) -> bool:
        """Whether the loop is stopping, or has stopped. Any thread; never blocks."""
        with self.lock:
            return self._refusal is not None

    def why_refused(self) -> LoopUnavailableError:
        """Make the error of what was refused. Any thread; never blocks."""
        with self.lock:
            refusal = self._refusal
        assert refusal is not None, "ask only after a refusal"
        return type(refusal)(*refusal.args)

    def after_fork(self, error: WrongProcessError) -> None:
        """Drop the loop of the parent without touching it. See `forking`.

        What is queued is kept: dropping it would warn of coroutines that were never awaited.
        """
        self.elsewhere = self._refusal = error
        self.loop = None

    def discard_pending(self) -> None:
        """Drop what is queued, and close the drain that was sent to a loop that is gone."""
        with self.lock:
            self._queue.clear()
            drain, self._drain_due = self._drain_due, None
        if isinstance(drain, Coroutine) and self.loop is not None:
            close_left_behind(drain, self.loop)

    def _new_drain(self) -> _Drain:
        # On the loop itself a callback in the next iteration does, without a task or a wake-up.
        return True if asyncio._get_running_loop() is self.loop else self._drain()

    def _send(self, drain: _Drain) -> None:
        loop = self.loop
        if loop is None:  # a signal handler forked meanwhile: the child has no loop
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
        while self._process_batch():  # noqa: ASYNC110 - yields to the loop, does not wait
            await asyncio.sleep(0)

    def _drain_here(self) -> None:
        try:
            more = self._process_batch()
        except BaseException:
            self._send_another(True)
            raise
        if more:
            asyncio.get_running_loop().call_soon(self._drain_here)

    def _process_batch(self) -> bool:
        """Process a batch of the queue; return whether there may be more."""
        for _ in range(_BATCH):
            try:
                run = self._queue.popleft()  # a single deque operation is safe without the lock
            except IndexError:
                with self.lock:
                    if not self._queue:
                        self._drain_due = None
                        return False
            else:
                self.process(run)
                del run  # see the dispatcher's `process`
        return True

    def _drained(self, drain: _Drain, future: Future[None]) -> None:
        # A drain that was cancelled with all other tasks of its loop leaves runs in the queue.
        if future.cancelled() or future.exception() is not None:
            self._send_another(drain)

    def _send_another(self, instead_of: _Drain | None) -> None:
        """Send a drain in place of ``instead_of`` if there is anything to process."""
        if isinstance(instead_of, Coroutine):
            with contextlib.suppress(ValueError):  # it was sent, and is running
                instead_of.close()
        with self.lock:
            if self._drain_due is instead_of:
                self._drain_due = None
            if self._drain_due is not None or not self._queue or self._refusal is not None:
                return
            drain = self._drain_due = self._new_drain()
        self._send(drain)
