"""Parents that wait for a child on a loop, and children that wait for their parent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.deadlocks import is_waiting
from rxlanggraph.bridge.run import Run
from support.bridge.graphs import one_node
from support.concurrency.pauses import until
from support.concurrency.waiting import LIMIT, Gate

__all__ = ["GIVEN_UP", "WAITS", "Family"]

Bridge = RxPyLangGraphBridge
Wait = Callable[[Any], Awaitable[object]]
SOON = 0.001  # seconds: a wait begins in the iteration before its time is over


_kept: set[asyncio.Task[object]] = set()


async def _await(child: Any) -> object:
    return await child


# -- waits that are given up -----------------------------------------------------------------------


async def _shielded(child: Any) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(child), SOON)


async def _within(child: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            await asyncio.shield(asyncio.gather(child))


async def _wait_in_time(child: Any) -> None:
    await asyncio.wait([asyncio.wrap_future(child)], timeout=SOON)


async def _first_completed(child: Any) -> None:
    other = asyncio.ensure_future(asyncio.sleep(0))
    await asyncio.wait([asyncio.ensure_future(child), other], return_when="FIRST_COMPLETED")


async def _background(child: Any) -> None:
    task = asyncio.ensure_future(_await(child))
    _kept.add(task)
    task.add_done_callback(_kept.discard)
    await asyncio.sleep(0)  # it begins


async def _nested_tasks(child: Any) -> None:
    outer = asyncio.ensure_future(_await(asyncio.ensure_future(_await(child))))
    await asyncio.wait([outer], timeout=SOON)


GIVEN_UP: dict[str, Wait] = {
    "wait_for(shield())": _shielded,
    "timeout() and shield(gather())": _within,
    "wait(timeout=...)": _wait_in_time,
    "wait(FIRST_COMPLETED)": _first_completed,
    "a task in the background": _background,
    "tasks within tasks": _nested_tasks,
}


# -- waits that go on ------------------------------------------------------------------------------


async def _gather(child: Any) -> object:
    return await asyncio.gather(child)


async def _wrapped(child: Any) -> object:
    return await asyncio.wrap_future(child)


async def _wait(child: Any) -> object:
    return await asyncio.wait([asyncio.wrap_future(child)])


async def _as_completed(child: Any) -> None:
    for each in asyncio.as_completed([child]):
        await each


async def _group(child: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_await(child))


async def _again(child: Any) -> object:
    shield = asyncio.shield(child)
    await asyncio.sleep(0)  # it begins
    shield.cancel()
    return await child


async def _task_of_task(child: Any) -> object:
    return await asyncio.ensure_future(_await(asyncio.ensure_future(_await(child))))


WAITS: dict[str, Wait] = {
    "await": _await,
    "wrap_future()": _wrapped,
    "gather()": _gather,
    "shield()": asyncio.shield,
    "wait()": _wait,
    "as_completed()": _as_completed,
    "a TaskGroup": _group,
    "a task that awaits a task": _task_of_task,
    "a wait that was given up once": _again,
}


# -- the two of them -------------------------------------------------------------------------------


class Family:
    """A parent that waits for its child, which then waits for the parent.

    Args:
        bridge: That of the parent.
        other: That of the child.
        wait: How the parent waits: one of `GIVEN_UP`, after which it goes on until the child waits
            for it; or one of `WAITS`.
        child: How the child waits.
        in_graph: Whether the parent is a node of a graph.
    """

    def __init__(
        self, bridge: Bridge, other: Bridge, wait: str, child: str, *, in_graph: bool = False
    ) -> None:
        self._other, self._wait = other, {**GIVEN_UP, **WAITS}[wait]
        self._gives_up = wait in GIVEN_UP
        self._child = {"await": self._awaits, "result()": self._blocks}[child]
        self._given_up, self._asked = Gate(), Gate()
        self._of_parent: Future[Run] = Future()
        self.child: Future[Run] = Future()
        graph = one_node(self._node) if in_graph else self._work
        content = {"value": 1} if in_graph else 1
        self.parent = bridge.create_future_task(graph, content, errors="emit")
        self._of_parent.set_result(self.parent)

    async def _node(self, state: Any) -> Any:
        await self._work(state)
        return {"count": 1}

    async def _work(self, content: Any) -> None:
        child = self._other.create_future_task(self._child, 1, errors="emit")
        self.child.set_result(child)
        await self._wait(child)
        if self._gives_up:
            self._given_up.open()
            await self._asked.wait_async()

    async def _turn_of_child(self, parent: Run) -> None:
        """Return when the child is to wait for its parent. On the loop of that."""
        if self._gives_up:
            await self._given_up.wait_async()
        else:
            await until(lambda: is_waiting(parent))
            for _ in range(20):  # until the parent's tasks are suspended
                await asyncio.sleep(0)

    def _turn(self, parent: Run) -> Future[None]:
        loop = parent.get_loop()
        assert loop is not None
        return asyncio.run_coroutine_threadsafe(self._turn_of_child(parent), loop)

    async def _awaits(self, content: Any) -> str:
        parent = self._of_parent.result(LIMIT)
        await asyncio.wrap_future(self._turn(parent))
        asyncio.get_running_loop().call_soon(self._asked.open)
        return (await parent).status

    def _blocks(self, content: Any) -> str:
        parent = self._of_parent.result(LIMIT)
        self._turn(parent).result(LIMIT)
        loop = parent.get_loop()
        assert loop is not None
        asked = asyncio.run_coroutine_threadsafe(self._until_asked(parent), loop)
        try:
            return parent.result(LIMIT).status
        finally:
            self._asked.open()
            asked.result(LIMIT)

    async def _until_asked(self, parent: Run) -> None:
        await until(lambda: bool(parent._gates) or self._asked.is_open)
        self._asked.open()
