"""Hooks: the events of the runs of bridges and agents, for metrics and traces.

The hooks that a bridge has when a message arrives receive the events of its run, to the end:
``on_queued``, then perhaps ``on_started``, then any number of ``on_chunk`` and ``on_node``, then
``on_ended``. The first and the last are called exactly once, for each message.

A bridge calls them through `rxlanggraph.bridge.hook_calls`, an agent through
`rxlanggraph.agent.listeners`.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Literal, NamedTuple, TypeAlias

from rxlanggraph.messages import Status, StreamMessage

__all__ = [
    "AgentEnded",
    "AgentStarted",
    "ChunkEmitted",
    "Hooks",
    "LoopBlocked",
    "NodeEnded",
    "NodeStatus",
    "RunEnded",
    "RunEvent",
    "RunQueued",
    "RunStarted",
]

NodeStatus = Literal["ok", "error", "interrupted", "cancelled"]


class RunQueued(NamedTuple):
    """A message has arrived, before it waits for anything.

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


class RunStarted(NamedTuple):
    """A run begins.

    Attributes:
        future, message, name, time: As in `RunQueued`.
        waited: Seconds since its message arrived.
    """

    future: Future[StreamMessage]
    message: StreamMessage
    name: str
    time: float
    waited: float


class ChunkEmitted(NamedTuple):
    """A run that is streamed has a chunk.

    Attributes:
        future, message, name, time: As in `RunQueued`.
        chunk: The chunk, with its ``mode``, ``namespace`` and ``sequence``.
        attempt: Which attempt at the message it is of, from 1.
    """

    future: Future[StreamMessage]
    message: StreamMessage
    name: str
    time: float
    chunk: StreamMessage
    attempt: int


class NodeEnded(NamedTuple):
    """A node of a graph has ended.

    Attributes:
        future, message, name, time: As in `RunQueued`.
        node: Its name; in a subgraph, after the names of the nodes that called it: ``outer|inner``.
        status: ``ok``; ``error``; ``interrupted``, when it asks; or ``cancelled``.
        error: Why it did not succeed; None if it did.
        duration: Seconds.
        attempt: Which attempt at the message it was part of, from 1.
    """

    future: Future[StreamMessage]
    message: StreamMessage
    name: str
    time: float
    node: str
    status: NodeStatus
    error: BaseException | None
    duration: float
    attempt: int


class RunEnded(NamedTuple):
    """A run has really ended, or never began and never will; its future is resolved.

    Attributes:
        future, message, name, time: As in `RunQueued`.
        result: The result, with its ``status`` and ``error``, also where the future raises.
        duration: Seconds from its start to its end, its cleanup included; None if it never began.
        attempt: Which attempt at the message was the last, from 1; 0 if it never began.
    """

    future: Future[StreamMessage]
    message: StreamMessage
    name: str
    time: float
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


class LoopBlocked(NamedTuple):
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


class AgentStarted(NamedTuple):
    """A run of an agent begins, after those before it.

    Attributes:
        run: The same object in both events of one run, and in no others.
        agent: The name of the agent.
        thread_id: Its conversation: the ``thread_id`` of its graph; None if that is not a string.
        time: Seconds since the epoch.
    """

    run: object
    agent: str
    thread_id: str | None
    time: float


class AgentEnded(NamedTuple):
    """A run of an agent has ended.

    Attributes:
        run, agent, thread_id, time: As in `AgentStarted`.
        status: How it ended; ``interrupted`` if it asks.
        error: Why it did not succeed; None if it did.
        duration: Seconds since its start.
    """

    run: object
    agent: str
    thread_id: str | None
    time: float
    status: Status
    error: BaseException | None
    duration: float


RunEvent: TypeAlias = "RunQueued | RunStarted | ChunkEmitted | NodeEnded | RunEnded"
"""An event of a run of a bridge."""


class Hooks:
    """The events of the runs of bridges and agents, one method each: override those that you need.

    Give an instance to `RxPyLangGraphBridge.add_hooks`, and to `BaseAgent.add_hooks` of agents, for
    which the methods are called whose names begin with ``on_agent``. Methods that are not
    overridden cost nothing. Each is called where its event happens, without any lock; what it
    raises, whatever its class, is logged once for each method and class of exception, and changes
    nothing; but a KeyboardInterrupt or SystemExit in the main thread, which may be a signal
    handler's, is raised there by the call that called the hook. On the loop's thread a hook that
    blocks holds up all runs. Hooks may send messages, cancel, and look at the bridge. They may be
    called by several threads at once, for different runs; the events of one run are in order.
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
        """A node has ended. On the thread of the loop that calls the graph.

        For a graph that a sync node calls, on the thread of that node. With several loops,
        `on_chunk` may be called for a chunk of the node after this.

        Covers the nodes of the run's graph, of its subgraphs, and of graphs that they call with
        LangChain's config. A graph that a plain function calls is covered if the function passes
        the config on.
        """

    def on_ended(self, event: RunEnded) -> None:
        """A run has ended. Once per message, after its future is resolved.

        On the loop's thread; in the submitter's if the message is refused; in the thread of the
        message that takes its room if it is dropped; in any thread if the loop is gone.
        """

    def on_blocked(self, event: LoopBlocked) -> None:
        """A callback blocks the loop. Once for each, in a thread of the bridge's that watches.

        If hooks override it, the loop is watched from then on, until the bridge is closed: see
        ``blocked_after`` of `RxPyLangGraphBridge`.
        """

    def on_agent_started(self, event: AgentStarted) -> None:
        """A run of an agent begins. On its loop, in the context of the run, at most once.

        A context variable that is set here is seen by the steps of the agent.
        """

    def on_agent_ended(self, event: AgentEnded) -> None:
        """A run of an agent has ended. Once for each that has begun, on its loop.

        If the loop was closed in the middle of the run: in the next run, which takes over.
        """
