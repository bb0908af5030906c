"""Consumers on loops: what each of them got, and a crowd that does all it can to lose an item."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any

from rxlanggraph.agent import OutputQueue
from rxlanggraph.errors import OutputEndedError, RunTimeoutError
from support.bridge.bridges import LentLoop
from support.concurrency.tasks import pass_turns
from support.concurrency.waiting import LIMIT, thread

__all__ = [
    "Storm",
    "after_turns",
    "consume",
    "fill",
    "get_one",
    "left",
    "listed",
    "read",
    "share_out",
    "share_out_on_loops",
    "waiting",
]


async def after_turns(task: asyncio.Task[Any]) -> bool:
    """Whether ``task`` has ended by then; it has ended afterwards."""
    await pass_turns()
    ended = task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return ended


async def waiting(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that has begun, and waits."""
    task = asyncio.create_task(coroutine)
    await pass_turns()
    assert not task.done(), task
    return task


def fill(queue: Any, items: int) -> None:
    """Put 0 and so on."""
    for item in range(items):
        queue.put_nowait(item)


async def get_one(queue: Any) -> Any:
    """As a consumer of its own, if it is a task: who calls ``get`` is the consumer."""
    return await queue.get()


async def read(stream: Any, got: list[Any]) -> None:
    """Read to the end of the stream."""
    async for item in stream:
        got.append(item)  # noqa: PERF401 # what it had is there also if it is cancelled


def left(queue: Any) -> list[Any]:
    """The items not taken yet; this takes them."""
    items: list[Any] = []
    with suppress(asyncio.QueueEmpty):
        while True:
            items.append(queue.get_nowait())
    return items


async def consume(queue: Any, got: list[Any]) -> None:
    """Get until the end of the run."""
    with suppress(OutputEndedError):
        while True:
            got.append(await queue.get())


def share_out(queue: Any, consumers: int, items: int) -> list[list[Any]]:
    """What each of so many consumers of a filled queue got, all on one loop."""

    async def main() -> list[list[Any]]:
        fill(queue, items)
        queue.end()
        shares: list[list[Any]] = [[] for _ in range(consumers)]
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(consume(queue, share) for share in shares))
        return shares

    return asyncio.run(main())


def share_out_on_loops(
    queue: OutputQueue[Any], consumers: int, loops: int, items: int
) -> list[list[Any]]:
    """The same, on several loops in threads. All are in line before there is anything."""
    shares: list[list[Any]] = [[] for _ in range(consumers)]
    with ExitStack() as stack:
        lent = [LentLoop() for _ in range(loops)]
        for loop in lent:
            stack.callback(loop.end)

        async def start(some: list[list[Any]]) -> list[asyncio.Task[None]]:
            return [await waiting(consume(queue, share)) for share in some]

        tasks = [(loop, loop.run(start(shares[i::loops]))) for i, loop in enumerate(lent)]
        fill(queue, items)
        queue.end()

        async def ended(some: list[asyncio.Task[None]]) -> None:
            await asyncio.gather(*some)

        for loop, some in tasks:
            loop.run(ended(some))
    return shares


class Storm:
    """Threads that put, and loops of consumers that get, give up, are cancelled and are closed.

    Chance decides who does what when; ``seed`` makes its decisions again.
    """

    PUTTERS = 3
    ITEMS = 150

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        size, patience = self._chance.choice([0, 1, 3]), self._chance.choice([0.0, 0.001, 0.02])
        self.queue: OutputQueue[Any] = OutputQueue(size, fairness_timeout=patience)
        self.observed: list[Any] = []
        self.queue.observable.subscribe(self.observed.append)
        self.broadcasts: list[list[Any]] = [[], []]
        self._got: list[Any] = []
        self._lock = threading.Lock()  # guards that list
        self.all_put = False  # set once, by the thread that runs it

    def run(self) -> None:
        """Until everything is put, and the run has ended."""
        queue = self.queue
        queue.begin()
        streams = [queue.stream(broadcast=True) for _ in self.broadcasts]

        async def read(number: int) -> None:
            async for item in streams[number]:
                self.broadcasts[number].append(item)

        loops = [thread(self._loop, self._seed(), read(number)) for number in (0, 1)]
        loops += [thread(self._closing_loop, self._seed()) for _ in range(2)]
        putters = [thread(self._put, i, self._seed()) for i in range(self.PUTTERS)]
        for putter in putters:
            putter.result(LIMIT)
        self.all_put = True
        queue.end()
        for loop in loops:
            loop.result(LIMIT)

    @property
    def got(self) -> Counter[Any]:
        return Counter(self._got)

    @property
    def put(self) -> Counter[Any]:
        return Counter((i, item) for i in range(self.PUTTERS) for item in range(self.ITEMS))

    def _seed(self) -> random.Random:
        return random.Random(self._chance.random())

    def _take(self, item: Any) -> None:
        with self._lock:
            self._got.append(item)

    def _put(self, number: int, chance: random.Random) -> None:
        async def main() -> None:
            for item in range(self.ITEMS):
                if chance.random() < 0.5 or not self._put_now((number, item)):
                    await self.queue.put((number, item))

        asyncio.run(main())

    def _put_now(self, item: Any) -> bool:
        try:
            self.queue.put_nowait(item)
        except asyncio.QueueFull:
            return False
        return True

    def _loop(self, chance: random.Random, also: Coroutine[Any, Any, None]) -> None:
        async def main() -> None:
            consumers = [self._impatient, self._impatient, self._cancelled, self._streaming]
            await asyncio.gather(also, *(consumer(chance) for consumer in consumers))

        asyncio.run(main())

    def _closing_loop(self, chance: random.Random) -> None:
        """Closed with getters on it that were not cancelled, and now never will be."""
        loop = asyncio.new_event_loop()

        async def one() -> None:
            with suppress(OutputEndedError):  # all was got before this thread came to it
                self._take(await self.queue.get())

        tasks = [loop.create_task(one()) for _ in range(3)]
        loop.run_until_complete(asyncio.sleep(chance.random() * 0.01))
        for task in tasks:
            task._log_destroy_pending = False  # on purpose
        loop.close()

    async def _impatient(self, chance: random.Random) -> None:
        ways: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: self.queue.get(timeout=chance.choice([0, 0.0005])),
            lambda: asyncio.wait_for(self.queue.get(), chance.choice([0.0001, 0.001])),
            self.queue.get,
        ]
        with suppress(OutputEndedError):
            while True:
                with suppress(TimeoutError):
                    self._take(await chance.choice(ways)())

    async def _cancelled(self, chance: random.Random) -> None:
        with suppress(OutputEndedError):
            while True:
                task = asyncio.create_task(self.queue.get())
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    self._take(await task)

    async def _streaming(self, chance: random.Random) -> None:
        # One that is opened after the end of the run may wait for the next, which never begins:
        # hence the time limit, after which it looks whether all has been put.
        stopped = True
        while stopped and not self.all_put:
            stream, stopped = self.queue.stream(0.1), False
            try:
                async for item in stream:
                    self._take(item)
                    if chance.random() < 0.05:
                        stopped = True
                        break
            except RunTimeoutError:
                stopped = True
            await stream.aclose()


async def listed(stream: Any) -> list[Any]:
    return [item async for item in stream]
