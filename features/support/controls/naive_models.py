"""Racy ways of doing what the explored models do: the same search must find what is wrong."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager
from typing import Any

__all__ = [
    "Child",
    "Conversation",
    "Droppable",
    "Fenced",
    "Gate",
    "Guard",
    "Handover",
    "Held",
    "Job",
    "Outcome",
    "Output",
    "Passed",
    "Reader",
    "Room",
    "SharingFuture",
    "Stateful",
    "Succeeded",
    "Tasks",
    "Telling",
]


class Droppable:
    """A job that may be dropped until it has started."""

    def __init__(self) -> None:
        self.started = self.dropped = False

    def start(self) -> None:
        if not self.dropped:
            self.started = True

    def drop(self) -> None:
        if not self.started:
            self.dropped = True


class Tasks:
    """A plain set of tasks, with what is usually built around it."""

    def __init__(self) -> None:
        self.tasks: set[Future[Any]] = set()
        self.closed = False
        self.left = 0

    def add(self, task: Future[Any]) -> None:
        if self.closed:
            raise RuntimeError("closed")
        self.tasks.add(task)
        task.add_done_callback(self.leave)

    def leave(self, task: Future[Any]) -> None:
        if task in self.tasks:
            self.tasks.discard(task)
            self.left += 1

    def clear_out(self) -> None:
        going_on = {task for task in list(self.tasks) if not task.done()}
        self.tasks = going_on

    def close(self) -> list[Future[Any]]:
        tasks = list(self.tasks)
        self.closed = True
        return tasks

    def cleanup(self) -> None:
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        wait(tasks)
        self.tasks -= set(tasks)


class SharingFuture(Future[Any]):
    """A future that has its condition in common with others, to be cheap."""

    def __init__(self, condition: threading.Condition) -> None:
        super().__init__()
        self._condition = condition


class Room:
    """Looking for room and entering, in two sections."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._lock = threading.Lock()

    def full(self) -> bool:
        with self._lock:
            return self._free == 0

    def enter(self, *, may_block: bool) -> None:
        with self._lock:
            assert self._free or may_block, "the loop's own thread waits for room"
            self._free -= 1

    def leave(self) -> None:
        with self._lock:
            self._free += 1


class Gate:
    """Waiting for an empty set with an event."""

    def __init__(self) -> None:
        self.tasks: set[Future[Any]] = set()
        self._idle = threading.Event()

    def add(self, task: Future[Any]) -> None:
        self.tasks.add(task)
        task.add_done_callback(self._leave)

    def _leave(self, task: Future[Any]) -> None:
        self.tasks.discard(task)
        if not self.tasks:
            self._idle.set()

    def wait_idle(self) -> None:
        if self.tasks:
            self._idle.clear()
            self._idle.wait()


class Handover:
    """A queue and a flag that says whether a drain is due, unguarded."""

    def __init__(self, loop: asyncio.AbstractEventLoop, visit: Callable[[Any], None]) -> None:
        self._loop = loop
        self._visit = visit
        self._queue: deque[Any] = deque()
        self._due = False

    def submit(self, item: Any) -> None:
        self._queue.append(item)
        if not self._due:
            self._due = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        while self._queue:
            self._visit(self._queue.popleft())
        self._due = False


class Job:
    """A run that is cancelled through its task, once it has one."""

    def __init__(self) -> None:
        self.cancelled = False
        self.started = False
        self.task: Future[Any] | None = None

    def start(self) -> None:
        if self.cancelled:
            return
        self.started = True
        self.task = Future()

    def cancel(self) -> None:
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()


class Outcome:
    """A future without a lock."""

    def __init__(self) -> None:
        self.state = "PENDING"
        self.told: list[str] = []

    def resolve(self, state: str) -> bool:
        if self.state != "PENDING":
            return False
        self.state = state
        self.told.append(state)
        return True


class Guard:
    """One run at a time, by a flag."""

    def __init__(self) -> None:
        self._running = False

    @asynccontextmanager
    async def entered(self, on_busy: str) -> AsyncIterator[None]:
        if self._running:
            raise RuntimeError("busy")
        self._running = True
        yield
        self._running = False


class Conversation:
    """Messages, as they come."""

    def __init__(self) -> None:
        self._messages: list[Any] = []

    def add(self, message: Any) -> None:
        self._messages.append(message)

    def get_messages(self) -> list[Any]:
        return list(self._messages)


class Stateful:
    """Saves its state, and puts it back."""

    def __init__(self) -> None:
        self.state = "IDLE"

    def run_in(self, state: str) -> None:
        before = self.state
        self.state = state
        self.state = before


class Output:
    """Items, and a flag for the end; before the flag is up, a consumer waits to be woken."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._ended = False
        self._waiting: tuple[Any, asyncio.Future[None]] | None = None

    def begin(self) -> None:
        self._ended = False

    def end(self) -> None:
        self._ended = True
        self._wake()

    def abort(self) -> None:
        self._items.clear()
        self.end()

    def qsize(self) -> int:
        return len(self._items)

    def put_nowait(self, item: Any) -> None:
        self._items.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            loop, future = self._waiting
            self._waiting = None
            loop.call_soon_threadsafe(future.set_result, None)

    async def get(self) -> Any:
        while not self._items:
            if self._ended:
                raise RuntimeError("ended")
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            self._waiting = loop, future
            await future
        return self._items.popleft()


class Child:
    """A run that tells its parent of its cancellation, and forgets it at its end."""

    def __init__(self) -> None:
        self.parent: Droppable | None = Droppable()

    def cancel(self) -> None:
        if self.parent is not None:
            self.parent.dropped = True

    def end(self) -> None:
        self.parent = None


class Counted:
    """A run that is counted as what it is about to be resolved with."""

    def __init__(self) -> None:
        self.run = self
        self.status: str | None = None
        self._counted_as: str | None = None

    def cancel(self) -> None:
        if self.status is None:
            self.status = "cancelled"

    def retire(self, status: str) -> None:
        self._counted_as = self.status or status
        if self.status is None:
            self.status = status

    def cancelled(self) -> bool:
        return self.status == "cancelled"

    def result_nowait(self) -> Any:
        return self

    def counted(self) -> str | None:
        return self._counted_as


class Held:
    """A lease that is held, and whether it was looked at."""

    lost = False

    def __init__(self) -> None:
        self.looked_at = False

    def check(self) -> None:
        self.looked_at = True

    def holds_back(self, callback: Callable[[], object]) -> bool:
        return False


class Fenced:
    """A run and its lease, which its end removes one after the other."""

    def __init__(self) -> None:
        self.ended = False
        self.lease: Held | None = Held()

    def may_save(self) -> bool:
        if self.ended:
            return False
        lease = self.lease
        if lease is not None:
            lease.check()
        return True

    def end(self) -> None:
        self.ended = True
        self.lease = None


class Reader:
    """Looks whether it is closed, and then waits to be woken."""

    def __init__(self) -> None:
        self._closed = False
        self._waiting: tuple[Any, asyncio.Future[None]] | None = None

    async def __anext__(self) -> None:
        if self._closed:
            raise StopAsyncIteration
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting = loop, future
        await future

    async def aclose(self) -> None:
        self._closed = True
        if self._waiting is not None:
            loop, future = self._waiting
            loop.call_soon_threadsafe(future.set_result, None)


class Passed:
    """A lock that is free for a moment when it is handed over."""

    def __init__(self, holder: str, following: str) -> None:
        self._holder: str | None = holder
        self._following = following

    def hand_over(self) -> None:
        self._holder = None
        self._holder = self._following

    @property
    def held(self) -> bool:
        return self._holder is not None


class Telling:
    """Tells of an end, and notes that it was told."""

    def __init__(self) -> None:
        self.told = 0
        self._over = False

    def ended(self, error: BaseException | None) -> None:
        if self._over:
            return
        self._over = True
        self.told += 1


class Succeeded:
    """A run at a time, which is ended if it is still the active one, and the end of its output."""

    def __init__(self, active: str) -> None:
        self.active: str | None = active
        self.ended = False

    def end(self, run: str) -> None:
        if self.active is run:
            self.active = None
            self.ended = True

    def begin(self, run: str) -> None:
        if self.active is not None:
            self.end(self.active)
        self.active = run
        self.ended = False
