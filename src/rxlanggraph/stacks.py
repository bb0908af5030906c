"""Where a run is right now, as text: for the reports that name stuck runs."""

from __future__ import annotations

import asyncio
import sys
import traceback
from types import FrameType
from typing import Any

__all__ = ["format_frames", "format_task"]


def format_frames(frames: list[FrameType]) -> str:
    """Format the stacks of threads, given their innermost frames. Any thread; never blocks."""
    return "\n".join("".join(traceback.format_stack(frame)).rstrip() for frame in frames)


def format_task(task: asyncio.Task[Any], loop_thread: int | None) -> str:
    """Format where ``task`` is: down the chain of its awaits, or in the loop's own thread.

    Any thread; never blocks. ``Task.get_stack`` shows a suspended coroutine's outermost frame
    only, so the chain is followed here (``cr_await``, documented with the inspect module).

    Args:
        task: The task of a run.
        loop_thread: Ident of the loop's thread, whose stack shows a task that is executing.
    """
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = frame or getattr(awaited, "ag_frame", None)
        if frame is not None:
            lines += traceback.format_list(traceback.extract_stack(frame, limit=1))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if loop_thread is not None and asyncio.current_task(task.get_loop()) is task:
        executing = sys._current_frames().get(loop_thread)
        if executing is not None:
            return format_frames([executing])
    return "".join(lines).rstrip()
