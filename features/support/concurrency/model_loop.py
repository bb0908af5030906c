"""A small event loop for explored models: its select waits on a Condition that the search knows.

Everything of asyncio that the hand-off and the homes of loops touch is here, and no more. One
modelled thread runs it. Time is that of the search: it goes on when nothing else can.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

__all__ = ["ModelLoop"]


class ModelLoop(asyncio.AbstractEventLoop):
    """Make it inside a model: its Condition is one of the search's."""

    def __init__(self) -> None:
        self.complaints: list[Any] = []
        self._changed = threading.Condition()
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._running = self._stopping = self._closed = False

    # -- what asyncio asks for -----------------------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def time(self) -> float:
        return time.monotonic()

    def call_exception_handler(self, context: Any) -> None:
        self.complaints.append(context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def get_task_factory(self) -> None:
        """There is none."""

    async def shutdown_asyncgens(self) -> None:
        """There are none."""

    # -- callbacks -----------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        with self._changed:
            handle = self.call_soon(callback, *args, context=context)
            self._changed.notify()
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, len(self._timers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    # -- running -------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping = True

    def run_forever(self) -> None:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while True:
                self._run_once()
                if self._stopping:
                    break
        finally:
            self._stopping = self._running = False
            asyncio._set_running_loop(before)

    def _run_once(self) -> None:
        with self._changed:
            while not self._ready and not self._stopping:
                self._changed.wait(self._until_next_timer())
                self._expire_timers()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _until_next_timer(self) -> float | None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return max(0.0, self._timers[0][0] - self.time()) if self._timers else None

    def _expire_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.time():
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._ready.append(timer)

    def run_until_complete(self, future: Any) -> Any:
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(lambda _: self.stop())
        self.run_forever()
        return task.result()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
