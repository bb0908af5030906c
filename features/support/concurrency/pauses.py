"""Programs that run one loop several times, as test sessions and notebooks do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from behave import register_type
from behave.runner import Context

from support.concurrency.loops import factory_of
from support.concurrency.tasks import end_tasks_and_close
from support.concurrency.waiting import LIMIT, thread
from support.step_types import one_of

__all__ = ["HOSTS", "Host", "make_host", "until"]

_T = TypeVar("_T")


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until ``condition()``."""
    async with asyncio.timeout(LIMIT):
        for _ in iter(condition, True):
            await asyncio.sleep(0)


class Host:
    """Runs coroutines on one loop, each to its end; the loop does not run in between."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = factory()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self.loop.run_until_complete(coroutine)

    def close(self) -> None:
        end_tasks_and_close(self.loop)

    def turn(self, times: int = 20) -> None:
        """Let the loop do what is due, and what comes of that."""

        async def turns() -> None:
            for _ in range(times):
                await asyncio.sleep(0)

        self.run(turns())


class RunnerHost(Host):
    """As a program does that calls ``asyncio.Runner.run`` several times."""

    def __init__(self, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._runner = asyncio.Runner(loop_factory=factory)
        self.loop = self._runner.get_loop()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(coroutine)

    def close(self) -> None:
        self._runner.close()


class ThreadsHost(Host):
    """As a program does that has its loop run in whatever thread is at hand."""

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return thread(self.loop.run_until_complete, coroutine).result(LIMIT)


HOSTS: dict[str, tuple[type[Host], str]] = {
    "asyncio.Runner": (RunnerHost, "asyncio"),
    "run_until_complete": (Host, "asyncio"),
    "a new thread each time": (ThreadsHost, "asyncio"),
    "asyncio.Runner, with uvloop": (RunnerHost, "uvloop"),
    "run_until_complete of uvloop": (Host, "uvloop"),
}

register_type(Host=one_of(HOSTS))


def make_host(context: Context, kind: str) -> Host:
    """Make one of `HOSTS`, which is closed when the scenario ends."""
    host_type, loop = HOSTS[kind]
    host = host_type(factory_of(context, loop))
    context.add_cleanup(host.close)
    return host
