"""Hooks: the events of a bridge's runs, for metrics and traces.

The hooks that a bridge has when a message arrives receive the events of its run, to the end:
``on_queued``, then perhaps ``on_started``, then any number of ``on_chunk`` and ``on_node``, then
``on_ended``. The first and the last are called exactly once, for each message.

Invariant kept here (its number as in docs/design.md): 4. Hooks are called without any lock, where
the event happens, and what they raise is contained.
"""

from __future__ import annotations

import inspect
import logging
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal

from rxlanggraph.concurrency.user_code import contain, is_interrupt
from rxlanggraph.errors import InvalidTypeError
from rxlanggraph.messages import Status, StreamMessage

__all__ = [
    "ChunkEmitted",
    "Hooks",
    "Listener",
    "LoopBlocked",
    "NodeEnded",
    "NodeStatus",
    "Observers",
    "RunEnded",
    "RunEvent",
    "RunQueued",
    "RunStarted",
]

_log = logging.getLogger("rxlanggraph")
NodeStatus = Literal["ok", "error", "interrupted", "cancelled"]


@dataclass(frozen=True, slots=True, eq=False)
class RunEvent:
    """Something that happened to a run.

    Attributes:
        future: The future of the run: the same object in all events of one run, and in no others.
        message: The message that the run works on.
        name: The name of the graph or function, or the one passed to the call.
        time: Seconds since the epoch.
    """

    future: Future[StreamMessage]
    message: StreamMessage
    name: str
    time: float


@dataclass(frozen=True, slots=True, eq=False)
class RunQueued(RunEvent):
    """A message has arrived, before it waits for anything."""


@dataclass(frozen=True, slots=True, eq=False)
class RunStarted(RunEvent):
    """A run begins.

    Attributes:
        waited: Seconds since its message arrived.
    """

    waited: float


@dataclass(frozen=True, slots=True, eq=False)
class ChunkEmitted(RunEvent):
    """A run that is streamed has a chunk.

    Attributes:
        chunk: The chunk, with its ``mode``, ``namespace`` and ``sequence``.
        attempt: Which attempt at the message it is of, from 1.
    """

    chunk: StreamMessage
    attempt: int


@dataclass(frozen=True, slots=True, eq=False)
class NodeEnded(RunEvent):
    """A node of a graph has ended.

    Attributes:
        node: Its name; in a subgraph, after the names of the nodes that called it: ``outer|inner``.
        status: ``ok``; ``error``; ``interrupted``, when it asks; or ``cancelled``.
        error: Why it did not succeed; None if it did.
        duration: Seconds.
        attempt: Which attempt at the message it was part of, from 1.
    """

    node: str
    status: NodeStatus
    error: BaseException | None
    duration: float
    attempt: int


@dataclass(frozen=True, slots=True, eq=False)
class RunEnded(RunEvent):
    """A run has really ended, or never began and never will; its future is resolved.

    Attributes:
        result: The result, with its ``status`` and ``error``, also where the future raises.
        duration: Seconds from its start to its end, its cleanup included; None if it never began.
        attempt: Which attempt at the message was the last, from 1; 0 if it never began.
    """

    result: StreamMessage
    duration: float | None
    attempt: int

    @property
    def status(self) -> Status:
        """How the run ended."""
        return self.result.status

    @property
    def error(self) -> BaseException | None:
        """Why it did not succeed; None if it did."""
        return self.result.error


@dataclass(frozen=True, slots=True, eq=False)
class LoopBlocked:
    """A callback blocks the loop of a bridge, and so all of its runs.

    Attributes:
        bridge: The name of the bridge.
        time: Seconds since the epoch.
        where: The function that blocks, with its file and line: the first one that is called from
            the loop and does not only pass calls on.
        seconds: For how long, so far.
        stack: That of the loop's thread, in the format of a traceback.
    """

    bridge: str
    time: float
    where: str
    seconds: float
    stack: str


class Hooks:
    """The events of a bridge's runs, one method each: override those that you need.

    Give an instance to `RxPyLangGraphBridge.add_hooks`. Methods that are not overridden cost
    nothing. Each is called where its event happens, without any lock; what it raises, whatever its
    class, is logged once for each method and class of exception, and changes nothing. On the loop's
    thread a hook that blocks holds up all runs. Hooks may send messages, cancel, and look at the
    bridge. They may be called by several threads at once, for different runs; the events of one run
    are in order.
    """

    def on_queued(self, event: RunQueued) -> None:
        """A message has arrived. In the submitter's thread and context, once per message."""

    def on_started(self, event: RunStarted) -> None:
        """A run begins. On the loop's thread, in the context of the run, at most once.

        A context variable that is set here is seen by the nodes.
        """

    def on_chunk(self, event: ChunkEmitted) -> None:
        """A run that is streamed has a chunk. On the loop's thread, before the chunk is emitted."""

    def on_node(self, event: NodeEnded) -> None:
        """A node has ended. On the loop's thread, or for a graph that a sync node calls in its own.

        Of the graph of the run, its subgraphs, and what its nodes call with LangChain's config. A
        graph called by a plain function has its config if the function passes that on.
        """

    def on_ended(self, event: RunEnded) -> None:
        """A run has ended. Once per message, after its future is resolved.

        On the loop's thread; in the submitter's if the message is refused; in the thread of the
        message that takes its room if it is dropped; in any thread if the loop is gone.
        """

    def on_blocked(self, event: LoopBlocked) -> None:
        """A callback blocks the loop. Once for each, in a thread of the bridge's that watches.

        Overriding it has the loop watched from then on, until the bridge is closed: see
        ``blocked_after`` of `RxPyLangGraphBridge`.
        """


_METHODS = ("on_queued", "on_started", "on_chunk", "on_node", "on_ended", "on_blocked")


class Listener:
    """One `Hooks` object that was added to a bridge. Any thread.

    Args:
        hooks: The object.

    Raises:
        InvalidTypeError: It is not a `Hooks`, has an async hook, or one with an unknown name.
    """

    def __init__(self, hooks: Hooks) -> None:
        if not isinstance(hooks, Hooks):
            raise InvalidTypeError(
                f"hooks must be an instance of a subclass of rxlanggraph.hooks.Hooks, not {hooks!r}"
            )
        self.gone = False  # only ever set, by any thread
        self._hooks = hooks
        # Which exceptions were logged: filled by single calls of setdefault, by any thread.
        self._logged: dict[tuple[str, type[BaseException]], object] = {}
        for name in dir(hooks):
            if not name.startswith("on_"):
                continue
            if name not in _METHODS:
                raise InvalidTypeError(
                    f"{type(hooks).__name__}.{name} is not a hook, which are {', '.join(_METHODS)}"
                )
            if inspect.iscoroutinefunction(getattr(hooks, name)):
                raise InvalidTypeError(
                    f"{type(hooks).__name__}.{name} is async, and hooks are called, not awaited; "
                    "have it start a task, or put the event into a queue"
                )

    def hears(self, method: str) -> bool:
        """Whether it does anything at that event. Any thread; never blocks."""
        own = getattr(self._hooks, method)
        return getattr(own, "__func__", own) is not getattr(Hooks, method)

    def call(self, method: str, event: RunEvent | LoopBlocked) -> BaseException | None:
        """Call one hook, and contain what it raises. Any thread; without any lock.

        Returns:
            An exception that a signal handler may have raised meanwhile; the caller raises it.
        """
        if self.gone:
            return None
        try:
            getattr(self._hooks, method)(event)
        except BaseException as error:
            mark = object()
            if self._logged.setdefault((method, type(error)), mark) is mark:
                return contain(
                    error, _log, "%s of %s raised, which changes nothing and is logged once",
                    method, type(self._hooks).__name__,
                )  # fmt: skip
            return error if is_interrupt(error) else None
        return None


class Observers:
    """Those who listen to the runs of a bridge, by event. Immutable; replaced as a whole.

    Args:
        listeners: All of them.
    """

    __slots__ = ("blocked", "chunk", "ended", "listeners", "node", "queued", "started")

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self.queued, self.started, self.chunk, self.node, self.ended, self.blocked = (
            tuple(each for each in listeners if each.hears(method)) for method in _METHODS
        )
