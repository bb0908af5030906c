"""RunOptions: what all runs of one call, or of one subscription, have in common.

They are made once, when the arguments of a call have been checked. What depends on the message is
computed in the submitter's thread, before the run is made: see `RunOptions.bind`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from rxlanggraph.bridge.graphs.call_arguments import PerMessage, given
from rxlanggraph.bridge.graphs.configs import NamedThread, one_thread, threads_of
from rxlanggraph.bridge.graphs.retention import Retention
from rxlanggraph.bridge.time_limits import TimeLimits, check_limits
from rxlanggraph.messages import StreamMessage, passes_through

if TYPE_CHECKING:
    from tenacity import AsyncRetrying

    from rxlanggraph.bridge.graphs.adapters import Graph, GraphAdapter
    from rxlanggraph.bridge.graphs.configs import Config

__all__ = ["ConcurrencyGroup", "MultitaskStrategy", "RunOptions"]

MultitaskStrategy = Literal["enqueue", "reject", "interrupt", "rollback"]


@dataclass(slots=True)
class ConcurrencyGroup:
    """The runs of one subscription, which share a concurrency limit. Confined to the loop."""

    limit: int
    running: int = 0
    waiting: deque[Any] = field(default_factory=deque)  # runs: their module imports this one


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RunOptions:
    """What all runs of one call or operator have in common."""

    graph: Graph
    adapter: GraphAdapter
    limits: TimeLimits = field(default_factory=TimeLimits)
    deadline: float | None = None
    retry: AsyncRetrying | None = None
    errors: Literal["raise", "emit"] = "raise"
    config: Config | None = None
    name: str = ""
    group: ConcurrencyGroup | None = None
    multitask_strategy: MultitaskStrategy = "enqueue"
    lane: Hashable = None
    """What messages without a thread have instead, so that one runs at a time; None: nothing."""
    saver: Any = None
    """With ``"rollback"``, where the graph keeps its threads."""
    retention: Retention | None = None
    """What is kept of the thread when the run was answered; None: everything."""
    thread: NamedThread | None = None
    """The thread that the config, or the graph's own config, names for all of these runs."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """LangGraph's other arguments of the call, those that are given."""
    per_message: PerMessage | None = None
    streams: bool = False
    """Whether the runs pass chunks on."""
    drains: bool = False
    """Whether the graph can stop between supersteps, and go on later."""
    remote: bool = False
    """Whether the graph is called in another process."""
    timed: bool = field(init=False)
    """Whether there is any other limit than that of an attempt."""

    def __post_init__(self) -> None:
        """Look once at the limits, not at each run."""
        others = replace(self.limits, attempt=None)
        object.__setattr__(self, "timed", others != TimeLimits() or self.deadline is not None)

    def bind(self, item: Any, thread_id: str | None) -> tuple[StreamMessage, RunOptions]:
        """Make the message of a run on ``item``, and the options of that run. Any thread.

        Calls what the caller passed as functions of the message.

        Args:
            item: A message, or the content of one.
            thread_id: The thread to put it on; None keeps the message's own.

        Raises:
            InvalidTypeError: ``thread_id`` is not a string, a config not a mapping, or one of the
                functions is async.
            InvalidArgumentError: The config names another thread, or a timeout is out of range.
        """
        message = self.message_for(item, thread_id)
        chosen = self.per_message
        if chosen is None or passes_through(message):
            return message, self
        config, thread, limits, arguments = self.config, self.thread, self.limits, self.arguments
        if chosen.config is not None:
            config = chosen.value_of("config", message)
            thread = one_thread(threads_of(self.graph, config))
        if chosen.context is not None:
            arguments = given({**arguments, "context": chosen.value_of("context", message)})
        timeout = None if chosen.timeout is None else chosen.value_of("timeout", message)
        if timeout is not None:
            limits = check_limits("timeout", timeout, chunks=self.streams)
        options = replace(self, config=config, thread=thread, limits=limits, arguments=arguments)
        return options.message_for(message, None), options

    def message_for(self, item: Any, thread_id: str | None) -> StreamMessage:
        """Make the message of a run on ``item``, on the run's thread. Any thread; never blocks.

        Args:
            item: A message, or the content of one.
            thread_id: The thread to put it on; None keeps the message's own.

        Raises:
            InvalidTypeError: ``thread_id`` is not a string.
            InvalidArgumentError: The config names another thread.
        """
        if not isinstance(item, StreamMessage):
            message = StreamMessage(item, thread_id)
        elif item.status != "ok":  # it passes through
            return item
        elif thread_id is None or thread_id == item.thread_id:
            message = item
        else:
            message = item.replace(thread_id=thread_id)
        if self.thread is None or message.thread_id == self.thread.thread_id:
            return message
        if message.thread_id is not None:
            one_thread((NamedThread(message.thread_id, "the message"), self.thread))
        return message.replace(thread_id=self.thread.thread_id)
