"""OutputQueue: the output of an agent, shared fairly among its consumers.

What breaks without it: an ``asyncio.Queue`` belongs to one loop, and a consumer of a filled one
never waits, so it takes everything; a getter that is cancelled just as it is handed an item loses
the item; code that checks whether the run is over, and then waits for an item, may wait forever.

culsans is not used: it crosses loops well, but serves the first request. Of equal consumers of a
filled queue on one loop the first would get everything, and on several loops their shares would
differ widely (benchmarks/agent_output.py).

1. An item leaves the queue in the step in which its getter returns it, not before (`Reservations`).
2. Consumers on any loops are served in turn (`RoundRobin`).
3. Checking whether the run is over and queueing a getter are one critical section, and all queued
   getters are woken when the run ends.
4. No lock is held while a waiter is woken or an observer is called.
5. `_lock` is an RLock: a signal handler that puts, or a finalizer that closes the coroutine of a
   getter, may interrupt the thread that holds it.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from reactivex import Observable

from rxlanggraph.agent.output.fairness import ConsumerKey
from rxlanggraph.agent.output.reservations import Capacity, Getter, Reservations
from rxlanggraph.agent.output.stream import OutputStream
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.waiters import Waiter, WakeupQueue, current_task
from rxlanggraph.rx.serialized_subject import SerializedSubject
from rxlanggraph.validation import check_seconds, check_whole

__all__ = ["OutputQueue", "branch_of", "get_as"]

_T = TypeVar("_T")
# Items of a run's own stream beyond which its chunks wait. A guess: enough for both to be at work.
_UNREAD_CHUNKS = 16
_Branches: TypeAlias = weakref.WeakValueDictionary[int, "OutputQueue[_T]"]


class OutputQueue(Generic[_T]):
    """A queue between any number of threads and loops, whose consumers are served in turn.

    A consumer is the task that calls `get`, or a stream. In each round every consumer is served
    once; one that is just coming back after being served is waited for. So equal consumers of a
    filled queue end within one item of each other.

    A run begins and ends: `end` ends the waits of getters once the items are taken, even if the
    next run begins at once. Items put between two runs belong to the first of them, items put
    before any run to the first run. Items that a run leaves are retained for its readers. They are
    dropped at the beginning of the next run if there is no reader: no task that has called `get` is
    alive, no competing stream is open, and `get_nowait` was not called since the last run began.

    Items that a failed run leaves, ended by `abort`, are for consumers that were reading before its
    end, until another consumer comes to read or the next run begins.

    Args:
        maxsize: The maximum number of items; 0 for no limit.
        fairness_timeout: Seconds for which a consumer that was served is expected to request again
            before any is served twice, if it was that fast last time. One that stops, or becomes
            slow, costs the others one such wait. 0 disables the wait.
        direct: Called under the lock when an item is put: returns the queue that gets the item
            instead of this one, or None for this one; or it raises, and refuses the item. What it
            returns comes from ``branch_of``.
        lock: Guards the queue; None makes one.

    Raises:
        InvalidArgumentError: ``maxsize`` or ``fairness_timeout`` is out of range.
    """

    def __init__(
        self,
        maxsize: int = 0,
        *,
        fairness_timeout: float = 0.1,
        direct: Callable[[], OutputQueue[_T] | None] = lambda: None,
        lock: threading.RLock | None = None,
    ) -> None:
        check_whole("maxsize", maxsize, least=0)
        check_seconds("fairness_timeout", fairness_timeout)
        self._direct = direct
        # Held for a few lines, and shared with the queues that this one passes items on to: see
        # `branch_of`. It guards the next three, what they contain, and the observers of the
        # subject.
        self._lock = fork_safe_rlock() if lock is None else lock
        self._wakes: WakeupQueue[Waiter] = WakeupQueue(self._remove_waiter)
        self._reservations: Reservations[_T] = Reservations(fairness_timeout, self._wakes)
        self._capacity = Capacity(maxsize, self._reservations, self._lock, self._wakes)
        self._branches: _Branches[_T] = weakref.WeakValueDictionary()  # one for each broadcast
        self._publisher: SerializedSubject[_T] = SerializedSubject("an output queue", self._lock)

    def __repr__(self) -> str:
        """Show the number of items, and the run."""
        with self._lock:
            run = f"run {self._reservations.run}{' ended' if self._reservations.ended else ''}"
            return f"<OutputQueue: {len(self._reservations)} items, {run}>"

    def qsize(self) -> int:
        """How many items there are, including those about to be taken. Any thread."""
        with self._lock:
            return len(self._reservations)

    def empty(self) -> bool:
        """Whether there is no item. Any thread; never blocks."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether there is no room for an item. Any thread; never blocks."""
        with self._lock:
            return self._capacity.full()

    @property
    def observable(self) -> Observable[_T]:
        """Every item put from the moment of subscribing, in that order; never completes.

        Observers are called by a thread that puts, with one item at a time, in an empty context:
        what they start is not part of the run that put the item. An observer that raises is
        unsubscribed, and the error logged.
        """
        return self._publisher.observable

    # -- runs ----------------------------------------------------------------------------------

    def begin(self) -> int:
        """Begin a run, ending the active one: getters wait again. Any thread; never blocks.

        If there is no reader, what is left of ended runs is dropped.

        Returns:
            The number of the run, for `end` and `abort`.
        """
        with self._lock:
            going_on = self._reservations.run and not self._reservations.ended
            branches = self._end() if going_on else []
            self._reservations.begin()
            self._capacity.wake_first()
            number = self._reservations.run
        self._wake_and_end(branches)
        return number

    def end(self, run: int | None = None) -> None:
        """End the run: the remaining items are still served, then no getter waits any longer.

        Any thread; never blocks. Calling it again has no effect.

        Args:
            run: The number of the run: nothing happens if another one has begun. None: the latest.
        """
        with self._lock:
            branches = self._end() if self._is_latest(run) else []
        self._wake_and_end(branches)

    def abort(self, run: int | None = None) -> None:
        """End the run, which has failed. Otherwise like `end`."""
        with self._lock:
            branches = []
            if self._is_latest(run):
                self._reservations.abort()
                branches = self._end()
        self._wake_and_end(branches)

    def _is_latest(self, run: int | None) -> bool:
        """Under the lock."""
        return run is None or run == self._reservations.run

    def _end(self) -> list[OutputQueue[_T]]:
        """Under the lock. Return the broadcasts to end: not those that wait for the next run."""
        self._reservations.end()
        run = self._reservations.run
        over = [branch for branch in _alive(self._branches) if branch._reservations.run <= run]
        for branch in over:
            self._branches.pop(id(branch), None)
        return over

    def _wake_and_end(self, branches: list[OutputQueue[_T]]) -> None:
        """Not under the lock: wake waiters, and end the broadcasts of a run that has ended."""
        self._wake()
        for branch in branches:
            branch.end()

    def _wake(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        if self._wakes.queued:
            self._wakes.send(here)

    # -- putting -------------------------------------------------------------------------------

    async def put(self, item: _T) -> None:
        """Put ``item`` as soon as there is room. Any loop. If cancelled, it has put nothing.

        The putters of one loop are served in order.

        Raises:
            AgentError: It is an agent's queue, and the run that this code belongs to is over.
        """
        await self._put(item, None)

    async def _put(self, item: _T, branch: Capacity | None) -> None:
        """See `put`; with ``branch``, the room in what the item is directed to, if it is."""
        with self._lock:
            directed = self._direct()
            capacity = self._capacity if directed is None else branch
            free = capacity is None or capacity.free()
            reached = self._admit(item, directed) if free else []
        if not free:
            assert capacity is not None
            reached = await capacity.enter(lambda: self._admit(item, self._direct()))
        self._announce(reached, asyncio.get_running_loop())

    async def put_chunk(self, chunk: _T) -> None:
        """Put one of many: like `put`, but also where that has no limit, a reader limits it.

        What goes to the stream of one run waits while 16 items there are unread.
        """
        with self._lock:
            directed = self._direct()
        await self._put(chunk, None if directed is None else directed._capacity)

    def put_nowait(self, item: _T) -> None:
        """Put ``item`` now, ahead of waiting putters. Any thread; blocks only for the observers.

        Raises:
            asyncio.QueueFull: There is no room.
            AgentError: It is an agent's queue, and the run that this code belongs to is over.
        """
        with self._lock:
            directed = self._direct()
            full = directed is None and self._capacity.full()
            reached = [] if full else self._admit(item, directed)
        if full:
            raise asyncio.QueueFull(
                f"there are {self._capacity.size} items, and no room for more; use 'await put()'"
            )
        self._announce(reached)

    def _admit(self, item: _T, directed: OutputQueue[_T] | None) -> list[OutputQueue[_T]]:
        """Under the lock, which fixes one order for getters, broadcasts and observers.

        Returns the other queues that have the item now.
        """
        if directed is None:
            self._reservations.add(item)
        if self._publisher.observed:
            self._publisher.put(item)
        reached = _alive(self._branches)
        if directed is not None:
            reached.append(directed)
        for queue in reached:
            queue._admit(item, queue._direct())
        return reached

    def _announce(
        self, reached: list[OutputQueue[_T]], here: asyncio.AbstractEventLoop | None = None
    ) -> None:
        """Not under the lock: wake the getter of the item, and call the observers."""
        for queue in (self, *reached):
            queue._wake(here)
        if self._publisher.observed:
            self._publisher.flush()

    # -- getting -------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> Coroutine[Any, Any, _T]:
        """Get the next item when there is one and the caller is next to be served. Any loop.

        If cancelled, it has taken nothing. Even on a filled queue the others on this loop are
        served first. The consumer is the calling task, even if ``wait_for`` awaits in a task of its
        own.

        Args:
            timeout: Seconds; None waits until the run ends.

        Raises:
            OutputEndedError: The run has ended, and all its output was taken.
            RunTimeoutError: The time was up; a TimeoutError.
            InvalidArgumentError: ``timeout`` is not a number of seconds.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        return self._get(current_task(), None, timeout)

    def get_nowait(self) -> _T:
        """Get an item that no consumer waits for. Any thread; never blocks.

        Raises:
            asyncio.QueueEmpty: There is none, whether the run has ended or not.
        """
        with self._lock:
            taken = self._reservations.take_unreserved()
            self._capacity.wake_first()
        self._wake()
        if taken is None:
            raise asyncio.QueueEmpty(
                "every item is reserved for a waiting consumer, or there is none; use 'await get()'"
            )
        return taken[0]

    def stream(self, timeout: float | None = None, *, broadcast: bool = False) -> OutputStream[_T]:
        """Iterate over the items, ``async for``, until the end of one run.

        That run is the active one. Between two runs it is the last one, as long as something is
        left of it, or its end was not reported by `get` or a competing stream; else the next one,
        as before the first run. For a broadcast it is then always the next one. So a program may
        run and then read, or have a task run and read meanwhile, again and again.

        Any thread may open it, any loop iterate. A competing stream is a consumer from now on,
        until it is closed or dropped.

        Args:
            timeout: Seconds without an item after which it raises RunTimeoutError; None for no
                limit.
            broadcast: Get each item that is put from now on, without competing. Unread items are
                kept, even if the queue has a size limit.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number of seconds.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        if broadcast:
            return self._branch(timeout)
        with self._lock:
            get = partial(self._get, run=self._reservations.streamable(), timeout=timeout)
            stream = OutputStream(get, self._close)
            self._reservations.attach(stream)
            self._capacity.wake_first()
        self._wake()
        return stream

    def _branch(self, timeout: float | None) -> OutputStream[_T]:
        """Stream from a queue of its own that gets every item, too, until a run ends."""
        branch = branch_of(self)

        def close(_: object) -> None:
            with self._lock:
                self._branches.pop(id(branch), None)
            branch.end()

        with self._lock:
            branch._reservations.run = self._reservations.upcoming()
            self._branches[id(branch)] = branch
        return OutputStream(partial(branch._get, run=None, timeout=timeout), close)

    async def _get(self, key: ConsumerKey | None, run: int | None, timeout: float | None) -> _T:
        key = key or current_task()
        assert key is not None, "asyncio runs coroutines in tasks"
        with self._lock:
            getter, reserved = self._reservations.add_getter(key, run, timeout)
        del key  # a task that its loop has abandoned must not keep itself alive
        try:
            self._wake(getter.loop)
            if reserved:
                await asyncio.sleep(0)
            while True:
                getter.prepare()
                with self._lock:
                    taken = self._reservations.take(getter)
                    delay = None if taken else self._reservations.delay(getter)
                    self._capacity.wake_first()
                self._wake(getter.loop)
                if taken is not None:
                    return taken[0]
                await getter.wait(delay)
        except BaseException:
            with self._lock:
                self._reservations.withdraw(getter)
            self._wake()
            raise

    def _remove_waiter(self, waiter: Waiter) -> None:
        """Remove ``waiter``: its loop is closed."""
        with self._lock:
            if isinstance(waiter, Getter):
                self._reservations.withdraw(waiter)
            else:
                self._capacity.remove_loop(waiter.loop)

    def _close(self, key: ConsumerKey) -> None:
        with self._lock:
            self._reservations.close(key)
        self._wake()


def branch_of(queue: OutputQueue[_T]) -> OutputQueue[_T]:
    """Make a queue for ``queue`` to pass items on to. Any thread; never blocks.

    It takes whatever is passed on; only `OutputQueue.put_chunk` waits for room in it.

    The two share a lock. With a lock each, they could deadlock: (a) one thread holds the branch's,
    and the collector closes a getter of ``queue`` in it, which needs that one's; (b) another thread
    puts into ``queue`` under its lock, and needs the branch's.
    """
    return OutputQueue(_UNREAD_CHUNKS, fairness_timeout=0, lock=queue._lock)


def get_as(queue: OutputQueue[_T], key: ConsumerKey) -> Coroutine[Any, Any, _T]:
    """Get the next item of the active run for the consumer ``key``; see `OutputQueue.get`."""
    return queue._get(key, None, None)


def _alive(branches: _Branches[_T]) -> list[OutputQueue[_T]]:
    return [branch for ref in branches.valuerefs() if (branch := ref()) is not None]
