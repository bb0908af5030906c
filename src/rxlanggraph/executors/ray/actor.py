"""A worker process, as Ray calls it: an async actor around a `GraphHost`.

Calls of the graph and what they are told are in two concurrency groups, each with a loop of its
own: an order reaches the host while its loop is busy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from rxlanggraph.executors.contract import Event, Order
from rxlanggraph.executors.host import GraphHost
from rxlanggraph.executors.targets import Target

__all__ = ["HostActor", "actor_class"]

# The concurrency group of `control`, and how many of these calls it has at once: they only pass
# something on.
_CONTROL, _CONTROLS = "control", 4


class HostActor:
    """Executes calls of a graph. Its methods are called by `RayWorker`.

    Args:
        target: The graph.
        variables: The names of the context variables that calls carry.
        max_calls: How many calls it may have at once.
    """

    def __init__(self, target: Target, variables: Sequence[str], max_calls: int) -> None:
        from ray import cloudpickle  # noqa: PLC0415 - in a process of Ray's

        self._host = GraphHost(target, variables, max_calls, cloudpickle.dumps)

    async def open(self) -> tuple[Any, ...]:
        """As `GraphHost.open`."""
        return await self._host.open()

    async def execute(self, batch: Sequence[tuple[int, bytes]]) -> AsyncIterator[list[Event]]:
        """As `GraphHost.execute`."""
        async for events in self._host.execute(batch):
            yield events

    async def control(self, orders: Sequence[Order]) -> None:
        """As `GraphHost.control`."""
        self._host.control(orders)

    async def close(self) -> None:
        """As `GraphHost.close`."""
        await self._host.close()


def actor_class(ray: Any) -> Any:
    """Make the class of the actors. Any thread; never blocks.

    Args:
        ray: The module.
    """

    class RxLangGraphWorker(HostActor):  # what Ray calls the process
        @ray.method(concurrency_group=_CONTROL)  # type: ignore[untyped-decorator]
        async def control(self, orders: Sequence[Order]) -> None:
            await super().control(orders)

    return ray.remote(concurrency_groups={_CONTROL: _CONTROLS})(RxLangGraphWorker)
