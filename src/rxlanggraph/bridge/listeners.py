"""Listeners: the hooks of a bridge, and the watch over its loop.

What breaks if the hooks were one list that changes: a run in flight is reported to hooks that know
nothing of its arrival. Each run keeps the hooks that the bridge had when it arrived.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import Future

from rxlanggraph.bridge.hook_calls import Listener, ListenerSet, Observed
from rxlanggraph.bridge.inbox import LoopInbox
from rxlanggraph.bridge.loops import LoopHost
from rxlanggraph.bridge.reports import report_blocked
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.concurrency.loop_watch import LoopWatch
from rxlanggraph.hooks import Hooks

__all__ = ["Listeners"]

# Seconds after which a loop counts as blocked, where hooks alone ask for it. A guess: long before a
# person notices, and longer than a burst of starts takes.
_BLOCKED_AFTER = 0.5


class Listeners:
    """The hooks of one bridge. Any thread.

    Args:
        name: The name of the bridge.
        registry: Its runs.
        inbox: Has its loop, its lock and its clock.
        host: The host of the loop.
    """

    def __init__(self, name: str, registry: RunRegistry, inbox: LoopInbox, host: LoopHost) -> None:
        self._name = name
        self._registry = registry
        self._inbox = inbox
        self._host = host
        # Guarded by the lock of the bridge; read without it: one reference, replaced as a whole.
        self.current: ListenerSet | None = None
        self.watch: LoopWatch | None = None  # likewise; only ever set
        self._stopped = False  # likewise: whether the loop was asked to end

    def add(self, hooks: Hooks) -> Listener:
        """Tell ``hooks`` of all runs that arrive from now on. Any thread; never blocks.

        Raises:
            InvalidTypeError: As in `Listener`.
        """
        listener = Listener(hooks)
        with self._inbox.lock:
            others = () if self.current is None else self.current.listeners
            self.current = ListenerSet((*others, listener))
        if listener.hears("on_blocked"):
            self.watch_loop(_BLOCKED_AFTER)
        return listener

    def remove(self, listener: Listener) -> None:
        """Tell the hooks of ``listener`` nothing more. Any thread; never blocks; idempotent."""
        listener.gone = True
        with self._inbox.lock:
            others = () if self.current is None else self.current.listeners
            left = tuple(other for other in others if other is not listener)
            self.current = ListenerSet(left) if left else None

    def add_to_runs_in_flight(self, listener: Listener) -> None:
        """Tell ``listener`` also of what is still to happen to runs that had arrived before it.

        Any thread; never blocks: the loop does it soon.
        """
        loop = self._inbox.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: its runs are over
                loop.call_soon_threadsafe(self._add_to_runs, listener)

    def _add_to_runs(self, listener: Listener) -> None:
        """On the loop: no other thread can tell whether a run is just reading its listeners.

        Another thread may end a run meanwhile: its end is told to all that it has by then.
        """
        alone, now = ListenerSet((listener,)), self._inbox.clock.now()
        extended: dict[ListenerSet, ListenerSet] = {}  # many runs share theirs
        for run in self._registry.runs():
            observed = run.observed
            if observed is not None and observed.by not in extended:
                others = tuple(each for each in observed.by.listeners if each is not listener)
                extended[observed.by] = ListenerSet((*others, listener))
            with self._inbox.lock:
                if run.observed is not observed:
                    continue  # they are being told of its end
                if observed is not None:
                    if observed.by.started is None:  # it was not noted when the message arrived
                        observed.arrived = now
                    observed.by = extended[observed.by]
                elif run in self._registry:  # once it has left, its end is told to those it has
                    late = Observed(alone, now)
                    late.handed_over, late.begun = True, run.task is not None
                    run.observed = late

    def watch_loop(self, blocked_after: float) -> None:
        """Measure the lag of the loop while there are runs, and name what blocks it. Any thread.

        It has no effect if that is done already.

        Args:
            blocked_after: Seconds after which the loop counts as blocked.
        """
        watch = LoopWatch(
            f"{self._name}-lag",
            blocked_after,
            loop=lambda: self._inbox.loop,
            thread_id=lambda: self._host.thread_id,
            is_busy=lambda: not self._registry.is_idle(),
            on_blocked=lambda blockage: report_blocked(self._name, self.current, blockage),
        )
        with self._inbox.lock:
            if self.watch is not None:
                return
            self.watch = watch
            stopped = self._stopped
        if stopped:
            watch.stop()
        elif self._inbox.loop is not None:
            watch.wake()

    @property
    def loop_lag(self) -> float | None:
        """See `RxPyLangGraphBridge.loop_lag`. Any thread; never blocks."""
        watch = self.watch
        return None if watch is None else watch.lag

    def stop_watching(self) -> None:
        """Let the watch end, and any that is asked for later. Any thread; never blocks."""
        with self._inbox.lock:
            self._stopped, watch = True, self.watch
        if watch is not None:
            watch.stop()

    def join_watch(self, timeout: float | None) -> None:
        """Wait until the watch has ended, at most ``timeout`` seconds. Any thread; blocks."""
        if self.watch is not None:
            self.watch.join(timeout)

    def watch_ended(self) -> Future[None] | None:
        """Return a future of the end of the watch. Any thread; never blocks.

        None if there is no watch, or if the caller is one of the hooks that it calls.
        """
        watch = self.watch
        return None if watch is None or watch.is_inside() else watch.ended

    def after_fork(self) -> None:
        """Forget the watch of the parent. See `forking`."""
        self.watch = None
