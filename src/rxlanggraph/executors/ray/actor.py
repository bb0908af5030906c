"""A worker process, as Ray calls it: an async actor around a `GraphHost`.

Calls of the graph and what they are told are in two concurrency groups, each with a loop of its
own: an order reaches the host while its loop is busy.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rxlanggraph.executors.contract import Event, Order
from rxlanggraph.executors.host import GraphHost
from rxlanggraph.executors.payloads import loads

__all__ = ["HostActor", "actor_class"]

_log = logging.getLogger("rxlanggraph")

# The concurrency group of `control`, and how many of these calls it has at once: they only pass
# something on.
_CONTROL, _CONTROLS = "control", 4


class HostActor:
    """Executes calls of a graph. Its methods are called by `RayWorker`.

    Args:
        data: The arguments of its `GraphHost` but for ``dumps``, as bytes.
        path: Where the driver finds its modules, the graph's among them.
    """

    def __init__(self, data: bytes, path: Sequence[str]) -> None:
        from ray import cloudpickle  # noqa: PLC0415 - in a process of Ray's

        # In the driver's order: of two modules of one name, the same one is found.
        sys.path[:] = [*path, *(each for each in sys.path if each not in path)]
        target, variables, max_calls = loads(data)
        self._host = GraphHost(loads(target), variables, max_calls, cloudpickle.dumps)

    async def open(self) -> tuple[Any, ...]:
        """As `GraphHost.open`."""
        _keep_going(asyncio.get_running_loop(), threading.current_thread())
        return await self._host.open()

    async def execute(self, batch: Sequence[tuple[int, bytes]]) -> AsyncIterator[list[Event]]:
        """As `GraphHost.execute`."""
        async for events in self._host.execute(batch):
            yield events

    async def answer(self, batch: Sequence[tuple[int, bytes]]) -> list[Event]:
        """As `execute`, with all events at the end."""
        return [event async for events in self._host.execute(batch) for event in events]

    async def control(self, orders: Sequence[Order]) -> None:
        """As `GraphHost.control`."""
        self._host.control(orders)

    async def stay(self) -> None:
        """Return never: the end of the process ends the call."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """As `GraphHost.close`."""
        await self._host.close()


def _keep_going(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Let ``loop``, which Ray runs in ``thread``, go on when a node raises SystemExit.

    asyncio ends the loop of a task that raises it, or KeyboardInterrupt. What breaks without this:
    the process stays, and nothing in it ever answers.
    """
    otherwise = threading.excepthook

    def run_on() -> None:
        asyncio.set_event_loop(loop)
        while True:
            _log.warning("a node has ended the loop of a worker, which continues")
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue
            return

    def go_on(args: threading.ExceptHookArgs) -> None:
        if args.thread is not thread or not issubclass(
            args.exc_type, SystemExit | KeyboardInterrupt
        ):
            otherwise(args)
            return
        # In another thread: in this one, it would be the context of every further exception.
        another = threading.Thread(target=run_on, name=thread.name, daemon=True)
        another.start()
        another.join()  # Ray waits for this one

    threading.excepthook = go_on


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
