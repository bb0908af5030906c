"""One opened backend: calls to it, background tasks, and closing.

Confined to the loop that opened it, so no field needs a lock.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple

from rxlanggraph.concurrency.forking import not_portable, register_after_fork, wrong_process
from rxlanggraph.concurrency.run_on_loop import leave_to_parent
from rxlanggraph.concurrency.timers import SharedTimer
from rxlanggraph.errors import (
    StateClosedError,
    StateUnavailableError,
    WrongThreadError,
)
from rxlanggraph.state.backend import Backend, NotifyingBackend, as_notifying
from rxlanggraph.state.backoff import Backoff
from rxlanggraph.state.polling import Notifier
from rxlanggraph.state.retry import drop_frames, repeat_unavailable

__all__ = ["BackendClient"]

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")
# In a forked child: the subject and the remedy of the error message.
_WRONG_PROCESS: Final = ("this state", "open the same URL here")
# Seconds until the connection that tells of arrivals is tried again; meanwhile, waiting calls poll.
# Guesses.
_FIRST_PAUSE: Final = 0.1
_MAX_PAUSE: Final = 5.0


class BackendClient:
    """The backend, and all that the parts of a state share and that ends with it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.loop = asyncio.get_running_loop()
        self.notifier = Notifier()
        self.timer = SharedTimer(self.loop)
        self.closed = False
        # Whether the last renewal of a lease was answered: an outage that holds up thousands of
        # leases is reported once.
        self.is_renewing = True
        # By queue, as `declare_queue` has declared it.
        self.backoffs: dict[str, Backoff] = {}
        self.max_claimed: dict[str, int] = {}
        # In a forked child, whose connections are those of the parent and must not be touched.
        self._in_child = False
        register_after_fork(self)
        self._background: set[asyncio.Task[None]] = set()
        # None as well once it watches: it is asked for once.
        self._unwatched: NotifyingBackend | None = as_notifying(backend)
        self._calls = 0
        self._call_ended = asyncio.Event()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, or copied, with the state."""
        raise not_portable("this state", "open the same URL there")

    # -- calls -------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Refuse a call that cannot be made here or now.

        Raises:
            WrongProcessError: The state was opened in the process that this one was forked from.
            WrongThreadError: This is not the loop that opened the state.
            StateClosedError: The state is closed.
        """
        if self.closed or asyncio._get_running_loop() is not self.loop:
            if self._in_child:
                raise wrong_process(*_WRONG_PROCESS)
            self._check_loop()
            raise StateClosedError("this state is closed; open_state(...) opens it again")

    def _check_loop(self) -> None:
        if asyncio._get_running_loop() is not self.loop:
            raise WrongThreadError(
                "this state belongs to another event loop, which also has to close it; use its "
                ".sync from other threads, or open the same URL on this loop"
            )

    async def call(
        self,
        method: Callable[[*_Args], Awaitable[_T]],
        *args: *_Args,
        repeatable: bool = False,
    ) -> _T:
        """Call the backend; repeat if the server is away and the call certainly had no effect.

        Args:
            method: A method of the backend.
            args: Its arguments.
            repeatable: Whether the call is idempotent; if so, it is repeated even in doubt.
        """
        self.check_open()
        handled = sys.exception()
        self._calls += 1
        try:
            try:
                return await method(*args)
            except StateUnavailableError as error:
                drop_frames(error, handled)
                if error.in_doubt and not repeatable:
                    raise
                in_doubt = error.in_doubt
            call = partial(method, *args)
            return await repeat_unavailable(call, repeatable=repeatable, in_doubt=in_doubt)
        finally:
            self._calls -= 1
            if self.closed:
                self._call_ended.set()

    # -- background tasks --------------------------------------------------------------------

    def start_background(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``coroutine`` in the background, until it or the state ends.

        Raises:
            BaseException: Whatever the loop's own task factory raises, or Ctrl-C.
        """
        try:
            task = self.loop.create_task(coroutine)
        except BaseException:
            coroutine.close()
            raise
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def watch_arrivals(self) -> None:
        """Have other processes wake the calls that wait for a task, until the state is closed.

        Never blocks. The first call has an effect, if the backend can tell of their tasks.
        """
        if self._unwatched is not None and not self.closed:
            backend, self._unwatched = self._unwatched, None
            self.start_background(self._watch_arrivals(backend))

    async def _watch_arrivals(self, backend: NotifyingBackend) -> None:
        pause = _FIRST_PAUSE

        def arrived(queue: str | None) -> None:
            nonlocal pause
            pause = _FIRST_PAUSE
            if queue is None:
                self.notifier.notify_all()
            else:
                self.notifier.notify(("queue", queue))

        while True:
            try:
                await backend.watch_arrivals(arrived)
            except StateUnavailableError:
                # Random, so that not all processes reconnect at once.
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                pause = min(2 * pause, _MAX_PAUSE)
            else:
                return

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.call_exception_handler(
                {"message": "a background task of a state failed", "exception": error, "task": task}
            )

    def _after_fork(self) -> None:
        """In a forked child: leave loop, background tasks and connections to the parent."""
        self.closed = self._in_child = True
        leave_to_parent(self.loop, *_WRONG_PROCESS)

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Refuse new calls, end background tasks, let calls end, close the backend. Idempotent.

        On the loop. If cancelled, it closes the backend without waiting for calls.

        Raises:
            WrongThreadError: This is not the loop that opened the state; nothing was done.
        """
        if self._in_child:
            return
        self._check_loop()
        if not self.closed:
            self.closed = True
            self.notifier.notify_all()
            self.timer.stop()
        try:
            while self._background:
                for task in self._background:
                    task.cancel()
                await asyncio.wait(self._background)
            while self._calls:
                self._call_ended.clear()
                await self._call_ended.wait()
        finally:
            await self.backend.close()
