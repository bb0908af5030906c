"""What a signal handler or a finalizer does while an output queue is being used."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from rxlanggraph.agent import OutputQueue
from rxlanggraph.agent.output import fairness, queue, reservations, stream
from rxlanggraph.concurrency import waiters
from rxlanggraph.errors import OutputEndedError, RunTimeoutError
from rxlanggraph.rx import serialized_observer, serialized_subject
from support.concurrency.entering import Enterable
from support.concurrency.waiting import LIMIT

__all__ = ["ENTERABLE"]

_PARTS = (
    queue,
    stream,
    reservations,
    serialized_subject,
    fairness,
    waiters,
    serialized_observer,
)


class Known:
    """A queue of three with as many items in it, and all that was put into it and got out.

    One getter of another consumer waits its turn; it is dropped by what comes in.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.queue: OutputQueue[int] = OutputQueue(3, fairness_timeout=LIMIT)
        self.queue.begin()
        self.put: list[int] = []
        self.got: list[int] = []
        self.observed: list[int] = []
        self.queue.observable.subscribe(self.observed.append)
        self.broadcast = self.queue.stream(broadcast=True)
        self.dropped: Coroutine[Any, Any, int] | None = None
        self.loop.run_until_complete(self._wait_with_one())
        for _ in range(3):
            self.put_one()

    async def _wait_with_one(self) -> None:
        self.dropped = self.queue.get()
        self.dropped.send(None)

    def put_one(self) -> None:
        item = len(self.put)
        with suppress(asyncio.QueueFull):
            self.queue.put_nowait(item)
            self.put.append(item)

    def get_one(self) -> None:
        with suppress(asyncio.QueueEmpty):
            self.got.append(self.queue.get_nowait())

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(coroutine)

    async def get(self) -> None:
        with suppress(OutputEndedError):
            self.got.append(await self.queue.get(LIMIT))

    async def give_up(self) -> None:
        with suppress(RunTimeoutError):
            self.got.append(await self.queue.get(0))

    async def be_cancelled(self) -> None:
        task = asyncio.create_task(self.get())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def put_when_there_is_room(self) -> None:
        item = 1000
        task = asyncio.create_task(self.queue.put(item))
        await asyncio.sleep(0)
        self.get_one()
        self.get_one()
        await self.get()
        await task
        self.put.append(item)

    def open_and_close(self) -> None:
        for broadcast in (False, True):
            stream = self.queue.stream(broadcast=broadcast)
            self.loop.run_until_complete(stream.aclose())

    def next_run(self) -> None:
        """Something is read, so that nothing is dropped."""
        self.get_one()
        reader = self.queue.stream()
        self.queue.begin()
        del reader

    def use_everything(self) -> None:
        """What comes in."""
        if self.dropped is not None:
            self.dropped.close()
        self.put_one()
        stream = self.queue.stream()
        self.get_one()
        self.queue.stream(broadcast=True)
        self.queue.observable.subscribe(lambda _: None).dispose()
        assert 0 <= self.queue.qsize() <= 3, repr(self.queue)
        assert self.queue.empty() is (self.queue.qsize() == 0)
        del stream

    def discard(self) -> None:
        """Drop what waits; a second time changes nothing."""
        if self.dropped is not None:
            self.dropped.close()
        self.loop.close()

    def check(self) -> None:
        """Everything that was put is got, once; then the run is over for every consumer."""
        queue, known = self.queue, self.queue._reservations
        queue.end()
        self.loop.run_until_complete(self._drain())
        self.discard()
        assert sorted(self.got) == sorted(self.put), (self.got, self.put)
        assert sorted(self.observed) == sorted(self.put), (self.observed, self.put)
        assert queue.empty() and not known._reserved and not known._round_robin.waiting()

    async def _drain(self) -> None:
        if self.dropped is not None:
            self.dropped.close()
        with suppress(OutputEndedError):
            while True:
                self.got.append(await self.queue.get(LIMIT))
        async for item in self.broadcast:
            assert item in self.put, item


ENTERABLE = Enterable(
    files={str(module.__file__) for module in _PARTS},
    make=lambda _: Known(),
    discard=Known.discard,
    entries={"uses all of it": (Known.use_everything, Known.check)},
    operations={
        "putting": lambda known: (known.get_one(), known.put_one()),
        "waiting to put": lambda known: known.run(known.put_when_there_is_room()),
        "getting": lambda known: known.run(known.get()),
        "giving up": lambda known: known.run(known.give_up()),
        "being cancelled": lambda known: known.run(known.be_cancelled()),
        "taking": Known.get_one,
        "opening and closing streams": Known.open_and_close,
        "beginning a run": Known.next_run,
        "ending a run": lambda known: known.queue.end(),
        "subscribing": lambda known: known.queue.observable.subscribe(lambda _: None),
    },
)
