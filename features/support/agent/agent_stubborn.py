"""Agents whose runs will not end, end together, or start each other."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from rxlanggraph.agent import AgentState
from rxlanggraph.agent import run as run_module
from support.agent.agent_runs import Watched

__all__ = ["CleaningUp", "FailingTogether", "GoingOn", "Replacing", "Staying", "Swallowing"]


class Swallowing(Watched):
    """Hears that it is cancelled, and goes on as if nothing was."""

    async def work(self) -> None:
        self.steps += 1
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


class Staying(Watched):
    """Asked to stay, thinks until the gate opens, and will not be cancelled."""

    def __init__(self) -> None:
        super().__init__(timeout=0.05)
        self.stayed = asyncio.Event()

    async def work(self) -> str:
        if self.request != "stay":
            return "answer"
        try:
            async with self.state_context(AgentState.THINKING):
                while not self.gate.is_open:
                    with contextlib.suppress(asyncio.CancelledError):
                        await self.gate.wait_async()
                raise LookupError("too late to be heard")
        finally:
            assert self.request == "stay"
            self.stayed.set()


class CleaningUp(Watched):
    """Fails, and has a task that needs some turns of the loop to clean up."""

    def __init__(self, error: type[BaseException] = LookupError) -> None:
        super().__init__()
        self.error = error
        self.cleaning, self.cleaned = asyncio.Event(), False

    async def work(self) -> None:
        self.tasks.append(asyncio.create_task(self._help()))
        await asyncio.sleep(0)
        raise self.error("on demand")

    async def _help(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cleaning.set()
            for _ in range(10):
                await asyncio.sleep(0)
            self.cleaned = True


class Replacing(Watched):
    """Fails, and has a task that starts another one when it is cancelled, until the gate opens."""

    async def work(self) -> None:
        self._start()
        await asyncio.sleep(0)
        raise LookupError("on demand")

    def _start(self) -> None:
        self.tasks.append(asyncio.create_task(self._wait()))

    async def _wait(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not self.gate.is_open:
                self._start()


class FailingTogether(Watched):
    """Fails when all have started their tasks."""

    def __init__(self, ready: asyncio.Barrier) -> None:
        super().__init__()
        self._ready = ready

    async def work(self) -> None:
        self.tasks.append(asyncio.create_task(asyncio.Event().wait()))
        await self._ready.wait()
        raise LookupError("together")


class GoingOn(Watched):
    """Each run starts the next; ``deepest`` is how many runs one was part of at most."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count
        self.deepest = 0
        self.ended = asyncio.Event()
        self.running: asyncio.Task[Any]

    async def work(self) -> str:
        current = run_module._current.get()
        assert current is not None
        self.deepest = max(self.deepest, len(list(current.chain())))
        self.left -= 1
        if self.left:
            self.tasks.append(asyncio.create_task(self._next(self.running)))
        else:
            self.ended.set()
        return "answer"

    async def _next(self, before: asyncio.Task[Any]) -> None:
        self.running = self.tasks[-1]
        await asyncio.wait({before})
        await self.run("next")
