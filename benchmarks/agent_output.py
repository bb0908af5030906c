"""The output of an agent, from its producers to its consumers: how quickly, and how fairly.

Our queue is held against `asyncio.Queue`, which belongs to one loop; `janus`, one loop and threads;
and `culsans`, any number of both. Ours gives the other tasks of its loop a turn with each item, the
others none while there is anything to get: a turn of the loop is part of our figures, and is not
of theirs. An `asyncio.Queue` is fed by threads as people do it, with `call_soon_threadsafe`.

Fairness is the largest share of equal consumers of a filled queue over the smallest, where a share
of nothing counts as one item: 1 is fair.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack

import culsans
import janus

from rxlanggraph.agent import OutputQueue

from .harness import DEADLINE, LoopThread, Ratio, paired

ITEMS = 5_000
#: What a queue holds where producer and consumer take turns.
BOUND = 100


class Ours:
    """The output queue."""

    def __init__(self, size: int = 0) -> None:
        queue: OutputQueue[int] = OutputQueue(size)
        queue.begin()
        self.put, self.put_nowait, self.get = queue.put, queue.put_nowait, queue.get
        self.put_from_thread = queue.put_nowait

    async def close(self) -> None:
        """Nothing to close."""


class Asyncio(Ours):
    """An `asyncio.Queue`; made on its loop."""

    def __init__(self, size: int = 0) -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(size)
        self._loop = asyncio.get_running_loop()
        self.put, self.put_nowait, self.get = queue.put, queue.put_nowait, queue.get

    def put_from_thread(self, item: int) -> None:
        self._loop.call_soon_threadsafe(self.put_nowait, item)


class Janus(Ours):
    """Both sides of a `janus.Queue`."""

    def __init__(self, size: int = 0) -> None:
        self._queue: janus.Queue[int] = janus.Queue(size)
        queue = self._queue.async_q
        self.put, self.put_nowait, self.get = queue.put, queue.put_nowait, queue.get
        self.put_from_thread = self._queue.sync_q.put_nowait

    async def close(self) -> None:
        await self._queue.aclose()


class Culsans(Ours):
    """Both sides of a `culsans.Queue`."""

    def __init__(self, size: int = 0) -> None:
        queue: culsans.Queue[int] = culsans.Queue(size)
        self.put, self.put_nowait = queue.async_put, queue.put_nowait
        self.get, self.put_from_thread = queue.async_get, queue.put_nowait


PEERS: dict[str, Callable[..., Ours]] = {
    "ours": Ours,
    "asyncio": Asyncio,
    "janus": Janus,
    "culsans": Culsans,
}


# -- throughput --------------------------------------------------------------------------------


async def one_loop(peer: str, items: int) -> None:
    """A producer and a consumer on one loop take turns over a bounded queue."""
    queue = PEERS[peer](BOUND)

    async def produce() -> None:
        for item in range(items):
            await queue.put(item)

    producing = asyncio.create_task(produce())
    _insist(items, [await queue.get() for _ in range(items)])
    await producing
    await queue.close()


async def from_thread(peer: str, items: int) -> None:
    """A thread puts, a consumer on a loop gets."""
    queue = PEERS[peer]()

    def produce() -> None:
        for item in range(items):
            queue.put_from_thread(item)

    producing = threading.Thread(target=produce)
    producing.start()
    _insist(items, [await queue.get() for _ in range(items)])
    producing.join(DEADLINE)
    await queue.close()


WAYS = {"one loop": one_loop, "a thread to a loop": from_thread}


def _insist(items: int, got: list[int]) -> None:
    if got != list(range(items)):
        raise AssertionError(f"{items} items went in, {len(got)} others came out")


def transport(way: str, peer: str, items: int = ITEMS) -> None:
    """Take `items` items through the queue of a peer, on a loop made for it."""
    asyncio.run(WAYS[way](peer, items))


def ratio(way: str, peer: str, *, pairs: int = 11, items: int = ITEMS) -> Ratio:
    """An item through our queue over one through that of a peer."""
    return paired(
        lambda: transport(way, "ours", items),
        lambda: transport(way, peer, items),
        pairs=pairs,
        items=items,
    )


# -- fairness ----------------------------------------------------------------------------------


class Crowd:
    """So many consumers on so many loops, all in line before there is any item."""

    def __init__(self, peer: str, consumers: int, loops: int, items: int) -> None:
        self.counts = [0] * consumers
        self._peer = peer
        self._loops = loops
        self._left = items
        self._lock = threading.Lock()  # guards what is left
        self._nothing_left = threading.Event()

    def share_out(self) -> None:
        """Until all items are taken."""
        items = range(self._left)
        with ExitStack() as stack:
            threads = [stack.enter_context(LoopThread()) for _ in range(self._loops)]
            queue = threads[0].run(self._make())
            consuming = [
                (
                    thread,
                    thread.run(self._start(queue, range(first, len(self.counts), self._loops))),
                )
                for first, thread in enumerate(threads)
            ]
            threads[0].run(self._fill(queue, items))
            if not self._nothing_left.wait(DEADLINE):
                raise TimeoutError(f"after {DEADLINE} s, {self._left} items are left")
            for thread, tasks in consuming:
                thread.run(_cancel(tasks))
            threads[0].run(queue.close())

    async def _make(self) -> Ours:
        return PEERS[self._peer]()

    async def _start(self, queue: Ours, numbers: range) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._consume(queue, number)) for number in numbers]
        await asyncio.sleep(0)
        return tasks

    async def _fill(self, queue: Ours, items: range) -> None:
        for item in items:
            queue.put_nowait(item)

    async def _consume(self, queue: Ours, number: int) -> None:
        while True:
            await queue.get()
            self.counts[number] += 1
            with self._lock:
                self._left -= 1
                if not self._left:
                    self._nothing_left.set()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def unfairness(peer: str, consumers: int, loops: int, *, items: int = ITEMS) -> float:
    """The largest share over the smallest, which counts as one item if it is none."""
    crowd = Crowd(peer, consumers, loops, items)
    crowd.share_out()
    return max(crowd.counts) / max(min(crowd.counts), 1)


#: How many consumers, and on how many loops.
CROWDS = ((2, 1), (3, 1), (50, 1), (2, 2), (3, 3), (50, 5))


def peers_for(loops: int) -> list[str]:
    """The other queues that can serve so many loops."""
    return ["asyncio", "janus", "culsans"] if loops == 1 else ["culsans"]


# -- for ASV -----------------------------------------------------------------------------------


class Output:
    """Seconds for all items, by peer and way."""

    params = (list(PEERS), list(WAYS))
    param_names = ("peer", "way")
    timeout = 300
    number = 1
    warmup_time = 0

    def time_transport(self, peer: str, way: str) -> None:
        transport(way, peer)


class OutputRatio:
    """Ours over each peer, in pairs."""

    params = (["asyncio", "janus", "culsans"], list(WAYS))
    param_names = ("peer", "way")
    timeout = 600
    unit = "ratio"

    def track_transport(self, peer: str, way: str) -> float:
        return ratio(way, peer).value


class Fairness:
    """The largest share over the smallest."""

    params = (list(PEERS), list(CROWDS))
    param_names = ("peer", "consumers and loops")
    timeout = 300
    unit = "largest/smallest"

    def setup(self, peer: str, crowd: tuple[int, int]) -> None:
        if peer not in ("ours", *peers_for(crowd[1])):
            raise NotImplementedError(f"{peer} belongs to one loop")

    def track_shares(self, peer: str, crowd: tuple[int, int]) -> float:
        return unfairness(peer, *crowd)
