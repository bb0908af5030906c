"""RxPyLangGraphBridge: a stream of messages in, a stream of graph results out."""

from __future__ import annotations

import asyncio
import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from reactivex import Observable
from tenacity import AsyncRetrying, stop_after_attempt, wait_random_exponential

from rxlanggraph.configs import NamedThread, context_of_its_own, one_thread, threads_of
from rxlanggraph.ending import Ending
from rxlanggraph.engine import Engine
from rxlanggraph.errors import (
    BlockingCallError,
    BridgeClosedError,
    InvalidArgumentError,
    InvalidTypeError,
    LoopUnavailableError,
    RegistryClosedError,
)
from rxlanggraph.messages import StreamMessage, passes_through
from rxlanggraph.operators.invoke import ErrorPolicy, invoke
from rxlanggraph.registry import RegistryStatistics, TaskRegistry
from rxlanggraph.runs import Group, Run, RunOptions, current_run, run_scope
from rxlanggraph.targets import Graph, as_target

__all__ = ["Retry", "RxPyLangGraphBridge"]

Retry: TypeAlias = "int | AsyncRetrying | None"
_names = itertools.count(1)
# With the one that each run has: what ThreadPoolExecutor allows for by default on the largest
# machine. So whatever sync nodes wait for each other on asyncio's default executor can do so here.
_SPARE_THREADS = 31


class RxPyLangGraphBridge(Ending):
    """Runs messages through LangGraph graphs on one asyncio loop, for threads and Rx streams.

    Every run is in `registry` from before its submitter has its future until it has really ended.
    Messages of one ``thread_id`` run one after another, in order; all others side by side, up to
    ``max_concurrency``. Safe from any thread. As a context manager, sync and async, it is closed
    at the end: what is in flight is drained first, or cancelled at once if an exception leaves
    the block.

    Args:
        loop: A running loop to adopt; other bridges may adopt it too. It may pause: messages are
            refused meanwhile, and what is in flight is given up when that takes long. Sync code of
            runs goes to threads of their bridge; the loop's default executor is left as it is.
            None: the bridge owns a loop, in a daemon thread of its own that starts with the first
            message.
        max_concurrency: How many runs may be on at once. A run counts until it has really ended:
            a sync function that goes on in its thread after a timeout holds its slot.
        max_threads: How many threads execute sync code of runs, ``max_concurrency`` at least: each
            run has one as soon as it needs one, and the runs take turns for what is left. A thread
            that is idle for ten seconds ends. None: 31 more than ``max_concurrency``, so that one
            run alone can have 32, as many as asyncio's own default executor has at most.
        max_pending: How many messages may wait for their start; None for any number.
        overflow: What a submitter beyond ``max_pending`` meets. ``"block"``: it waits.
        timeout: Seconds for each run, from its start; None for ever. See `create_future_task`.
        name: Prefix of the threads' names, for people.

    Raises:
        InvalidArgumentError: A number out of its range, or an unknown policy.
        InvalidTypeError: ``loop`` is no event loop, or one on which nothing can be overridden.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None = None,
        *,
        max_concurrency: int = 32,
        max_threads: int | None = None,
        max_pending: int | None = None,
        overflow: Literal["block"] = "block",
        timeout: float | None = None,
        name: str | None = None,
    ) -> None:
        if loop is not None and not isinstance(loop, asyncio.AbstractEventLoop):
            raise InvalidTypeError(f"loop must be an asyncio event loop or None, not {loop!r}")
        if overflow != "block":
            raise InvalidArgumentError(f"overflow must be 'block', not {overflow!r}")
        _check_count("max_concurrency", max_concurrency)
        spare_threads = _spare_threads(max_threads, max_concurrency)
        if max_pending is not None:
            _check_count("max_pending", max_pending)
        _check_seconds("timeout", timeout)
        # All set here and never again; what changes is inside, each with its own owner.
        self.max_concurrency = max_concurrency
        self.timeout = timeout
        self.name = name or f"rxlanggraph-{next(_names)}"
        self._engine = Engine(
            loop, max_concurrency, max_pending, self.name, spare_threads=spare_threads
        )
        # The options of the last plain call, for the next one with the same graph: a mapper makes
        # the same call for every message. Known weakly: they last as long as a run that has them,
        # and an idle bridge keeps no graph. One reference, replaced whole, by any thread.
        self._recent: weakref.ref[RunOptions] | None = None
        # A bridge that was dropped unclosed ends its loop; at exit the engine sees to itself.
        weakref.finalize(self, self._engine.abandon).atexit = False

    def __repr__(self) -> str:
        """Name, state and load."""
        registry = self.registry
        return f"<RxPyLangGraphBridge {self.name} {registry.state}, {len(registry)} in flight>"

    @property
    def lock(self) -> threading.RLock:
        """The one lock of this bridge, for the operators. A leaf, for a few lines at a time."""
        return self._engine.lock

    @property
    def registry(self) -> TaskRegistry:
        """Every run in flight. Its ``cancel_all``, ``snapshot`` and waits are yours to use."""
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
        timeout: float | None = None,
        retry: Retry = None,
        errors: Literal["raise", "emit"] = "raise",
        config: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Run:
        """Have ``graph`` run on ``message``; return the future of its result.

        Any thread, the loop's own included; never blocks on the loop (with ``max_pending`` it
        waits for room, which on the loop's own thread is refused). The run is registered before
        this returns, sees the caller's contextvars, and starts when it is its turn. What a node
        sends is no part of that node's graph: LangChain's config is not handed down to it.
        ``functools.partial(bridge.create_future_task, graph)`` is a mapper for ``flat_map``.

        Cancelling the future cancels the run, also before it started. It resolves the future at
        once, while the coroutine's own clean-up still goes on.

        Args:
            graph: A compiled LangGraph graph, a Runnable, or an async or sync function of the
                content. Sync functions run in threads of the bridge. A function's later parameter
                that is named ``message`` or ``config``, and has no default other than None, is
                given the `StreamMessage`, or LangGraph's config of the run as a dictionary.
            message: A `StreamMessage`, or its content. A result whose status is not ``"ok"`` runs
                nothing: the future resolves, in its turn, with that very result.
            thread_id: The thread to run on, instead of the message's own; None keeps that. It may
                also be named in LangGraph's way, by ``config`` or the graph's ``with_config``,
                and is the same run's thread then: its lane's key, what the checkpointer sees as
                ``configurable.thread_id``, and the result's.
            timeout: Seconds for each attempt; None takes the bridge's. When it is over the future
                is resolved and the run cancelled, which holds its slot until it has ended.
            retry: How often to try again after an exception, with random exponential waits; or a
                tenacity ``AsyncRetrying`` of your own. With a checkpointer, an attempt goes on
                from what the failed one has saved. None begins once the run was cancelled, or the
                bridge is closing.
            errors: What a run that did not end well does to the future: ``"raise"`` its exception,
                or ``"emit"`` the result with its ``status`` and ``error``.
            config: LangGraph's config for the run. The message's ``metadata`` goes into that of
                the config, over what is there, all but a ``run_id``: that LangGraph would take for
                an earlier run, connected again.
            name: Shown in snapshots and reports; None takes the graph's.

        Returns:
            A ``concurrent.futures.Future`` of the result, a `StreamMessage`; also to be awaited,
            on any asyncio loop: ``result = await bridge.create_future_task(graph, message)``.

        Raises:
            BridgeClosedError: The bridge is closed.
            LoopUnavailableError: The loop is closed, stopped or dying.
            BlockingCallError: ``max_pending`` is reached, on the loop's own thread; or in a run on
                whose end the room depends (a `DeadlockError`).
            InvalidTypeError: ``graph`` cannot run, a thread_id or ``name`` is no string, or
                ``config`` no mapping.
            InvalidArgumentError: A number out of its range, an unknown policy, or two thread_ids
                that differ.
        """
        special = (timeout, retry, config, name) != (None, None, None, None) or errors != "raise"
        options = None if special or self._recent is None else self._recent()
        if options is None or options.graph is not graph:
            options = self.run_options(
                graph, timeout=timeout, retry=retry, errors=errors, config=config, name=name
            )
            if not special:
                self._recent = weakref.ref(options)
        return self.submit(options.message_for(message, thread_id), options)

    def run_options(
        self,
        graph: Graph,
        *,
        timeout: float | None = None,
        retry: Retry = None,
        errors: Literal["raise", "emit"] = "raise",
        config: Mapping[str, Any] | None = None,
        name: str | None = None,
        group: Group | None = None,
    ) -> RunOptions:
        """Check the options of `create_future_task`, and find out how ``graph`` is called.

        For operators, which do it once for all their messages. Any thread; never blocks.
        """
        if errors not in ("raise", "emit"):
            raise InvalidArgumentError(
                f"errors must be 'raise' or 'emit', not {errors!r}: "
                "a future has one result, and cannot leave it out as a stream can"
            )
        _check_seconds("timeout", timeout)
        if name is not None and not isinstance(name, str):
            raise InvalidTypeError(f"name must be a string or None, not {name!r}")
        target = as_target(graph)
        return RunOptions(
            graph,
            target,
            self.timeout if timeout is None else timeout,
            _retrying(retry),
            errors,
            config,
            name or target.name,
            group,
            one_thread(threads_of(graph, config)),
        )

    def submit(self, message: StreamMessage, options: RunOptions) -> Run:
        """Wait for room, then hand one run over: the second half of `create_future_task`.

        Raises:
            BridgeClosedError, LoopUnavailableError, BlockingCallError: As there.
        """
        run = self.new_run(message, options)
        try:
            self.wait_for_room(run)
            return self.hand_over(run)
        except BaseException:  # also of a signal handler, which may have let it in by half
            if run in self.registry:
                run.cancel()
            self._engine.withdraw(run)
            raise

    def new_run(self, message: StreamMessage, options: RunOptions) -> Run:
        """Make a run that sees the caller's contextvars. Any thread; never blocks."""
        run = Run(message, options, context_of_its_own(), self._engine.handoff, self)
        parent = current_run()
        if parent is not None and not parent.done():
            run.parent = parent
        return run

    def cut_off(self, run: Run) -> bool:
        """Whether ``run``, which has ended, was ended by its loop or by the close of the bridge."""
        return run.cut_off or (run.cancelled() and self.registry.state != "open")

    def drop(self, run: Run) -> None:
        """Cancel ``run``, however far it has come. Any thread; never blocks."""
        try:
            run.cancel()
        finally:
            self._engine.withdraw(run)

    def wait_for_room(self, run: Run) -> None:
        """Block until fewer than ``max_pending`` runs wait for their start.

        What the bridge's own results lead to on the loop's thread, a later stage of the pipeline,
        is let in at once, and starts before all others; so is what will run nothing. Each takes
        the place of a run that was let in before, so there are never more than these.

        Raises:
            BlockingCallError: There is no room, and this is the thread of the bridge's loop.
        """
        backlog = self._engine.backlog
        if not backlog.bounded:
            return
        on_loop = self._on_own_loop()
        if (on_loop and self._delivers_result()) or passes_through(run.message):
            run.downstream = True
            backlog.hold(run)
        elif not backlog.enter(run, may_block=not on_loop):
            raise BlockingCallError(
                f"max_pending runs of {self!r} wait for their start, and waiting for room on "
                "the loop's own thread would stop them; submit from another thread, or "
                "make the bridge with max_pending=None"
            )

    def _delivers_result(self) -> bool:
        # Callbacks and observers run in the context of the run that ended, as does what they
        # schedule on the loop.
        scope = run_scope.get()
        return scope is not None and scope.is_over(self._engine.handoff)

    def hand_over(self, run: Run) -> Run:
        """Register ``run`` and hand it to the loop; never blocks.

        Raises:
            BridgeClosedError, LoopUnavailableError: As in `create_future_task`.
        """
        engine = self._engine
        try:
            engine.submit(run)
        except (RegistryClosedError, LoopUnavailableError) as error:
            if engine.registry.state == "open":
                raise
            raise BridgeClosedError(
                f"the bridge {self.name} is closed and takes no more messages; make a new one"
            ) from error
        return run

    def invoke(
        self,
        graph: Graph,
        *,
        max_concurrency: int | None = None,
        ordered: bool = False,
        thread_id: str | Callable[[Any], str | None] | None = None,
        multitask_strategy: Literal["enqueue"] = "enqueue",
        timeout: float | None = None,
        retry: Retry = None,
        errors: ErrorPolicy = "raise",
        config: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Callable[[Observable[Any]], Observable[StreamMessage]]:
        """Return an Rx operator that runs ``graph`` on every message and emits every result.

        The source may emit from any thread; so may ``on_next`` calls overlap, against the Rx
        grammar. Runs begin in the order of arrival, but for those that wait for their thread's
        turn. Results are emitted as runs end, one at a time, mostly on the loop's thread: a
        subscriber that blocks belongs behind ``observe_on``. Disposing cancels the subscription's
        runs. An item that is a result with another status than ``"ok"`` runs nothing and passes
        through unchanged, as ``errors`` says: a later stage does not act on a missing answer.
        Where the stream is awaited, ``await source.pipe(...)``, results come on the awaiting loop.

        Args:
            graph: As in `create_future_task`.
            max_concurrency: How many runs of one subscription may be on at once; None leaves only
                the bridge's bound.
            ordered: Emit in order of the input, looking ahead at most twice ``max_concurrency``.
            thread_id: The thread of every message, or a function of the item that returns it;
                None takes the message's own.
            multitask_strategy: What a message does while another runs on its thread.
                ``"enqueue"``: it waits for its turn.
            timeout: As in `create_future_task`.
            retry: As in `create_future_task`.
            errors: What a run that did not end well does to the stream. ``"raise"`` ends it with
                the exception, as Rx does; ``"emit"`` emits the result, with its ``status`` and
                ``error``; ``"skip"`` logs it.
            config: As in `create_future_task`.
            name: As in `create_future_task`.

        Raises:
            InvalidTypeError, InvalidArgumentError: As in `create_future_task`.
        """
        if multitask_strategy != "enqueue":
            raise InvalidArgumentError(
                f"multitask_strategy must be 'enqueue', not {multitask_strategy!r}"
            )
        if max_concurrency is not None:
            _check_count("max_concurrency", max_concurrency)
        options = self.run_options(
            graph, timeout=timeout, retry=retry, errors="emit", config=config, name=name
        )
        if thread_id is not None and not callable(thread_id):
            _check_thread(thread_id, options.thread)
        return invoke(
            self,
            options,
            max_concurrency=max_concurrency,
            ordered=ordered,
            thread_id=thread_id,
            errors=errors,
        )


def _check_count(argument: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgumentError(f"{argument} must be a whole number from 1, not {value!r}")


def _check_thread(thread_id: object, named: NamedThread | None) -> None:
    if not isinstance(thread_id, str):
        raise InvalidTypeError(
            f"thread_id must be a string, a function of the item or None, not {thread_id!r}; "
            "convert it with str()"
        )
    if named is not None:
        one_thread((NamedThread(thread_id, "the argument"), named))


def _spare_threads(max_threads: object, max_concurrency: int) -> int:
    if max_threads is None:
        return _SPARE_THREADS
    _check_count("max_threads", max_threads)
    assert isinstance(max_threads, int)
    if max_threads < max_concurrency:
        raise InvalidArgumentError(
            f"max_threads must be max_concurrency, {max_concurrency}, at least, so that every run "
            f"has a thread when it needs one, not {max_threads!r}"
        )
    return max_threads - max_concurrency


def _check_seconds(argument: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, int | float) or not value > 0:
        raise InvalidArgumentError(
            f"{argument} must be a positive number of seconds or None, not {value!r}"
        )


def _retrying(retry: object) -> AsyncRetrying | None:
    if retry is None or isinstance(retry, AsyncRetrying):
        return retry
    if not isinstance(retry, int) or isinstance(retry, bool) or retry < 0:
        raise InvalidArgumentError(
            f"retry must be a number of retries or a tenacity.AsyncRetrying, not {retry!r}"
        )
    return AsyncRetrying(
        stop=stop_after_attempt(retry + 1),
        wait=wait_random_exponential(multiplier=0.1, max=10),
        reraise=True,
    )
