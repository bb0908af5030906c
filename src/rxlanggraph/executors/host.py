"""GraphHost: what a worker process does. It has one graph, and executes calls of it on its loop.

Knows nothing of the engine that has started the process. A call is over when its task, the threads
of its sync code and LangGraph's own tasks have ended, as for a run of a bridge.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing
from contextvars import Context, ContextVar, copy_context
from functools import partial, reduce
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from rxlanggraph.concurrency.user_code import call_for_future
from rxlanggraph.errors import InvalidTypeError, error_text
from rxlanggraph.executors.companions import Counterpart
from rxlanggraph.executors.contract import GOES_ON, Event, EventKind, Order
from rxlanggraph.executors.payloads import Dumps, RemoteCall, dump_error, loads
from rxlanggraph.executors.targets import Target, in_memory_parts, load, made_by
from rxlanggraph.langgraph_tasks import LangGraphTasks

__all__ = ["WINDOW", "GraphHost"]

WINDOW = 16
"""Chunks that a call may be ahead of its reader, as many as `astream` buffers."""
# Threads beside one for each call: as many as for the runs of a bridge.
_SPARE_THREADS = 31
# Cancellations that have overtaken their call, beside one for each call. More are forgotten: the
# oldest are of calls that had ended already.
_EARLY = 10_000

_current: ContextVar[_HostedCall | None] = ContextVar("rxlanggraph_hosted_call", default=None)


class _HostedCall:
    """A call in progress. Confined to the loop."""

    def __init__(self, key: int, outbox: _Outbox) -> None:
        self.key = key
        self.outbox = outbox
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.cancelled = False
        self.companions: list[Counterpart] = []  # those that have been entered
        self.over = False
        self.credits = WINDOW
        self.credited = asyncio.Event()
        self.threads = 0
        self.idle = asyncio.Event()  # no thread works for it
        self.idle.set()

    def thread_ended(self) -> None:
        self.threads -= 1
        if not self.threads:
            self.idle.set()

    def cancel(self) -> None:
        # Not a task before its first step, which would end without an event.
        self.cancelled = True
        for each in self.companions:
            each.cancel()
        if self.begun and self.task is not None:
            self.task.cancel()

    def tell(self, data: bytes) -> None:
        if not self.over:
            self.outbox.put(self.key, "told", data)


class _Link:
    """See `Link`: that of the companion with the number ``index``."""

    def __init__(self, call: _HostedCall, index: int, dumps: Dumps) -> None:
        self.dumps = dumps
        self._call = call
        self._index = index
        self._loop = asyncio.get_running_loop()

    def tell(self, what: Any) -> None:
        data = self.dumps((self._index, what))
        if asyncio._get_running_loop() is self._loop:  # at once: it may be the last step
            self._call.tell(data)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._call.tell, data, context=Context())

    def is_inside(self) -> bool:
        return _current.get() is self._call


class _Outbox:
    """The events of a batch that are not sent yet. Confined to the loop."""

    def __init__(self, calls: int) -> None:
        self._open = calls
        self._events: list[Event] = []
        self._filled = asyncio.Event()

    def put(self, key: int, kind: EventKind, data: bytes) -> None:
        self._events.append((key, kind, data))
        if kind not in GOES_ON:
            self._open -= 1
        self._filled.set()

    @property
    def has_more(self) -> bool:
        """Whether there will be further events, or are some that were not taken."""
        return self._open > 0 or bool(self._events)

    async def take(self) -> list[Event]:
        await self._filled.wait()
        self._filled.clear()
        events, self._events = self._events, []
        return events


class _Threads(ThreadPoolExecutor):
    """The loop's default executor, which counts the threads of each call."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        call = _current.get()
        future = super().submit(fn, *args, **kwargs)
        if call is not None:
            call.threads += 1
            call.idle.clear()
            loop = asyncio.get_running_loop()
            future.add_done_callback(partial(self._ended, loop, call))
        return future

    @staticmethod
    def _ended(loop: asyncio.AbstractEventLoop, call: _HostedCall, _: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(call.thread_ended)


class GraphHost:
    """Loads a graph and executes calls of it. Confined to one loop, but for `control`.

    Args:
        target: What is loaded.
        variables: The context variables that calls carry, as ``"module:attribute"``.
        max_calls: How many calls are in progress at once, at most.
        dumps: Pickles results.
    """

    def __init__(
        self, target: Target, variables: Sequence[str], max_calls: int, dumps: Dumps
    ) -> None:
        self._target = target
        self._variables = variables
        self._max_calls = max_calls
        self._dumps = dumps
        self._graph: Any = None
        self._carried: dict[str, ContextVar[Any]] = {}
        self._calls: dict[int, _HostedCall] = {}
        self._early: dict[int, None] = {}  # see _EARLY
        self._langgraph_tasks = LangGraphTasks(_current)
        self._loop: asyncio.AbstractEventLoop | None = None  # written by `open`
        self._holding: asyncio.Task[None] | None = None

    async def open(self) -> tuple[Any, ...]:
        """Load the graph, and keep it open from now on.

        Returns:
            ``("open", pid, in_memory_parts)``, or ``("error", data)`` as of `dump_error`.
        """
        self._loop = loop = asyncio.get_running_loop()
        loop.set_default_executor(_Threads(self._max_calls + _SPARE_THREADS, "rxlanggraph-worker"))
        made: asyncio.Future[Any] = loop.create_future()
        # One task enters and leaves its context managers, as anyio requires.
        self._holding = loop.create_task(self._hold(made), context=Context())
        try:
            self._graph = await made
            self._carried = {name: load(name) for name in self._variables}
        except BaseException as error:
            return ("error", dump_error(error, self._dumps))
        return ("open", os.getpid(), in_memory_parts(self._graph))

    async def _hold(self, made: asyncio.Future[Any]) -> None:
        async with AsyncExitStack() as stack:
            try:
                graph = await made_by(self._target, stack)
                if not callable(getattr(graph, "ainvoke", graph)):
                    raise InvalidTypeError(f"{graph!r} cannot run messages")  # noqa: TRY301 - as others
            except BaseException as error:
                if not made.done():
                    made.set_exception(error)
                return
            if not made.done():  # nothing has given up waiting for it
                made.set_result(graph)
                await asyncio.Event().wait()

    async def close(self) -> None:
        """Cancel all calls, and leave the context managers of the graph."""
        tasks = []
        for call in self._calls.values():
            call.cancel()
            if call.task is not None:
                tasks.append(call.task)
        if self._holding is not None:
            self._holding.cancel()
            tasks.append(self._holding)
        if tasks:
            await asyncio.wait(tasks)

    async def execute(self, batch: Sequence[tuple[int, bytes]]) -> AsyncIterator[list[Event]]:
        """Execute calls, each with a key; yield what happens to them, until all have ended."""
        loop = asyncio.get_running_loop()
        outbox = _Outbox(len(batch))
        for key, data in batch:
            if key in self._early:
                del self._early[key]
                outbox.put(key, "cancelled", b"")
                continue
            call = self._calls[key] = _HostedCall(key, outbox)
            context = Context()
            context.run(_current.set, call)
            call.task = loop.create_task(self._execute(call, data), context=context)
        while outbox.has_more:
            events = await outbox.take()
            if events:
                yield events

    def control(self, orders: Sequence[Order]) -> None:
        """Tell calls something. Any thread; never blocks."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._obey, orders)

    def _obey(self, orders: Sequence[Order]) -> None:
        for order, key, detail in orders:
            call = self._calls.get(key)
            if order == "credit":
                if call is not None:
                    call.credits += detail
                    call.credited.set()
            elif order == "tell":
                if call is not None:
                    index, what = loads(detail)
                    call.companions[index].hear(what)
            elif call is None:
                self._early[key] = None
                if len(self._early) > self._max_calls + _EARLY:
                    del self._early[next(iter(self._early))]
            else:
                call.cancel()

    async def _execute(self, call: _HostedCall, data: bytes) -> None:
        kind: EventKind = "result"
        call.begun = True
        try:
            if call.cancelled:
                raise asyncio.CancelledError  # noqa: TRY301 - as if it had begun
            result = self._dump_result(await self._carry_out(call, RemoteCall(*loads(data))))
        except asyncio.CancelledError:
            kind, result = "cancelled", b""
            with contextlib.suppress(asyncio.CancelledError):  # cancelled once more
                await self._langgraph_tasks.until_ended(call)
        except BaseException as error:
            kind, result = "error", dump_error(error, self._dumps)
            for each in call.companions:  # what its threads go on to do is of no use
                each.cancel()
        while call.threads:  # cancelled once more: a thread cannot be stopped
            with contextlib.suppress(asyncio.CancelledError):
                await call.idle.wait()
        if call.companions:
            # What they have told from threads is due on the loop. From Python 3.14 on, the end of a
            # thread may overtake it: a future that is done already does not wait for a turn.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        for each in call.companions:
            each.leave()
        del self._calls[call.key]
        call.over = True
        call.task, call.companions = None, []  # they refer to the call
        call.outbox.put(call.key, kind, result)

    def _dump_result(self, result: Any) -> bytes:
        try:
            return self._dumps(result)
        except Exception as error:
            raise InvalidTypeError(
                f"the result of the graph, of type {type(result).__name__}, cannot be sent back, "
                f"because it cannot be pickled: {error_text(error)}"
            ) from error

    async def _carry_out(self, call: _HostedCall, asked: RemoteCall) -> Any:
        for name, value in asked.variables.items():
            self._carried[name].set(value)
        target = reduce(getattr, asked.path, self._graph)
        arguments = tuple(asked.arguments)
        for index, each in enumerate(asked.companions):
            arguments = each.enter(_Link(call, index, self._dumps), self._graph, arguments)
            call.companions.append(each)
        if asked.streams:
            return await self._stream(call, target(*arguments, **asked.options))
        if asked.path or iscoroutinefunction(target) or iscoroutinefunction(target.__call__):
            return await target(*arguments, **asked.options)
        bound = partial(copy_context().run, call_for_future, target, *arguments, **asked.options)
        value = await asyncio.get_running_loop().run_in_executor(None, bound)
        return await value if isawaitable(value) else value

    async def _stream(self, call: _HostedCall, stream: Any) -> None:
        async with aclosing(stream):
            async for chunk in stream:
                while not call.credits:
                    call.credited.clear()
                    await call.credited.wait()
                call.credits -= 1
                call.outbox.put(call.key, "chunk", self._dump_result(chunk))
