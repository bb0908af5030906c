"""AgentRun: one run of an agent, with its messages, its tasks and its output.

What breaks without it: a run that fails leaves half a turn in the memory, and tasks that continue
to write; a run that resists cancellation keeps its caller beyond every deadline; an agent that is
called by its own step, directly or through others, waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from rxlanggraph.agent.conversation.conversation import Conversation
from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.agent.listeners import ObservedRun
from rxlanggraph.agent.output.queue import OutputQueue
from rxlanggraph.bridge.graphs.configs import one_thread, threads_of
from rxlanggraph.concurrency.stacks import context_of, tasks_of
from rxlanggraph.concurrency.tasks import retrieve_exception, silence_pending_warning
from rxlanggraph.errors import AgentError, RunTimeoutError

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

__all__ = [
    "AgentRun",
    "RunPersistence",
    "current_run_of",
    "is_reentrant",
    "output_of_run",
    "run_timeout",
    "supervise",
]

_log = logging.getLogger("rxlanggraph")
_CANCEL_SECONDS = 5.0  # for the run's own task to end, and again for the tasks that it has started
_UNDO_SECONDS = 2.0  # for each undo; a guess
_T = TypeVar("_T")
Undo: TypeAlias = "Callable[[BaseException], Coroutine[Any, Any, None]]"


class RunPersistence(Protocol):
    """Saves the memory of an agent between its runs. Used by one run at a time."""

    async def load(self) -> None:
        """Load the saved memory, unless the agent has it. Called at the beginning of a run."""

    async def save(self) -> None:
        """Save the agent's memory, with the messages of the run. Called at its end."""

    async def roll_back(self, error: BaseException) -> None:
        """Undo `save`, if it was called. Called if the run fails, with what it raises."""

    def committed(self) -> None:
        """Record that the agent's memory is the saved one. Called once the run has succeeded."""


class AgentRun:
    """One run. A context variable carries it to all tasks and threads that it starts.

    Args:
        owner: The agent.
        request: The request.
        config: LangGraph's config, for the responder; None for an empty one.
        output: The queue for the run's output; None for the agent's queue.
        modes: LangGraph's modes of the chunks that it puts out before its answer.
        context: LangGraph's runtime context, for the graph; None for none.

    Raises:
        InvalidArgumentError, InvalidTypeError: As `rxlanggraph.bridge.graphs.configs.threads_of`
            and ``one_thread``, for ``config``.
    """

    __slots__ = (
        "chunks",
        "config",
        "context",
        "conversation",
        "memory",
        "modes",
        "number",
        "observed",
        "outer",
        "output",
        "over",
        "owner",
        "persistence",
        "reentrant",
        "request",
        "task",
        "thread_id",
        "undo",
    )

    def __init__(
        self,
        owner: object,
        request: Any,
        config: RunnableConfig | None = None,
        *,
        output: OutputQueue[Any] | None = None,
        modes: Sequence[str] = (),
        context: Any = None,
    ) -> None:
        self.owner = owner
        self.context = context
        self.modes = modes
        self.chunks = 0  # how many it has put out; owned by the run
        self.request = request
        self.config = config
        # The thread of its graph: that of ``config``, else set at the beginning of the run.
        named = None if config is None else one_thread(threads_of(None, config))
        self.thread_id = None if named is None else named.thread_id
        self.output = output
        # Written at the beginning of the run: the conversation that it is part of, the memory that
        # it adds to, and whether that is saved.
        self.conversation: Conversation | None = None
        self.memory: Memory | None = None
        self.persistence: RunPersistence | None = None
        self.observed: ObservedRun | None = None  # likewise: what tells hooks of it
        self.number: int | None = None  # likewise: that of the run of the agent's queue
        # Set once, by the run itself, or by the run that replaces it; read by any thread.
        self.over = False
        self.task: asyncio.Task[Any] | None = None  # owned by `supervise`
        # What is to be done if it does not succeed; owned by the run, then by `supervise`.
        self.undo: list[Undo] = []
        outer = _current.get()
        # Without those that are over: runs that start each other would form a chain.
        while outer is not None and outer.over:
            outer = outer.outer
        self.outer: AgentRun | None = outer
        # Whether an active run of the same agent made it, and would wait for itself.
        self.reentrant = is_reentrant(owner)

    def on_failure(self, undo: Undo) -> None:
        """Call ``undo`` with what the run raises, if it fails; the last one first. In the run."""
        self.undo.append(undo)

    def chain(self) -> Iterator[AgentRun]:
        """This run, and those that it is part of."""
        run: AgentRun | None = self
        while run is not None:
            yield run
            run = run.outer


_current: ContextVar[AgentRun | None] = ContextVar("rxlanggraph_agent_run", default=None)


def current_run_of(owner: object) -> AgentRun | None:
    """The run of ``owner`` that started this code; it may be over. Any thread."""
    run = _current.get()
    return next((r for r in run.chain() if r.owner is owner), None) if run is not None else None


def is_reentrant(owner: object) -> bool:
    """Whether this code was started by a run of ``owner`` that is still active. Any thread."""
    run = _current.get()
    return run is not None and any(r.owner is owner and not r.over for r in run.chain())


def output_of_run(owner: object) -> OutputQueue[Any] | None:
    """The queue for what this code puts out; None for that of ``owner``. Any thread.

    Raises:
        AgentError: The run of ``owner`` that started this code is over.
    """
    run = current_run_of(owner)
    if run is None:
        return None
    if run.over:
        raise AgentError(
            f"this run of {owner!r} is over, and can put no more output; have the run await the "
            "tasks that it starts, or put from outside the run"
        )
    return run.output


async def supervise(
    run: AgentRun, memory: Memory, work: Callable[[AgentRun], Coroutine[Any, Any, _T]]
) -> _T:
    """Await ``work`` as ``run``, in a task of its own.

    Its messages are added to ``memory`` at its end, atomically. If it does not succeed, none is
    added: its task is cancelled, then the tasks that it has started and not awaited; all are given
    a limited time to end, and its effects are undone. Tasks that do not end in time are left behind
    and named in the log; otherwise no deadline would hold.
    """
    token = _current.set(run)
    waiting = False
    try:
        with memory.turn():
            context = None if run.observed is None else run.observed.started()
            run.task = asyncio.create_task(work(run), context=context)
            run.task.add_done_callback(retrieve_exception)
            waiting = True
            await asyncio.wait({run.task})
            waiting = False
            answer: _T = run.task.result()
            return answer
    except BaseException as error:
        if waiting and isinstance(error, GeneratorExit):
            # Its loop was closed: nothing can be awaited, and asyncio warns of the caller's task.
            silence_pending_warning(run.task)
            raise
        await _end_tasks(run)
        await _undo(run, error)
        raise
    finally:
        run.over = True
        # Otherwise the run and its task form a reference cycle.
        run.task = None
        run.undo.clear()
        with contextlib.suppress(ValueError):  # closed by the collector, in another context
            _current.reset(token)


async def _end_tasks(run: AgentRun) -> None:
    """Cancel the run's task, then the tasks it has started and not awaited, and wait for all."""
    if run.task is not None and not run.task.done():
        run.task.cancel()
        _log_left_behind(await _wait_for([run.task], _CANCEL_SECONDS))
    known = (asyncio.current_task(), run.task)
    # One deadline for all of them: a cancelled task may start another one, again and again.
    loop = asyncio.get_running_loop()
    until = loop.time() + _CANCEL_SECONDS
    while left := [task for task in _tasks.of(run) if not (task in known or task.done())]:
        for task in left:
            task.cancel()
        stuck = await _wait_for(left, until - loop.time())
        if stuck:
            _log_left_behind(stuck)
            return


def _log_left_behind(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        _log.warning("%r was cancelled with its run, and continues", task)


async def _undo(run: AgentRun, reason: BaseException) -> None:
    """Undo the run's changes outside of the memory, even if cancelled meanwhile."""
    while run.undo:
        task = asyncio.create_task(run.undo.pop()(reason))
        task.add_done_callback(retrieve_exception)
        if await _wait_for([task], _UNDO_SECONDS):
            task.cancel()
            _log.warning("the changes of a run of %r could not be undone in time", run.owner)
        elif task.cancelled() or task.exception() is not None:
            error = None if task.cancelled() else task.exception()
            _log.warning(
                "the changes of a run of %r could not be undone", run.owner, exc_info=error
            )


async def _wait_for(
    tasks: Collection[asyncio.Task[Any]], seconds: float
) -> Collection[asyncio.Task[Any]]:
    """Wait for ``tasks``, even if cancelled meanwhile; return those that did not end in time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while tasks and (rest := until - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):  # the caller is about to raise anyway
            await asyncio.wait(tasks, timeout=rest)
        tasks = [task for task in tasks if not task.done()]
    return tasks


class _TasksOfRuns(threading.local):
    """The tasks of this thread's loop, by the run that they belong to.

    A pass over all tasks for each of many runs that fail together would freeze the loop, so one
    pass serves a whole iteration of the loop.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._by_run: dict[AgentRun, list[asyncio.Task[Any]]] = {}

    def of(self, run: AgentRun) -> list[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # none yet, or one that was closed before it called `_forget`
            self._loop, self._by_run = loop, defaultdict(list)
            for task in tasks_of(loop):
                innermost = context_of(task).get(_current)
                for each in () if innermost is None else innermost.chain():
                    self._by_run[each].append(task)
            loop.call_soon(self._forget)
        return self._by_run.get(run, [])

    def _forget(self) -> None:
        self._loop, self._by_run = None, {}


_tasks = _TasksOfRuns()


@contextlib.asynccontextmanager
async def run_timeout(what: str, seconds: float) -> AsyncIterator[None]:
    """Limit the block to ``seconds``.

    Args:
        what: The subject of the error's text.
        seconds: The limit; ``math.inf`` for none.

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
            f"{what} did not end within {seconds} s; give it a longer timeout"
        ) from error
