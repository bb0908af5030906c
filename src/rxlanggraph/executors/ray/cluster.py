"""RayCluster: starts workers for one bridge, as actors of Ray.

Ray restarts and repeats nothing here (its own defaults): `WorkerPool` replaces a lost worker, and
the bridge repeats its runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import ExecutorUnavailableError, WorkerLostError, error_text
from rxlanggraph.executors.contract import Event, Order, Worker
from rxlanggraph.executors.payloads import load_error
from rxlanggraph.executors.pool import check_parts_in_memory
from rxlanggraph.executors.ray.actor import actor_class
from rxlanggraph.executors.ray.connection import Connection, connect, disconnect
from rxlanggraph.executors.ray.library import ray_module
from rxlanggraph.executors.targets import Target

__all__ = ["RayCluster", "RaySettings"]

_T = TypeVar("_T")
# Seconds for a worker to leave the context managers of its graph.
_LEAVE = 2.0


@dataclass(frozen=True, slots=True)
class RaySettings:
    """What `RayExecutor` was made with, by the names that it has there."""

    target: Target
    data: bytes
    """The target, pickled."""
    workers: int
    address: str | None
    calls_per_worker: int
    num_cpus: float
    runtime_env: Mapping[str, Any] | None
    context_vars: tuple[str, ...]
    dashboard: bool
    loopback: bool
    start_timeout: float


class RayCluster:
    """See `Cluster`.

    Args:
        settings: Those of the executor.
        name: The name of the bridge.
    """

    def __init__(self, settings: RaySettings, name: str) -> None:
        self._ray = ray_module()
        self._settings = settings
        self._name = name
        self.dumps: Callable[[Any], bytes] = self._ray.cloudpickle.dumps
        self._actor_class = actor_class(self._ray)  # sent to a cluster once
        # Held while the connection is made and given back, which takes seconds. Guards it.
        self._connecting = threading.Lock()
        self._connection: Connection | None = None
        # Guards what follows; held for moments.
        self._lock = threading.Lock()
        self._closed = False  # written under both locks, read under one of them
        self._actors: list[Any] = []

    async def start_worker(self) -> Worker:
        """Start a process; return when it has loaded its graph. On the loop of the calls.

        Raises:
            ExecutorUnavailableError: Ray cannot be reached, or has no room for it in time.
            InvalidArgumentError: The graph keeps its threads in memory, and there are more workers.
            Exception: What the graph's module or factory has raised.
        """
        actor, connection = await _in_thread(self._make_actor, f"{self._name}-ray")
        kill = partial(self._kill, connection, actor)
        try:
            check_parts_in_memory(await self._opened(connection, actor), self._settings.workers)
        except BaseException as error:
            kill()
            if isinstance(error, TimeoutError):
                raise ExecutorUnavailableError(self._no_room(connection)) from error
            if isinstance(error, WorkerLostError):
                raise ExecutorUnavailableError(
                    f"a worker process of Ray could not start: {error}"
                ) from error
            if isinstance(error, self._ray.exceptions.RayError):
                raise ExecutorUnavailableError(
                    f"a worker process of Ray has died while it started: {_first_line(error)}"
                ) from error
            raise
        return RayWorker(self._ray, connection, actor, kill)

    async def _opened(self, connection: Connection, actor: Any) -> list[str]:
        """Wait until ``actor`` has its graph; return what that keeps in memory."""
        async with asyncio.timeout(self._settings.start_timeout):
            opened = await _while_connected(connection, actor.open.remote())
        if opened[0] == "error":
            error = load_error(opened[1])
            if not isinstance(error, Exception):  # it would end the loop
                raise ExecutorUnavailableError(
                    f"the graph's module or factory has raised {type(error).__name__} in a worker "
                    f"process: {error_text(error)}"
                ) from error
            raise error
        parts: list[str] = opened[2]
        return parts

    def _make_actor(self) -> tuple[Any, Connection]:
        settings = self._settings
        connection = self._connected()
        if (refusal := connection.refusal()) is not None:
            raise ExecutorUnavailableError(
                f"the cluster of {self._name} does not answer: {error_text(refusal)}"
            ) from refusal
        options: dict[str, Any] = {
            # In a cluster for this process alone, nothing is gained by reserving.
            "num_cpus": 0 if connection.own else settings.num_cpus,
            "max_concurrency": settings.calls_per_worker + 8,
        }
        if settings.runtime_env is not None:
            options["runtime_env"] = dict(settings.runtime_env)
        told = (settings.data, settings.context_vars, settings.calls_per_worker)
        path = [each or str(Path.cwd()) for each in sys.path]
        try:
            actor = self._actor_class.options(**options).remote(self.dumps(told), path)
        except Exception as error:
            raise ExecutorUnavailableError(
                f"Ray starts no worker process for {self._name}: {error_text(error)}"
            ) from error
        self._keep(connection, actor)
        return actor, connection

    def _connected(self) -> Connection:
        settings = self._settings
        with self._connecting:
            self._check_open()
            if self._connection is not None and self._connection.is_lost:
                lost, self._connection = self._connection, None
                disconnect(lost)
            if self._connection is None:
                self._connection = connect(
                    settings.address, loopback=settings.loopback, dashboard=settings.dashboard
                )
            return self._connection

    def _check_open(self) -> None:
        if self._closed:
            raise ExecutorUnavailableError(f"the workers of {self._name} have been stopped")

    def _keep(self, connection: Connection, actor: Any) -> None:
        with self._lock:
            self._actors.append(actor)
            if not self._closed:
                return
        self._kill(connection, actor)  # stopped meanwhile
        self._check_open()

    def _no_room(self, connection: Connection) -> str:
        settings = self._settings
        available: Any = {}
        reserved = 0 if connection.own else settings.num_cpus
        with contextlib.suppress(Exception):
            available = self._ray.available_resources()
        return (
            f"a worker process has not started, and loaded its graph, within "
            f"{settings.start_timeout:g} s; it needs {reserved:g} CPUs, and "
            f"{available.get('CPU', 0):g} are free: use fewer workers, a smaller num_cpus, or a "
            "longer start_timeout"
        )

    def _kill(self, connection: Connection, actor: Any) -> None:
        with self._lock:
            if actor in self._actors:
                self._actors.remove(actor)
        if connection.is_lost:  # Ray would connect anew, to a cluster that it starts
            return
        with contextlib.suppress(Exception):  # it is dead, or the cluster is
            self._ray.kill(actor)

    def disconnect(self) -> None:
        """End the processes that were started. Any thread but a loop's; blocks for seconds."""
        with self._connecting:  # waits for a connection that is being made
            with self._lock:
                if self._closed:
                    return
                self._closed = True
                actors, self._actors = self._actors, []
            connection, self._connection = self._connection, None
        if connection is None:
            return
        if not connection.is_lost:
            with contextlib.suppress(Exception):
                closing = [actor.close.remote() for actor in actors]
                self._ray.wait(closing, num_returns=len(closing), timeout=_LEAVE)
        for actor in actors:
            self._kill(connection, actor)
        disconnect(connection)


class RayWorker:
    """See `Worker`."""

    def __init__(
        self, ray: Any, connection: Connection, actor: Any, kill: Callable[[], None]
    ) -> None:
        self._ray = ray
        self._connection = connection
        self._actor = actor
        self._kill = kill

    async def execute(
        self, batch: Sequence[tuple[int, bytes]], *, streams: bool
    ) -> AsyncIterator[list[Event]]:
        """Send calls, each with a key; yield what happens to them, until all have ended."""
        try:
            if len(batch) == 1 and not streams:  # an actor's plain answer costs less than a stream
                yield await self._actor.answer.remote(batch)
                return
            sent = self._actor.execute.options(num_returns="streaming").remote(batch)
            async for reference in sent:
                yield await reference
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(_first_line(error)) from error

    def control(self, orders: Sequence[Order]) -> None:
        """Tell calls something. Never blocks; it is lost if the process is."""
        with contextlib.suppress(Exception):  # whatever Ray raises without a connection
            self._actor.control.remote(orders)

    async def ended(self) -> None:
        """Wait until the process has died, or the cluster has."""
        with contextlib.suppress(self._ray.exceptions.RayError, WorkerLostError):
            await _while_connected(self._connection, self._actor.stay.remote())

    def kill(self) -> None:
        """End the process at once. Any thread; never blocks."""
        self._kill()


def _first_line(error: BaseException) -> str:
    return error_text(error).strip().partition("\n")[0]


async def _while_connected(connection: Connection, call: Awaitable[_T]) -> _T:
    """Return the result of a call of Ray's, which never ends without a connection."""
    loop = asyncio.get_running_loop()
    lost = asyncio.Event()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lost.set)

    forget = connection.when_lost(tell)
    step: asyncio.Future[_T] = asyncio.ensure_future(call)
    loss = loop.create_task(lost.wait())
    try:
        await asyncio.wait((step, loss), return_when=asyncio.FIRST_COMPLETED)
        if step.done():
            return step.result()
    finally:
        step.cancel()
        loss.cancel()
        forget()
    raise WorkerLostError("the cluster does not answer any more")


async def _in_thread(call: Callable[[], _T], name: str) -> _T:
    """Return what ``call`` returns in a daemon thread, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def resolve(result: Any, error: BaseException | None) -> None:
        if done.done():  # cancelled meanwhile
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(resolve, result, failure)

    start_detached(threading.Thread(target=work, name=name, daemon=True))
    return await done
