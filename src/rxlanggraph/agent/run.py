"""One run of an agent: its messages, its tasks, the runs within it, and the stream of its items.

What breaks without it: a run that fails leaves half a turn in the memory, and tasks that go on
writing; one that resists cancellation keeps its caller beyond every deadline; an agent that is
called by its own step, directly or through others, waits for itself. And a caller that runs an
agent and reads its output gets items that earlier runs have left there, and leaves its own unread
items to other consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.agent.output.queue import OutputQueue
from rxlanggraph.concurrency.closing import AsyncClosingContext
from rxlanggraph.concurrency.stacks import context_of
from rxlanggraph.errors import OutputEndedError, RunTimeoutError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = [
    "AgentRun",
    "RunPersistence",
    "RunStream",
    "current_run",
    "is_reentrant",
    "run_timeout",
    "supervise",
]

_log = logging.getLogger("rxlanggraph")
_CANCEL_SECONDS = 5.0
_UNDO_SECONDS = 2.0  # for each undo; a guess, and an upper bound on a useless wait of the caller
_T = TypeVar("_T")


class RunPersistence(Protocol):
    """Where the memory of an agent is saved between its runs. Used by one run at a time."""

    async def load(self) -> None:
        """Load the saved memory into the agent, unless it has it. As the run begins."""

    async def save(self) -> None:
        """Save the agent's memory, with what the run has added. As the run ends."""

    async def roll_back(self) -> None:
        """Undo `save`, if it was begun: the run has failed."""

    def committed(self) -> None:
        """Called when the run has succeeded: the agent's memory is the saved one."""


class AgentRun:
    """One run, known by its identity, and through its context to everything that it starts.

    Args:
        owner: The agent.
        request: What the agent was asked.
        config: LangGraph's config, for the responder.
        output: Where the run's output goes; None for the agent's queue.
    """

    __slots__ = (
        "_undo",
        "config",
        "outer",
        "output",
        "over",
        "owner",
        "persistence",
        "request",
        "task",
    )

    def __init__(
        self,
        owner: object,
        request: Any,
        config: RunnableConfig | None = None,
        output: OutputQueue[Any] | None = None,
    ) -> None:
        self.owner = owner
        self.request = request
        self.config = config
        self.output = output
        # Where the agent's memory is saved; None if only in the agent. Written as the run begins.
        self.persistence: RunPersistence | None = None
        # Set once, by the run itself, or by the run that replaces it; read by any thread.
        self.over = False
        self.task: asyncio.Task[Any] | None = None  # owned by `supervise`
        # Owned by the run, then by `supervise`.
        self._undo: list[Callable[[], Coroutine[Any, Any, None]]] = []
        outer = _current.get()
        while outer is not None and outer.over:  # otherwise runs that start each other form a chain
            outer = outer.outer
        self.outer: AgentRun | None = outer

    def on_failure(self, undo: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call ``undo`` if the run does not succeed, in reverse order. In the run."""
        self._undo.append(undo)

    def undoing(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What was passed to `on_failure`, the last one first. For `supervise`."""
        while self._undo:
            yield self._undo.pop()()

    def chain(self) -> Iterator[AgentRun]:
        """This run, and those that it is part of."""
        run: AgentRun | None = self
        while run is not None:
            yield run
            run = run.outer


_current: ContextVar[AgentRun | None] = ContextVar("rxlanggraph_agent_run", default=None)


def current_run(owner: object) -> AgentRun | None:
    """The run of ``owner`` that started this code; it may be over. Any thread."""
    run = _current.get()
    return next((r for r in run.chain() if r.owner is owner), None) if run is not None else None


def is_reentrant(owner: object) -> bool:
    """Whether this code was started by a run of ``owner`` that is still active. Any thread."""
    run = _current.get()
    return run is not None and any(r.owner is owner and not r.over for r in run.chain())


async def supervise(
    run: AgentRun, memory: Memory, work: Callable[[], Coroutine[Any, Any, _T]]
) -> _T:
    """Await ``work`` as ``run``, in a task of its own.

    What it adds to ``memory`` is added at its end, atomically. If it does not succeed, nothing is
    added: its task is cancelled, then the tasks it has started and not awaited, and each is waited
    for. Then its effects are undone. Tasks that do not end are left behind, and named in the log:
    otherwise no deadline would hold.
    """
    token = _current.set(run)
    try:
        with memory.turn():
            run.task = asyncio.create_task(work())
            run.task.add_done_callback(_look_at)
            await asyncio.wait({run.task})
            answer: _T = run.task.result()
            return answer
    except GeneratorExit:  # its loop is gone: none of it continues, and nothing can be awaited
        if run.task is not None:
            run.task._log_destroy_pending = False  # type: ignore[attr-defined] # the caller's does
        raise
    except BaseException:
        await _end_tasks(run)
        await _undo(run)
        raise
    finally:
        run.over = True
        # Otherwise they keep each other alive until the collector runs.
        run.task = None
        run._undo.clear()
        with contextlib.suppress(ValueError):  # closed by the collector, in another context
            _current.reset(token)


async def _end_tasks(run: AgentRun) -> None:
    """Cancel the run's task, then the tasks it has started and not awaited, and wait for all."""
    if run.task is not None and not run.task.done():
        run.task.cancel()
        await _wait_out([run.task])
    known = (asyncio.current_task(), run.task)
    while left := [task for task in _tasks.of(run) if not (task in known or task.done())]:
        for task in left:
            task.cancel()
        if await _wait_out(left):
            return


async def _undo(run: AgentRun) -> None:
    """Undo what the run has changed elsewhere; it may be cancelled meanwhile."""
    for undo in run.undoing():
        task = asyncio.create_task(undo)
        task.add_done_callback(_look_at)
        if await _wait_for([task], _UNDO_SECONDS):
            task.cancel()
            _log.warning("what a run of %r has left could not be undone in time", run.owner)
        elif task.cancelled() or task.exception() is not None:
            error = None if task.cancelled() else task.exception()
            _log.warning("what a run of %r has left could not be undone", run.owner, exc_info=error)


async def _wait_out(tasks: Collection[asyncio.Task[Any]]) -> Collection[asyncio.Task[Any]]:
    """Wait for cancelled ``tasks``, even if cancelled meanwhile; return and log those left."""
    tasks = await _wait_for(tasks, _CANCEL_SECONDS)
    for task in tasks:
        _log.warning("%r was cancelled with its run, and goes on", task)
    return tasks


async def _wait_for(
    tasks: Collection[asyncio.Task[Any]], seconds: float
) -> Collection[asyncio.Task[Any]]:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while tasks and (rest := until - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):  # the caller is about to raise anyway
            await asyncio.wait(tasks, timeout=rest)
        tasks = [task for task in tasks if not task.done()]
    return tasks


class _TasksOfRuns(threading.local):
    """Which tasks of this thread's loop belong to which run.

    asyncio knows all tasks, and each task its context. To go through all of them for each of a
    thousand runs that fail together would freeze the loop: so one pass serves a whole iteration of
    the loop.
    """

    def __init__(self) -> None:
        self._seen: dict[AgentRun, list[asyncio.Task[Any]]] | None = None

    def of(self, run: AgentRun) -> list[asyncio.Task[Any]]:
        if self._seen is None:
            loop = asyncio.get_running_loop()
            self._seen = defaultdict(list)
            for task in asyncio.all_tasks(loop):
                innermost = context_of(task).get(_current)
                for each in () if innermost is None else innermost.chain():
                    self._seen[each].append(task)
            loop.call_soon(self._forget)
        return self._seen.get(run, [])

    def _forget(self) -> None:
        self._seen = None


_tasks = _TasksOfRuns()


@contextlib.asynccontextmanager
async def run_timeout(whose: str, seconds: float) -> AsyncIterator[None]:
    """Limit the block to ``seconds``; ``math.inf`` for no limit.

    Raises:
        RunTimeoutError: The block exceeded the limit and was cancelled.
    """
    timeout = asyncio.timeout(None if seconds == math.inf else seconds)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise  # the block's own
        raise RunTimeoutError(
            f"the run of agent {whose!r} did not end within {seconds} s"
        ) from error


def _look_at(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception; otherwise asyncio logs that it was never retrieved."""
    if not task.cancelled():
        task.exception()


class RunStream(AsyncClosingContext, AsyncIterator[Any]):
    """The items of one run; made by `BaseAgent.stream` with a request.

    The run begins with the first step, and all further steps have to be on the same loop. A step
    that is cancelled has taken nothing, and the run continues; closing or dropping the stream
    cancels the run. Also an async context manager, which closes it.

    Args:
        run: Starts the run, which puts its items into the queue passed to it.
        items: That queue.
    """

    def __init__(
        self,
        run: Callable[[OutputQueue[Any]], Coroutine[Any, Any, object]],
        items: OutputQueue[Any],
    ) -> None:
        self._run = run
        # These belong to the loop on which the stream is iterated over.
        self._items = items
        self._task: asyncio.Task[object] | None = None
        self._done = False

    def done(self) -> bool:
        """Whether it has ended, or was closed. Any thread; never blocks."""
        return self._done

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __anext__(self) -> Any:
        """Get the next item. Cancelled, it has taken nothing.

        Raises:
            StopAsyncIteration: The run has succeeded, or the stream was closed.
            Exception: Whatever the run raised, once its items are taken.
        """
        if self._done:
            raise StopAsyncIteration
        if self._task is None:
            self._task = self._begin()
        task = self._task
        try:
            return await self._items._get(self, None, None)
        except OutputEndedError:
            await asyncio.wait({task})
        if not self._done:
            self._done, self._task = True, None
            try:
                task.result()
            finally:
                del task  # its error refers to this frame, which must not refer back
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the stream, cancel its run if that is active, and wait for its end."""
        self._done = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def __del__(self) -> None:
        """Cancel the run of a stream that was dropped."""
        if self._task is not None and not self._task.done():
            with contextlib.suppress(RuntimeError):  # its loop is closed
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def _begin(self) -> asyncio.Task[object]:
        items = self._items
        items.begin()
        task = asyncio.create_task(self._run(items))

        def end(task: asyncio.Task[object]) -> None:
            items.end()
            if not task.cancelled():
                task.exception()  # raised only where the stream is iterated over

        task.add_done_callback(end)
        return task
