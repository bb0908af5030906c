"""Reservations of items for getters, and the putters that wait for room.

What breaks without it: a getter that is handed its item, and cancelled before it runs, loses the
item. Here an item is only reserved for a getter, and stays in the queue. The getter is woken, and
takes the first item in the step in which it returns it. If it never does, its reservation passes to
another getter.

There are never more reservations than items. They are given in turn (`RoundRobin`). Each getter
belongs to a run, and ends with it, even if the next run has begun by the time it checks.

Everything is guarded by the lock of the owner. In addition, a signal handler or a finalizer may
interrupt between any two lines, to put, to get without waiting, or to withdraw.

Room is not reserved for putters: a putter whose loop does not run would keep it from all others.
The putters of each loop form a queue; when there is room, the first of each queue is woken, and the
fastest gets it. A waiting putter also checks from time to time whether items are reserved for a
loop that does not run, because the getters that could take them may all be asleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, TypeVar

from rxlanggraph.agent.output.fairness import Consumer, ConsumerKey, RoundRobin, oldest
from rxlanggraph.concurrency.waiters import Waiter, WakeupQueue
from rxlanggraph.errors import OutputEndedError, RunTimeoutError

__all__ = ["Capacity", "Getter", "Reservations"]

_T = TypeVar("_T")

_STUCK_SECONDS = 1.0
"""Seconds after which a reservation that was not used is revoked, if other getters wait.

A guess: far longer than a busy loop needs for a step.
"""


class Getter(Waiter):
    """A consumer that waits for an item of ``run`` or an earlier run. Made on its loop."""

    __slots__ = ("consumer", "deadline", "run", "timeout", "withdrawn")

    def __init__(self, consumer: Consumer[Getter], run: int, timeout: float | None) -> None:
        super().__init__()
        self.consumer = consumer
        self.run = run
        self.timeout = timeout
        # By the clock of its loop, as the timer that wakes it.
        self.deadline = math.inf if timeout is None else self.loop.time() + timeout
        self.withdrawn = False  # only ever set, under the lock of the queue


class Reservations(Generic[_T]):
    """The items of a queue, the runs they belong to, and the getters they are reserved for.

    Args:
        fairness_timeout: As for `RoundRobin`.
        wakes: Where getters that have to check again are queued; the owner sends the wake-ups.
    """

    def __init__(self, fairness_timeout: float, wakes: WakeupQueue[Any]) -> None:
        self._wakes = wakes
        self._round_robin: RoundRobin[Getter] = RoundRobin(fairness_timeout)
        self._items: deque[tuple[int, _T]] = deque()  # each with the number of its run
        self._reserved: dict[Getter, float] = {}  # since when; the oldest first
        self.run = 0
        """The number of the active run, or of the last one."""
        self.ended = False
        """Whether that run has ended."""
        self._failed = False  # whether that run has failed, and may have left items
        self._reported = 0  # the last run whose end was reported to a consumer
        self._polled = False  # whether `take_unreserved` was called in this run
        # Whether `serve` is active, and whether it must repeat, for a signal handler's change.
        self._serving = self._again = False

    def __len__(self) -> int:
        """How many items there are, reserved ones included."""
        return len(self._items)

    def add(self, item: _T) -> None:
        """Put ``item`` at the end."""
        self._items.append((self.run + self._failed, item))
        self.serve()

    def begin(self) -> None:
        """Begin the next run; what is left of earlier ones is dropped if there is no reader."""
        self.drop_failed_output()
        if self.run and not self._polled and not self._round_robin.has_live_consumer():
            self._reserved.clear()
            self._items.clear()
        self._polled = False
        self.run += 1
        self.ended = False

    def end(self) -> None:
        """End the run, the first if none has begun; all getters check whether items are left."""
        self.run = self.readable()
        self.ended = True
        self._wake_all()

    def abort(self) -> None:
        """End the run, which has failed: its items are for current readers only."""
        self._failed = True
        self.end()

    def drop_failed_output(self) -> None:
        """Drop the items of a failed run, because another consumer comes to read."""
        if not self._failed:
            return
        later = self._pop_last(lambda run: run > self.run)
        self._pop_last(lambda run: run == self.run)
        self._items.extend(reversed(later))
        self._failed = False
        while len(self._reserved) > len(self._items):
            self._revoke_newest()

    def _pop_last(self, belongs: Callable[[int], bool]) -> list[tuple[int, _T]]:
        popped = []
        with contextlib.suppress(IndexError):  # none is left, or a signal handler took the last
            while belongs(self._items[-1][0]):
                popped.append(self._items.pop())
        return popped

    def readable(self) -> int:
        """The run that a consumer coming now reads: the first, if none has begun."""
        return max(self.run, 1)

    def upcoming(self) -> int:
        """The active run; the next one if there is none."""
        return self.run if self.run and not self.ended else self.run + 1

    def streamable(self) -> int:
        """The run that a stream opened now reads.

        That may be one that has ended, if something is left of it, or its end was not reported to
        any consumer: a caller that runs first and then reads is to get all items, and the end,
        however few they were.
        """
        self.drop_failed_output()
        unread = self.ended and (self._run_of_next() <= self.run or self._reported < self.run)
        return self.run if unread else self.upcoming()

    def attach(self, key: ConsumerKey) -> None:
        """Make ``key`` a known consumer, for which the items present are retained."""
        self._round_robin.consumer(key)

    def add_getter(
        self, key: ConsumerKey, run: int | None, timeout: float | None
    ) -> tuple[Getter, bool]:
        """Add a getter; return it, and whether an item is reserved for it already.

        Args:
            key: Identifies the consumer.
            run: The number of the run to read; None for the active one.
            timeout: Seconds; None for no limit.
        """
        if not self._round_robin.knows(key):
            self.drop_failed_output()
        getter = Getter(self._round_robin.consumer(key), run or self.readable(), timeout)
        getter.consumer.loop = getter.loop
        self._round_robin.enqueue(getter.consumer, getter)
        self.serve()
        return getter, getter in self._reserved

    def take(self, getter: Getter) -> tuple[_T] | None:
        """Take an item for ``getter``; None if none is reserved for it.

        Raises:
            OutputEndedError: Nothing is left for it, and nothing will come.
            RunTimeoutError: Its time is up.
        """
        if getter not in self._reserved:
            self.serve()
        over = self._over(getter.run)
        if over:
            self._reported = max(self._reported, getter.run)
        if over or getter.consumer.closed:
            raise OutputEndedError(
                "the run has ended, and all its output was taken; get again in the next run"
            )
        if getter in self._reserved:
            return self._pop(getter)
        if getter.loop.time() >= getter.deadline:
            raise RunTimeoutError(f"there was no item for this consumer in {getter.timeout} s")
        return None

    def delay(self, getter: Getter) -> float | None:
        """Seconds after which ``getter`` has to check again, even without a wake-up."""
        now = monotonic()
        delays = [getter.deadline - getter.loop.time()]
        turn = self._round_robin.delay(getter.consumer)
        if turn is not None:
            delays.append(turn)
        first = oldest(self._reserved)
        none_spare = len(self._items) <= len(self._reserved)
        if first is not None and none_spare and self._ended(getter.run):
            delays.append(self._reserved.get(first, now) + _STUCK_SECONDS - now)
        delay = min(delays)
        return None if delay == math.inf else delay

    def withdraw(self, getter: Getter) -> None:
        """Remove ``getter``: its reservation passes to the next one."""
        getter.withdrawn = True
        self._reserved.pop(getter, None)
        self._round_robin.leave(getter.consumer, getter)
        self.serve()

    def close(self, key: ConsumerKey) -> None:
        """Remove the consumer with ``key``, and end its waits."""
        for getter in self._round_robin.close(self._round_robin.consumer(key)):
            self._wakes.add(getter)
        self.serve()

    def take_unreserved(self) -> tuple[_T] | None:
        """Take an item that is reserved for no getter; None if there is none."""
        self.drop_failed_output()
        self._polled = True
        return None if self._round_robin.waiting() else self._pop()

    def _ended(self, run: int) -> bool:
        return self.run > run or (self.run == run and self.ended)

    def _over(self, run: int) -> bool:
        """Whether ``run`` has ended, and none of its items is left."""
        return self._ended(run) and self._run_of_next() > run

    def _run_of_next(self) -> float:
        try:
            return self._items[0][0]
        except IndexError:
            return math.inf

    def _pop(self, getter: Getter | None = None) -> tuple[_T] | None:
        # The item first, the reservation second: a signal handler in between finds too few free
        # items, never too many. At math.inf the reservation cannot be revoked meanwhile.
        if getter is not None:
            self._reserved[getter] = math.inf
        try:
            entry = self._items.popleft()
        except IndexError:
            return None
        if getter is not None:
            del self._reserved[getter]
        elif len(self._items) < len(self._reserved):
            self._items.appendleft(entry)
            return None
        run, item = entry
        if self._over(run):
            self._wake_all()
        self.serve()
        return (item,)

    def _wake_all(self) -> None:
        for getter in self._round_robin.pending():
            self._wakes.add(getter)

    # -- reserving -----------------------------------------------------------------------------

    def serve(self) -> None:
        """Reserve the items for the getters that are next to be served. Not reentrant."""
        self._again = True
        while self._again and not self._serving:
            # In this order: a handler that interrupts between the two lines serves everything.
            self._again = False
            self._serving = True
            try:
                self._reserve()
            finally:
                self._serving = False

    def _reserve(self) -> None:
        if not self._round_robin.waiting():
            return
        while len(self._items) <= len(self._reserved) and self._revoke_stuck():
            pass
        while len(self._items) > len(self._reserved):
            getter = self._round_robin.next()
            if getter is None:
                return
            self._reserved[getter] = monotonic()
            if getter.withdrawn:  # by a signal handler or a finalizer, before it was in there
                self._reserved.pop(getter, None)
            else:
                self._wakes.add(getter)

    def _revoke_newest(self) -> None:
        """Revoke the newest reservation; its getter waits again."""
        try:
            getter = list(self._reserved)[-1]
        except IndexError:
            return
        self._move_back(getter)

    def _revoke_stuck(self) -> bool:
        """Revoke the oldest reservation if its loop does not run; return whether it was revoked."""
        getter = oldest(self._reserved)
        if getter is None:
            return False
        closed = getter.loop.is_closed()
        if not closed and monotonic() - self._reserved.get(getter, math.inf) < _STUCK_SECONDS:
            return False
        if closed:
            self._reserved.pop(getter, None)
        else:
            self._move_back(getter)
        return True

    def _move_back(self, getter: Getter) -> None:
        """Have ``getter``, which has a reservation, wait again, unless it was withdrawn."""
        # In this order: a signal handler or a finalizer in between withdraws it from both places.
        self._round_robin.enqueue(getter.consumer, getter)
        if self._reserved.pop(getter, None) is None:  # it did so in between, or before
            self._round_robin.leave(getter.consumer, getter)


class Capacity:
    """The room for items in a queue, and the queues of putters waiting for it.

    Args:
        size: The maximum number of items; 0 for no limit.
        items: The reservations, which count the items.
        lock: The owner's, an RLock. It guards the queues, and is held unless stated otherwise.
        wakes: Where putters that have to check again are queued; the owner sends the wake-ups.
    """

    def __init__(
        self, size: int, items: Reservations[Any], lock: threading.RLock, wakes: WakeupQueue[Any]
    ) -> None:
        self.size = size
        self._items = items
        self._lock = lock
        self._wakes = wakes
        self._queues: dict[asyncio.AbstractEventLoop, deque[Waiter]] = {}

    def full(self) -> bool:
        """Whether there is no room."""
        return 0 < self.size <= len(self._items)

    def free(self) -> bool:
        """Whether there is room that no putter waits for."""
        return not self._queues and not self.full()

    async def enter(self, admit: Callable[[], _T]) -> _T:
        """Call ``admit`` under the lock as soon as there is room. Not under the lock; any loop.

        If cancelled, it has not called it.
        """
        putter = Waiter()
        with self._lock:
            queue = self._queues.get(putter.loop, deque())
            queue.append(putter)
            # Only now: a finalizer may have removed it in between, as empty.
            self._queues[putter.loop] = queue
        try:
            while True:
                putter.prepare()
                with self._lock:
                    if not self.full() and self._queues[putter.loop][0] is putter:
                        return admit()
                    self._items.serve()
                self._wakes.send(putter.loop)
                await putter.wait(_STUCK_SECONDS)
        finally:
            with self._lock:
                self._leave(putter)
                self.wake_first()
            self._wakes.send()

    def wake_first(self) -> None:
        """Make the first putter of each loop check, if there is room."""
        if self._queues and not self.full():
            for queue in list(self._queues.values()):
                if queue:
                    self._wakes.add(queue[0])

    def remove_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Remove the putters on ``loop``: it is closed."""
        self._queues.pop(loop, None)
        self.wake_first()

    def _leave(self, putter: Waiter) -> None:
        queue = self._queues.get(putter.loop)
        if queue is not None:  # else its loop was removed
            queue.remove(putter)
            if not queue:
                del self._queues[putter.loop]
