"""RxPyLangGraphBridge: a stream of messages in, a stream of graph results out.

The public class. It checks arguments and turns them into `RunOptions`; the `Engine` does the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import (
    AsyncIterable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
)

from reactivex import Observable, abc
from reactivex.disposable import Disposable
from tenacity import AsyncRetrying

from rxlanggraph.bridge.chunk_window import ChunkReader, ChunkWindow, joinable_run
from rxlanggraph.bridge.chunks import StreamMode, streaming, with_breakpoints
from rxlanggraph.bridge.draining import can_drain
from rxlanggraph.bridge.engine import Engine
from rxlanggraph.bridge.graphs.adapters import Graph, adapt_graph
from rxlanggraph.bridge.graphs.attempts import retry_policy, saver_of
from rxlanggraph.bridge.graphs.call_arguments import Durability, Nodes, PerMessage, given
from rxlanggraph.bridge.graphs.configs import NamedThread, one_thread, threads_of
from rxlanggraph.bridge.graphs.expiry import ExpiringThreads
from rxlanggraph.bridge.graphs.interrupts import OnPending, check_on_pending
from rxlanggraph.bridge.graphs.pending import PendingInterrupt, PendingInterrupts
from rxlanggraph.bridge.graphs.retention import Retention, check_retention
from rxlanggraph.bridge.graphs.rollback import check_rollback
from rxlanggraph.bridge.lanes import fenced, make_lanes
from rxlanggraph.bridge.operators.pull import from_iterable
from rxlanggraph.bridge.operators.stream import StreamSubscription
from rxlanggraph.bridge.operators.subscription import ErrorPolicy, ThreadSelector, make_operator
from rxlanggraph.bridge.overflow import OVERFLOW_POLICIES, Overflow
from rxlanggraph.bridge.resending import resending
from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_options import MultitaskStrategy, RunOptions
from rxlanggraph.bridge.shutdown import (
    CleanupReport,
    cleanup_steps,
    close_steps,
    run_steps,
    run_steps_async,
)
from rxlanggraph.bridge.time_limits import TimeLimits, Timeout, check_deadline, check_limits
from rxlanggraph.bridge.watched import WatchedBridge
from rxlanggraph.concurrency import interpreter
from rxlanggraph.concurrency.forking import not_portable
from rxlanggraph.errors import BlockingCallError, InvalidArgumentError, InvalidTypeError
from rxlanggraph.executors.contract import Executor, Workers
from rxlanggraph.executors.local import LocalExecutor
from rxlanggraph.hooks import Hooks
from rxlanggraph.limits import Limits, Usage
from rxlanggraph.limits.rules import model_rules
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import RegistryStatistics, TaskRegistry
from rxlanggraph.validation import (
    check_duration,
    check_flag,
    check_seconds,
    check_wait_limit,
    check_whole,
)

if TYPE_CHECKING:
    from rxlanggraph.live.app import LiveApp
    from rxlanggraph.state import State

__all__ = [
    "OperatorArguments",
    "Retry",
    "RunArguments",
    "RxPyLangGraphBridge",
    "check_known",
    "check_operator",
]

Retry: TypeAlias = "int | AsyncRetrying | None"
_T = TypeVar("_T")
PerMessageOr: TypeAlias = "_T | Callable[[StreamMessage], _T | None] | None"
"""One value for all messages, or a function of the message that returns it."""
_names = itertools.count(1)
# Together with each run's own thread this makes what ThreadPoolExecutor allows by default on the
# largest machine: sync nodes that can wait for each other on asyncio's default executor can do so
# here.
_SPARE_THREADS = 31
# Chunks that a run may be ahead of its reader. A guess: enough for both to be active at once.
_BUFFERED = 16
# Seconds for worker processes, and the cluster that was started for them, to end.
_WORKERS_END = 20.0


class OperatorArguments(TypedDict, total=False):
    """The arguments of calls and operators alike that say how a run goes."""

    multitask_strategy: MultitaskStrategy
    timeout: PerMessageOr[Timeout]
    deadline: float | None
    retry: Retry
    config: PerMessageOr[Mapping[str, Any]]
    context: PerMessageOr[Any]
    durability: Durability | None
    interrupt_before: Nodes | None
    interrupt_after: Nodes | None
    output_keys: str | Sequence[str] | None
    on_pending: OnPending
    keep_checkpoints: int | None
    name: str | None


class RunArguments(OperatorArguments, total=False):
    """The arguments of `RxPyLangGraphBridge.create_future_task` that say how a run goes."""

    thread_id: str | None
    errors: Literal["raise", "emit"]


class RxPyLangGraphBridge:
    """Runs messages through LangGraph graphs on one asyncio loop, for OS threads and Rx streams.

    Every run stays in `registry` from before its submitter gets the future until the run has really
    ended. Messages with the same ``thread_id`` run one after another, in order; all others run
    concurrently, up to ``max_concurrency``. Safe to use from any OS thread. As a context manager,
    sync or async, it is closed at the end of the block: what is in flight is drained first, or
    cancelled at once if an exception leaves the block.

    Args:
        loop: A running loop to adopt; several bridges may adopt the same one. The loop may pause:
            messages are refused meanwhile, and runs in flight are given up if the pause takes long.
            Sync code of runs goes to threads of their bridge; the loop's default executor is left
            alone. None: the bridge owns a loop, in a daemon thread of its own that starts with the
            first message.
        max_concurrency: How many runs may be active at once. A run counts until it has really
            ended: a sync function that continues in its thread after a timeout keeps its slot.
        max_threads: How many OS threads execute sync code of runs, at least ``max_concurrency``:
            each run gets one as soon as it needs one, and the runs share the rest in turn. One that
            is idle for ten seconds ends. None: 31 more than ``max_concurrency``, so that a single
            run can have 32, the maximum of asyncio's own default executor.
        max_pending: How many messages may wait to start; None for no limit. A message waits from
            its submission until the loop has started its run, so a burst counts as a whole.
        max_pending_per_thread: How many of them may wait on one ``thread_id``, besides the active
            one; None for no limit. Further ones are refused with a `ThreadBusyError`.
        overflow: What happens to a message when ``max_pending`` others wait. ``"block"``: its
            submitter waits for room. ``"error"``: the submission raises `BacklogFullError`; a
            stream has a result with status ``"rejected"``, to which its ``errors`` applies. The
            others drop a message, whose result has the status ``"rejected"`` and a
            `RunDroppedError`: ``"drop_newest"`` the new one; ``"drop_oldest"`` the one that has
            waited longest; ``"latest"`` one that a newer message of its thread has superseded, or
            if there is none, the one that has waited longest. A stream emits the result of a
            dropped message only with ``errors="emit"``. Messages that follow from a result of the
            bridge, in a later stage, are never dropped.
        timeout: The default for runs whose call has none; None for no limit. See
            `create_future_task`.
        lanes: A `State` that the bridges of several processes share: of the runs on a
            ``thread_id``, one is active in all of them together. A run begins when its bridge has
            the lease of its ``thread_id``, which is renewed until the run has really ended; a run
            whose lease is lost is cancelled, with a `LaneLostError`, and its graph saves nothing
            more. With ``"reject"`` and ``"rollback"``, a message is rejected while another process
            has its thread. The state may have another loop than the bridge, and is closed after it.
            None: the bridge shares its threads with no other.
        lane_ttl: Seconds until the threads of a process that died are free, with ``lanes``.
        limits: The limits of model providers: every call of a LangChain model within a run waits
            until they allow it. Several bridges may share them. None: no call waits.
        usage: Counts the tokens of model calls, and what they cost. None: they are not counted.
        blocked_after: Seconds, or up to a quarter more, after which the loop counts as blocked.
            While there are runs, a thread measures `loop_lag`, and logs a warning with a stack,
            once for each callback that blocks the loop. None: the loop is watched only if hooks
            override ``on_blocked``; then it is half a second.
        executor: Where graphs are called. A `RayExecutor` calls them in worker processes; the
            bridge is then for the one graph of the executor. None: on the loop.
        loops: On how many loops graphs are called. 1: on the bridge's own. More: on that many
            others, each in a thread of its own. For Python without the GIL; savers and stores must
            not belong to one loop.
        name: Prefix of the names of the bridge's OS threads; None makes one.

    Raises:
        InvalidArgumentError: A number is out of range, a policy is unknown, or an argument is not
            for runs in other processes.
        InvalidTypeError: ``loop`` is not an event loop, or its methods cannot be overridden.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        max_concurrency: int = 32,
        max_threads: int | None = None,
        max_pending: int | None = None,
        max_pending_per_thread: int | None = None,
        overflow: Overflow = "block",
        timeout: Timeout | None = None,
        lanes: State | None = None,
        lane_ttl: float = 30.0,
        limits: Limits | None = None,
        usage: Usage | None = None,
        blocked_after: float | None = None,
        executor: Executor | None = None,
        loops: int = 1,
        name: str | None = None,
    ) -> None:
        if loop is not None and not isinstance(loop, asyncio.AbstractEventLoop):
            raise InvalidTypeError(f"loop must be an asyncio event loop or None, not {loop!r}")
        if overflow not in OVERFLOW_POLICIES:
            known = ", ".join(map(repr, OVERFLOW_POLICIES))
            raise InvalidArgumentError(f"overflow must be one of {known}, not {overflow!r}")
        check_whole("max_concurrency", max_concurrency, least=1)
        spare_threads = _spare_threads(max_threads, max_concurrency)
        if max_pending is not None:
            check_whole("max_pending", max_pending, least=1)
        if max_pending_per_thread is not None:
            check_whole("max_pending_per_thread", max_pending_per_thread, least=1)
        if timeout is not None:
            check_limits("timeout", timeout, chunks=True)
        shared_lanes = make_lanes(lanes, lane_ttl)
        if blocked_after is not None:
            check_duration("blocked_after", blocked_after)
        _check_loops(loops, executor)
        # All set here and never again; the mutable state is inside, each part with its own owner.
        self.max_concurrency = max_concurrency
        self.timeout = timeout
        self.name = name or f"rxlanggraph-{next(_names)}"
        self._retries = getattr(executor, "retries", 0)
        workers = _opened(executor, self.name)
        self._remote = workers is not None
        self._engine = self._make_engine(
            loop,
            max_concurrency,
            max_pending,
            self.name,
            max_pending_per_thread=max_pending_per_thread,
            overflow=overflow,
            spare_threads=spare_threads,
            lanes=shared_lanes,
            models=model_rules(limits, usage),
            workers=workers,
            loops=loops,
        )
        self._workers = self._engine.workers
        self._fence = None if shared_lanes is None else fenced
        if blocked_after is not None:
            self._engine.listeners.watch_loop(blocked_after)
        # The options of the last plain call, reused by the next call with the same graph: a mapper
        # makes the same call for every message. Held weakly: they live as long as a run that has
        # them, so an idle bridge keeps no graph alive. One reference, replaced whole, by any
        # thread.
        self._recent: weakref.ref[RunOptions] | None = None
        # A bridge that is dropped unclosed ends its loop; at exit the engine shuts itself down.
        weakref.finalize(self, self._engine.abandon).atexit = False

    def _make_engine(
        self, loop: asyncio.AbstractEventLoop | None, *arguments: Any, **options: Any
    ) -> Engine:
        """Make the engine. A bridge whose time is virtual makes one with another clock."""
        return Engine(loop, *arguments, **options)

    def __repr__(self) -> str:
        """Name, state and load."""
        registry = self._engine.registry
        return f"<RxPyLangGraphBridge {self.name} {registry.state}, {len(registry)} in flight>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, or copied."""
        raise not_portable(f"the bridge {self.name}", "make a new one there: RxPyLangGraphBridge()")

    @property
    def registry(self) -> TaskRegistry:
        """Every run in flight. Its ``cancel_all``, ``snapshot`` and waits may be used freely."""
        return self._engine.registry

    def statistics(self) -> RegistryStatistics:
        """The counters of `registry`, read at one moment. Any thread; never blocks."""
        return self._engine.registry.statistics()

    # -- running -------------------------------------------------------------------------------

    def create_future_task(
        self,
        graph: Graph,
        message: Any,
        *,
        thread_id: str | None = None,
        multitask_strategy: MultitaskStrategy = "enqueue",
        timeout: PerMessageOr[Timeout] = None,
        deadline: float | None = None,
        retry: Retry = None,
        errors: Literal["raise", "emit"] = "raise",
        config: PerMessageOr[Mapping[str, Any]] = None,
        context: PerMessageOr[Any] = None,
        durability: Durability | None = None,
        interrupt_before: Nodes | None = None,
        interrupt_after: Nodes | None = None,
        output_keys: str | Sequence[str] | None = None,
        on_pending: OnPending = "reject",
        keep_checkpoints: int | None = None,
        name: str | None = None,
    ) -> Run:
        """Run ``graph`` on ``message``; return the future of its result.

        May be called from any thread, the loop's own included. It blocks only with ``max_pending``,
        until there is room; on the loop's own thread it raises instead. The run is registered
        before this returns, sees the caller's contextvars, and starts when the scheduler admits it.
        A message sent by a node is not part of that node's graph: it does not inherit LangChain's
        config. ``functools.partial(bridge.create_future_task, graph)`` is a mapper for
        ``flat_map``.

        Cancelling the future cancels the run, started or not. The future is resolved at once, while
        the coroutine's own cleanup continues.

        Args:
            graph: A compiled LangGraph graph, a Runnable, or an async or sync function of the
                content. Sync functions run in threads of the bridge. If a function has a further
                parameter named ``message``, ``config`` or ``context``, without a default or with
                None, it is passed the `StreamMessage`, LangGraph's config of the run as a
                dictionary, or the ``context``.
            message: A `StreamMessage`, or its content. A result whose status is not ``"ok"`` runs
                nothing: when it is due, the future resolves with that same result.
            thread_id: The thread to run on, instead of the message's own; None keeps that.
                LangGraph's own ways, ``config`` or the graph's ``with_config``, may name it too. In
                each case it is the run's one thread: the key of its lane, the
                ``configurable.thread_id`` that the checkpointer sees, and the result's thread.
            multitask_strategy: What happens if the thread already has a run; without a thread it
                has no effect. ``"enqueue"``: the message waits until every earlier one has ended.
                ``"reject"``: it is refused, with status ``"rejected"`` and a `ThreadBusyError`.
                ``"interrupt"``: the active run is cancelled and waiting ones are dropped, with
                status ``"interrupted"`` and a `RunInterruptedError`; the message begins once the
                cancelled run has really ended. What that run has saved is kept. ``"rollback"``: as
                ``"interrupt"``, but the graph's thread is restored to its state before the
                cancelled run, which must have been sent with ``"rollback"`` too. For threads in an
                InMemorySaver, AsyncSqliteSaver or AsyncPostgresSaver; stores are not rolled back.
            timeout: Seconds for each attempt, or `TimeLimits` for its parts and all of it; or a
                function of the message that returns either. None uses the bridge's. When a limit is
                exceeded, the future is resolved and the run is cancelled; the run keeps its slot
                until it has ended.
            deadline: Seconds from this call until the future is resolved, wherever the message is
                by then: waiting for room, its thread or a slot, or running.
            retry: How often to retry after an exception, with random exponential waits; or a
                tenacity ``AsyncRetrying`` of your own. With a checkpointer, an attempt resumes from
                what the failed one has saved. No attempt begins once the run is cancelled or the
                bridge is closing.
            errors: How a run that did not succeed resolves the future: ``"raise"`` with its
                exception, or ``"emit"`` with the result, which has a ``status`` and an ``error``.
            config: LangGraph's config for the run, or a function of the message that returns it.
                The message's ``metadata`` is merged over the config's, except for a ``run_id``:
                LangGraph would take that for an earlier run that reconnects.
            context: LangGraph's ``Runtime.context`` for the run's nodes, or a function of the
                message that returns it.
            durability: When LangGraph saves checkpoints: ``"sync"``, ``"async"`` or ``"exit"``.
            interrupt_before: Nodes before which the run is to stop, or ``"*"`` for all.
            interrupt_after: Nodes after which the run is to stop, or ``"*"`` for all.
            output_keys: The key or keys of the state that make up the result.
            on_pending: What happens to new input on a thread whose graph waits for an answer.
                ``"reject"``: the run is refused, with a `PendingInterruptError` that names the
                question; looking for one costs a read of the thread's latest checkpoint.
                ``"discard"``: the question is dropped, as by plain LangGraph.
            keep_checkpoints: How many checkpoints the thread keeps once the run is answered; the
                older ones are deleted in the thread's lane, after the result was given. 0 deletes
                the thread. A thread that waits for an answer, or whose run has failed or was cut
                off, is not changed. More than 1 is for threads in an InMemorySaver,
                AsyncSqliteSaver or AsyncPostgresSaver; other savers need ``aprune`` for 1. None
                keeps them all.
            name: Shown in snapshots and reports; None uses the graph's.

        Returns:
            A ``concurrent.futures.Future`` of the result, a `StreamMessage`. It can also be
            awaited, on any asyncio loop:
            ``result = await bridge.create_future_task(graph, message)``.

        Raises:
            BridgeClosedError: The bridge is closed.
            LoopUnavailableError: The loop is closed, stopped or dying.
            BacklogFullError: ``max_pending`` is reached, with ``overflow="error"``.
            BlockingCallError: ``max_pending`` is reached, and waiting for room would block the
                bridge's own loop, or a loop on which the stream of a run is read.
            DeadlockError: ``max_pending`` is reached, and the room depends on the run that calls,
                or on the loop that would be blocked.
            InvalidTypeError: ``graph`` cannot run, a thread_id, ``name``, node or key is not a
                string, or ``config`` is not a mapping.
            InvalidArgumentError: A number is out of range, a policy or node is unknown, two
                thread_ids differ, or an argument of LangGraph's graphs is passed for a target that
                is not one.
        """
        plain = errors == "raise" and (
            multitask_strategy == "enqueue"
            and timeout is None
            and deadline is None
            and retry is None
            and config is None
            and context is None
            and durability is None
            and interrupt_before is None
            and interrupt_after is None
            and output_keys is None
            and on_pending == "reject"
            and keep_checkpoints is None
            and name is None
        )
        graph = self._called(graph)
        options = self._recent() if plain and self._recent is not None else None
        if options is None or options.graph is not graph:
            options = self._run_options(
                graph,
                multitask_strategy=multitask_strategy,
                timeout=timeout,
                deadline=deadline,
                retry=retry,
                errors=errors,
                config=config,
                name=name,
                on_pending=on_pending,
                keep_checkpoints=keep_checkpoints,
                context=context,
                durability=durability,
                interrupt_before=interrupt_before,
                interrupt_after=interrupt_after,
                output_keys=output_keys,
            )
            if plain:
                self._recent = weakref.ref(options)
        return self._engine.submit(*options.bind(message, thread_id), self)

    async def submit(self, graph: Graph, message: Any, **options: Unpack[RunArguments]) -> Run:
        """As `create_future_task`, but await room instead of blocking the thread.

        For async producers, on any asyncio loop: without room, `create_future_task` raises on the
        bridge's own loop, and blocks any other. Threads and coroutines that wait for room are
        served in order of arrival. Without ``max_pending``, and with an ``overflow`` other than
        ``"block"``, there is nothing to wait for.

        Cancelling it gives up the place in the queue, and nothing is submitted. It does not wait
        for the run: ``run = await bridge.submit(graph, message)``, then ``result = await run``.

        Args:
            graph: As in `create_future_task`.
            message: As in `create_future_task`.
            options: The keyword arguments of `create_future_task`.

        Returns:
            The future of the result, as `create_future_task`.

        Raises:
            BridgeClosedError: The bridge is closed, or was during the wait.
            LoopUnavailableError: The loop is closed, stopped or dying, or was during the wait.
            BacklogFullError: ``max_pending`` is reached, with ``overflow="error"``.
            DeadlockError: Awaited in a run that the room depends on.
            InvalidTypeError, InvalidArgumentError: As for `create_future_task`.
        """
        check_known("submit", options, RunArguments)
        thread_id = options.pop("thread_id", None)
        graph = self._called(graph)
        checked = self._recent() if not options and self._recent is not None else None
        if checked is None or checked.graph is not graph:
            checked = self._run_options(graph, **options)
            if not options:
                self._recent = weakref.ref(checked)
        run = self._engine.new_run(*checked.bind(message, thread_id), self)
        return await self._engine.send_async(run)

    def from_iterable(self, iterable: Iterable[_T] | AsyncIterable[_T]) -> Observable[_T]:
        """Return a source that takes an item from ``iterable`` when the bridge has room for it.

        As ``reactivex.from_iterable``, but pulled: ``bridge.from_iterable(items).pipe(
        bridge.invoke(graph))`` takes one item more than ``max_pending`` and ``max_concurrency``
        admit, so an endless iterable fills no memory. Each item has its room when it is emitted; an
        operator that passes it to another thread (``observe_on``) gives that room up. Operators
        that make several messages of one item have room for all of them. Its items are never
        dropped on arrival, whatever ``overflow`` is.

        An async iterable is iterated over on the loop that runs where it is subscribed, or else on
        the bridge's; any other in a daemon thread of its own, where it may block. Disposing ends
        that, and closes the iterator if it is a generator, or async with an ``aclose``; a thread
        that blocks in an iterator ends when that returns. An exception of the iterator is the
        stream's ``on_error``. When the bridge closes, no more items are taken, and the stream ends
        with `BridgeClosedError`, which `invoke` and `stream` pass on after the results of what was
        taken.

        Args:
            iterable: What to take the items from, anew for each subscription.

        Raises:
            InvalidTypeError: It cannot be iterated over.
            InvalidArgumentError: The bridge has no ``max_pending``: there would always be room.
        """
        return from_iterable(self._engine, self, iterable)

    def _run_options(
        self,
        graph: Graph,
        *,
        multitask_strategy: MultitaskStrategy = "enqueue",
        timeout: PerMessageOr[Timeout] = None,
        deadline: float | None = None,
        retry: Retry = None,
        errors: Literal["raise", "emit"] = "raise",
        config: PerMessageOr[Mapping[str, Any]] = None,
        name: str | None = None,
        on_pending: OnPending = "reject",
        keep_checkpoints: int | None = None,
        streams: bool = False,
        here: bool = False,
        **arguments: Any,
    ) -> RunOptions:
        """Check the options of `create_future_task`, and determine how ``graph`` is called.

        An operator does this once for all its messages. ``arguments`` are LangGraph's own; what
        belongs to the bridge is called ``here``, whatever its executor.
        """
        _check_errors(errors)
        graph = graph if here else self._called(graph)
        remote = self._remote and not here
        if multitask_strategy not in get_args(MultitaskStrategy):
            raise InvalidArgumentError(
                "multitask_strategy must be 'enqueue', 'reject', 'interrupt' or 'rollback', "
                f"not {multitask_strategy!r}"
            )
        saver = saver_of(graph) if multitask_strategy == "rollback" else None
        if saver is not None:
            check_rollback(saver)
        retention = None
        if keep_checkpoints is not None:
            retention = Retention(saver_of(graph), keep_checkpoints)
            check_retention(graph, *retention)
        if name is not None and not isinstance(name, str):
            raise InvalidTypeError(f"name must be a string or None, not {name!r}")
        adapter = adapt_graph(
            graph, check_on_pending(on_pending), fence=self._fence, lends=not remote
        )
        arguments = given(arguments)
        if arguments:
            adapter.check(arguments)
        adapter = with_breakpoints(graph, adapter, arguments)
        if remote:
            adapter = resending(adapter, self._retries)
        per_message = PerMessage.among(
            config=config, context=arguments.get("context"), timeout=timeout
        )
        config = None if callable(config) else config
        timeout = self.timeout if timeout is None or callable(timeout) else timeout
        limits = TimeLimits()
        if timeout is not None:
            limits = check_limits("timeout", timeout, chunks=streams or timeout is self.timeout)
        return RunOptions(
            graph,
            adapter,
            limits,
            check_deadline(deadline),
            retry_policy(retry),
            errors,
            config,
            name or adapter.name,
            multitask_strategy=multitask_strategy,
            saver=saver,
            retention=retention,
            thread=one_thread(threads_of(graph, config)),
            arguments=arguments,
            per_message=per_message,
            streams=streams,
            drains=not remote and can_drain(graph),
            remote=remote,
        )

    def _called(self, graph: Graph) -> Graph:
        """What is called in the place of ``graph``."""
        return graph if self._workers is None else self._workers.graph_for(graph)

    def _stream_options(
        self,
        graph: Graph,
        stream_mode: StreamMode | Sequence[StreamMode],
        subgraphs: bool,
        resumable: int | None,
        **options: Any,
    ) -> RunOptions:
        """Check the options of `stream` and `astream`; those of `_run_options` are ``options``."""
        if resumable is not None:
            check_whole("resumable", resumable, least=1)
        checked = self._run_options(graph, streams=True, **options)
        adapter = streaming(checked.graph, checked.adapter, stream_mode, subgraphs)
        if checked.remote:
            adapter = resending(adapter, self._retries)
        return replace(checked, adapter=adapter)

    def invoke(
        self,
        graph: Graph,
        *,
        max_concurrency: int | None = None,
        ordered: bool = False,
        thread_id: ThreadSelector = None,
        multitask_strategy: MultitaskStrategy = "enqueue",
        timeout: PerMessageOr[Timeout] = None,
        deadline: float | None = None,
        retry: Retry = None,
        errors: ErrorPolicy = "raise",
        config: PerMessageOr[Mapping[str, Any]] = None,
        context: PerMessageOr[Any] = None,
        durability: Durability | None = None,
        interrupt_before: Nodes | None = None,
        interrupt_after: Nodes | None = None,
        output_keys: str | Sequence[str] | None = None,
        on_pending: OnPending = "reject",
        keep_checkpoints: int | None = None,
        name: str | None = None,
    ) -> Callable[[Observable[Any]], Observable[StreamMessage]]:
        """Return an Rx operator that runs ``graph`` on every message and emits every result.

        The source may emit from any thread; ``on_next`` calls may even overlap, against the Rx
        grammar. Runs begin in order of arrival, except those that wait for an earlier run on their
        thread. Results are emitted as runs end, one at a time, mostly on the loop's thread: put
        ``observe_on`` before a subscriber that blocks. Disposing cancels the subscription's runs.
        An item that is a result with a status other than ``"ok"`` runs nothing and passes through
        unchanged, under ``errors``: a later stage does not act on a missing answer. Where the
        stream is awaited, ``await source.pipe(...)``, results arrive on the awaiting loop.

        Args:
            graph: As in `create_future_task`.
            max_concurrency: How many runs of one subscription may be active at once; None leaves
                only the bridge's limit.
            ordered: Emit in input order, looking ahead at most twice ``max_concurrency``.
            thread_id: The thread of every message, or a function of the item that returns it;
                None uses the message's own.
            multitask_strategy: As in `create_future_task`. ``"enqueue"``, ``"reject"`` and
                ``"interrupt"`` are Rx's ``concat_map``, ``exhaust_map`` and ``switch_map`` on every
                thread. As with these operators, a message that is refused or interrupted does not
                end the stream; its result is emitted only with ``errors="emit"``.
            timeout: As in `create_future_task`.
            deadline: As in `create_future_task`, from the arrival of each message.
            retry: As in `create_future_task`.
            errors: How a run that did not succeed affects the stream. ``"raise"`` ends it with the
                exception, as Rx does; ``"emit"`` emits the result, with its ``status`` and
                ``error``; ``"skip"`` logs it. A message that cannot run, because a function of the
                message raises, or returns what cannot be used, counts as a run that failed.
            config: As in `create_future_task`.
            context: As in `create_future_task`.
            durability: As in `create_future_task`.
            interrupt_before: As in `create_future_task`.
            interrupt_after: As in `create_future_task`.
            output_keys: As in `create_future_task`.
            on_pending: As in `create_future_task`.
            keep_checkpoints: As in `create_future_task`.
            name: As in `create_future_task`.

        Raises:
            InvalidTypeError, InvalidArgumentError: As in `create_future_task`.
        """
        options = self._run_options(
            graph,
            multitask_strategy=multitask_strategy,
            timeout=timeout,
            deadline=deadline,
            retry=retry,
            errors="emit",
            config=config,
            name=name,
            on_pending=on_pending,
            keep_checkpoints=keep_checkpoints,
            context=context,
            durability=durability,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            output_keys=output_keys,
        )
        check_operator(options, max_concurrency, thread_id)
        return make_operator(
            self._engine,
            self,
            options,
            max_concurrency=max_concurrency,
            ordered=ordered,
            thread_id=thread_id,
            errors=errors,
        )

    def stream(
        self,
        graph: Graph,
        *,
        stream_mode: StreamMode | Sequence[StreamMode] = "updates",
        subgraphs: bool = False,
        max_concurrency: int | None = None,
        ordered: bool = False,
        thread_id: ThreadSelector = None,
        multitask_strategy: MultitaskStrategy = "enqueue",
        timeout: PerMessageOr[Timeout] = None,
        deadline: float | None = None,
        retry: Retry = None,
        errors: ErrorPolicy = "raise",
        config: PerMessageOr[Mapping[str, Any]] = None,
        context: PerMessageOr[Any] = None,
        durability: Durability | None = None,
        interrupt_before: Nodes | None = None,
        interrupt_after: Nodes | None = None,
        output_keys: str | Sequence[str] | None = None,
        on_pending: OnPending = "reject",
        keep_checkpoints: int | None = None,
        resumable: int | None = None,
        name: str | None = None,
    ) -> Callable[[Observable[Any]], Observable[StreamMessage]]:
        """Return an Rx operator that emits every chunk of every run, and then the run's result.

        Messages are handled as by `invoke`; the results are the same. A chunk is a `StreamMessage`
        with the chunk as ``content``, the message as ``source``, and its ``mode``, ``namespace``
        and ``sequence`` number; a result has no ``sequence``. The chunks of a run are in order and
        precede its result; chunks of several runs interleave.

        A run takes its next chunk when ``on_next`` has returned from the last one, so a slow
        observer slows the runs down instead of filling a buffer. After a failed attempt (``retry``)
        the numbers continue, as its chunks were emitted.

        Args:
            graph: As in `create_future_task`. A Runnable that is not a graph emits the chunks of
                its own ``astream``, without a mode, and its result is their sum; a function has no
                chunks.
            stream_mode: LangGraph's mode of the chunks, or several of them.
            subgraphs: Whether the chunks of subgraphs are emitted too.
            max_concurrency: As in `invoke`.
            ordered: Emit whole runs in input order. The chunks of the first unfinished run flow at
                once; of each later one, 64 are held back before the run has to wait.
            thread_id: As in `invoke`.
            multitask_strategy: As in `invoke`.
            timeout: As in `create_future_task`. The time that a run waits for its observer counts,
                except in ``TimeLimits.idle``.
            deadline: As in `create_future_task`, from the arrival of each message.
            retry: As in `create_future_task`.
            errors: As in `invoke`.
            config: As in `create_future_task`.
            context: As in `create_future_task`.
            durability: As in `create_future_task`.
            interrupt_before: As in `create_future_task`.
            interrupt_after: As in `create_future_task`.
            output_keys: As in `create_future_task`; limits the chunks too.
            on_pending: As in `create_future_task`.
            keep_checkpoints: As in `create_future_task`.
            resumable: How many chunks of a run to keep for `join_stream` until it has ended. None
                keeps none.
            name: As in `create_future_task`.

        Raises:
            InvalidTypeError, InvalidArgumentError: As in `create_future_task`; or a mode is
                unknown, or was passed for a target that is not a graph.
        """
        options = self._stream_options(
            graph,
            stream_mode,
            subgraphs,
            resumable,
            multitask_strategy=multitask_strategy,
            timeout=timeout,
            deadline=deadline,
            retry=retry,
            errors="emit",
            config=config,
            name=name,
            on_pending=on_pending,
            keep_checkpoints=keep_checkpoints,
            context=context,
            durability=durability,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            output_keys=output_keys,
        )
        check_operator(options, max_concurrency, thread_id)
        return make_operator(
            self._engine,
            self,
            options,
            max_concurrency=max_concurrency,
            ordered=ordered,
            thread_id=thread_id,
            errors=errors,
            subscription=partial(StreamSubscription, resumable=resumable),
        )

    def astream(
        self,
        graph: Graph,
        message: Any,
        *,
        stream_mode: StreamMode | Sequence[StreamMode] = "updates",
        subgraphs: bool = False,
        thread_id: str | None = None,
        multitask_strategy: MultitaskStrategy = "enqueue",
        timeout: PerMessageOr[Timeout] = None,
        deadline: float | None = None,
        retry: Retry = None,
        errors: Literal["raise", "emit"] = "raise",
        config: PerMessageOr[Mapping[str, Any]] = None,
        context: PerMessageOr[Any] = None,
        durability: Durability | None = None,
        interrupt_before: Nodes | None = None,
        interrupt_after: Nodes | None = None,
        output_keys: str | Sequence[str] | None = None,
        on_pending: OnPending = "reject",
        keep_checkpoints: int | None = None,
        resumable: int | None = None,
        name: str | None = None,
    ) -> ChunkReader:
        """Run ``graph`` on ``message``; return its chunks, and then its result, for ``async for``.

        The message is handled as by `create_future_task`: the run is registered before this
        returns. May be iterated over on any loop. The run waits while 16 chunks, or ``resumable``
        ones if that is more, are unread; it holds its slot meanwhile. Closing or dropping the
        returned object cancels the run.

        Args:
            graph: As in `stream`.
            message: As in `create_future_task`.
            stream_mode: As in `stream`.
            subgraphs: As in `stream`.
            thread_id: As in `create_future_task`.
            multitask_strategy: As in `create_future_task`.
            timeout: As in `stream`.
            deadline: As in `create_future_task`, for the result.
            retry: As in `stream`.
            errors: What follows the chunks of a run that did not succeed: its exception
                (``"raise"``), or its result with a ``status`` and an ``error`` (``"emit"``).
            config: As in `create_future_task`.
            context: As in `create_future_task`.
            durability: As in `create_future_task`.
            interrupt_before: As in `create_future_task`.
            interrupt_after: As in `create_future_task`.
            output_keys: As in `stream`.
            on_pending: As in `create_future_task`.
            keep_checkpoints: As in `create_future_task`.
            resumable: As in `stream`.
            name: As in `create_future_task`.

        Raises:
            BridgeClosedError, LoopUnavailableError, BacklogFullError, BlockingCallError: As in
                `create_future_task`.
            InvalidTypeError, InvalidArgumentError: As in `stream`.
        """
        options = self._stream_options(
            graph,
            stream_mode,
            subgraphs,
            resumable,
            multitask_strategy=multitask_strategy,
            timeout=timeout,
            deadline=deadline,
            retry=retry,
            errors=errors,
            config=config,
            name=name,
            on_pending=on_pending,
            keep_checkpoints=keep_checkpoints,
            context=context,
            durability=durability,
            interrupt_before=interrupt_before,
            interrupt_after=interrupt_after,
            output_keys=output_keys,
        )
        engine = self._engine
        window = ChunkWindow(
            engine.lock,
            max(_BUFFERED, resumable or 0),
            held_up=True,
            joinable=resumable is not None,
        )
        bound, options = replace(options, errors="emit").bind(message, thread_id)
        run = engine.new_run(bound, options, self, (window.end,))
        run.sink = window
        return ChunkReader(engine.send(run), window, 0, errors, owns_run=True)

    def join_stream(
        self,
        message: StreamMessage | str,
        *,
        last_sequence: int | None = None,
        errors: Literal["raise", "emit"] = "raise",
    ) -> ChunkReader:
        """Read a run in flight, from the chunks that it has kept to its result, for ``async for``.

        For a run of `stream` or `astream` with ``resumable``, which keeps its latest chunks. Any
        thread; never blocks; may be iterated over on any loop. The run does not wait for this
        reader, and continues when the reader is closed.

        Args:
            message: The message that the run works on, a chunk of the run, or the message's id.
            last_sequence: The number of the last chunk that the caller has; None begins with the
                first one, or after ``message`` if that is a chunk.
            errors: As in `astream`.

        Raises:
            ChunksLostError: The next chunk is no longer kept, or there is no resumable run on that
                message in flight. Reading raises it too, if the reader is so slow that its next
                chunk is no longer kept.
            InvalidArgumentError: ``last_sequence`` is not a whole number, or ``errors`` unknown.
        """
        _check_errors(errors)
        if last_sequence is None and isinstance(message, StreamMessage):
            last_sequence = message.sequence
        if last_sequence is not None:
            check_whole("last_sequence", last_sequence, least=0)
        run, window = joinable_run(self._engine.registry.tasks(), message)
        first = 0 if last_sequence is None else last_sequence + 1
        window.read(first)  # raises if it is gone
        return ChunkReader(run, window, first, errors, owns_run=False)

    # -- threads of graphs ---------------------------------------------------------------------

    async def pending_interrupts(
        self, graph: Graph, thread_id: str | None = None
    ) -> tuple[PendingInterrupt, ...]:
        """Return the questions of ``graph`` that wait for an answer, also those of earlier runs.

        Any loop; cancelling it ends the reading. They are read from the graph's checkpointer, on
        the loop of the bridge, as a run: it counts for ``max_concurrency``, but waits for no room.
        Each has a ``reply(value)``, which makes the message that answers it.

        Args:
            graph: A graph with a checkpointer. The questions of all graphs that share it are found.
            thread_id: The thread to look at. None: all threads, the oldest question first; this
                reads every checkpoint of the checkpointer.

        Raises:
            InvalidArgumentError: The graph has no checkpointer.
            InvalidTypeError: ``thread_id`` is not a string.
            NotImplementedError: The checkpointer cannot list all threads.
            BridgeClosedError, LoopUnavailableError: As in `create_future_task`.
        """
        pending = PendingInterrupts(self._called(graph))
        if thread_id is None:
            return await self._on_loop("pending_interrupts", pending.everywhere)
        _check_thread(thread_id, None)
        return await self._on_loop("pending_interrupts", partial(pending.on_thread, thread_id))

    async def expire_interrupts(
        self, graph: Graph, older_than: float, thread_id: str | None = None
    ) -> tuple[PendingInterrupt, ...]:
        """Drop the questions of ``graph`` that are older than ``older_than``; return them.

        Any loop. Each thread is handled in its lane, once its earlier runs have ended. An answer
        that arrives later is refused with a `StaleResumeError`; new input is accepted again. If
        cancelled, it may have dropped some of them.

        Args:
            graph: As in `pending_interrupts`; the questions of other graphs are left alone.
            older_than: Seconds since the beginning of the step that called ``interrupt()``; 0 drops
                all.
            thread_id: As in `pending_interrupts`.

        Raises:
            InvalidArgumentError: ``older_than`` is negative; or as in `pending_interrupts`.
            InvalidTypeError, NotImplementedError: As in `pending_interrupts`.
            BridgeClosedError, LoopUnavailableError: As in `create_future_task`.
        """
        check_seconds("older_than", older_than)
        found = await self.pending_interrupts(graph, thread_id)
        pending = PendingInterrupts(self._called(graph))
        dropped: list[PendingInterrupt] = []
        for thread in dict.fromkeys(each.thread_id for each in found if each.age >= older_than):
            drop = partial(pending.drop, thread, older_than)
            dropped += await self._on_loop("expire_interrupts", drop, thread)
        return tuple(dropped)

    async def expire_threads(
        self, graph: Graph, older_than: float, *, unfinished: bool = False
    ) -> tuple[str, ...]:
        """Delete the threads of ``graph`` that were not used for ``older_than`` seconds.

        Any loop. It looks at all threads in the graph's checkpointer, including those of other
        graphs that share it. Each is deleted in its lane, if no run has used it meanwhile. If
        cancelled, it may have deleted some.

        Args:
            graph: A graph with a checkpointer.
            older_than: Seconds since the thread's latest checkpoint was made; 0 deletes all.
            unfinished: Whether to delete threads too that wait for an answer, or whose latest run
                failed or was cut off and could be continued.

        Returns:
            The ids of the deleted threads.

        Raises:
            InvalidArgumentError: The graph has no checkpointer, or one that cannot delete threads;
                or ``older_than`` is not a number from 0.
            NotImplementedError: The checkpointer cannot list all threads.
            BridgeClosedError, LoopUnavailableError: As in `create_future_task`.
        """
        check_seconds("older_than", older_than)
        threads = ExpiringThreads(self._called(graph), unfinished=unfinished)
        deleted = []
        for thread_id in await self._on_loop(
            "expire_threads", partial(threads.unused_for, older_than)
        ):
            delete = partial(threads.delete, thread_id, older_than)
            if await self._on_loop("expire_threads", delete, thread_id):
                deleted.append(thread_id)
        return tuple(deleted)

    async def _on_loop(
        self, name: str, call: Callable[[], Coroutine[Any, Any, _T]], thread_id: str | None = None
    ) -> _T:
        """Run ``call`` on the loop of the bridge, in the lane of ``thread_id``."""

        async def run_call(_: object) -> _T:
            return await call()

        options = replace(self._run_options(run_call, name=name, here=True), limits=TimeLimits())
        run = self._engine.new_run(StreamMessage(None, thread_id), options, self)
        self._engine.hand_over(run)
        result: _T = (await run).content
        return result

    # -- looking inside ------------------------------------------------------------------------

    @property
    def loop_lag(self) -> float | None:
        """Seconds that a callback waits for the loop at present. Any thread; never blocks.

        None unless the loop is watched (see ``blocked_after``), and once the bridge is closed. The
        last value while nothing runs.
        """
        return self._engine.listeners.loop_lag

    def add_hooks(self, hooks: Hooks) -> abc.DisposableBase:
        """Call the methods of ``hooks`` when something happens to a run, for metrics and traces.

        They are called for messages that arrive after this, and for each of these from
        ``on_queued`` to ``on_ended``. Any thread; never blocks. Hooks that were added twice are
        called twice. A bridge keeps its hooks alive, so hooks that refer to the bridge keep it from
        being collected until they are disposed of, or the bridge is closed.

        Args:
            hooks: An instance of a subclass of `rxlanggraph.hooks.Hooks`, which describes what is
                called, and in which thread.

        Returns:
            A disposable; disposing it ends the calls.

        Raises:
            InvalidTypeError: It is not one, or has a hook that is async, a generator, not callable,
                or of an unknown name.
        """
        listeners = self._engine.listeners
        return Disposable(partial(listeners.remove, listeners.add(hooks)))

    def live_app(
        self,
        *,
        token: str | None = None,
        allowed_hosts: Collection[str] | None = None,
        show_content: bool = False,
        nodes: bool = False,
        stuck_after: float = 30.0,
        graphs: Iterable[Graph] = (),
    ) -> LiveApp:
        """Make a web page that shows what happens: an ASGI application, to mount anywhere.

        Any thread; never blocks. Any loop may serve it, that of the bridge or another. It shows
        the runs in flight, what has ended since it was made, failures by kind, stuck runs, and
        questions that wait; runs can be cancelled there, and questions answered. The result of an
        answer goes to no stream: it is a run of its own, which hooks are told of. Needs the extra
        ``live``. Without an application of your own, ``rxlanggraph run --live`` serves it.

        Every request needs its ``token``; ``path`` is where to open it, below the path at which it
        is mounted. It observes the bridge until it is collected, its ``close`` is called, or the
        bridge is closed.

        Args:
            token: The token of all requests, 16 or more visible ASCII characters; None makes one.
            allowed_hosts: The names of the host under which it may be opened, such as
                ``["example.com"]``; None: those of this machine alone, such as ``localhost``.
            show_content: Whether the texts of exceptions and questions are shown. Ids, names,
                classes of exceptions, and stacks always are.
            nodes: Whether to listen to the end of each node, which costs a tenth of the time of a
                short run. Otherwise nodes are shown if they are active when a snapshot is taken,
                twice a second while the page is open.
            stuck_after: Seconds after which an active run counts as stuck.
            graphs: Graphs whose earlier questions are shown too. All of their checkpoints are read
                when the page is first opened.

        Raises:
            MissingExtraError: The extra ``live`` is not installed.
            InvalidArgumentError, InvalidTypeError: An argument is not as described.
        """
        # Imported here: the extra's packages are slow to import, and most bridges have no page.
        from rxlanggraph.live.access import Access  # noqa: PLC0415
        from rxlanggraph.live.app import LiveApp  # noqa: PLC0415
        from rxlanggraph.live.bridge_source import BridgeSource  # noqa: PLC0415

        check_duration("stuck_after", stuck_after)
        check_flag("show_content", show_content)
        check_flag("nodes", nodes)
        if isinstance(graphs, str) or not isinstance(graphs, Iterable):
            raise InvalidTypeError(f"graphs must be a list of graphs, not {graphs!r}")
        asking = [self._run_options(graph, errors="emit") for graph in graphs]
        for options in asking:
            PendingInterrupts(options.graph)  # raises if it keeps no questions
        access = Access(token, allowed_hosts)
        looked_at = WatchedBridge(self._engine, self, self._fence, asking)
        source = BridgeSource(
            looked_at, show_content=show_content, nodes=nodes, stuck_after=stuck_after
        )
        return LiveApp(source, access)

    # -- the end -------------------------------------------------------------------------------

    def cleanup_tasks(self, timeout: float | None = 5.0) -> CleanupReport:
        """Cancel everything in flight, and wait until it has ended; the bridge stays usable.

        Runs that arrive meanwhile are cancelled too. When this returns, no run that was admitted
        before is still active, unless the report names it. Any thread but the loop's own, also from
        a signal handler; blocks.

        Args:
            timeout: Seconds to wait; None for no limit, 0 does not wait.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number; nothing was cancelled.
            BlockingCallError: Called on the loop's own thread; nothing was cancelled.
            DeadlockError: Called in a run of the bridge; nothing was cancelled.
        """
        timeout = check_wait_limit("timeout", timeout)
        self._refuse_own_loop(
            "cleanup_tasks", "use 'await bridge.cleanup_tasks_async()' there", timeout
        )
        steps = cleanup_steps(self._engine, timeout)
        return run_steps(steps, self._engine.registry)

    async def cleanup_tasks_async(self, timeout: float | None = 5.0) -> CleanupReport:
        """Async form of `cleanup_tasks`. Any loop.

        Cancelling it stops only the waiting; runs that were cancelled stay cancelled. A run that
        awaits it on its own bridge is cancelled like the others.

        Args:
            timeout: Seconds to wait; None for no limit.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number; nothing was cancelled.
        """
        steps = cleanup_steps(self._engine, check_wait_limit("timeout", timeout))
        return await run_steps_async(steps, self._engine.registry)

    def close(
        self,
        timeout: float | None = 5.0,
        *,
        cancel_timeout: float | None = 5.0,
        drain_after: float | None = None,
    ) -> CleanupReport:
        """Close admission, drain, cancel the rest, and end the loop or give it back.

        Any thread but the loop's own, also from a signal handler or a finalizer; blocks. Calling it
        again waits again and changes nothing else.

        With ``drain_after``, graphs that save checkpoints are asked to stop. Each stops before its
        next superstep, or that of a subgraph that saves too. Its result has status
        ``"interrupted"`` and a `RunDrainedError`; a message with None as content, on the same
        thread, continues it, in another process as well. A message to such a graph that has not
        begun does not begin: its status is ``"rejected"``, with the same error. All other runs
        continue: graphs without a checkpointer, functions, agents, and messages that a node has
        sent and may wait for.

        Args:
            timeout: Seconds for runs in flight to end by themselves; None for no limit.
            cancel_timeout: Seconds after that for cancelled runs to end.
            drain_after: Seconds from the call, within ``timeout``, after which graphs are asked to
                stop: 0 asks at once. None does not ask.

        Returns:
            The outcome of each run. Drained runs can be continued from the thread and the
            checkpoint that it names.

        Raises:
            InvalidArgumentError: ``drain_after`` is negative, or one of the three is not a number;
                nothing was closed.
            BlockingCallError: Called on the loop's own thread with something to wait for; nothing
                was closed. With both timeouts 0 it may be called from anywhere.
            DeadlockError: Called in a run of the bridge; nothing was closed.
        """
        if drain_after is not None:
            check_seconds("drain_after", drain_after)
        timeout = check_wait_limit("timeout", timeout)
        cancel_timeout = check_wait_limit("cancel_timeout", cancel_timeout)
        waits = None if timeout is None or cancel_timeout is None else timeout + cancel_timeout
        self._refuse_own_loop(
            "close",
            "use 'await bridge.aclose()' there, or 'bridge.close(0, cancel_timeout=0)' to close "
            "without waiting",
            waits,
        )
        engine = self._engine
        steps = close_steps(engine, timeout, cancel_timeout, drain_after)
        idle = False
        try:
            report = run_steps(steps, engine.registry)
            idle = not report.stuck
            if not engine.on_own_loop():
                engine.wait_stopped(cancel_timeout)
        finally:
            ended = engine.end_workers(wait=idle)
        if not engine.on_own_loop():
            wait([ended], _WORKERS_END if self._remote else cancel_timeout)
        return report

    async def aclose(
        self,
        timeout: float | None = 5.0,
        *,
        cancel_timeout: float | None = 5.0,
        drain_after: float | None = None,
    ) -> CleanupReport:
        """Async form of `close`. Any loop but one that the bridge owns.

        Cancelling it ends the loop, or gives it back, and ends workers, without further waiting.

        Args:
            timeout: As in `close`.
            cancel_timeout: As in `close`.
            drain_after: As in `close`.

        Returns:
            The outcome of each run.

        Raises:
            InvalidArgumentError: As for `close`.
            BlockingCallError: Awaited on the loop that the bridge owns and would have to end.
        """
        if drain_after is not None:
            check_seconds("drain_after", drain_after)
        timeout = check_wait_limit("timeout", timeout)
        cancel_timeout = check_wait_limit("cancel_timeout", cancel_timeout)
        engine = self._engine
        if engine.on_own_loop() and engine.host.owned:
            raise BlockingCallError(
                f"aclose() on the loop that {self.name} owns would wait for the end of that very "
                "loop; close the bridge from the thread or loop that made it"
            )
        steps = close_steps(engine, timeout, cancel_timeout, drain_after)
        idle = False
        try:
            report = await run_steps_async(steps, engine.registry)
            idle = not report.stuck
            await asyncio.wait(map(asyncio.wrap_future, engine.stopped()), timeout=cancel_timeout)
        finally:
            ended = engine.end_workers(wait=idle)
        most = _WORKERS_END if self._remote else cancel_timeout
        await asyncio.wait([asyncio.wrap_future(ended)], timeout=most)
        return report

    def __enter__(self) -> Self:
        """Return the bridge itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """`close`; without draining if an exception leaves the block."""
        if exc_type is None:
            self.close()
        else:
            self.close(0)

    async def __aenter__(self) -> Self:
        """Return the bridge itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """`aclose`; without draining if an exception leaves the block."""
        if exc_type is None:
            await self.aclose()
        else:
            await self.aclose(0)

    def _refuse_own_loop(self, method: str, remedy: str, timeout: float | None) -> None:
        if timeout == 0:
            return
        if self._engine.on_own_loop():
            raise BlockingCallError(
                f"{method}() would block the event loop of {self.name}, which alone can end what "
                f"it waits for; {remedy}"
            )
        self._engine.registry.check_outside(f"{method}()")


def check_known(method: str, options: Mapping[str, Any], arguments: type[Any]) -> None:
    """Check that ``arguments``, a typed dictionary, has the keyword arguments. Any thread.

    Raises:
        InvalidTypeError: It lacks one.
    """
    known = arguments.__annotations__
    unknown = options.keys() - known.keys()
    if unknown:
        raise InvalidTypeError(
            f"{method}() has no argument {min(unknown)!r}; it has {', '.join(known)}"
        )


def _opened(executor: Executor | None, name: str) -> Workers | None:
    if executor is None:
        return None
    if isinstance(executor, type) or not callable(getattr(executor, "open", None)):
        raise InvalidTypeError(
            f"executor must be a RayExecutor, a LocalExecutor or None, not {executor!r}"
        )
    return executor.open(name)


def _check_loops(loops: object, executor: Executor | None) -> None:
    check_whole("loops", loops, least=1)
    if loops == 1:
        return
    if interpreter.gil_enabled():
        raise InvalidArgumentError(
            f"{loops} loops would take turns, as this Python has a GIL: one loop is as fast; use a "
            "RayExecutor, or Python without the GIL (such as 3.14t)"
        )
    if executor is not None and not isinstance(executor, LocalExecutor):
        raise InvalidArgumentError(
            f"{loops} loops are for graphs in this process, and those of the executor are called "
            "in others; leave one of the two out"
        )


def _check_thread(thread_id: object, named: NamedThread | None) -> None:
    if not isinstance(thread_id, str):
        raise InvalidTypeError(
            f"thread_id must be a string, a function of the item or None, not {thread_id!r}; "
            "convert it with str()"
        )
    if named is not None:
        one_thread((NamedThread(thread_id, "the argument"), named))


def _check_errors(errors: object) -> None:
    if errors not in ("raise", "emit"):
        raise InvalidArgumentError(
            f"errors must be 'raise' or 'emit', not {errors!r}: "
            "a future has one result, and cannot leave it out as a stream can"
        )


def check_operator(options: RunOptions, max_concurrency: object, thread_id: object) -> None:
    """Check the arguments that an operator has and a single call has not. Any thread.

    Raises:
        InvalidTypeError, InvalidArgumentError: They are not as described there.
    """
    if max_concurrency is not None:
        check_whole("max_concurrency", max_concurrency, least=1)
    if thread_id is not None and not callable(thread_id):
        _check_thread(thread_id, options.thread)


def _spare_threads(max_threads: object, max_concurrency: int) -> int:
    if max_threads is None:
        return _SPARE_THREADS
    check_whole("max_threads", max_threads, least=1)
    assert isinstance(max_threads, int)
    if max_threads < max_concurrency:
        raise InvalidArgumentError(
            f"max_threads must be max_concurrency, {max_concurrency}, at least, so that every run "
            f"has a thread when it needs one, not {max_threads!r}"
        )
    return max_threads - max_concurrency
