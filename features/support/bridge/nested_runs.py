"""Runs that wait for other runs, and nodes that wait for what waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import reactivex
from reactivex import operators as ops

from rxlanggraph import BlockingCallError, RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.run import Run, current_run
from support.bridge.graphs import one_node
from support.concurrency.pauses import until
from support.concurrency.waiting import LIMIT, thread

__all__ = ["CIRCLES", "SENDERS", "Forest", "parents", "pool_waits_for_itself"]

Bridge = RxPyLangGraphBridge
Node = Callable[[Any], Any]
TIME = 2 * LIMIT  # of a wait that would never end; more than a scenario may take


async def echo(content: Any) -> Any:
    return content


# -- ways to wait for a child ----------------------------------------------------------------------


def _result(bridge: Bridge, thread_id: str | None) -> Node:
    return lambda content: bridge.create_future_task(echo, 1, thread_id=thread_id).result().content


def _result_in_time(bridge: Bridge, thread_id: str | None) -> Node:
    return lambda content: bridge.create_future_task(echo, 1, thread_id=thread_id).result(TIME)


def _exception(bridge: Bridge, thread_id: str | None) -> Node:
    return lambda content: bridge.create_future_task(echo, 1, thread_id=thread_id).exception()


def _await(bridge: Bridge, thread_id: str | None) -> Node:
    async def node(content: Any) -> Any:
        return (await bridge.create_future_task(echo, 1, thread_id=thread_id)).content

    return node


def _wrap_future(bridge: Bridge, thread_id: str | None) -> Node:
    async def node(content: Any) -> Any:
        run = bridge.create_future_task(echo, 1, thread_id=thread_id)
        return (await asyncio.wrap_future(run)).content

    return node


def _sync_node(bridge: Bridge, thread_id: str | None) -> Any:
    return one_node(lambda state: {"count": _result(bridge, thread_id)(state)})


def _async_node(bridge: Bridge, thread_id: str | None) -> Any:
    waits = _await(bridge, thread_id)

    async def node(state: Any) -> Any:
        return {"count": await waits(state)}

    return one_node(node)


SENDERS: dict[str, Callable[[Bridge, str | None], Any]] = {
    "result()": _result,
    "result(60)": _result_in_time,
    "exception()": _exception,
    "await": _await,
    "wrap_future()": _wrap_future,
    "result() in a graph": _sync_node,
    "await in a graph": _async_node,
}


def parents(bridge: Bridge, way: str, count: int) -> list[StreamMessage]:
    """The results of ``count`` parents that hold a slot each before one of them waits."""
    all_here, all_here_too, here = threading.Barrier(count), asyncio.Event(), 0
    waits = SENDERS[way](bridge, None)

    def sync_parent(content: Any) -> Any:
        all_here.wait(LIMIT)
        return waits(content)

    async def async_parent(content: Any) -> Any:
        nonlocal here
        here += 1
        if here == count:
            all_here_too.set()
        await all_here_too.wait()
        return await waits(content)

    parent = async_parent if inspect.iscoroutinefunction(waits) else sync_parent
    runs = [bridge.create_future_task(parent, i, errors="emit") for i in range(count)]
    return [run.result(LIMIT) for run in runs]


# -- other circles: each returns the run that is refused -------------------------------------------


def _itself(bridge: Bridge) -> Future[Any]:
    runs: Future[Any] = Future()
    run = bridge.create_future_task(lambda content: runs.result(LIMIT).result(), 1)
    runs.set_result(run)
    return run


def _each_other(bridge: Bridge) -> Future[Any]:
    # One waits with a timeout that is not over before the other one is refused.
    first: Future[Any] = Future()
    second: Future[Any] = Future()
    waits = threading.Event()

    async def patient(content: Any) -> Any:
        other = second.result(LIMIT)
        waits.set()
        return (await other).content

    def refused(content: Any) -> Any:
        waits.wait(LIMIT)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(LIMIT)
        return first.result(LIMIT).result()

    run = bridge.create_future_task(refused, 2)
    loop = bridge._engine.host.loop
    assert loop is not None
    second.set_result(run)
    first.set_result(bridge.create_future_task(patient, 1, errors="emit"))
    return run


def _when_waited_for() -> None:
    """Return once the run that this is called in is waited for: the last to wait is refused."""
    run, pause = current_run(), threading.Event()
    assert run is not None
    for _ in range(int(LIMIT / 0.001)):
        if run._gates:
            return
        pause.wait(0.001)  # there is no notice when a thread begins to wait
    raise AssertionError(f"no run waits for {run}")


def _grandchild(bridge: Bridge) -> Future[Any]:
    def child(content: Any) -> Any:
        _when_waited_for()
        return bridge.create_future_task(echo, 1, thread_id="mine").result()

    def parent(content: Any) -> Any:
        return bridge.create_future_task(child, 1).result()

    return bridge.create_future_task(parent, 1, thread_id="mine")


def _two_bridges(bridge: Bridge) -> Future[Any]:
    def there(content: Any) -> Any:
        _when_waited_for()
        return bridge.create_future_task(echo, 1, thread_id="mine").result()

    def here(content: Any) -> Any:
        with Bridge() as other:
            return other.create_future_task(there, 1).result()

    return bridge.create_future_task(here, 1, thread_id="mine")


def _room(bridge: Bridge) -> Future[Any]:
    def node(content: Any) -> None:
        for number in range(4):
            bridge.create_future_task(echo, number, thread_id="mine")

    return bridge.create_future_task(node, 1, thread_id="mine")


def _standing_loop(bridge: Bridge) -> Future[Any]:
    async def there(content: Any) -> Any:
        _when_waited_for()
        return (await bridge.create_future_task(echo, 1)).content

    async def here(content: Any) -> Any:
        with Bridge() as other:
            return other.create_future_task(there, 1).result()

    return bridge.create_future_task(here, 1)


def _room_of_each_other(bridge: Bridge) -> Future[Any]:
    both_stand, room_is_gone = threading.Barrier(3), threading.Event()

    async def cross(to: Bridge) -> None:
        both_stand.wait(LIMIT)
        room_is_gone.wait(LIMIT)
        to.create_future_task(echo, 1)

    refused: Future[Any] = Future()
    with Bridge(max_pending=1) as other:
        runs = [
            bridge.create_future_task(cross, other, errors="emit"),
            other.create_future_task(cross, bridge, errors="emit"),
        ]
        both_stand.wait(LIMIT)
        for each in (bridge, other):
            each.create_future_task(echo, 1)
        room_is_gone.set()
        (error,) = [error for run in runs if (error := run.result(LIMIT).error) is not None]
    refused.set_exception(error)
    return refused


def _fed(bridge: Bridge, count: int, *stages: Any) -> Future[Any]:
    """Feed a stream from a thread of its own; a future of the error that it ends with."""
    ended: Future[Any] = Future()
    stream = reactivex.from_iterable(range(count)).pipe(*stages)
    thread(lambda: stream.subscribe(on_error=ended.set_exception, on_completed=ended.cancel))
    return ended


def _room_behind_it(bridge: Bridge) -> Future[Any]:
    backlog, pause = bridge._engine.admission, threading.Event()

    def node(content: Any) -> Any:
        if content != 0:
            return content
        for _ in range(int(LIMIT / 0.001)):
            if backlog._gates and len(bridge.registry) == 1:
                break
            pause.wait(0.001)  # there is no notice when a thread begins to wait
        return bridge.create_future_task(echo, 1).result().content

    return _fed(bridge, 20, bridge.invoke(node, ordered=True))


def _room_taken_by_results(bridge: Bridge) -> Future[Any]:
    backlog, refused = bridge._engine.admission, threading.Event()

    async def first(content: Any) -> Any:
        # Until the source waits, and the second stage; or a run has been refused.
        await until(lambda: content == 0 or len(backlog._gates) > 1 or refused.is_set())
        return content

    def second(content: Any) -> Any:
        # Not before the source waits for room for good, as runs that hold on have all the slots.
        pause = threading.Event()
        for _ in range(int(LIMIT / 0.001)):
            begun = sum(isinstance(run, Run) and run.running() for run in bridge.registry.tasks())
            if refused.is_set() or (backlog._gates and begun == bridge.max_concurrency):
                break
            pause.wait(0.001)  # there is no notice when a thread begins to wait
        try:
            return bridge.create_future_task(echo, 1).result().content
        finally:
            refused.set()

    first_stage, second_stage = bridge.invoke(first), bridge.invoke(second, max_concurrency=1)
    return _fed(bridge, 40, first_stage, ops.map(lambda result: result.content), second_stage)


def _calls(call: Callable[[Bridge], object]) -> Callable[[Bridge], Future[Any]]:
    return lambda bridge: bridge.create_future_task(lambda content: call(bridge), 1)


def _awaits_idle(bridge: Bridge) -> Future[Any]:
    async def node(content: Any) -> Any:
        return await bridge.registry.wait_idle_async()

    return bridge.create_future_task(node, 1)


CIRCLES: dict[str, Callable[[Bridge], Future[Any]]] = {
    "waits for itself": _itself,
    "waits for one that waits for it": _each_other,
    "waits for a child that waits for one on its thread": _grandchild,
    "waits for a run of another bridge, which waits for one on its thread": _two_bridges,
    "sends more to its own thread than max_pending lets in": _room,
    "blocks its loop for a run of another bridge, which awaits one of this": _standing_loop,
    "blocks its loop for room of another bridge, whose loop waits for room": _room_of_each_other,
    "waits for room that those behind it in an ordered stream have": _room_behind_it,
    "waits for room that results of an earlier stage take": _room_taken_by_results,
    "calls registry.wait_idle()": _calls(lambda bridge: bridge.registry.wait_idle()),
    "calls registry.wait_idle(60)": _calls(lambda bridge: bridge.registry.wait_idle(TIME)),
    "calls cleanup_tasks()": _calls(lambda bridge: bridge.cleanup_tasks()),
    "calls close()": _calls(lambda bridge: bridge.close()),
    "awaits registry.wait_idle_async()": _awaits_idle,
}


def pool_waits_for_itself() -> object:
    """What a task of a ThreadPoolExecutor learns that waits for one behind it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: pool.submit(int).exception(0.05)).exception(LIMIT)


# -- any runs --------------------------------------------------------------------------------------


class Tree(NamedTuple):
    """One run, and those that it sends."""

    thread_id: str | None
    sync: bool
    waited_for: bool
    children: list[Tree]


class Forest:
    """Runs that send others, and wait for most of them, as ``seed`` says.

    Args:
        bridge: Where they all run.
        seed: Of the random numbers.
        threads: The thread_ids to choose from.
    """

    def __init__(self, bridge: Bridge, seed: int, threads: Sequence[str | None]) -> None:
        self.refused = 0  # guarded by the lock
        self._bridge = bridge
        self._random = random.Random(seed)
        self._threads = threads
        self._lock = threading.Lock()

    def grow(self, count: int, depth: int) -> list[StreamMessage]:
        """The results of ``count`` trees."""
        trees = [self._plan(depth) for _ in range(count)]
        return [run.result(LIMIT) for run in [self._send(tree) for tree in trees]]

    def _plan(self, depth: int) -> Tree:
        count = self._random.randint(0, 2) if depth else 0
        children = [self._plan(depth - 1) for _ in range(count)]
        sync, waited_for = self._random.random() < 0.5, self._random.random() < 0.8
        return Tree(self._random.choice(self._threads), sync, waited_for, children)

    def _send(self, tree: Tree) -> Run:
        node = self._sync_node if tree.sync else self._async_node
        return self._bridge.create_future_task(node, tree, thread_id=tree.thread_id, errors="emit")

    def _sync_node(self, tree: Tree) -> None:
        runs = []
        for child in tree.children:
            with self._refusal():
                runs.append((self._send(child), child.waited_for))
        for run, waited_for in runs:
            if waited_for:
                with self._refusal():
                    run.result(LIMIT)

    async def _async_node(self, tree: Tree) -> None:
        for child in tree.children:
            with self._refusal():
                run = self._send(child)
                if child.waited_for:
                    await run

    @contextlib.contextmanager
    def _refusal(self) -> Iterator[None]:
        try:
            yield
        except BlockingCallError:  # a DeadlockError, or for want of room on the loop's thread
            with self._lock:
                self.refused += 1
