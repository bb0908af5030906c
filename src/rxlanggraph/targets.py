"""What a run can work with: compiled graphs, Runnables, async and sync functions.

Told apart by their shape alone, so that importing this package does not import LangGraph.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeAlias

from rxlanggraph.errors import InvalidTypeError

__all__ = ["Graph", "Target", "as_target"]

Graph: TypeAlias = Any
"""A compiled LangGraph graph, a LangChain Runnable, or a function of the content."""

Config: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """Something that answers a message's content.

    Attributes:
        name: For people: the graph's or the function's own name.
        call: Starts one attempt: content, config of LangGraph, executor for sync functions.
    """

    name: str
    call: Callable[[Any, Config, Executor], Awaitable[Any]]


def as_target(graph: Graph) -> Target:
    """Find out how ``graph`` is called. Any thread; never blocks.

    Raises:
        InvalidTypeError: It cannot be called at all, or is a graph that was not compiled.
    """
    name = getattr(graph, "name", None) or getattr(graph, "__name__", None) or type(graph).__name__
    if hasattr(graph, "ainvoke"):
        return Target(str(name), _runnable(graph.ainvoke))
    if hasattr(graph, "compile") and hasattr(graph, "add_node"):
        raise InvalidTypeError(f"{graph!r} is not compiled; pass graph.compile()")
    if not callable(graph):
        raise InvalidTypeError(
            f"{graph!r} cannot run messages; pass a compiled LangGraph graph, a Runnable, "
            "or an async or sync function of the content"
        )
    if _is_async(graph):
        return Target(str(name), _coroutine_function(graph))
    return Target(str(name), _function(graph))


def config_for(config: Config | None, thread_id: str | None) -> Config:
    """Return ``config`` with ``thread_id`` where LangGraph's checkpointers look for it."""
    if thread_id is None:
        return config or {}
    config = config or {}
    configurable = {**config.get("configurable", {}), "thread_id": thread_id}
    return {**config, "configurable": configurable}


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - not whether it is callable, but how
    )


def _runnable(
    ainvoke: Callable[..., Awaitable[Any]],
) -> Callable[[Any, Config, Executor], Awaitable[Any]]:
    def call(content: Any, config: Config, executor: Executor) -> Awaitable[Any]:
        return ainvoke(content, config)

    return call


def _coroutine_function(
    function: Callable[[Any], Awaitable[Any]],
) -> Callable[[Any, Config, Executor], Awaitable[Any]]:
    def call(content: Any, config: Config, executor: Executor) -> Awaitable[Any]:
        return function(content)

    return call


def _function(
    function: Callable[[Any], Any],
) -> Callable[[Any, Config, Executor], Awaitable[Any]]:
    async def call(content: Any, config: Config, executor: Executor) -> Any:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(executor, copy_context().run, _guarded, function, content)
        # A plain function may still hand back something to await: a lambda around a coroutine.
        return await value if inspect.isawaitable(value) else value

    return call


def _guarded(function: Callable[[Any], Any], content: Any) -> Any:
    try:
        return function(content)
    except StopIteration as error:
        # A future refuses a StopIteration, and whoever awaits it would wait for ever.
        raise RuntimeError(f"{function!r} raised StopIteration") from error
