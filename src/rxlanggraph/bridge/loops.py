"""Where the loop lives: in a thread of our own, or with somebody who lent it to us.

Both tell the engine, through its `EngineHooks`, when the loop is going and when it is gone:
asyncio itself tells nobody, and a future handed to a loop that stopped is never resolved.

A lent loop may also pause: ``asyncio.Runner.run`` twice, ``run_until_complete`` several times, a
test session that runs its loop for each test. The rule: while it does not run, messages are
refused; what was in flight is given up when the pause has lasted for a while, because nobody can
know whether it ends (invariant 1), but stays in the registry, because it has not ended (2). When
the loop runs again, that is cancelled, and messages are taken as before. Nothing has to be put
back for that: whether the loop runs is asked anew for each message. Only closing it is final.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, InvalidStateError
from contextvars import Context
from typing import Any, Protocol

from rxlanggraph.bridge.executor import RunExecutor, RunRouting, check_routable, route_runs
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.concurrency.loop_probe import LoopProbe
from rxlanggraph.concurrency.tasks import close_left_behind, silence_pending_warning
from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import LoopUnavailableError, WrongProcessError

__all__ = ["AbsentLoop", "AdoptedLoop", "EngineHooks", "LoopHost", "OwnedLoop"]

_log = logging.getLogger("rxlanggraph")
# How long the tasks of a stopping loop of ours get to end, in seconds. They were cancelled, with
# the caller's own deadline, before; this is for those that ask for one round of the loop more.
_LAST_ROUND = 1.0
# How often, in seconds, a lent loop is looked at; not having run from one look to the next means
# paused. A guess: seldom enough to cost nothing, often enough for a person who waits for an error.
_LOOK_EVERY = 0.25


class EngineHooks(Protocol):
    """What a home tells its engine."""

    registry: RunRegistry

    def loop_stopping(self, error: LoopUnavailableError) -> None:
        """On the loop: take nothing more, and cancel what runs."""

    def loop_stopped(self, error: LoopUnavailableError) -> None:
        """In any thread: the loop runs nothing any more; resolve what is left."""

    def loop_paused(self, error: LoopUnavailableError) -> None:
        """In any thread, again and again: the loop has stopped; give up what waits for it."""

    def is_due(self) -> bool:
        """In any thread: whether the loop still has to look at a run."""


class LoopHost(Protocol):
    """The life of one loop."""

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
    """Done when that has happened, or waits for a loop that is paused."""

    look_every: float | None
    """How often to ask whether it is `paused`, in seconds; None if it never is."""

    paused: bool
    """Whether the loop has stopped for so long that what was in flight was given up."""


class OwnedLoop:
    """A loop in a daemon thread of our own.

    A daemon, so that a run which never ends cannot keep the interpreter from exiting.
    """

    owned = True
    look_every: float | None = None
    paused: bool = False

    def __init__(self, name: str, threads: RunExecutor, hooks: EngineHooks) -> None:
        # Written in start(), which the engine calls under its lifecycle lock.
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread_id: int | None = None
        self.stopped: Future[None] = Future()
        # Filled by one setdefault, which no signal handler can enter.
        self._claim: dict[str, asyncio.AbstractEventLoop] = {}
        # Set by any thread, before it asks the loop to stop; read on the loop's thread.
        self._stopping = False
        self._name = name
        self._threads = threads
        self._hooks = hooks

    @property
    def begun(self) -> bool:
        """Whether somebody has begun to start the thread. Any thread; never blocks."""
        return bool(self._claim)

    def start(self) -> asyncio.AbstractEventLoop:
        """Start the thread. Any thread; does not wait for the loop to turn."""
        # It keeps the context in which it was made, for its own wake-ups.
        loop = Context().run(asyncio.new_event_loop)
        thread = routing = None
        try:
            if self._claim.setdefault("loop", loop) is not loop:
                loop.close()  # a signal handler on top of this very call was first
                return self._claim["loop"]
            # Also what belongs to no run: an executor of asyncio's would keep the interpreter from
            # exiting for as long as one of its calls lasts.
            routing = route_runs(loop, self._threads)
            thread = threading.Thread(
                target=self._main, args=(loop, routing), name=f"{self._name}-loop", daemon=True
            )
            self.loop = loop
            start_detached(thread)
        except BaseException as error:
            if thread is None or not thread.is_alive():  # or else it is there for the next one
                if self._claim.get("loop") is loop:
                    self.loop = None
                    self._claim.clear()
                if routing is not None:
                    routing.release()
                loop.close()
            if not isinstance(error, RuntimeError):
                raise  # of a signal handler
            raise LoopUnavailableError(
                f"no thread for the loop of {self._name}: {error}"
            ) from error
        return loop

    def check(self) -> None:
        """A loop of ours stops when we say so, or tells the engine: nothing to look at."""

    def stop(self) -> None:
        """Ask the loop to stop. Any thread; never blocks."""
        if self.loop is None:
            _set_done(self.stopped)
            return
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # it has stopped by itself
            self.loop.call_soon_threadsafe(self.loop.stop)

    def _main(self, loop: asyncio.AbstractEventLoop, routing: RunRouting) -> None:
        self.thread_id = threading.get_ident()
        asyncio.set_event_loop(loop)
        error = LoopUnavailableError(f"the event loop of {self._name} was stopped from inside")
        try:
            self._run(loop)
        finally:
            try:
                self._hooks.loop_stopping(error)
                self._finish(loop)
            finally:
                asyncio.set_event_loop(None)
                routing.release()
                loop.close()
                self._hooks.loop_stopped(error)
                _set_done(self.stopped)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        # A task or a callback that raises SystemExit or KeyboardInterrupt ends run_forever(), when
        # it has got that as its exception. That is for programs whose loop it is: here it would
        # end everybody's runs, while its own hears of it anyway.
        while True:
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                _log.warning(
                    "%s on the loop of %s, which goes on", type(error).__name__, self._name
                )
                if not self._stopping:  # or else that was lost with the step that raised
                    continue
            return

    def _finish(self, loop: asyncio.AbstractEventLoop) -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            _complete(loop, asyncio.wait(tasks, timeout=_LAST_ROUND))
        if all(task.done() for task in tasks):
            # Else not: what a task is inside of cannot be closed, and what it iterates over would
            # end for it as if it were complete.
            _complete(loop, loop.shutdown_asyncgens())
        for task in asyncio.all_tasks(loop):
            silence_pending_warning(task)  # named in the clean-up report


class AdoptedLoop:
    """A loop that somebody else runs, pauses, and ends.

    A guard task lives on it: whoever ends the loop in the ordinary way (``asyncio.run``) cancels
    all tasks first, and so tells us. A loop that is merely stopped tells nobody: a small daemon
    thread looks.
    """

    owned = False
    look_every: float | None = _LOOK_EVERY

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, hooks: EngineHooks) -> None:
        check_routable(loop)
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.thread_id: int | None = None  # written on the loop
        self.stopped: Future[None] = Future()
        self.paused = False  # written by the watch
        self._loop = loop
        self._name = name
        self._hooks = hooks
        self._release = asyncio.Event()  # set and awaited on the loop
        # Filled by one setdefault, which no signal handler can enter.
        self._claim: dict[str, Coroutine[Any, Any, None]] = {}
        self._guarding: Future[None] = Future()  # written by start(); until then, not done
        self._leaving = False  # only ever set, by any thread
        self._wake = threading.Event()  # has the watch see whether it is over

    @property
    def begun(self) -> bool:
        """Whether the loop runs. Any thread; never blocks."""
        return self._loop.is_running()

    def start(self) -> asyncio.AbstractEventLoop:
        """Set the guard and the watch. Any thread.

        Raises:
            LoopUnavailableError: The loop is closed or not running.
        """
        self.check()
        guard = self._guard()
        if self._claim.setdefault("guard", guard) is not guard:
            guard.close()  # a signal handler on top of this very call was first
            return self._loop
        watch = threading.Thread(target=self._watch, name=f"{self._name}-watch", daemon=True)
        try:
            start_detached(
                watch
            )  # first: an unwatched loop would be found neither paused nor closed
            # Not in the context of whoever comes first, which it would keep.
            guarding = Context().run(asyncio.run_coroutine_threadsafe, guard, self._loop)
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

    def check(self) -> None:
        """Raise if the loop is closed or does not run now. Any thread; never blocks."""
        if not self._loop.is_running():
            raise LoopUnavailableError(self._absent_text())

    def stop(self) -> None:
        """Give the loop back as it was, when it runs next. Any thread; never blocks."""
        self._leaving = True
        if not self._claim:  # it was never used
            _set_done(self.stopped)
            return
        if not self._loop.is_running():
            _set_done(self.stopped)
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._release.set)
        self._wake.set()

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
            "cancelled; where it goes on nevertheless, make a new bridge"
        )

    async def _guard(self) -> None:
        self._note_thread()
        silence_pending_warning(asyncio.current_task())
        routing = route_runs(self._loop)
        try:
            await self._release.wait()
            await self._end_of_arrivals()
        except asyncio.CancelledError:
            self._hooks.loop_stopping(LoopUnavailableError(self._ending_text()))
            await self._hooks.registry.wait_idle_async(_LAST_ROUND)
            await self._end_of_arrivals()
            raise
        finally:
            routing.release()

    async def _end_of_arrivals(self) -> None:
        # Nobody may let the loop turn any more than we do; what comes to look at the arrivals would
        # be left there, and complained of, before it has begun.
        for _ in iter(self._hooks.is_due, False):
            await asyncio.sleep(0)

    def _guard_ended(self, _: Future[None]) -> None:
        _set_done(self.stopped)
        self._wake.set()

    def _watch(self) -> None:
        probe = LoopProbe(self._loop, self._note_thread)
        while not self._is_over():
            if self._wake.wait(self.look_every):
                self._wake.clear()
            elif probe.has_turned():
                self.paused = False
            elif self._loop.is_closed():
                self._hooks.loop_stopped(LoopUnavailableError(self._absent_text()))
                close_left_behind(self._claim["guard"], self._loop)
                break
            else:
                self.paused = True
                self._hooks.loop_paused(LoopUnavailableError(self._absent_text()))
                if self._leaving:
                    _set_done(self.stopped)
        _set_done(self.stopped)

    def _note_thread(self) -> None:
        self.thread_id = threading.get_ident()  # another thread may have gone on with the loop

    def _is_over(self) -> bool:
        if not self._leaving:
            return False
        # With something left on a paused loop it goes on: nobody else sees it if that is closed.
        idle = self._hooks.registry.wait_idle(0) and not self._hooks.is_due()
        return self._guarding.done() or (idle and not self._loop.is_running())


class AbsentLoop:
    """A loop that runs in the process from which this one was forked.

    Nothing here touches it: the selector of the parent and its pipe are shared with the child.
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
        """Leave it alone. Any thread; never blocks."""


def _set_done(left: Future[None]) -> None:
    with contextlib.suppress(InvalidStateError):  # said twice: by the loop, and by who ended it
        left.set_result(None)


def _complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> None:
    task = loop.create_task(coroutine)
    while not task.done():
        # Stopped once more, by whoever asked twice; or see OwnedLoop._run.
        with contextlib.suppress(RuntimeError, SystemExit, KeyboardInterrupt):
            loop.run_until_complete(task)
