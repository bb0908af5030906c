"""Runs that are executed as streams: the graph's chunks one by one, and then its result.

LangGraph's ``ainvoke`` is a loop over ``astream`` that keeps the last state and the questions. This
is the same loop, which also passes on the requested chunks. So a run that streams has the same
result as one that does not, and remains one run: with its lane, its timeout and its retries.

The next chunk is taken once there is room for it, so a slow consumer holds up its own run, and no
other. What breaks without it: LangGraph continues, and buffers whatever its nodes emit.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from rxlanggraph.bridge.graphs.adapters import (
    Arguments,
    GraphAdapter,
    WrappedAdapter,
    attempt_at,
    attempts_at,
)
from rxlanggraph.bridge.graphs.configs import Config, check_version, layers_of
from rxlanggraph.bridge.graphs.interrupts import INTERRUPT
from rxlanggraph.bridge.reports import report_chunk
from rxlanggraph.bridge.run import ChunkSink, current_run
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.executors.remote_graph import RemoteGraph
from rxlanggraph.messages import StreamMessage, chunk_of, without_source

if TYPE_CHECKING:
    from rxlanggraph.bridge.pacing import Pace

__all__ = [
    "ChunkTarget",
    "GraphStream",
    "StreamMode",
    "checked_modes",
    "is_graph",
    "outruns",
    "streamed_sum",
    "streaming",
    "with_breakpoints",
]

StreamMode: TypeAlias = str
"""A stream mode of LangGraph: ``values``, ``updates``, ``messages``, ``custom``, ``tasks``, ..."""

_DEFAULT = ("updates",)
# What LangGraph emits between two steps alone. For the rest it does not wait within a step.
_BETWEEN_STEPS = frozenset({"updates", "values", "checkpoints", "tasks", "debug"})
# What a stream of one's own is not to be given.
_OF_STREAM = frozenset({"stream_mode", "subgraphs"})
# LangGraph's own type does not list them: each with the module of LangGraph that emits it.
_UNLISTED = {"tools": "langgraph.pregel._tools"}


class ChunkTarget(Protocol):
    """Where the chunks of one run go."""

    def put(
        self, content: Any, mode: StreamMode | None, namespace: tuple[str, ...]
    ) -> Awaitable[None] | None:
        """Pass one chunk on. On the loop of the run, in its task.

        Returns:
            What to await before the next chunk; None if there is room for it.
        """


def streaming(
    graph: Any,
    adapter: GraphAdapter,
    stream_mode: StreamMode | Sequence[StreamMode],
    subgraphs: bool,
) -> GraphAdapter:
    """Return the adapter that executes ``graph`` as a stream. Any thread; never blocks.

    The chunks of a run go to its ``sink``.

    Args:
        graph: What is executed.
        adapter: The adapter that executes it without streaming; returned for functions, which have
            no chunks.
        stream_mode: The mode of the chunks, or the modes.
        subgraphs: Whether the chunks of subgraphs are included.

    Raises:
        InvalidArgumentError: A mode is unknown; or modes or subgraphs are asked of something other
            than a graph of LangGraph's.
        InvalidTypeError: A mode is not a string, or ``subgraphs`` not a bool.
    """
    modes = checked_modes(stream_mode)
    if not isinstance(subgraphs, bool):
        raise InvalidTypeError(f"subgraphs must be True or False, not {subgraphs!r}")
    if is_graph(graph):
        return _StreamedGraph(graph, adapter, GraphStream(graph, modes, subgraphs))
    if any(is_graph(step) for step in _steps(graph)):
        return _StreamedSequence(graph, adapter, modes, subgraphs)
    if subgraphs or modes != _DEFAULT:
        is_agent = getattr(graph, "_takes_answers", False)
        remedy = "give the agent itself a stream_mode, and read its outputs" if is_agent else ""
        raise InvalidArgumentError(
            f"{'subgraphs' if subgraphs else 'stream_mode'} can only be passed with a compiled "
            f"LangGraph graph, and {graph!r} is not one; {remedy or 'leave it out'}"
        )
    return _StreamedRunnable(graph, adapter) if hasattr(graph, "astream") else adapter


def with_breakpoints(
    graph: Any, adapter: GraphAdapter, arguments: Mapping[str, Any]
) -> GraphAdapter:
    """Return the adapter that notices where ``graph`` stops at a breakpoint. Any thread.

    What ``ainvoke`` returns does not say so. Without breakpoints, ``adapter`` itself.

    Args:
        graph: What is executed.
        adapter: The adapter that executes it.
        arguments: LangGraph's arguments of the call.
    """
    if not (is_graph(graph) and (_among(arguments) or _has_breakpoints(graph))):
        return adapter
    return _StoppableGraph(graph, adapter)


def _among(arguments: Mapping[str, Any]) -> bool:
    return any(arguments.get(name) for name in ("interrupt_before", "interrupt_after"))


# A graph is compiled once and called often, and looking for its subgraphs takes longer than a run.
# Weak, so that a bridge keeps no graph alive. Each access is one call of a built-in dict, in any
# thread.
_breakpoints: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _has_breakpoints(graph: Any) -> bool:
    """Whether ``graph``, what it wraps, or a subgraph was compiled with breakpoints. Any thread."""
    layers = list(layers_of(graph))
    innermost = layers[-1]
    if any(_among(getattr(layer, "kwargs", None) or {}) for layer in layers):
        return True
    try:
        known = _breakpoints.get(innermost)
        if known is None:
            known = _breakpoints[innermost] = _looked_for(innermost)
    except TypeError:  # neither hashable nor weakly referenced
        known = _looked_for(innermost)
    return known


def _looked_for(graph: Any) -> bool:
    if not hasattr(graph, "interrupt_before_nodes"):  # a server's: what it has is known there
        return True
    subgraphs = graph.get_subgraphs(recurse=True) if hasattr(graph, "get_subgraphs") else ()
    return any(
        getattr(each, name, None)
        for each in (graph, *(subgraph for _, subgraph in subgraphs))
        for name in ("interrupt_before_nodes", "interrupt_after_nodes")
    )


def is_graph(graph: Any) -> bool:
    """Whether its ``astream`` is that of a LangGraph graph, perhaps with something bound to it.

    Any thread; never blocks.
    """
    layers = list(layers_of(graph))
    return hasattr(layers[-1], "aget_state") and not any(_steps(layer) for layer in layers)


def _steps(graph: Any) -> list[Any]:
    steps = getattr(graph, "steps", None)
    return steps if isinstance(steps, list) else []


def outruns(modes: Iterable[StreamMode], subgraphs: object) -> bool:
    """Whether LangGraph may emit such chunks without waiting for their reader. Any thread."""
    return bool(subgraphs) or not _BETWEEN_STEPS.issuperset(modes)


def checked_modes(stream_mode: object) -> tuple[StreamMode, ...]:
    """Return the modes, each of which LangGraph knows. Any thread; never blocks.

    Raises:
        InvalidArgumentError: A mode is unknown.
        InvalidTypeError: It is not a mode, and not a list of modes.
    """
    modes = (stream_mode,) if isinstance(stream_mode, str) else stream_mode
    if not isinstance(modes, list | tuple | set | frozenset) or not modes:
        raise InvalidTypeError(f"stream_mode must be a mode or a list of modes, not {modes!r}")
    known = _known_modes()
    for mode in modes:
        if not isinstance(mode, str):
            raise InvalidTypeError(f"stream_mode must be a list of strings, and has {mode!r}")
        if mode not in known:  # LangGraph would emit nothing for it
            raise InvalidArgumentError(
                f"stream_mode must be one or more of {', '.join(sorted(known))}, not {mode!r}"
            )
    return tuple(modes)


def _known_modes() -> frozenset[str]:
    # Of the installed LangGraph; where it has not been imported, there is no graph of its either.
    types = sys.modules.get("langgraph.types")
    listed = _DEFAULT if types is None else get_args(types.StreamMode)
    unlisted = [mode for mode, module in _UNLISTED.items() if module in sys.modules]
    return frozenset((*listed, *unlisted))


class _Chunks:
    """The chunks of one run, numbered over all its attempts. Confined to the loop."""

    def __init__(self, message: StreamMessage) -> None:
        run = current_run()
        sink = None if run is None else run.sink
        if sink is None:  # another thread has just cancelled the run
            raise asyncio.CancelledError
        assert run is not None
        self._run = run
        self._timed = run.options.timed
        self._timer: asyncio.TimerHandle | None = None  # until the next chunk has to be there
        self._sink: ChunkSink = sink
        self._source = without_source(message)
        self._count = 0

    def put(
        self, content: Any, mode: StreamMode | None, namespace: tuple[str, ...]
    ) -> Awaitable[None] | None:
        """Pass one chunk on; return what to await before the next one, if anything."""
        chunk = chunk_of(self._source, content, mode, namespace, self._count)
        self._count += 1
        observed = self._run.observed
        if observed is not None:
            report_chunk(self._run, observed, chunk)
        room = self._sink.put(chunk)
        if not self._timed:
            return room
        if room is None:
            self._expect("idle")
            return None
        self._expect(None)
        return self._expect_after(room)

    async def _expect_after(self, room: Awaitable[None]) -> None:
        await room
        self._expect("idle")

    def _expect(self, limit: Literal["first_chunk", "idle"] | None) -> None:
        """From now on the next chunk is due within ``limit``, if that is set; None: at no time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        run = self._run
        if limit is None or run.overran is None:
            return
        seconds = getattr(run.options.limits, limit)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, run.overran, run, limit, context=Context())

    async def _in_time(
        self, ainvoke: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
    ) -> Any:
        self._expect("first_chunk")
        try:
            return await ainvoke(*arguments, **options)
        finally:
            self._expect(None)

    def limited(self, ainvoke: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return ``ainvoke`` with the run's limits for its chunks, if there are any."""
        return partial(self._in_time, ainvoke) if self._timed else ainvoke


class GraphStream:
    """How a graph of LangGraph's is streamed, and what ``ainvoke`` would return. Immutable."""

    def __init__(self, graph: Any, modes: tuple[StreamMode, ...], subgraphs: bool) -> None:
        *_, innermost = layers = list(layers_of(graph))
        check_version(graph)
        self._astream = graph.astream
        self._modes = frozenset(modes)
        self._subgraphs = subgraphs
        # Nodes at work in another process cannot be held up; on another loop, they are there.
        self._paces = not isinstance(graph, RemoteGraph) and outruns(modes, subgraphs)
        # As in ainvoke: the result is made of the values, and of the questions among the updates.
        self._asked = list(dict.fromkeys((*modes, "updates", "values")))
        self._output = getattr(innermost, "output_channels", None)
        streamed = getattr(innermost, "stream_channels_asis", None)
        self._defaults: dict[str, Any] = {}
        if any("output_keys" in (getattr(layer, "kwargs", None) or {}) for layer in layers):
            self._output = None
        elif self._output is not None and not (modes and _is_within(self._output, streamed)):
            # As ainvoke. Where there are chunks, they are limited to what makes up the result, but
            # that is rare: only without StateGraph.
            self._defaults["output_keys"] = self._output
            self._output = None
        elif self._output == streamed:
            self._output = None

    async def run(
        self, chunks: ChunkTarget | None, content: Any, config: Config | None, **arguments: Any
    ) -> _Result:
        """Stream one attempt to ``chunks``; return what ``ainvoke`` would. On the loop."""
        arguments = {**self._defaults, **arguments}
        pace = None
        if chunks is not None and self._paces:
            from rxlanggraph.bridge.pacing import Pace  # noqa: PLC0415 - imports LangChain

            pace = Pace()
            config = pace.among(config)
        stream = self._astream(
            content, config, stream_mode=self._asked, subgraphs=self._subgraphs, **arguments
        )
        # Closed here: an async generator that is only dropped ends when its loop gets to it.
        async with aclosing(stream):
            result = None
            try:
                result = await self._read(stream, chunks, pace)
            finally:
                if pace is not None:
                    pace.end(failed=result is None)
        if "output_keys" not in arguments:
            result.values = self._output_of(result.values)
        return result

    async def _read(self, stream: Any, chunks: ChunkTarget | None, pace: Pace | None) -> _Result:
        subgraphs, wanted = self._subgraphs, self._modes
        result = _Result()
        namespace: tuple[str, ...] = ()
        async for chunk in stream:
            if subgraphs:
                namespace, mode, payload = chunk
            elif len(chunk) == 2:
                mode, payload = chunk
            else:  # of a server: its event, whose name may end in a namespace, and an id
                mode, payload, *_ = chunk
                mode = mode.partition("|")[0]
            if not namespace:
                result.see(mode, payload)
            if chunks is not None and mode in wanted:
                room = chunks.put(payload, mode, namespace)
                if room is not None:
                    await (room if pace is None else pace.hold(room))
        return result

    def _output_of(self, latest: Any) -> Any:
        """What of the streamed channels is output."""
        if self._output is None or not isinstance(latest, dict):
            return latest
        if isinstance(self._output, str):
            return latest.get(self._output)
        return {key: latest[key] for key in (*self._output, INTERRUPT) if key in latest}


class _Result:
    """What ``ainvoke`` would return, from the chunks of the graph itself; and whether it stopped.

    That a graph stopped at a breakpoint shows in its updates alone.
    """

    __slots__ = ("questions", "stopped", "values")

    def __init__(self) -> None:
        self.values: Any = None
        self.questions: list[Any] = []
        self.stopped = False

    def see(self, mode: StreamMode, payload: Any) -> None:
        if mode == "values":
            self.values = payload
        elif mode == "updates" and isinstance(payload, dict) and INTERRUPT in payload:
            self.stopped = True
            self.questions.extend(payload[INTERRUPT])  # at a breakpoint there are none

    def get(self) -> Any:
        if not self.questions:
            return self.values
        values = self.values if isinstance(self.values, dict) else {}
        return {**values, INTERRUPT: self.questions}


def _is_within(output: Any, streamed: Any) -> bool:
    if isinstance(streamed, str) or streamed is None or output is None:
        return bool(output == streamed)
    return {output} <= set(streamed) if isinstance(output, str) else set(output) <= set(streamed)


class _Streamed(WrappedAdapter):
    """An adapter whose runs pass their chunks on. Wraps the one that executes without streaming."""

    def __init__(self, graph: Any, adapter: GraphAdapter) -> None:
        super().__init__(adapter)
        self._graph = graph

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        chunks = _Chunks(message)
        ainvoke = chunks.limited(self._ainvoke(chunks))
        return attempt_at(self.gate, ainvoke, message, config, arguments)

    def attempts(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        chunks = _Chunks(message)
        ainvoke = chunks.limited(self._ainvoke(chunks))
        return attempts_at(self.gate, ainvoke, message, config, arguments)

    def _ainvoke(self, chunks: _Chunks) -> Callable[..., Awaitable[Any]]:
        """A function like the graph's ``ainvoke``, whose chunks go to ``chunks``."""
        raise NotImplementedError


class _StreamedGraph(_Streamed):
    def __init__(self, graph: Any, adapter: GraphAdapter, stream: GraphStream) -> None:
        super().__init__(graph, adapter)
        self._stream = stream

    def _ainvoke(self, chunks: _Chunks) -> Callable[..., Awaitable[Any]]:
        return partial(_stoppable, self._stream, chunks)


class _StoppableGraph(WrappedAdapter):
    """A graph with breakpoints, executed as a stream without chunks."""

    def __init__(self, graph: Any, adapter: GraphAdapter) -> None:
        super().__init__(adapter)
        self._ainvoke = _stoppable_within(graph).ainvoke

    def call(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Awaitable[Any]:
        return attempt_at(self.gate, self._ainvoke, message, config, arguments)

    def attempts(
        self, message: StreamMessage, config: Config | None, arguments: Arguments
    ) -> Callable[[], Awaitable[Any]]:
        return attempts_at(self.gate, self._ainvoke, message, config, arguments)


def _stoppable_within(graph: Any) -> Any:
    """Return ``graph`` with the graph that it wraps executed as a stream.

    What LangChain puts around the ``ainvoke`` of a graph stays: retries and fallbacks.
    """
    copied = hasattr(graph, "model_copy") and not isinstance(graph, RemoteGraph)
    own = vars(graph) if copied else {}
    if "fallbacks" in own:
        first, *others = [_stoppable_within(each) for each in (own["runnable"], *own["fallbacks"])]
        return graph.model_copy(update={"runnable": first, "fallbacks": others})
    if "bound" in own:
        return graph.model_copy(update={"bound": _stoppable_within(own["bound"])})
    return _Stoppable(graph) if is_graph(graph) else graph


class _Stoppable:
    """Stands for a graph, to what calls its ``ainvoke``."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._stream = GraphStream(graph, (), False)

    def __getattr__(self, name: str) -> Any:
        """Return what the graph has under ``name``."""
        return getattr(self._graph, name)

    async def ainvoke(self, content: Any, config: Config | None = None, **arguments: Any) -> Any:
        """Like that of the graph, whatever ``stream_mode`` is bound to it."""
        arguments = {name: arguments[name] for name in arguments if name not in _OF_STREAM}
        return await _stoppable(self._stream, None, content, config, **arguments)


async def _stoppable(
    stream: GraphStream,
    chunks: ChunkTarget | None,
    content: Any,
    config: Config | None,
    **arguments: Any,
) -> Any:
    """Like the ``ainvoke`` of a graph; tells its run whether it has stopped."""
    result = await stream.run(chunks, content, config, **arguments)
    run = current_run()
    if run is not None:
        run.at_breakpoint = result.stopped
    return result.get()


class _StreamedSequence(_Streamed):
    """A sequence with graphs among its steps: the chunks are theirs.

    The sequence's own ``astream`` would feed the chunks of a graph to the next step, which is made
    for the graph's result.
    """

    def __init__(
        self,
        graph: Any,
        adapter: GraphAdapter,
        modes: tuple[StreamMode, ...],
        subgraphs: bool,
    ) -> None:
        super().__init__(graph, adapter)
        self._type = type(graph.local if isinstance(graph, RemoteGraph) else graph)
        self._steps: list[Any] = [
            GraphStream(step, modes, subgraphs) if is_graph(step) else step for step in graph.steps
        ]

    def _ainvoke(self, chunks: _Chunks) -> Callable[..., Awaitable[Any]]:
        steps = [
            _step(step, chunks) if isinstance(step, GraphStream) else step for step in self._steps
        ]
        sequence: Any = self._type(*steps, name=self._graph.name)
        ainvoke: Callable[..., Awaitable[Any]] = sequence.ainvoke
        return ainvoke


def _step(stream: GraphStream, chunks: _Chunks) -> Callable[..., Awaitable[Any]]:
    async def run(content: Any, config: Any, **arguments: Any) -> Any:
        return (await stream.run(chunks, content, config, **arguments)).get()

    return run


class _StreamedRunnable(_Streamed):
    """A Runnable that is not a graph: its chunks have no mode, and their sum is the result."""

    def _ainvoke(self, chunks: _Chunks) -> Callable[..., Awaitable[Any]]:
        return partial(self._run, chunks)

    async def _run(
        self, chunks: _Chunks, content: Any, config: Config | None, **arguments: Any
    ) -> Any:
        stream = self._graph.astream(content, config, **arguments)
        return await streamed_sum(stream, lambda chunk: chunks.put(chunk, None, ()))


async def streamed_sum(stream: Any, put: Callable[[Any], Awaitable[None] | None]) -> Any:
    """Pass on what ``stream`` yields; return the sum, as a message if it is one. On the loop.

    Args:
        stream: The ``astream`` of a Runnable; closed at the end.
        put: Called with each chunk; returns what to await before the next one, if anything.
    """
    total: Any = None
    async with aclosing(stream):
        async for chunk in stream:
            room = put(chunk)
            if room is not None:
                await room
            total = _sum(total, chunk)
    return _as_message(total)


def _sum(total: Any, chunk: Any) -> Any:
    """As LangChain adds the chunks of a step up for the next one."""
    if total is None:
        return chunk
    try:
        return total + chunk
    except TypeError:
        return chunk


def _as_message(total: Any) -> Any:
    messages = sys.modules.get("langchain_core.messages")
    # What is no chunk of a message, that function returns as it is.
    return total if messages is None else messages.message_chunk_to_message(total)
