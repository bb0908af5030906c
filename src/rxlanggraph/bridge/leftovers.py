"""Tasks of LangGraph that outlive the run that they belong to.

A graph saves its checkpoints in tasks of their own, and waits for them when it ends. If its run is
cancelled just then, it stops waiting, and they go on: what breaks without this is that the thread
changes after the run has ended, perhaps while the next one is at work on it.
"""

from __future__ import annotations

import asyncio

from rxlanggraph.bridge.run import RunScope, run_scope
from rxlanggraph.concurrency.stacks import tasks_where

__all__ = ["end_of_leftovers"]

# By these methods a saver, whoever has written it, is told to save.
_OF_SAVERS = {"aput", "aput_writes"}


async def end_of_leftovers(scope: RunScope | None) -> None:
    """Wait until a run that was cancelled has left no task of LangGraph behind. On the loop.

    Tasks that the user's nodes have created by themselves are their own.
    """
    tasks = tasks_where(asyncio.get_running_loop(), run_scope, scope)
    leftovers = [task for task in tasks if _is_of_langgraph(task)]
    if leftovers:
        await asyncio.wait(leftovers)


def _is_of_langgraph(task: asyncio.Task[object]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    if frame is None:
        return False
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == "langgraph" or frame.f_code.co_name in _OF_SAVERS
