"""RayCluster: starts workers for one bridge, as actors of Ray.

Ray restarts and repeats nothing here (its own defaults): `WorkerPool` replaces a lost worker, and
the bridge repeats its runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.errors import ExecutorUnavailableError, WorkerLostError, error_text
from rxlanggraph.executors.contract import Event, Order, Worker
from rxlanggraph.executors.payloads import load_error
from rxlanggraph.executors.pool import check_parts_in_memory
from rxlanggraph.executors.ray.actor import actor_class
from rxlanggraph.executors.ray.connection import connect, disconnect
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
        # Guards what follows. Held while the connection is made and given back.
        self._lock = threading.Lock()
        self._connected = False
        self._own = False  # whether the cluster was started by this process
        self._closed = False
        self._actors: list[Any] = []

    async def start_worker(self) -> Worker:
        """Start a process; return when it has loaded its graph. On the loop of the calls.

        Raises:
            ExecutorUnavailableError: Ray cannot be reached, or has no room for it in time.
            InvalidArgumentError: The graph keeps its threads in memory, and there are more workers.
            Exception: What the graph's module or factory has raised.
        """
        actor = await _in_thread(self._make_actor, f"{self._name}-ray")
        try:
            check_parts_in_memory(await self._opened(actor), self._settings.workers)
        except BaseException as error:
            self._kill(actor)
            if isinstance(error, TimeoutError):
                raise ExecutorUnavailableError(self._no_room()) from error
            if isinstance(error, self._ray.exceptions.RayError):
                raise ExecutorUnavailableError(
                    f"a worker process of Ray has died while it started: {error_text(error)}"
                ) from error
            raise
        return RayWorker(self._ray, actor, self._kill)

    async def _opened(self, actor: Any) -> list[str]:
        """Wait until ``actor`` has its graph; return what that keeps in memory."""
        async with asyncio.timeout(self._settings.start_timeout):
            opened = await actor.open.remote()
        if opened[0] == "error":
            raise load_error(opened[1])
        parts: list[str] = opened[2]
        return parts

    def _make_actor(self) -> Any:
        settings = self._settings
        with self._lock:
            if self._closed:
                raise ExecutorUnavailableError(f"the workers of {self._name} have been stopped")
            if not self._connected:
                self._own = connect(
                    settings.address, loopback=settings.loopback, dashboard=settings.dashboard
                )
                self._connected = True
        options: dict[str, Any] = {
            # In a cluster for this process alone, nothing is gained by reserving.
            "num_cpus": 0 if self._own else settings.num_cpus,
            "max_concurrency": settings.calls_per_worker + 8,
        }
        if settings.runtime_env is not None:
            options["runtime_env"] = dict(settings.runtime_env)
        told = (settings.data, settings.context_vars, settings.calls_per_worker)
        path = [each or str(Path.cwd()) for each in sys.path]
        actor = actor_class(self._ray).options(**options).remote(self.dumps(told), path)
        self._keep(actor)
        return actor

    def _keep(self, actor: Any) -> None:
        with self._lock:
            self._actors.append(actor)
            if not self._closed:
                return
        self._kill(actor)  # stopped meanwhile
        raise ExecutorUnavailableError(f"the workers of {self._name} have been stopped")

    def _no_room(self) -> str:
        settings = self._settings
        available: Any = {}
        reserved = 0 if self._own else settings.num_cpus
        with contextlib.suppress(Exception):
            available = self._ray.available_resources()
        return (
            f"a worker process has not started, and loaded its graph, within "
            f"{settings.start_timeout:g} s; it needs {reserved:g} CPUs, and "
            f"{available.get('CPU', 0):g} are free: use fewer workers, a smaller num_cpus, or a "
            "longer start_timeout"
        )

    def _kill(self, actor: Any) -> None:
        with self._lock:
            if actor in self._actors:
                self._actors.remove(actor)
        with contextlib.suppress(Exception):  # it is dead, or the cluster is
            self._ray.kill(actor)

    def disconnect(self) -> None:
        """End the processes that were started. Any thread but a loop's; blocks for seconds."""
        with self._lock:  # waits for a connection that is being made
            if self._closed:
                return
            self._closed = True
            actors, self._actors = self._actors, []
            connected = self._connected
        if not connected:
            return
        with contextlib.suppress(Exception):
            closing = [actor.close.remote() for actor in actors]
            self._ray.wait(closing, num_returns=len(closing), timeout=_LEAVE)
        for actor in actors:
            self._kill(actor)
        disconnect()


class RayWorker:
    """See `Worker`."""

    def __init__(self, ray: Any, actor: Any, kill: Callable[[Any], None]) -> None:
        self._ray = ray
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
            raise WorkerLostError(error_text(error).strip().partition("\n")[0]) from error

    def control(self, orders: Sequence[Order]) -> None:
        """Tell calls something. Never blocks; it is lost if the process is."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._actor.control.remote(orders)

    async def ended(self) -> None:
        """Wait until the process has died."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            await self._actor.stay.remote()

    def kill(self) -> None:
        """End the process at once. Any thread; never blocks."""
        self._kill(self._actor)


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
