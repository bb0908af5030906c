"""AgentListeners: the hooks that an agent has, and how they are told of its runs.

What breaks without it: an agent that is called by another one, or by a node, is not seen by the
hooks of a bridge, to which it is part of a run.

Hooks are called without any lock, and what they raise is contained, as those of a bridge. A run
without hooks costs one look-up of an attribute that is None.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import Context, copy_context
from functools import partial

from reactivex.abc import DisposableBase
from reactivex.disposable import Disposable

from rxlanggraph.bridge.hook_calls import Event, Listener
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.user_code import raise_on_loop
from rxlanggraph.errors import AgentInterruptedError, RunTimeoutError
from rxlanggraph.hooks import AgentEnded, AgentStarted, Hooks
from rxlanggraph.messages import Status

__all__ = ["AgentListeners", "ObservedRun"]


class _ListenerSet:
    """The listeners to the runs of an agent, by event. Immutable; replaced as a whole."""

    __slots__ = ("ended", "listeners", "started")

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self.started = Event("on_agent_started", listeners)
        self.ended = Event("on_agent_ended", listeners)


class ObservedRun:
    """A run of an agent whose hooks are told of it. Confined to the run, but for `ended`.

    Args:
        listeners: Those of the agent.
        agent: The name of the agent.
        thread_id: The conversation; None if it has no name.
    """

    __slots__ = ("_agent", "_begun", "_by", "_thread_id")

    def __init__(self, listeners: _ListenerSet, agent: str, thread_id: str | None) -> None:
        self._by = listeners
        self._agent = agent
        self._thread_id = thread_id
        # The time of its start, from then on until its end was told: taken out by a single pop, so
        # that of two threads one tells.
        self._begun: list[float] = []

    def started(self) -> Context:
        """Tell of the start of the run. In its task; returns the context for its work."""
        context = copy_context()
        self._begun.append(time.perf_counter())
        event = AgentStarted(self, self._agent, self._thread_id, time.time())
        _raise(context.run(self._by.started.tell, event))
        return context

    def ended(self, error: BaseException | None) -> None:
        """Tell of the end of the run, once, if it has begun.

        In the task that has awaited it, or that of the run which takes over from one whose loop is
        gone.

        Args:
            error: What the run has raised; None if it has an answer.
        """
        try:
            since = self._begun.pop()
        except IndexError:
            return
        now, duration = time.time(), time.perf_counter() - since
        event = AgentEnded(
            self, self._agent, self._thread_id, now, _status_of(error), error, duration
        )
        _raise(self._by.ended.tell(event))


class AgentListeners:
    """The hooks that were added to an agent. Any thread; never blocks."""

    def __init__(self) -> None:
        # A leaf, held for an assignment. Guards the writing of the field after it, which is read
        # without it: one reference, replaced as a whole.
        self._lock = fork_safe_rlock()
        self._current: _ListenerSet | None = None

    def add(self, hooks: Hooks) -> DisposableBase:
        """Add hooks; disposing what it returns removes them.

        Raises:
            InvalidTypeError: They are not hooks.
        """
        listener = Listener(hooks)
        with self._lock:
            others = () if self._current is None else self._current.listeners
            self._current = _ListenerSet((*others, listener))
        return Disposable(partial(self._remove, listener))

    def _remove(self, listener: Listener) -> None:
        listener.gone = True
        with self._lock:
            others = () if self._current is None else self._current.listeners
            left = tuple(other for other in others if other is not listener)
            self._current = _ListenerSet(left) if left else None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._current is not None

    def observed(self, agent: str, thread_id: str | None) -> ObservedRun | None:
        """Return what tells them of a run that begins; None if there are none."""
        listeners = self._current
        return None if listeners is None else ObservedRun(listeners, agent, thread_id)


def _status_of(error: BaseException | None) -> Status:
    if error is None:
        return "ok"
    if isinstance(error, AgentInterruptedError):
        return "interrupted"
    if isinstance(error, RunTimeoutError):
        return "timed_out"
    return "cancelled" if isinstance(error, asyncio.CancelledError | GeneratorExit) else "error"


def _raise(interrupt: BaseException | None) -> None:
    """Raise what a signal handler may have raised in a hook, once the run has gone on."""
    if interrupt is not None:
        raise_on_loop(interrupt)
