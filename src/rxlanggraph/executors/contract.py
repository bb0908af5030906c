"""The two seams: between a bridge and its executor, and between that and what starts processes.

A bridge knows `Executor` and `Workers`. They replace the graph of a run by one whose ``ainvoke``
and ``astream`` are called elsewhere, and nothing else of it. All that is common to engines such as
Ray is in `WorkerPool`, which knows `Cluster` and `Worker`: a new engine implements these two.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["GOES_ON", "Cluster", "Event", "EventKind", "Executor", "Order", "Worker", "Workers"]

EventKind: TypeAlias = Literal["chunk", "told", "result", "error", "cancelled"]
Event: TypeAlias = tuple[int, EventKind, bytes]
"""What has happened to a call: its key, what it is, and the chunk, result or error as bytes.

``told``: what the counterpart of a companion tells, as bytes.
"""

GOES_ON: frozenset[EventKind] = frozenset({"chunk", "told"})
"""After these, a call goes on; all others are its end."""

Order: TypeAlias = tuple[Literal["cancel", "credit", "tell"], int, Any]
"""What a call is told, with its key: to end; that so many more chunks may be sent; or, as bytes,
what a companion tells its counterpart."""


class Executor(Protocol):
    """Where the runs of bridges are executed. Immutable; several bridges may share one."""

    @property
    def retries(self) -> int:
        """How often a run is repeated whose worker process was lost."""

    def open(self, name: str) -> Workers | None:
        """Make the workers of one bridge; they start with the first run. Any thread; never blocks.

        Args:
            name: The name of the bridge.

        Returns:
            None if the runs are executed on the bridge's own loop.
        """


class Workers(Protocol):
    """The workers of one bridge."""

    def graph_for(self, graph: Any) -> Any:
        """Return what is called in the place of ``graph``. Any thread; never blocks.

        Raises:
            InvalidArgumentError: The workers do not have this graph.
        """

    def stop(self) -> None:
        """End all calls, and accept no more. On the loop of the calls; never blocks."""

    def disconnect(self) -> Future[None]:
        """End the processes, in a thread. Any thread; never blocks.

        Returns:
            Done when they have ended.
        """


class Worker(Protocol):
    """A worker process that has loaded its graph. Confined to the loop of the calls."""

    def execute(
        self, batch: Sequence[tuple[int, bytes]], *, streams: bool
    ) -> AsyncIterator[list[Event]]:
        """Send calls, each with a key; yield what happens to them, until all have ended.

        What happens to one call is yielded once, and in its order.

        Args:
            batch: The calls.
            streams: Whether one of them has events before its end.

        Raises:
            WorkerLostError: The process has died, or cannot be reached.
        """

    def control(self, orders: Sequence[Order]) -> None:
        """Tell calls something. Never blocks; it is lost if the process is."""

    async def ended(self) -> None:
        """Wait until the process has died."""

    def kill(self) -> None:
        """End the process at once. Any thread; never blocks."""


class Cluster(Protocol):
    """What starts worker processes, for one pool."""

    def dumps(self, value: Any) -> bytes:
        """Pickle ``value`` for a worker. Any thread; never blocks."""

    async def start_worker(self) -> Worker:
        """Start a process; return when it has loaded its graph. On the loop of the calls.

        Raises:
            ExecutorUnavailableError: The engine cannot be reached, or has no room for it.
            Exception: What the graph's module or factory has raised.
        """

    def disconnect(self) -> None:
        """End the processes that were started. Any thread but a loop's; blocks for seconds."""
