"""LangGraphTasks: tasks of LangGraph that outlive the run that they belong to.

A graph saves its checkpoints in separate tasks, for which it waits when it ends. If its run is
cancelled just then, the graph stops waiting, and the tasks continue. What breaks without this: the
thread changes after the run has ended, perhaps while the next run is active on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextvars import ContextVar
from typing import Any

from rxlanggraph.concurrency.stacks import context_of, tasks_of

__all__ = ["LangGraphTasks"]

# The methods by which LangGraph has any saver save.
_OF_SAVERS = {"aput", "aput_writes"}


class LangGraphTasks:
    """Waits for the tasks of LangGraph that cancelled runs have left behind. Confined to the loop.

    All runs that ask within one iteration of the loop share one search of its tasks, in the next:
    if ten thousand are cancelled at once, each would otherwise search the tasks of all others.

    Args:
        variable: Has the scope of a run, in the context of the run and of all tasks that it starts.
    """

    def __init__(self, variable: ContextVar[Any]) -> None:
        self._variable = variable
        # By scope: resolved with the tasks that the run which asks has left.
        self._asked: dict[Hashable, asyncio.Future[list[asyncio.Task[object]]]] = {}

    async def until_ended(self, scope: Hashable) -> None:
        """Wait until a run that was cancelled has left no task of LangGraph behind.

        Tasks that the user's nodes have created by themselves are their own.
        """
        if scope is None:
            return
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._search, loop)
        answer = self._asked[scope] = loop.create_future()
        tasks = await answer
        if tasks:
            await asyncio.wait(tasks)

    def _search(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            tasks = tasks_of(loop)
        except RuntimeError:  # other loops start and end more tasks than can be listed
            loop.call_soon(self._search, loop)
            return
        asked, self._asked = self._asked, {}
        found: dict[object, list[asyncio.Task[object]]] = {scope: [] for scope in asked}
        for task in tasks:
            of_run = found.get(context_of(task).get(self._variable))
            if of_run is not None and _is_of_langgraph(task):
                of_run.append(task)
        for scope, answer in asked.items():
            if not answer.done():  # its run was cancelled once more
                answer.set_result(found[scope])


def _is_of_langgraph(task: asyncio.Task[object]) -> bool:
    frame = getattr(task.get_coro(), "cr_frame", None)
    if frame is None:
        return False
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] == "langgraph" or frame.f_code.co_name in _OF_SAVERS
