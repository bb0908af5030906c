"""RayExecutor: the public class. It holds settings; its bridges have a `WorkerPool` each."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.executors.contract import Workers
from rxlanggraph.executors.pool import WorkerPool
from rxlanggraph.executors.ray.cluster import RayCluster, RaySettings
from rxlanggraph.executors.ray.connection import connect, disconnect
from rxlanggraph.executors.ray.library import ray_module
from rxlanggraph.executors.ray.pickling import dump_target
from rxlanggraph.executors.targets import Target, check_target, load
from rxlanggraph.validation import check_duration, check_flag, check_whole, shortened

__all__ = ["RayExecutor"]


class RayExecutor:
    """Executes the graph of a bridge in worker processes, as actors of Ray.

    ``RxPyLangGraphBridge(executor=RayExecutor("package.module:graph"))`` is used as any bridge is,
    with the graph of the driver's own process: ``bridge.invoke(graph)``, or its name. Immutable;
    several bridges may share one, each with workers of its own. They start with the first run, and
    end with the bridge. Needs the extra ``ray``.

    Args:
        target: The graph, as ``"package.module:attribute"``, which the workers import; or a
            function without parameters that makes it, sync or async, also as a context manager.
            Each worker calls it once: open the checkpointer of a server in it. A compiled graph is
            refused, as it does not survive pickling. A function of the content may take the place
            of a graph.
        workers: How many processes there are; None for as many as this machine has CPUs.
        address: The address of a running cluster of which this machine is a node, ``"host:port"``
            or ``"auto"``. None starts a cluster for this process alone.
        retries: How often a run whose worker was lost is repeated. Its nodes may then execute more
            than once, so their effects should be idempotent. On a thread with checkpoints, the run
            continues where it was. 0: it fails with a `WorkerLostError`.
        calls_per_worker: How many runs a worker may have at once; others wait in the driver.
        num_cpus: The CPUs that a worker reserves in a running cluster.
        runtime_env: Ray's environment of the workers: packages, files, variables.
        context_vars: The context variables of the submitter that a run sees in its worker, each as
            ``"package.module:attribute"``.
        dashboard: Whether a cluster that is started here has Ray's dashboard.
        loopback: Whether such a cluster listens on this machine's own interface alone.
        start_timeout: Seconds for a worker to start.

    Raises:
        InvalidTypeError: ``target`` is a compiled graph, or nothing that workers could load; or
            another argument is of another type.
        InvalidArgumentError: A number is out of range, or a name is not one of a module's.
        MissingExtraError: Ray is not installed.
    """

    def __init__(
        self,
        target: Target,
        *,
        workers: int | None = None,
        address: str | None = None,
        retries: int = 0,
        calls_per_worker: int = 64,
        num_cpus: float = 1.0,
        runtime_env: Mapping[str, Any] | None = None,
        context_vars: Sequence[str] = (),
        dashboard: bool = False,
        loopback: bool = True,
        start_timeout: float = 60.0,
    ) -> None:
        if workers is None:
            workers = os.cpu_count() or 1
        check_whole("workers", workers, least=1)
        check_whole("retries", retries, least=0)
        check_whole("calls_per_worker", calls_per_worker, least=1)
        check_duration("start_timeout", start_timeout)
        check_flag("dashboard", dashboard)
        check_flag("loopback", loopback)
        _check_cpus(num_cpus)
        _check_address(address)
        if isinstance(context_vars, str):
            raise InvalidTypeError(f"context_vars must be a list; pass [{context_vars!r}]")
        if runtime_env is not None and not isinstance(runtime_env, Mapping):
            raise InvalidTypeError(f"runtime_env must be a mapping as Ray's, not {runtime_env!r}")
        checked = check_target(target)
        self.retries = retries
        self._settings = RaySettings(
            checked,
            dump_target(ray_module(), checked),
            workers=workers,
            address=address,
            calls_per_worker=calls_per_worker,
            num_cpus=num_cpus,
            runtime_env=runtime_env,
            context_vars=tuple(context_vars),
            dashboard=dashboard,
            loopback=loopback,
            start_timeout=start_timeout,
        )

    def __repr__(self) -> str:
        """Return the graph, and how many workers there are."""
        return f"RayExecutor({self._settings.target!r}, workers={self._settings.workers})"

    def open(self, name: str) -> Workers | None:
        """See `Executor`: make the workers of one bridge. Any thread; never blocks.

        Args:
            name: The name of the bridge.

        Raises:
            InvalidTypeError: What ``context_vars`` names is not a context variable.
        """
        settings = self._settings
        return WorkerPool(
            RayCluster(settings, name),
            settings.target,
            name,
            size=settings.workers,
            calls_per_worker=settings.calls_per_worker,
            variables={each: _variable(each) for each in settings.context_vars},
        )

    def check(self, graph: Any) -> None:
        """Check that a bridge could run ``graph``. Any thread; never blocks; starts nothing.

        Args:
            graph: The driver's own graph.

        Raises:
            InvalidArgumentError: The workers do not have it, or each would have a memory of its
                own.
        """
        workers = self.open("a bridge")
        assert workers is not None
        workers.graph_for(graph)

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Keep a connection to the cluster for the length of a block. Any thread; blocks.

        For programs that want the error before the first run, or make several bridges one after
        another: a cluster that was started for this process ends with the block.

        Raises:
            ExecutorUnavailableError: The cluster does not answer, or cannot be started.
        """
        settings = self._settings
        connection = connect(
            settings.address, loopback=settings.loopback, dashboard=settings.dashboard
        )
        try:
            yield
        finally:
            disconnect(connection)


def _check_cpus(number: object) -> None:
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not 0 <= number <= sys.float_info.max
    ):
        raise InvalidArgumentError(f"num_cpus must be a number from 0, not {shortened(number)}")


def _check_address(address: object) -> None:
    if address is None:
        return
    if not isinstance(address, str) or not address:
        raise InvalidTypeError(f"address must be 'host:port', 'auto' or None, not {address!r}")
    if "://" in address:
        raise InvalidArgumentError(
            f"{address!r} is an address of Ray Client, which does not carry streams; start the "
            "program on a node of the cluster, with address='auto'"
        )


def _variable(name: Any) -> ContextVar[Any]:
    value = load(check_target(name)) if isinstance(name, str) else None
    if not isinstance(value, ContextVar):
        raise InvalidTypeError(
            f"context_vars must be names, 'package.module:attribute', of context variables, and "
            f"has {name!r}"
        )
    return value
