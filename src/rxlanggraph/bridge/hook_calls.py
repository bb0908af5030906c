"""How hooks are called, and the set of them that a bridge has at one moment.

What breaks without it: an exception in a hook fails the run that the hook observes. Hooks are
called where the event happens, without any lock (invariant 4 in docs/design.md); what they raise is
contained.
"""

from __future__ import annotations

import inspect
import logging
from typing import TypeAlias

from rxlanggraph.concurrency.user_code import contain, is_interrupt
from rxlanggraph.errors import InvalidTypeError
from rxlanggraph.hooks import AgentEnded, AgentStarted, Hooks, LoopBlocked, RunEvent

__all__ = ["Event", "Listener", "ListenerSet", "Observed"]

_log = logging.getLogger("rxlanggraph")
_Event: TypeAlias = "RunEvent | LoopBlocked | AgentStarted | AgentEnded"
_OF_AGENTS = ("on_agent_started", "on_agent_ended")
# Functions that do nothing when they are called.
_LAZY = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
_METHODS = ("on_queued", "on_started", "on_chunk", "on_node", "on_ended", "on_blocked")


class Listener:
    """One `Hooks` object that was added to a bridge, or to an agent. Any thread.

    Args:
        hooks: The object.

    Raises:
        InvalidTypeError: It is not a `Hooks`, or has a hook that is async, a generator, not
            callable, or of an unknown name.
    """

    def __init__(self, hooks: Hooks) -> None:
        if not isinstance(hooks, Hooks):
            raise InvalidTypeError(
                f"hooks must be an instance of a subclass of rxlanggraph.hooks.Hooks, not {hooks!r}"
            )
        self.gone = False  # only ever set, by any thread
        self.hooks = hooks
        # The classes of exceptions that were logged, by method. By their ids, as a class may have a
        # hash that is user code; with the class, so that no other one gets its id. Filled by single
        # calls, by any thread.
        self._logged: dict[tuple[str, int], tuple[type[BaseException]]] = {}
        for name in dir(hooks):
            if not name.startswith("on_"):
                continue
            if name not in (known := (*_METHODS, *_OF_AGENTS)):
                raise InvalidTypeError(
                    f"{type(hooks).__name__}.{name} is not a hook, which are {', '.join(known)}"
                )
            hook = getattr(hooks, name)
            if not callable(hook):
                raise InvalidTypeError(
                    f"{type(hooks).__name__}.{name} must be a method, not {hook!r}"
                )
            # Of an object that is called, its class has the function.
            if any(is_such(each) for is_such in _LAZY for each in (hook, type(hook).__call__)):
                raise InvalidTypeError(
                    f"{type(hooks).__name__}.{name} is async or a generator, and hooks are called, "
                    "not awaited; have it start a task, or put the event into a queue"
                )

    def hears(self, method: str) -> bool:
        """Whether it does anything at that event. Any thread; never blocks."""
        own = getattr(self.hooks, method)
        return getattr(own, "__func__", own) is not getattr(Hooks, method)

    def contain(self, method: str, error: BaseException) -> BaseException | None:
        """Contain what that hook has raised. Any thread; in the handler of the exception.

        Returns:
            An exception that a signal handler may have raised meanwhile; the caller raises it.
        """
        raised = (type(error),)
        if self._logged.setdefault((method, id(raised[0])), raised) is raised:
            return contain(
                error, _log, "%s of %s raised, which changes nothing and is logged once",
                method, type(self.hooks).__name__,
            )  # fmt: skip
        return error if is_interrupt(error) else None


class Event:
    """The listeners to one kind of event. Immutable.

    Args:
        method: Its hook.
        listeners: All that listen to anything.
    """

    __slots__ = ("_hooks", "_method")

    def __init__(self, method: str, listeners: tuple[Listener, ...]) -> None:
        self._method = method
        self._hooks = tuple(
            (each, getattr(each.hooks, method)) for each in listeners if each.hears(method)
        )

    def tell(self, event: _Event) -> BaseException | None:
        """Call all of their hooks, and contain what these raise. Any thread; without any lock.

        Returns:
            As `Listener.contain`.
        """
        interrupt = None
        for listener, hook in self._hooks:
            if listener.gone:
                continue
            try:
                hook(event)
            except BaseException as error:
                interrupt = listener.contain(self._method, error) or interrupt
        return interrupt


class ListenerSet:
    """The listeners to the runs of a bridge, by event. Immutable; replaced as a whole.

    An event without listeners is None: nothing is made for it.

    Args:
        listeners: All of them.
    """

    __slots__ = ("blocked", "chunk", "ended", "listeners", "node", "queued", "started")

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self.queued, self.started, self.chunk, self.node, self.ended, self.blocked = (
            _heard(method, listeners) for method in _METHODS
        )


def _heard(method: str, listeners: tuple[Listener, ...]) -> Event | None:
    return Event(method, listeners) if any(each.hears(method) for each in listeners) else None


class Observed:
    """What is known of a run for its hooks, until its end has been reported.

    Args:
        listeners: Replaced as a whole, on the loop's thread, under the lock.
        arrived: When its message arrived, by the clock of the bridge; 0 if none of its listeners is
            told how long it has waited. Replaced with them.
    """

    __slots__ = ("announced_by", "arrived", "begun", "by", "handed_over")

    def __init__(self, listeners: ListenerSet, arrived: float) -> None:
        self.by = listeners
        self.arrived = arrived
        # The thread in which hooks are told of its arrival, meanwhile. Written there.
        self.announced_by: int | None = None
        # Whether it was handed over, or is about to be. Written by its submitter; read by any.
        self.handed_over = False
        # Whether it has begun. Written on the loop's thread.
        self.begun = False
