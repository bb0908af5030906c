"""What a run can execute: compiled graphs, Runnables, async and sync functions.

Recognized by their shape alone, so that importing this package does not import LangGraph.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from functools import partial
from types import FunctionType
from typing import Any, Protocol, TypeAlias

from rxlanggraph.bridge.graphs.attempts import ThreadAttempts, saver_of
from rxlanggraph.bridge.graphs.call_arguments import check_arguments
from rxlanggraph.bridge.graphs.configs import (
    Config,
    check_version,
    config_for,
    configs_of_attempts,
    layers_of,
    lending_saver,
)
from rxlanggraph.bridge.graphs.interrupts import (
    INTERRUPT,
    OnPending,
    Refusal,
    ThreadGate,
    named_by_source,
)
from rxlanggraph.concurrency.signatures import signature_of
from rxlanggraph.concurrency.user_code import call_for_future
from rxlanggraph.errors import (
    AgentInterruptedError,
    InvalidArgumentError,
    InvalidTypeError,
    StaleResumeError,
)
from rxlanggraph.messages import StreamMessage

__all__ = [
    "Arguments",
    "Graph",
    "GraphAdapter",
    "WrappedAdapter",
    "adapt_graph",
    "attempt_at",
    "attempts_at",
    "has_steps",
]

Graph: TypeAlias = Any
"""A compiled LangGraph graph, a LangChain Runnable, or a function of the content."""

Arguments: TypeAlias = Mapping[str, Any]
# What a function may ask for with a parameter of that name.
_TO_ASK_FOR = frozenset({"message", "config", "context"})


class GraphAdapter(Protocol):
    """Something that answers a message's content."""

    name: str
    """For people: the name of the graph or function itself."""

    gate: ThreadGate | None
    """What a message has to pass before it may run on a thread; None for what keeps no threads."""

    takes_answers: bool
    """Whether a message may answer a question that it has asked on a thread."""

    def check(self, arguments: Arguments) -> None:
        """Check LangGraph's arguments, those that are given. Any thread; never blocks."""

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        """Start one attempt. On the loop."""

    def attempts(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        """Return a callable that starts one attempt per call, also after a failed one."""


def adapt_graph(
    graph: Graph,
    on_pending: OnPending = "reject",
    *,
    fence: Callable[[Any], Any] | None = None,
    lends: bool = True,
) -> GraphAdapter:
    """Determine how ``graph`` is called. Any thread; never blocks.

    Args:
        graph: What is called.
        on_pending: What happens to new input on a thread that waits for an answer.
        fence: Makes the saver that is to be used of the graph's own one; None leaves it that.
        lends: Whether the graph is to use it too: not one in another process.

    Raises:
        InvalidTypeError: It cannot be called at all, or is a graph that was not compiled.
        InvalidArgumentError: It is bound to another version of LangGraph's results than "v1".
    """
    if getattr(graph, "_takes_answers", False):
        return _Agent(graph, None)
    if hasattr(graph, "ainvoke"):
        check_version(graph)
        saver = saver_of(graph)
        if saver is None:
            return _Runnable(graph, None)
        # The further steps of a sequence would get it as well, instead of their own savers.
        if fence is None or has_steps(graph):
            return _Runnable(graph, ThreadGate(graph, saver, on_pending))
        saver = fence(saver)
        return _Runnable(graph, ThreadGate(graph, saver, on_pending, saver if lends else None))
    if hasattr(graph, "compile") and hasattr(graph, "add_node"):
        raise InvalidTypeError(f"{graph!r} is not compiled; pass graph.compile()")
    if not callable(graph):
        raise InvalidTypeError(
            f"{graph!r} cannot run messages; pass a compiled LangGraph graph, a Runnable, "
            "or an async or sync function of the content"
        )
    if _is(inspect.isasyncgenfunction, graph):
        raise InvalidTypeError(
            f"{graph!r} is an async generator function, whose result would be emitted unread; "
            "return one value, or stream a graph whose node writes with get_stream_writer()"
        )
    return _AsyncFunction(graph) if _is(inspect.iscoroutinefunction, graph) else _Function(graph)


def has_steps(graph: Graph) -> bool:
    """Whether ``graph`` is a sequence, or wraps one. Any thread; never blocks."""
    return any(isinstance(getattr(layer, "steps", None), list) for layer in layers_of(graph))


def _is(kind: Callable[[object], bool], function: Callable[..., Any]) -> bool:
    """Whether a function, or an object that is called, is of a ``kind`` that ``inspect`` knows."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - how it is called, not whether


# For plain functions: inspecting a signature takes as long as handing over a message. Weak, so that
# a bridge keeps no function alive. Each access is one call of a built-in dict: any thread.
_asked_by: weakref.WeakKeyDictionary[FunctionType, frozenset[str]] = weakref.WeakKeyDictionary()


def _asked_for(function: Callable[..., Any]) -> frozenset[str]:
    """Which of `_TO_ASK_FOR` are parameters of the function, after the content."""
    if type(function) is not FunctionType:  # equal objects may have other parameters
        return _look_what_is_asked_for(function)
    asked = _asked_by.get(function)
    if asked is None:
        asked = _asked_by[function] = _look_what_is_asked_for(function)
    return asked


def _look_what_is_asked_for(function: Callable[..., Any]) -> frozenset[str]:
    try:
        own = signature_of(function, follow_wrapped=False).parameters
        # A wrapper passes its parameters on: the wrapped function decides.
        passes_on = any(each.kind is each.VAR_KEYWORD for each in own.values())
        parameters = signature_of(function).parameters if passes_on else own
    except (TypeError, ValueError):  # some functions in C have no signature
        return frozenset()
    return frozenset(
        each.name
        for each in list(parameters.values())[1:]
        if each.name in _TO_ASK_FOR
        and each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}
        and (each.default is each.empty or each.default is None)
    )


def _given(
    asked: frozenset[str], message: StreamMessage, config: Config | None, arguments: Arguments
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if "message" in asked:
        given["message"] = message
    if "config" in asked:
        given["config"] = dict(config_for(message, config) or {})
    if "context" in asked:
        given["context"] = arguments.get("context")
    return given


def _name_of(graph: Graph) -> str:
    name = getattr(graph, "name", None) or getattr(graph, "__name__", None)
    return name if isinstance(name, str) else type(graph).__name__


def attempt_at(
    gate: ThreadGate | None,
    ainvoke: Callable[..., Awaitable[Any]],
    message: StreamMessage,
    config: Config | None,
    arguments: Arguments,
) -> Awaitable[Any]:
    """Start one attempt. On the loop. The arguments are those of `attempts_at`."""
    config = config_for(message, config)
    if gate is not None and message.thread_id is None:
        return _without_thread(partial(ainvoke, message.content, config, **arguments))
    if gate is None or config is None:
        return ainvoke(message.content, config, **arguments)
    if gate.lent is not None:
        config = lending_saver(config, gate.lent)
    if gate.is_open(message.content, config):
        return ainvoke(message.content, config, **arguments)
    return _admitted(gate, ainvoke, message, config, arguments)


async def _without_thread(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Make an attempt with a graph that has a checkpointer, on a message without a thread.

    The bridge cannot refuse it: a function of the config (``config_factories``) may name a thread.
    """
    try:
        return await attempt()
    except ValueError as error:
        if not str(error).startswith("Checkpointer requires"):
            raise
        raise InvalidArgumentError(
            "the graph has a checkpointer, so each message needs a thread: give it one with "
            "StreamMessage(content, thread_id=...), or the call with thread_id="
        ) from error


async def _admitted(
    gate: ThreadGate,
    ainvoke: Callable[..., Awaitable[Any]],
    message: StreamMessage,
    config: Config,
    arguments: Arguments,
) -> Any:
    content = await gate.admit(message, config)
    return await ainvoke(content, config, **arguments)


def attempts_at(
    gate: ThreadGate | None,
    ainvoke: Callable[..., Awaitable[Any]],
    message: StreamMessage,
    config: Config | None,
    arguments: Arguments,
) -> Callable[[], Awaitable[Any]]:
    """Return what starts one attempt per call, each from where the last one stopped.

    On the loop.

    Args:
        gate: What the message has to pass.
        ainvoke: How it is called: as its method of that name.
        message: The message of the run.
        config: The config of the run.
        arguments: LangGraph's other arguments of the call.
    """
    config = config_for(message, config)
    if gate is None or config is None or message.thread_id is None:
        configs = configs_of_attempts(config)

        def start() -> Awaitable[Any]:
            attempt = partial(ainvoke, message.content, next(configs), **arguments)
            return attempt() if gate is None else _without_thread(attempt)

        return start
    if gate.lent is not None:
        config = lending_saver(config, gate.lent)
    return ThreadAttempts(gate, message, config, arguments, ainvoke)


class WrappedAdapter:
    """What an adapter that changes how runs are executed has in common with the one it wraps."""

    def __init__(self, adapter: GraphAdapter) -> None:
        self.name = adapter.name
        self.gate = adapter.gate
        self.takes_answers = adapter.takes_answers
        self.check = adapter.check


class _Callable:
    """A function of the content. Its attempts are independent of each other."""

    gate: ThreadGate | None = None
    takes_answers = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = _name_of(function)
        self._function = function
        self._asked = _asked_for(function)

    def check(self, arguments: Arguments) -> None:
        if "context" in self._asked:
            arguments = {name: value for name, value in arguments.items() if name != "context"}
        elif "context" in arguments:
            raise InvalidArgumentError(
                f"context is passed to a function that has a parameter of that name, and "
                f"{self._function!r} has none; add it, or leave the context out"
            )
        check_arguments(self._function, arguments)

    def attempts(
        self: GraphAdapter, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        configs = configs_of_attempts(config)
        return lambda: self.call(message, next(configs), arguments)


class _Runnable:
    """Anything with LangChain's ``ainvoke``, above all compiled LangGraph graphs."""

    def __init__(self, runnable: Any, gate: ThreadGate | None) -> None:
        self.name = _name_of(runnable)
        self.gate = gate
        self.takes_answers = gate is not None
        self._runnable = runnable
        self._ainvoke = runnable.ainvoke

    def check(self, arguments: Arguments) -> None:
        check_arguments(self._runnable, arguments)

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        return attempt_at(self.gate, self._ainvoke, message, config, arguments)

    def attempts(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        return attempts_at(self.gate, self._ainvoke, message, config, arguments)


class _Agent(_Runnable):
    """An agent, or a pool of them: its graph's questions are its own, and so are the answers."""

    def __init__(self, agent: Any, gate: ThreadGate | None) -> None:
        super().__init__(agent, gate)
        self.takes_answers = True

    def check(self, arguments: Arguments) -> None:
        refused = [name for name in arguments if name != "context"]
        if refused:
            raise InvalidArgumentError(
                f"{' and '.join(refused)} cannot be passed with {self._runnable!r}: an agent's "
                "graph gets config and context alone; leave it out"
            )

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        return self._ask(named_by_source(message), config_for(message, config), **arguments)

    def attempts(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        configs = configs_of_attempts(config)
        return lambda: self.call(message, next(configs), arguments)

    async def _ask(self, content: Any, config: Config | None, **arguments: Any) -> Any:
        try:
            return await self._ainvoke(content, config, **arguments)
        except AgentInterruptedError as error:
            return {INTERRUPT: list(error.interrupts)}
        except StaleResumeError as error:
            raise Refusal(error) from None


class _AsyncFunction(_Callable):
    """A coroutine function, or an object with an async ``__call__``."""

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        if not self._asked:
            result: Awaitable[Any] = self._function(message.content)
        else:
            given = _given(self._asked, message, config, arguments)
            result = self._function(message.content, **given)
        return result


class _Function(_Callable):
    """A plain function: executed in a worker thread."""

    async def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Any:
        loop = asyncio.get_running_loop()
        given = _given(self._asked, message, config, arguments)
        function = partial(call_for_future, self._function, message.content, **given)
        call = partial(copy_context().run, function)
        # Routed to the threads of this run's bridge, as sync nodes of graphs are.
        value = await loop.run_in_executor(None, call)
        # A plain function may still return an awaitable: a lambda around a coroutine.
        return await value if inspect.isawaitable(value) else value
