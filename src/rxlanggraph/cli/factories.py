"""Graph factories: functions that make a graph, as LangGraph's own server takes them.

A factory is a function, sync or async, or one that makes a context manager, sync or async; it takes
nothing, or the config. LangGraph's server calls it for each run. Here it is called once for all
runs, which have one config: on the loop of the runs, since what it opens may belong to that loop. A
context manager is left when the runs have ended, by the task that has entered it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.cli.errors import TargetError
from rxlanggraph.cli.stdio import print_stderr
from rxlanggraph.concurrency.signatures import signature_of
from rxlanggraph.errors import error_text

__all__ = ["MadeGraph", "factory_arguments", "is_factory", "made_graph", "make_on"]

# Seconds for a context manager to be left at the end.
_LEAVE_SECONDS = 5.0
_NONE = repr(inspect.Parameter.empty)
_TAKES = "a graph factory takes nothing, or one parameter for the config (RunnableConfig)"


@dataclass(frozen=True, slots=True)
class MadeGraph:
    """A graph, and the loop to which it belongs.

    Attributes:
        graph: What a factory returned, or its context manager yielded.
        loop: The loop on which it was made; None for a graph that belongs to no loop.
    """

    graph: Any
    loop: asyncio.AbstractEventLoop | None


def is_factory(value: object) -> bool:
    """Whether ``value`` makes a graph, rather than answering a message. Any thread; never blocks.

    Told by its shape: a function that takes nothing, takes LangChain's config first, which its
    annotation or the name ``config`` says, or makes a context manager. A function of the content
    has a first parameter for that.
    """
    if not callable(value) or isinstance(value, type) or hasattr(value, "ainvoke"):
        return False
    parameters = _parameters(value)
    if parameters is None:
        return False
    return not parameters or _makes_context(value) or _takes_config(parameters[0])


@contextlib.contextmanager
def made_graph(
    factory: Callable[..., Any], config: Mapping[str, Any] | None, origin: str
) -> Iterator[MadeGraph]:
    """Call ``factory`` on a loop of its own, and keep what it makes for the length of a block.

    The main thread. Blocks until the graph is made, and for five seconds at most until its context
    manager is left; Ctrl-C ends the wait for the graph.

    Args:
        factory: The function that makes the graph.
        config: The config of the runs, for a factory that takes one.
        origin: The place of the factory, for messages.

    Raises:
        TargetError: It takes other parameters.
        Exception: What the factory raised.
    """
    making = _Making(factory, factory_arguments(factory, config, origin))
    with RxPyLangGraphBridge(name="graph") as bridge:
        run = bridge.create_future_task(making.hold, None)
        try:
            made = making.made.result()
        except BaseException:
            run.cancel()
            raise
        try:
            yield made
        finally:
            assert made.loop is not None
            made.loop.call_soon_threadsafe(making.left.set)
            problem = _end_of(run)
            if problem is not None:
                print_stderr(f"{origin}: leaving its context manager failed: {problem}")


def _end_of(run: Future[Any]) -> str | None:
    """Wait until ``run`` has ended; return what is wrong, if anything is."""
    try:
        run.result(_LEAVE_SECONDS)
    except TimeoutError:
        return f"it was not left within {_LEAVE_SECONDS:g} s"
    except Exception as error:
        return f"{type(error).__name__}: {error_text(error)}"
    return None


class _Making:
    """Makes the graph, and holds what is open for it."""

    def __init__(self, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        self._factory = factory
        self._arguments = arguments
        self.left = asyncio.Event()  # confined to the loop
        self.made: Future[MadeGraph] = Future()

    async def hold(self, _: object) -> None:
        """Make the graph; return once `left` is set. On the loop."""
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            try:
                graph = await make_on(stack, self._factory, self._arguments)
            except (Exception, SystemExit) as error:
                self.made.set_exception(error)
                return
            except BaseException:
                self.made.cancel()
                raise
            self.made.set_result(MadeGraph(graph, loop))
            await self.left.wait()


async def make_on(
    stack: contextlib.AsyncExitStack, factory: Callable[..., Any], arguments: Mapping[str, Any]
) -> Any:
    """Call ``factory``; return what it makes, or what its context manager yields. On the loop.

    Args:
        stack: Leaves the context manager.
        factory: The function that makes the graph.
        arguments: Its arguments, from `factory_arguments`.
    """
    value = factory(**arguments)
    if hasattr(value, "__aenter__") and hasattr(value, "__aexit__"):
        return await stack.enter_async_context(value)
    if hasattr(value, "__enter__") and hasattr(value, "__exit__"):
        return stack.enter_context(value)
    return await value if inspect.isawaitable(value) else value


def factory_arguments(
    factory: Callable[..., Any], config: Mapping[str, Any] | None, origin: str
) -> dict[str, Any]:
    """What ``factory`` takes: nothing, or the config. Any thread; never blocks.

    Args:
        factory: The function that makes the graph.
        config: The config of the runs.
        origin: The place of the factory, for messages.

    Raises:
        TargetError: It takes other parameters.
    """
    parameters = [
        each
        for each in _parameters(factory) or []
        if each.kind not in {each.VAR_KEYWORD, each.VAR_POSITIONAL}
    ]
    if any("ServerRuntime" in _annotation(each) for each in parameters):
        raise TargetError(
            f"{origin} asks for a ServerRuntime, which only LangGraph's server has; let it take "
            "the config (RunnableConfig) instead"
        )
    if len(parameters) > 1:
        raise TargetError(f"{origin} takes {len(parameters)} parameters; {_TAKES}")
    if not parameters:
        return {}
    if parameters[0].kind is inspect.Parameter.POSITIONAL_ONLY:
        raise TargetError(f"{origin} has a positional-only parameter; {_TAKES}, by name")
    own = dict(config or {})
    return {parameters[0].name: {**own, "configurable": dict(own.get("configurable") or {})}}


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # some functions in C have no signature
        return None


def _makes_context(function: Callable[..., Any]) -> bool:
    """Whether it is decorated with one of contextlib's decorators for generators."""
    inner = getattr(function, "__wrapped__", None)
    is_generator = inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)
    return is_generator and not inspect.isasyncgenfunction(function)


def _takes_config(first: inspect.Parameter) -> bool:
    annotation = _annotation(first)
    if annotation == _NONE:
        return first.name == "config"
    return "RunnableConfig" in annotation or "ServerRuntime" in annotation


def _annotation(parameter: inspect.Parameter) -> str:
    """The annotation as text: it may be one, and its names need not be importable."""
    annotation = parameter.annotation
    return annotation if isinstance(annotation, str) else f"{annotation!r}"
