"""One run of an agent: its messages, its tasks, the runs within it, and the stream of its items.

What breaks without it: a run that failed leaves half a turn in the memory, and tasks that go on
writing; one that will not be cancelled keeps its caller beyond every deadline; and an agent that is
asked by its own step, directly or through others, waits for itself. And a caller that runs an agent
and reads its output reads what others have left there, and leaves what it does not read to others.
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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.agent.output.queue import OutputQueue
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
_UNDO_SECONDS = 2.0  # for each thing; a guess, and what its caller waits for in vain at most
_T = TypeVar("_T")


class RunPersistence(Protocol):
    """Where the memory of an agent is kept between its runs. Used by one run at a time."""

    async def load(self) -> None:
        """Have the agent remember what was kept, unless it does. As the run begins."""

    async def save(self) -> None:
        """Keep what the agent remembers, with what the run has added. As the run ends."""

    async def roll_back(self) -> None:
        """Undo `save`, if it was begun: the run has failed."""

    def committed(self) -> None:
        """Hear that the run has ended well: the agent remembers what is kept."""


class AgentRun:
    """One run, known by its identity, and to all that it has started through their context.

    Args:
        owner: The agent.
        request: What it was asked.
        config: LangGraph's, for who answers.
        output: Where what it puts out goes; None for the queue of the agent.
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
        # Where the agent's memory is kept; None for nowhere else. Written as it begins.
        self.persistence: RunPersistence | None = None
        # Set once, by the run itself, or by the one that takes its place; read by any thread.
        self.over = False
        self.task: asyncio.Task[Any] | None = None  # owned by the one who carries it out
        # Owned by the run, then by the same.
        self._undo: list[Callable[[], Coroutine[Any, Any, None]]] = []
        outer = _current.get()
        while outer is not None and outer.over:  # or runs that start each other would make a chain
            outer = outer.outer
        self.outer: AgentRun | None = outer

    def on_failure(self, undo: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have ``undo`` called if the run does not end well, the last one first. In the run."""
        self._undo.append(undo)

    def undoing(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What `on_failure` was told, in its order. For the one who carries it out."""
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
    """The run of ``owner`` that this code was started by; it may be over. Any thread."""
    run = _current.get()
    return next((r for r in run.chain() if r.owner is owner), None) if run is not None else None


def is_reentrant(owner: object) -> bool:
    """Whether this code was started by a run of ``owner`` that is still on. Any thread."""
    run = _current.get()
    return run is not None and any(r.owner is owner and not r.over for r in run.chain())


async def supervise(
    run: AgentRun, memory: Memory, work: Callable[[], Coroutine[Any, Any, _T]]
) -> _T:
    """Await ``work`` as ``run``, in a task of its own.

    What it adds to ``memory`` is added at its end, in one go. If it does not end well, nothing is
    added: it is cancelled, then what it has started and not awaited, and each is waited for. Then
    it is undone. What will not end is left behind, and named in the log: no deadline holds
    otherwise.
    """
    token = _current.set(run)
    try:
        with memory.turn():
            run.task = asyncio.create_task(work())
            run.task.add_done_callback(_look_at)
            await asyncio.wait({run.task})
            answer: _T = run.task.result()
            return answer
    except GeneratorExit:  # its loop is gone: nothing of it goes on, and nothing can be awaited
        if run.task is not None:
            run.task._log_destroy_pending = False  # type: ignore[attr-defined] # the caller's does
        raise
    except BaseException:
        await _end_tasks(run)
        await _undo(run)
        raise
    finally:
        run.over = True
        # Or they would hold each other until a collector comes.
        run.task = None
        run._undo.clear()
        with contextlib.suppress(ValueError):  # closed by a collector, in another context
            _current.reset(token)


async def _end_tasks(run: AgentRun) -> None:
    """Cancel the run's task, then what it has started and not awaited, and wait for their end."""
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
    """Undo what the run has done elsewhere; it may be cancelled meanwhile."""
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
    """Wait for cancelled ``tasks``, also if cancelled meanwhile; return, and name, who stays."""
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

    asyncio knows all tasks, and each its context. To look at all of them for each of a thousand
    runs that fail together would freeze the loop: so one look serves a whole turn of the loop.
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
    """Have the block end in time; ``math.inf`` for ever.

    Raises:
        RunTimeoutError: It was cancelled, since it did not.
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
    """Or asyncio complains of a task that was left behind."""
    if not task.cancelled():
        task.exception()


class RunStream(AsyncIterator[Any]):
    """The items of one run; made by `BaseAgent.stream` with a request.

    The run begins with the first step, on the loop of which all others are to be taken. A step that
    is cancelled has taken nothing, and the run goes on; closed, or let go of, the stream cancels
    it. Also an async context manager, which closes it.

    Args:
        run: Begins the run, which is to put its items into the queue that it is called with.
    """

    def __init__(self, run: Callable[[OutputQueue[Any]], Coroutine[Any, Any, object]]) -> None:
        self._run = run
        # These belong to the loop on which it is iterated over.
        self._items: OutputQueue[Any] = OutputQueue(fairness_timeout=0)
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
            StopAsyncIteration: The run has ended well, or the stream was closed.
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
                del task  # its error refers to this frame, which would refer to it
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the stream, and cancel its run if that is on, and wait for its end."""
        self._done = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        await self.aclose()

    def __del__(self) -> None:
        """Cancel the run of a stream that was let go of."""
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
                task.exception()  # raised where the stream is iterated over, and nowhere else

        task.add_done_callback(end)
        return task
