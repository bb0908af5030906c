"""Ways to leave something behind. Each is given `cleanup`, to say how it is taken away again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from rxlanggraph.registry import TaskRegistry

Cleanup = Callable[[Callable[[], object]], object]
NAME = "left-alone"
LOOP = "loop-of-the-test"


class Monitor(threading.Thread):
    """A thread of a class of its own."""


class EndsWhenJoined(threading.Thread):
    def __init__(self) -> None:
        self.released = threading.Event()
        super().__init__(target=self.released.wait)

    def join(self, timeout: float | None = None) -> None:
        self.released.set()
        super().join(timeout)


class StartsWhenJoined(threading.Thread):
    """A thread that exists, and whose ``start`` has not returned before something joins it."""

    def __init__(self) -> None:
        self.released = threading.Event()
        super().__init__()

    def _bootstrap(self) -> None:
        self.released.wait()
        super()._bootstrap()  # type: ignore[misc]  # where its code begins, in any Python

    def join(self, timeout: float | None = None) -> None:
        try:
            super().join(timeout)
        finally:
            self.released.set()


class EndsWhenWatched(asyncio.Task[None]):
    released: asyncio.Event

    def add_done_callback(self, *args: Any, **kwargs: Any) -> None:
        self.released.set()
        super().add_done_callback(*args, **kwargs)


class IdleWhenAwaited(TaskRegistry):
    def wait_idle(self, timeout: float | None = None) -> bool:
        self.cancel_all()
        return super().wait_idle(timeout)


class RaisesInFinalizer:
    def __del__(self) -> None:
        raise ValueError("unseen")


class LoopThread:
    """An event loop that runs in a thread until it is stopped."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=LOOP)
        self._thread.start()
        self.run(asyncio.sleep(0))  # it runs: only then may it be adopted

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def thread(
    cleanup: Cleanup, kind: type[threading.Thread] = threading.Thread, *, daemon: bool = False
) -> None:
    released = threading.Event()

    def work() -> None:
        released.wait()

    left = kind(target=work, name=NAME, daemon=daemon)
    left.start()
    cleanup(left.join)
    cleanup(released.set)


def ending_thread(_cleanup: Cleanup) -> None:
    EndsWhenJoined().start()


def starting_thread(_cleanup: Cleanup) -> None:
    starting = StartsWhenJoined()
    starter = threading.Thread(target=starting.start, name=LOOP)  # not looked at
    starter.start()
    while starting not in threading.enumerate():
        starter.join(0.001)


def failing_thread(_cleanup: Cleanup) -> None:
    def work() -> None:
        raise ValueError("unseen")

    failing = threading.Thread(target=work, name="dying")
    failing.start()
    failing.join()


def idle_pool(cleanup: Cleanup) -> None:
    pool = ThreadPoolExecutor(1, thread_name_prefix=NAME)
    pool.submit(int).result()
    cleanup(pool.shutdown)


def pool_in_a_cycle(_cleanup: Cleanup) -> None:
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    cycle: list[object] = [pool]
    cycle.append(cycle)


def process(cleanup: Cleanup) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    cleanup(child.communicate)
    return child


def ended_process(cleanup: Cleanup) -> None:
    child = process(cleanup)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def awaited_process(_cleanup: Cleanup) -> None:
    process(lambda communicate: communicate())


async def wait_for(released: asyncio.Event) -> None:
    await released.wait()


def task(cleanup: Cleanup) -> None:
    home = LoopThread()
    cleanup(home.stop)
    released = asyncio.Event()

    async def begin() -> None:
        left = asyncio.create_task(wait_for(released), name=NAME)
        await asyncio.sleep(0)

        async def end() -> None:
            released.set()
            await left

        cleanup(lambda: home.run(end()))

    home.run(begin())


def ending_task(cleanup: Cleanup) -> None:
    home = LoopThread()
    cleanup(home.stop)

    async def begin() -> None:
        released = asyncio.Event()
        ending = EndsWhenWatched(wait_for(released), loop=home.loop)
        ending.released = released
        home.ending = ending

    home.run(begin())


def task_of_a_stopped_loop(cleanup: Cleanup) -> None:
    loop = asyncio.new_event_loop()
    cleanup(loop.close)
    released = asyncio.Event()
    left = loop.create_task(wait_for(released), name=NAME)
    loop.run_until_complete(asyncio.sleep(0))
    cleanup(lambda: loop.run_until_complete(left))
    cleanup(released.set)


def failing_task(_cleanup: Cleanup) -> None:
    async def work() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        await asyncio.wait([asyncio.create_task(work())])

    asyncio.run(main())


async def forgotten() -> None:
    """Something to be awaited."""


def coroutine(cleanup: Cleanup) -> None:
    cleanup(forgotten().close)


def dropped_coroutine(_cleanup: Cleanup) -> None:
    forgotten()


def closed_coroutine(_cleanup: Cleanup) -> None:
    forgotten().close()


def entry(cleanup: Cleanup) -> TaskRegistry:
    registry = TaskRegistry()
    registry.add(Future(), name=NAME)
    cleanup(registry.cancel_all)
    return registry


def leaving_entry(cleanup: Cleanup) -> None:
    registry = IdleWhenAwaited()
    registry.add(Future(), name=NAME)
    cleanup(registry.cancel_all)


def failing_finalizer(_cleanup: Cleanup) -> None:
    RaisesInFinalizer()


LEFT: dict[str, Callable[[Cleanup], object]] = {
    "a thread that goes on": thread,
    "a daemon thread that goes on": lambda cleanup: thread(cleanup, daemon=True),
    "a thread of the class Monitor": lambda cleanup: thread(cleanup, Monitor),
    "an idle thread of a pool": idle_pool,
    "a process that goes on": process,
    "a process never waited for": ended_process,
    "a task of a running loop": task,
    "a task of a loop that stopped": task_of_a_stopped_loop,
    "a coroutine never awaited": coroutine,
    "a coroutine dropped unawaited": dropped_coroutine,
    "an entry of a registry": entry,
    "an error that ended a thread": failing_thread,
    "an error inside a finalizer": failing_finalizer,
    "an unretrieved error of a task": failing_task,
}
HARMLESS: dict[str, Callable[[Cleanup], object]] = {
    "a thread that is just starting": starting_thread,
    "a thread that is just ending": ending_thread,
    "a pool that only a cycle keeps alive": pool_in_a_cycle,
    "a task that is just ending": ending_task,
    "an entry that is just leaving": leaving_entry,
    "a process that was waited for": awaited_process,
    "a coroutine that was closed": closed_coroutine,
}
