"""``--executor``: where the command calls its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from rxlanggraph.cli.errors import ExecutorError
from rxlanggraph.cli.loading import Target, graph_of_worker
from rxlanggraph.errors import (
    ExecutorUnavailableError,
    InvalidArgumentError,
    InvalidTypeError,
    MissingExtraError,
)
from rxlanggraph.executors import Executor, RayExecutor

__all__ = ["executor_for"]

# How often a message is repeated whose worker has died. One that kills its worker costs the other
# runs of that worker an attempt each time, so not for ever. A guess.
_RETRIES = 3


@contextlib.contextmanager
def executor_for(
    kind: str,
    graph: Any,
    target: Target,
    config: Mapping[str, Any] | None,
    *,
    workers: int | None,
    address: str | None,
) -> Iterator[Executor | None]:
    """Connect an executor for the length of a block. The main thread; blocks until then.

    Args:
        kind: ``local`` or ``ray``.
        graph: The graph of this process.
        target: The place of the graph.
        config: The config of the runs, for a factory.
        workers: How many worker processes; None: one per CPU.
        address: The address of a running cluster; None starts one.

    Raises:
        UsageError: The options, or the graph, are not for this executor.
        ExecutorError: There is no cluster, or Ray is not installed.
    """
    if kind == "local":
        if workers is not None or address is not None:
            option = "--workers" if address is None else "--address"
            raise click.UsageError(f"{option} needs --executor ray")
        yield None
        return
    factory = partial(graph_of_worker, target, config, str(Path.cwd()))
    try:
        executor = RayExecutor(factory, workers=workers, address=address, retries=_RETRIES)
        executor.check(graph)
    except (InvalidArgumentError, InvalidTypeError) as error:
        raise click.UsageError(f"--executor ray: {error}") from error
    except MissingExtraError as error:
        raise ExecutorError(str(error)) from error
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(executor.connected())
        except ExecutorUnavailableError as error:
            raise ExecutorError(str(error)) from error
        yield executor
