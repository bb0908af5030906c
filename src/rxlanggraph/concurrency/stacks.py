"""The current stacks of tasks and threads, as text: for the reports that name stuck runs.

On Python 3.13 without the GIL, only what runs on the loop of the calling thread has one: see
`can_look_into`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import traceback
from contextvars import Context, ContextVar
from types import FrameType
from typing import Any

from rxlanggraph.concurrency import interpreter
from rxlanggraph.concurrency.threads import start_detached

__all__ = [
    "UNREADABLE",
    "context_of",
    "format_frames",
    "format_task",
    "frame_of",
    "tasks_of",
    "tasks_where",
]

UNREADABLE = "(Python 3.13 without the GIL cannot show the stacks of other threads)"


def frame_of(ident: int | None) -> FrameType | None:
    """Return the innermost frame of a thread; None if there is none, or it cannot be read.

    Any thread; never blocks.
    """
    if ident is None or not interpreter.can_look_into(None):
        return None
    return sys._current_frames().get(ident)


def format_frames(frames: list[FrameType]) -> str:
    """Format the stacks of threads, given their innermost frames. Any thread; never blocks."""
    return "\n".join("".join(traceback.format_stack(frame)).rstrip() for frame in frames)


def format_task(task: asyncio.Task[Any], loop_thread: int | None) -> str:
    """Format the stack of ``task``: the chain of its awaits, or the loop's own thread.

    Any thread; never blocks. ``Task.get_stack`` shows a suspended coroutine's outermost frame
    only, so the chain is followed here (``cr_await``, documented with the inspect module).

    Args:
        task: The task of a run.
        loop_thread: Ident of the loop's thread, whose stack shows a task that is executing.
    """
    if not interpreter.can_look_into(task.get_loop()):
        return f"the task {task.get_name()!r} {UNREADABLE}"
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = frame or getattr(awaited, "ag_frame", None)
        if frame is not None:
            lines += traceback.format_list(traceback.extract_stack(frame, limit=1))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if loop_thread is not None and asyncio.current_task(task.get_loop()) is task:
        executing = frame_of(loop_thread)
        if executing is not None:
            return format_frames([executing])
    return "".join(lines).rstrip()


def tasks_of(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
    """Return the unfinished tasks of ``loop``. Any thread; never blocks for long.

    What breaks without it: asked in the thread that runs ``loop``, asyncio names only the tasks
    that were created in this thread, from Python 3.14 on. A loop that has paused, and continues in
    another thread, has others. Asked in any other thread, it names them all.
    """
    tasks = asyncio.all_tasks(loop)
    if sys.version_info >= (3, 14) and asyncio._get_running_loop() is loop:
        helper = threading.Thread(target=lambda: tasks.update(asyncio.all_tasks(loop)), daemon=True)
        with contextlib.suppress(RuntimeError):  # there can be no more threads
            start_detached(helper)
            helper.join()
    return tasks


def tasks_where(
    loop: asyncio.AbstractEventLoop, variable: ContextVar[Any], value: object
) -> list[asyncio.Task[Any]]:
    """Return the unfinished tasks of ``loop`` in whose context ``variable`` is ``value``.

    Any thread; never blocks. A task inherits the context of the task that created it, so this finds
    all tasks of a run, however deeply nested: LangGraph runs each node in a task of its own.
    """
    if not interpreter.can_look_into(loop):
        return []
    return [task for task in tasks_of(loop) if context_of(task).get(variable) is value]


def context_of(task: asyncio.Task[Any]) -> Context:
    """Return the context that ``task`` runs in. Any thread; never blocks."""
    if sys.version_info >= (3, 12):
        return task.get_context()
    # Python 3.11 has no public way to read it; for a report on stuck runs, this one will do.
    return next((each for each in gc.get_referents(task) if isinstance(each, Context)), Context())
