"""Which graph the workers load: ``"module:attribute"``, or a factory that takes nothing.

A compiled graph cannot be sent: LangGraph compares some of its own objects by identity, and a
pickled graph has copies of them, so it ends after its first step without an error.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

from rxlanggraph.concurrency.signatures import signature_of
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["Target", "check_target", "in_memory_parts", "is_factory", "load", "made_by"]

Target: TypeAlias = "str | Callable[[], Any]"

# What keeps its contents in the memory of one process. By name: see `bridge.graphs.savers`.
_IN_MEMORY = frozenset(
    {"langgraph.checkpoint.memory.InMemorySaver", "langgraph.store.memory.InMemoryStore"}
)


def check_target(target: object) -> Target:
    """Return ``target``, if workers could load it. Any thread; never blocks; imports nothing.

    Raises:
        InvalidTypeError: It is a graph, or neither a name nor a factory.
        InvalidArgumentError: It is not the name of something in a module that can be imported.
    """
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
            raise InvalidArgumentError(
                f"the graph must be named as 'package.module:attribute', not {target!r}"
            )
        if module == "__main__":
            raise InvalidArgumentError(
                f"{target!r} cannot be imported by worker processes, whose __main__ is another "
                "one; move the graph to a module"
            )
        return target
    if hasattr(target, "ainvoke") or hasattr(target, "compile"):
        raise InvalidTypeError(
            f"{type(target).__name__} {getattr(target, 'name', '')!r} cannot be sent to worker "
            "processes: a compiled graph does not survive pickling; pass the name of the graph, "
            "'package.module:attribute', or a function without parameters that makes it"
        )
    if not is_factory(target):
        raise InvalidTypeError(
            "the graph must be 'package.module:attribute' or a function without parameters that "
            f"makes it, not {target!r}"
        )
    assert callable(target)
    return target


def is_factory(value: object) -> bool:
    """Whether ``value`` is a function that can be called with nothing. Any thread."""
    if not callable(value) or hasattr(value, "ainvoke"):
        return False
    try:
        parameters = signature_of(value).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return False
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(each.default is not each.empty or each.kind in variadic for each in parameters)


def load(target: Target) -> Any:
    """Return what ``target`` names, or itself. Blocks as importing does.

    Raises:
        ImportError, AttributeError: There is no such thing.
        Exception: What the module raises.
    """
    if not isinstance(target, str):
        return target
    name, _, path = target.partition(":")
    value: Any = importlib.import_module(name)
    for attribute in path.split("."):
        value = getattr(value, attribute)
    return value


async def made_by(target: Target, stack: AsyncExitStack) -> Any:
    """Load ``target``, and call it if it is a factory. On the loop of the graph.

    Args:
        target: A factory may be async, and may make a context manager, which ``stack`` leaves.
        stack: What was entered.
    """
    value = load(target)
    if is_factory(value):
        value = value()
        if hasattr(value, "__aenter__") and hasattr(value, "__aexit__"):
            return await stack.enter_async_context(value)
        if hasattr(value, "__enter__") and hasattr(value, "__exit__"):
            return stack.enter_context(value)
        if inspect.isawaitable(value):
            value = await value
    return value


def in_memory_parts(graph: Any) -> list[str]:
    """The names of what ``graph`` keeps in the memory of its process: a saver, a store."""
    found = []
    for part in (getattr(graph, "checkpointer", None), getattr(graph, "store", None)):
        names = {f"{each.__module__}.{each.__qualname__}" for each in type(part).__mro__}
        if names & _IN_MEMORY:
            found.append(type(part).__name__)
    return found
