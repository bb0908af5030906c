"""uvicorn in a thread, on a free port of the loopback interface."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvicorn

from support.concurrency.tasks import pass_turns
from support.concurrency.waiting import LIMIT, thread

__all__ = ["WebServer"]

T = TypeVar("T")


class _Server(uvicorn.Server):
    """It says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening: Future[asyncio.AbstractEventLoop] = Future()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set_result(asyncio.get_running_loop())


class WebServer:
    """A server of ``app``, until it is stopped."""

    def __init__(self, app: Any, **options: Any) -> None:
        self.app = app
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = "http://127.0.0.1:{1}".format(*listener.getsockname())
        options = {"loop": "asyncio", "http": "h11", "ws": "none", "log_config": None, **options}
        self._server = _Server(uvicorn.Config(app, lifespan="on", **options))
        self._ended = thread(self._server.run, [listener])
        self.loop = self._server.listening.result(LIMIT)
        self._own_tasks: set[asyncio.Task[Any]] = set()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT)

    async def _tasks(self) -> set[asyncio.Task[Any]]:
        present = asyncio.current_task()
        return {task for task in asyncio.all_tasks() if task is not present}

    async def _wait_for_tasks(self) -> set[asyncio.Task[Any]]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMIT / 2):
                while left := await self._tasks() - self._own_tasks:
                    await asyncio.wait(left)
        return await self._tasks() - self._own_tasks

    def serves_nothing(self) -> None:
        """Take the tasks that there are now for the server's own, and the bridge's."""
        self._own_tasks = self.run(self._tasks())

    def tasks_left(self) -> set[asyncio.Task[Any]]:
        """The tasks that do not end by themselves, and were not there before."""
        return self.run(self._wait_for_tasks())

    def wait_for_requests(self, but: int = 0) -> None:
        """Wait until all requests have ended, but so many: those of clients that left, too."""

        async def wait() -> None:
            tasks = self._server.server_state.tasks
            async with asyncio.timeout(LIMIT):
                while len(tasks) > but:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

        self.run(wait())

    def wait_for_connections(self) -> None:
        """Wait until there is no connection any more."""

        async def wait() -> None:
            connections = self._server.server_state.connections
            async with asyncio.timeout(LIMIT):
                while connections:
                    await pass_turns()

        self.run(wait())

    def stop(self) -> None:
        self._server.should_exit = True
        self._ended.result(LIMIT)
