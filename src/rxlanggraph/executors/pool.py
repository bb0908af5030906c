"""WorkerPool: which worker gets which call, and what becomes of it. Confined to the bridge's loop.

Calls that are there in the same iteration of the loop go out together, one batch for each worker,
to the worker with the fewest calls in progress. A worker has a limit; what is beyond it waits here,
and goes out with the others for which results make room. So batches are as large as the load makes
them, and an idle pool waits for nothing.

A call that is cancelled ends when the worker says so, cleanup included. A worker that is lost fails
its calls, and is replaced; calls that have ended are not affected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from contextvars import Context, ContextVar
from functools import partial
from typing import Any

from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.concurrency.user_code import is_interrupt, raise_on_loop
from rxlanggraph.errors import (
    ExecutorUnavailableError,
    InvalidArgumentError,
    RunError,
    WorkerLostError,
    error_text,
)
from rxlanggraph.executors.companions import Companion, accompanying
from rxlanggraph.executors.contract import (
    GOES_ON,
    Cluster,
    Event,
    EventKind,
    Order,
    Worker,
)
from rxlanggraph.executors.host import WINDOW
from rxlanggraph.executors.payloads import RemoteCall, dump_call, load_error, loads
from rxlanggraph.executors.remote_graph import RemoteFunction, RemoteGraph, remote
from rxlanggraph.executors.targets import Target, in_memory_parts, is_factory, load

__all__ = ["WorkerPool", "check_parts_in_memory"]

_log = logging.getLogger("rxlanggraph")
# Credit is given for so many chunks at once. Half of the window: the worker need not wait for it.
_CREDIT = WINDOW // 2
# Seconds before another start where one has failed, doubled each time. Guesses.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0
# Seconds for which calls are kept back for workers that start. A guess: more than it mostly takes.
_KEPT_BACK = 10.0


class _Call:
    """One call, from its submission to its end. Confined to the loop."""

    __slots__ = (
        "cancelled",
        "chunks",
        "companions",
        "data",
        "failure",
        "key",
        "outcome",
        "seat",
        "settled",
        "woken",
    )

    def __init__(self, key: int, woken: asyncio.Event | None) -> None:
        self.key = key
        self.data = b""  # until it is sent
        self.companions: list[Companion] = []
        self.seat: _Seat | None = None  # from then on
        self.cancelled = False
        self.failure: RunError | None = None  # why it was told to end
        self.outcome: tuple[EventKind, Any] | None = None
        # Whatever waits for the outcome; it is replaced where the wait is cancelled.
        self.settled: asyncio.Future[None] | None = None
        # Of a stream: what has arrived and was not read, and what wakes its reader.
        self.chunks: deque[Any] = deque()
        self.woken = woken

    def settle(self, kind: EventKind, value: Any) -> None:
        if self.outcome is not None:
            return
        self.outcome = (kind, value) if self.failure is None else ("error", self.failure)
        companions, self.companions = self.companions, []  # they refer to this
        for companion in companions:
            companion.end()
        if self.settled is not None and not self.settled.done():
            self.settled.set_result(None)
        if self.woken is not None:
            self.woken.set()

    def take(self) -> Any:
        """Return the result, or raise what has come instead of it."""
        assert self.outcome is not None
        kind, value = self.outcome
        self.outcome = ("cancelled", None)  # the traceback of an error refers to what has it
        if kind == "result":
            return value
        if kind == "cancelled":
            raise asyncio.CancelledError
        try:
            raise value
        finally:
            del value


class _Seat:
    """A worker that has started, and its calls. Confined to the loop."""

    __slots__ = ("calls", "orders", "worker")

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.calls: dict[int, _Call] = {}
        self.orders: list[Order] = []


class WorkerPool:
    """The workers of one bridge: see `Workers`.

    Args:
        cluster: Starts the processes.
        target: The graph that they load.
        name: The name of the bridge.
        size: How many workers there are.
        calls_per_worker: How many calls a worker may have at once.
        variables: The context variables that calls carry, by name.
    """

    def __init__(
        self,
        cluster: Cluster,
        target: Target,
        name: str,
        *,
        size: int,
        calls_per_worker: int,
        variables: Mapping[str, ContextVar[Any]],
    ) -> None:
        self._cluster = cluster
        self._target = target
        self._name = name
        self._size = size
        self._limit = calls_per_worker
        self._variables = variables
        # The latest graph, and what stands for it. Any thread: one reference, replaced as a whole.
        self._latest: tuple[Any, RemoteGraph | RemoteFunction] | None = None
        self._disconnected: dict[str, Future[None]] = {}  # filled by a single setdefault
        # Of the process that has started workers: written on the loop; read by any thread.
        self._pid: int | None = None
        # Confined to the loop, from here on.
        self._keys = 0
        self._waiting: dict[int, _Call] = {}
        self._seats: list[_Seat] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._failures = 0  # failed starts in a row
        self._flush_due = False
        self._pause: asyncio.TimerHandle | None = None
        self._keeping_back: asyncio.TimerHandle | None = None
        self._stopped = False

    # -- any thread ------------------------------------------------------------------------------

    def graph_for(self, graph: Any) -> Any:
        """Return what is called in the place of ``graph``. Any thread; never blocks.

        Args:
            graph: The driver's own graph, or the name that the executor has for it, which is then
                imported here.

        Raises:
            InvalidArgumentError: The workers do not have this graph, or each would have a memory of
                its own.
        """
        latest = self._latest
        if latest is not None and (latest[0] is graph or latest[1] is graph):
            return latest[1]
        if isinstance(graph, RemoteGraph | RemoteFunction):
            graph = graph.local
        local = self._own(graph)
        check_parts_in_memory(in_memory_parts(local), self._size)
        standing_for = remote(local, self)
        self._latest = graph, standing_for
        return standing_for

    def _own(self, graph: Any) -> Any:
        if not isinstance(self._target, str):
            if isinstance(graph, str) or graph is self._target:
                raise InvalidArgumentError(
                    "the graph of an executor with a factory is one that the factory has made for "
                    f"this process, not {graph!r}"
                )
            return graph  # of a factory, each process has its own: they cannot be compared
        known = load(self._target)
        named = graph is known or (isinstance(graph, str) and graph == self._target)
        if is_factory(known):
            if named:
                raise InvalidArgumentError(
                    f"{self._target} is a factory; pass the graph that it makes in this process"
                )
            return graph
        if named:
            return known
        raise InvalidArgumentError(
            f"the executor of the bridge {self._name} runs {self._target}, and not {graph!r}; make "
            "a bridge of its own for it"
        )

    def disconnect(self) -> Future[None]:
        """End the processes, in a thread. Any thread; never blocks."""
        ended: Future[None] = Future()
        if self._pid not in (None, os.getpid()):  # in a forked child: they are the parent's
            ended.set_result(None)
            return ended
        if self._disconnected.setdefault("ended", ended) is ended:
            thread = threading.Thread(
                target=self._disconnect, args=(ended,), name=f"{self._name}-workers", daemon=True
            )
            start_detached(thread)
        return self._disconnected["ended"]

    def _disconnect(self, ended: Future[None]) -> None:
        try:
            self._cluster.disconnect()
        except Exception:
            _log.exception("the workers of %s could not be ended", self._name)
        finally:
            ended.set_result(None)

    # -- calls, on the loop ----------------------------------------------------------------------

    async def call(
        self, path: tuple[str, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Call what is at ``path`` of the graph in a worker. On the loop.

        Cancelling it cancels the call, and returns when that has really ended.

        Raises:
            WorkerLostError: The worker has died meanwhile.
            ExecutorUnavailableError: No worker can be started.
            InvalidTypeError: What is sent, or the result, cannot be pickled.
            Exception: What the call has raised.
        """
        call = self._submit(path, arguments, options, None)
        await self._end_of(call)
        return call.take()

    async def stream(
        self, path: tuple[str, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """As `call`, for what returns an async iterator. The worker is at most `WINDOW` ahead."""
        call = self._submit(path, arguments, options, woken := asyncio.Event())
        read = 0
        try:
            while call.chunks or call.outcome is None:
                while call.chunks:
                    chunk = call.chunks.popleft()
                    read += 1
                    if read % _CREDIT == 0:
                        self._tell(call, "credit", _CREDIT)
                    yield chunk
                    del chunk
                if call.outcome is None:
                    woken.clear()
                    await woken.wait()
        finally:
            if call.outcome is None:
                self._cancel(call)
                await self._end_of(call)
        call.take()

    def _carried(self) -> dict[str, Any]:
        return {
            name: value
            for name, variable in self._variables.items()
            if (value := variable.get(_UNSET)) is not _UNSET
        }

    def _submit(
        self,
        path: tuple[str, ...],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
        woken: asyncio.Event | None,
    ) -> _Call:
        if self._stopped:
            raise ExecutorUnavailableError(f"the workers of {self._name} have been stopped")
        self._keys += 1
        call = _Call(self._keys, woken)
        if len(path) <= 1:  # of the graph itself, not of something in it
            for index, new in enumerate(accompanying.get()):
                tell = partial(self._tell_counterpart, call, index)
                call.companions.append(new(tell, self._cluster.dumps))
        sides = [each.counterpart for each in call.companions]
        streams = woken is not None
        asked = RemoteCall(path, streams, arguments, options, self._carried(), sides)
        try:
            call.data = dump_call(asked, self._cluster.dumps)
        except BaseException:
            call.settle("cancelled", None)  # for its companions
            raise
        self._waiting[call.key] = call
        if len(self._seats) + self._starting < self._size and self._pause is None:
            self._fill()
        self._flush_soon()
        return call

    async def _end_of(self, call: _Call) -> None:
        """Wait until ``call`` has ended; a cancellation of this cancels it."""
        while call.outcome is None:
            call.settled = asyncio.get_running_loop().create_future()
            try:
                await call.settled
            except asyncio.CancelledError:
                if call.outcome is not None:  # it has just ended
                    raise
                self._cancel(call)

    def _cancel(self, call: _Call) -> None:
        call.cancelled = True
        if call.seat is not None:
            self._tell(call, "cancel", 0)
        elif self._waiting.pop(call.key, None) is not None:
            call.settle("cancelled", None)

    def _tell(self, call: _Call, order: Any, detail: Any) -> None:
        if call.seat is not None and call.outcome is None:
            call.seat.orders.append((order, call.key, detail))
            self._flush_soon()

    def _tell_counterpart(self, call: _Call, index: int, what: Any) -> None:
        self._tell(call, "tell", self._cluster.dumps((index, what)))

    # -- batches, on the loop --------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flush_due and not self._stopped:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush, context=Context())

    def _flush(self) -> None:
        self._flush_due = False
        batches: dict[_Seat, list[_Call]] = {}
        limit = self._limit_now()
        while self._waiting:
            seat = min(self._seats, key=lambda each: len(each.calls), default=None)
            if seat is None or len(seat.calls) >= limit:
                break
            key = next(iter(self._waiting))
            call = seat.calls[key] = self._waiting.pop(key)
            call.seat = seat
            batches.setdefault(seat, []).append(call)
        for seat, batch in batches.items():
            self._start(self._carry(seat, batch))
        for seat in self._seats:
            if seat.orders:
                orders, seat.orders = seat.orders, []
                seat.worker.control(orders)

    def _limit_now(self) -> int:
        """How many calls a worker may have: while others start, no more than its share.

        Not for long: there may be no room for them.
        """
        if not self._starting or self._keeping_back is None:
            return self._limit
        calls = len(self._waiting) + sum(len(seat.calls) for seat in self._seats)
        return min(self._limit, -(-calls // self._size))

    def _start(self, coroutine: Any) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(coroutine, name=f"{self._name}-workers", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, seat: _Seat, calls: list[_Call]) -> None:
        keys = [call.key for call in calls]
        batch = [(call.key, call.data) for call in calls]
        streams = any(call.woken is not None or call.companions for call in calls)
        for call in calls:
            call.data = b""
        del call, calls
        try:
            async for events in seat.worker.execute(batch, streams=streams):
                for event in events:
                    self._receive(seat, event)
                if self._waiting:
                    self._flush_soon()
            if any(key in seat.calls for key in keys):
                raise WorkerLostError("a worker process has left calls without an answer")  # noqa: TRY301 - as if it had died
        except Exception as error:
            self._lose(seat, error)

    def _receive(self, seat: _Seat, event: Event) -> None:
        key, kind, data = event
        call = seat.calls.get(key)
        if call is None:
            return
        if kind not in GOES_ON:
            del seat.calls[key]
        try:
            value = _value_of(kind, data)
            if kind == "told":
                index, what = value
                call.companions[index].hear(what)
        except BaseException as error:  # whatever the user's code raises
            self._unreadable(call, kind, error)
            return
        if kind == "chunk":
            call.chunks.append(value)
            assert call.woken is not None
            call.woken.set()
        elif kind != "told":
            call.settle(kind, value)

    def _unreadable(self, call: _Call, kind: EventKind, error: BaseException) -> None:
        failure = RunError(
            f"what a worker process has sent cannot be read here: {error_text(error)}"
        )
        failure.__cause__ = error
        if kind not in GOES_ON:
            call.settle("error", failure)
        elif call.failure is None:  # it ends when the worker says so
            call.failure = failure
            self._tell(call, "cancel", 0)
        if is_interrupt(error):
            raise_on_loop(error)

    # -- workers, on the loop --------------------------------------------------------------------

    def _fill(self) -> None:
        self._pause = None
        self._pid = os.getpid()
        self._keep_back()
        while len(self._seats) + self._starting < self._size and not self._stopped:
            self._starting += 1
            self._start(self._start_worker())

    def _keep_back(self) -> None:
        if self._keeping_back is None and not self._stopped:
            loop = asyncio.get_running_loop()
            self._keeping_back = loop.call_later(_KEPT_BACK, self._give_out, context=Context())

    def _give_out(self) -> None:
        self._keeping_back = None
        self._flush_soon()

    async def _start_worker(self) -> None:
        try:
            worker = await self._cluster.start_worker()
        except Exception as error:
            self._starting -= 1
            self._start_failed(error)
            return
        except BaseException:
            self._starting -= 1
            raise
        self._starting -= 1
        self._failures = 0
        seat = _Seat(worker)
        self._seats.append(seat)
        self._start(self._watch(seat))
        self._flush_soon()

    async def _watch(self, seat: _Seat) -> None:
        """Replace a worker that dies while it has nothing to do, before it is given a call."""
        await seat.worker.ended()
        self._lose(seat, WorkerLostError("its process has ended"))

    def _start_failed(self, error: Exception) -> None:
        self._failures += 1
        if not self._seats:
            if not self._starting:  # no other one may succeed
                waiting, self._waiting = self._waiting, {}
                for call in waiting.values():
                    call.settle("error", error)
            return  # the next call tries again
        _log.warning("a worker of %s could not be started: %r", self._name, error)
        if self._pause is None and not self._stopped:
            seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(self._failures, 10))
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(seconds, self._fill, context=Context())

    def _lose(self, seat: _Seat, error: Exception) -> None:
        if seat not in self._seats:
            return
        self._seats.remove(seat)
        seat.worker.kill()
        calls, seat.calls = seat.calls, {}
        for call in calls.values():
            if call.cancelled:
                call.settle("cancelled", None)
                continue
            lost = WorkerLostError(
                f"the worker process of this run has died, and with it {len(calls)} runs; what "
                f"they have done is unknown: {error_text(error)}"
            )
            lost.__cause__ = error
            call.settle("error", lost)
        if not self._stopped and self._pause is None:
            self._fill()

    def stop(self) -> None:
        """End all calls, and accept no more. On the loop of the calls; never blocks."""
        self._stopped = True
        for timer in (self._pause, self._keeping_back):
            if timer is not None:
                timer.cancel()
        self._pause = self._keeping_back = None
        for task in self._tasks:
            task.cancel()
        calls = [*self._waiting.values()]
        for seat in self._seats:
            calls += seat.calls.values()
        self._waiting, self._seats = {}, []
        for call in calls:
            call.settle("cancelled", None)


_UNSET = object()


def _value_of(kind: EventKind, data: bytes) -> Any:
    if kind == "cancelled":
        return None
    return load_error(data) if kind == "error" else loads(data)


def check_parts_in_memory(parts: list[str], workers: int) -> None:
    """Check that the graph keeps nothing in memory that several workers would have to share.

    Any thread; never blocks.

    Raises:
        InvalidArgumentError: It does.
    """
    if parts and workers > 1:
        raise InvalidArgumentError(
            f"the graph has an {' and an '.join(parts)}, and each of {workers} workers would have "
            "one of its own, with other threads in it; use a checkpointer with a database, or "
            "workers=1"
        )
