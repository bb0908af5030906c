"""Loop hosts: a loop in a thread of our own (owned), or one that the program runs (adopted).

Both tell the engine when the loop is stopping and when it has stopped:
asyncio itself tells nothing, and a future handed to a stopped loop is never resolved.

An adopted loop may also pause: ``asyncio.Runner.run`` twice, ``run_until_complete`` several times,
a test session that runs its loop for each test. The rule: while it does not run, messages are
refused. Runs in flight are given up once the pause has lasted a while, because it may never end
(invariant 1), but they stay in the registry, because they have not ended (2). When the loop runs
again, they are cancelled, and messages are accepted as before. No state has to be reset for that:
whether the loop runs is checked for each message. Only closing it is final.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextvars import Context
from typing import Any, Protocol

from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.bridge.run_threads import RunRouting, RunThreads, check_routable, route_runs
from rxlanggraph.concurrency.clock import closed_gate
from rxlanggraph.concurrency.loop_probe import LoopProbe
from rxlanggraph.concurrency.tasks import close_left_behind, silence_pending_warning
from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import LoopUnavailableError, WrongProcessError

__all__ = ["AbsentLoop", "AdoptedLoop", "LoopHost", "LoopUser", "OwnedLoop"]

_log = logging.getLogger("rxlanggraph")
# Seconds that the tasks of an owned loop get to end when it stops, and once more after that, when
# they are cancelled again. Mostly they were cancelled before, within the caller's own deadline.
_LAST_ROUND = 1.0
# How often, in seconds, an adopted loop is probed; a loop that has not run between two probes is
# paused. A guess: rare enough to cost nothing, often enough for a person who waits for an error.
_LOOK_EVERY = 0.25


class LoopUser(Protocol):
    """What uses a loop, and is told of its end by the host."""

    def loop_stopping(self, error: LoopUnavailableError) -> None:
        """On the loop: accept nothing more, and cancel what runs."""

    def loop_stopped(self, error: LoopUnavailableError) -> None:
        """In any thread: the loop runs nothing any more; resolve what is left."""


class _Engine(LoopUser, Protocol):
    """What the host of an adopted loop tells, and reads of, its engine."""

    registry: RunRegistry

    def loop_paused(self, error: LoopUnavailableError) -> None:
        """In any thread, repeatedly: the loop has paused; give up what waits for it."""

    def is_due(self) -> bool:
        """In any thread: whether the loop still has to process a run."""


class LoopHost(Protocol):
    """The lifecycle of one loop."""

    owned: bool
    loop: asyncio.AbstractEventLoop | None
    thread_id: int | None

    @property
    def begun(self) -> bool:
        """Whether there is a loop that runs, or is about to."""

    def start(self) -> asyncio.AbstractEventLoop:
        """Return the loop, running or about to; raise LoopUnavailableError if it cannot be."""

    def check(self) -> None:
        """Raise LoopUnavailableError if the loop is visibly not running. Cheap: per message."""

    def stop(self) -> None:
        """Ask to stop the loop, or to give it back. Any thread; never blocks."""

    stopped: Future[None]
    """Done when that has happened, or is left for a paused loop to do when it resumes."""

    @property
    def look_every(self) -> float | None:
        """How often to ask whether it is `paused`, in seconds; None if it never is."""

    paused: bool
    """Whether the loop has stopped for so long that the runs in flight were given up."""


class OwnedLoop:
    """A loop in a daemon thread of our own.

    A daemon, so that a run that never ends cannot keep the interpreter from exiting.
    """

    owned = True
    look_every: float | None = None
    paused: bool = False

    def __init__(self, name: str, threads: RunThreads, user: LoopUser) -> None:
        # Written in start(), which the engine calls under the lock of the bridge.
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id: int | None = None
        self.stopped: Future[None] = Future()
        # Filled by a single setdefault, which no signal handler can interrupt.
        self._claim: dict[str, asyncio.AbstractEventLoop] = {}
        # Set from any thread, before it asks the loop to stop; read on the loop's thread.
        self._stopping = False
        self._name = name
        self._threads = threads
        self._user = user

    @property
    def begun(self) -> bool:
        """Whether starting the thread has begun. Any thread; never blocks."""
        return bool(self._claim)

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the thread. Any thread; does not wait for the loop's first iteration."""
        # It keeps the context in which it is made, for its own wake-ups.
        loop = Context().run(asyncio.new_event_loop)
        thread = routing = None
        try:
            if self._claim.setdefault("loop", loop) is not loop:
                loop.close()  # a signal handler during this call was first
                return self._claim["loop"]
            # Also for calls that belong to no run: an executor of asyncio's would keep the
            # interpreter from exiting until the last of its calls returns.
            routing = route_runs(loop, self._threads)
            thread = threading.Thread(
                target=self._main, args=(loop, routing), name=f"{self._name}-loop", daemon=True
            )
            self.loop = loop
            start_detached(thread)
        except BaseException as error:
            if thread is None or not thread.is_alive():  # otherwise the next caller uses it
                if self._claim.get("loop") is loop:
                    self.loop = None
                    self._claim.clear()
                if routing is not None:
                    routing.release()
                loop.close()
            if not isinstance(error, RuntimeError):
                raise  # from a signal handler
            raise LoopUnavailableError(
                f"no thread for the loop of {self._name}: {error}"
            ) from error
        return loop

    def check(self) -> None:
        """Do nothing: an owned loop stops when told to, or tells the engine."""

    def stop(self) -> None:
        """Ask the loop to stop. Any thread; never blocks."""
        if self.loop is None:
            _set_done(self.stopped)
            return
        self._stopping = True
        self.tell(self.loop.stop)

    def tell(self, callback: Callable[[], object]) -> bool:
        """Have the loop call ``callback``, in an empty context. Any thread; never blocks.

        Returns:
            False if the loop has ended.
        """
        if self.loop is None:
            return False
        try:
            self.loop.call_soon_threadsafe(callback, context=Context())
        except RuntimeError:
            return False
        return True

    def _main(self, loop: asyncio.AbstractEventLoop, routing: RunRouting) -> None:
        self.thread_id = threading.get_ident()
        asyncio.set_event_loop(loop)
        error = LoopUnavailableError(f"the event loop of {self._name} was stopped from inside")
        try:
            self._run(loop)
        finally:
            try:
                self._user.loop_stopping(error)
                self._finish(loop)
            finally:
                asyncio.set_event_loop(None)
                routing.release()
                loop.close()
                self._user.loop_stopped(error)
                _set_done(self.stopped)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        # A task or a callback that raises SystemExit or KeyboardInterrupt ends run_forever(), after
        # its own future has got the exception. That suits programs that own the loop: here it would
        # end the runs of all users, while its own submitter hears of it anyway.
        while True:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                _log.warning(
                    "%s on the loop of %s, which continues", type(error).__name__, self._name
                )
                if not self._stopping:  # or else that was lost with the step that raised
                    continue
            return

    def _finish(self, loop: asyncio.AbstractEventLoop) -> None:
        tasks = asyncio.all_tasks(loop)
        for again in (False, True):
            left = [task for task in tasks if not task.done()]
            if not left or loop.is_closed():  # by code of a callback, for example
                break
            for task in left:
                if again or not task.cancelling():  # at once, it would cut a cleanup short
                    task.cancel()
            _complete(loop, asyncio.wait(left, timeout=_LAST_ROUND))
        if all(task.done() for task in tasks) and not loop.is_closed():
            # Otherwise not: an async generator that a task is executing cannot be closed, and to a
            # task that iterates over one it would look complete.
            _complete(loop, loop.shutdown_asyncgens())
        for task in asyncio.all_tasks(loop):
            silence_pending_warning(task)  # named in the cleanup report


class AdoptedLoop:
    """A loop that other code runs, pauses and ends.

    A guard task lives on it: ending the loop in the ordinary way (``asyncio.run``) cancels all
    tasks first, the guard among them, which notifies the engine. A loop that is merely stopped
    notifies nothing, so a small daemon thread watches it.
    """

    owned = False
    look_every: float = _LOOK_EVERY

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, engine: _Engine) -> None:
        check_routable(loop)
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.thread_id: int | None = None  # written on the loop
        self.stopped: Future[None] = Future()
        self.paused = False  # written by the watcher thread
        self._loop = loop
        self._name = name
        self._engine = engine
        self._release = asyncio.Event()  # set and awaited on the loop
        # Filled by a single setdefault, which no signal handler can interrupt.
        self._claim: dict[str, Coroutine[Any, Any, None]] = {}
        self._guarding: Future[None] = Future()  # written by start(); until then, not done
        self._leaving = False  # only ever set, by any thread
        # Opened to have the watcher check whether it is over, closed by the watcher. Not an Event:
        # a signal handler that opened it while its own thread does the same would wait for itself.
        self._wake = closed_gate()

    @property
    def begun(self) -> bool:
        """Whether the loop runs. Any thread; never blocks."""
        return self._loop.is_running()

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the guard and the watcher. Any thread.

        Raises:
            LoopUnavailableError: The loop is closed or not running.
        """
        self.check()
        on_loop = asyncio._get_running_loop() is self._loop
        if on_loop:
            self._note_thread()  # the first run may block the loop before the guard begins
        guard = self._guard()
        if self._claim.setdefault("guard", guard) is not guard:
            guard.close()  # a signal handler during this call was first
            return self._loop
        watch = threading.Thread(target=self._watch, name=f"{self._name}-watch", daemon=True)
        try:
            start_detached(watch)  # first: without it neither a pause nor a close is noticed
            # Not in the context of the first submitter, which the guard would keep alive.
            begin = self._begin_guard if on_loop else self._send_guard
            guarding = Context().run(begin, guard)
        except RuntimeError as error:
            guard.close()
            if self._loop.is_closed():
                raise LoopUnavailableError(self._absent_text()) from error
            self._claim.clear()
            raise LoopUnavailableError(
                f"no thread to watch over the loop that {self._name} adopted: {error}"
            ) from error
        self._guarding = guarding
        guarding.add_done_callback(self._guard_ended)
        return self._loop

    def _send_guard(self, guard: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(guard, self._loop)

    def _begin_guard(self, guard: Coroutine[Any, Any, None]) -> Future[None]:
        # At once: sent to its own loop, the guard would begin only after the first runs, whose sync
        # code would go to the default executor of the loop.
        guarding: Future[None] = Future()

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled():
                task.exception()  # or asyncio logs that nothing has asked for it
            guarding.set_result(None)

        self._loop.create_task(guard).add_done_callback(ended)
        return guarding

    def check(self) -> None:
        """Raise if the loop is closed or not running now. Any thread; never blocks."""
        if not self._loop.is_running():
            raise LoopUnavailableError(self._absent_text())

    def stop(self) -> None:
        """Give the loop back as it was, when it next runs. Any thread; never blocks."""
        self._leaving = True
        if not self._claim:  # it was never used
            _set_done(self.stopped)
            return
        if not self._loop.is_running():
            _set_done(self.stopped)
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._release.set)
        self._wake_watcher()

    def _absent_text(self) -> str:
        loop = f"the event loop that {self._name} adopted"
        remedy = "let the bridge own its loop: RxPyLangGraphBridge()"
        if self._loop.is_closed():
            return f"{loop} is closed; adopt a running one, or {remedy}"
        if not self._claim:
            return f"{loop} is not running; adopt a running one, or {remedy}"
        return f"{loop} is not running now; it is used again as soon as it runs again, or {remedy}"

    def _ending_text(self) -> str:
        return (
            f"the event loop that {self._name} adopted is ending, as all of its tasks were "
            "cancelled; if it continues all the same, make a new bridge"
        )

    async def _guard(self) -> None:
        self._note_thread()
        silence_pending_warning(asyncio.current_task())
        routing = route_runs(self._loop)
        try:
            await self._release.wait()
            await self._end_of_arrivals()
        except asyncio.CancelledError:
            self._engine.loop_stopping(LoopUnavailableError(self._ending_text()))
            await self._engine.registry.wait_idle_async(_LAST_ROUND)
            await self._end_of_arrivals()
            raise
        finally:
            routing.release()

    async def _end_of_arrivals(self) -> None:
        # Keep the loop going until no drain is due: one left behind would never begin, and asyncio
        # would warn of a coroutine that was never awaited.
        for _ in iter(self._engine.is_due, False):
            await asyncio.sleep(0)

    def _guard_ended(self, _: Future[None]) -> None:
        _set_done(self.stopped)
        self._wake_watcher()

    def _wake_watcher(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is open
            self._wake.release()

    def _watch(self) -> None:
        probe = LoopProbe(self._loop, self._note_thread)
        while not self._is_over():
            if self._wake.acquire(timeout=self.look_every):
                continue
            if probe.has_run():
                self.paused = False
            elif self._loop.is_closed():
                self._engine.loop_stopped(LoopUnavailableError(self._absent_text()))
                close_left_behind(self._claim["guard"], self._loop)
                break
            else:
                self.paused = True
                self._engine.loop_paused(LoopUnavailableError(self._absent_text()))
                if self._leaving:
                    _set_done(self.stopped)
        _set_done(self.stopped)

    def _note_thread(self) -> None:
        self.thread_id = threading.get_ident()  # another thread may have resumed the loop

    def _is_over(self) -> bool:
        if not self._leaving:
            return False
        # With work left on a paused loop the watcher stays: nothing else notices that loop's
        # closing.
        idle = self._engine.registry.wait_idle(0) and not self._engine.is_due()
        return self._guarding.done() or (idle and not self._loop.is_running())


class AbsentLoop:
    """A loop that runs in the parent process, from which this one was forked.

    Nothing here touches it: its selector and its self-pipe are shared with the child.
    """

    owned = False
    begun = False
    look_every: float | None = None
    paused: bool = False

    def __init__(self, error: WrongProcessError) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id: int | None = None
        self.stopped: Future[None] = Future()
        self.stopped.set_result(None)
        self._error = error

    def start(self) -> asyncio.AbstractEventLoop:
        """Raise the error. Any thread; never blocks."""
        raise WrongProcessError(*self._error.args)

    def check(self) -> None:
        """Raise the error. Any thread; never blocks."""
        raise WrongProcessError(*self._error.args)

    def stop(self) -> None:
        """Do nothing. Any thread; never blocks."""


def _set_done(left: Future[None]) -> None:
    with contextlib.suppress(InvalidStateError):  # already set, by the loop or by `stop`
        left.set_result(None)


def _complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> None:
    task = loop.create_task(coroutine)
    while not (task.done() or loop.is_closed()):
        # Stopped again by a second request; or see OwnedLoop._run.
        with contextlib.suppress(RuntimeError, SystemExit, KeyboardInterrupt):
            loop.run_until_complete(task)
    if not task.done():  # other code has closed the loop
        close_left_behind(coroutine, loop)
