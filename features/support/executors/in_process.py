"""An engine of workers in this process: what is common to engines, without Ray, and with faults.

Each worker is a `GraphHost` on the loop of the bridge. It can be lost, and starting one can fail.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from typing import Any

from rxlanggraph.errors import WorkerLostError
from rxlanggraph.executors.contract import GOES_ON, Event, Order, Worker, Workers
from rxlanggraph.executors.host import GraphHost
from rxlanggraph.executors.pool import WorkerPool
from rxlanggraph.executors.targets import load

__all__ = ["InProcessExecutor"]


class InProcessWorker:
    """Confined to the loop of the bridge."""

    def __init__(self, number: int, host: GraphHost, *, silent: bool = False) -> None:
        self.number = number
        self.silent = silent
        self.host = host
        self.batches: list[int] = []
        self.in_progress = self.most = 0
        self.lost: asyncio.Event = asyncio.Event()

    async def execute(
        self, batch: Sequence[tuple[int, bytes]], *, streams: bool
    ) -> AsyncIterator[list[Event]]:
        self.batches.append(len(batch))
        if self.silent:
            return
        self.in_progress += len(batch)
        self.most = max(self.most, self.in_progress)
        events = self.host.execute(batch)
        while True:
            step = asyncio.ensure_future(anext(events, None))
            lost = asyncio.ensure_future(self.lost.wait())
            try:
                await asyncio.wait([step, lost], return_when=asyncio.FIRST_COMPLETED)
            finally:
                lost.cancel()
                if not step.done():
                    step.cancel()
                    await asyncio.wait([step])
            if self.lost.is_set():
                raise WorkerLostError("it was told to")
            if (happened := step.result()) is None:
                return
            self.in_progress -= sum(kind not in GOES_ON for _, kind, _ in happened)
            yield happened

    def control(self, orders: Sequence[Order]) -> None:
        self.host.control(orders)

    async def ended(self) -> None:
        await self.lost.wait()

    def kill(self) -> None:
        self.lost.set()
        self.host.control([("cancel", key, 0) for key in self.host._calls])


class InProcessExecutor:
    """An executor whose engine is this process."""

    def __init__(
        self,
        target: Any,
        *,
        workers: int = 2,
        retries: int = 0,
        calls_per_worker: int = 64,
        failing_starts: int = 0,
        endless_starts: int = 0,
        silent: bool = False,
        context_vars: Sequence[str] = (),
    ) -> None:
        self.retries = retries
        self.workers: list[InProcessWorker] = []
        self.failing_starts = failing_starts
        self.endless_starts = endless_starts
        self.silent = silent
        self.disconnecting: BaseException | None = None
        self.disconnected = threading.Event()
        self._target = target
        self._size = workers
        self._limit = calls_per_worker
        self._variables = context_vars

    def open(self, name: str) -> Workers:
        variables: dict[str, ContextVar[Any]] = {each: load(each) for each in self._variables}
        self.pool = WorkerPool(
            self,
            self._target,
            name,
            size=self._size,
            calls_per_worker=self._limit,
            variables=variables,
        )
        return self.pool

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value)

    async def start_worker(self) -> Worker:
        await asyncio.sleep(0)
        if self.failing_starts:
            self.failing_starts -= 1
            raise OSError("no room for it")
        if self.endless_starts:
            self.endless_starts -= 1
            await asyncio.Event().wait()
        host = GraphHost(self._target, self._variables, self._limit, self.dumps)
        kind, *told = await host.open()
        assert kind == "open", told
        self.workers.append(InProcessWorker(len(self.workers), host, silent=self.silent))
        return self.workers[-1]

    def disconnect(self) -> None:
        self.disconnected.set()
        if self.disconnecting is not None:
            raise self.disconnecting
