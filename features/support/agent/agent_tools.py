"""Agents over graphs with a tool and a checkpointer, and the ways in which their runs end."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncIterator, Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from rxlanggraph.agent import AgentPool, BaseAgent
from rxlanggraph.errors import AgentInterruptedError, RunTimeoutError
from support.agent.agent_providers import Provider, provider

__all__ = [
    "CONFIG",
    "ENDINGS",
    "GRAPHS",
    "Asked",
    "Tools",
    "asks",
    "failed",
    "in_every_way",
    "opened",
    "said",
]


CONFIG: Any = {"configurable": {"thread_id": "thread"}}


class Tools:
    """One tool, which does as it is told, and says when it has begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def all(self) -> list[Any]:
        @tool
        async def work(how: str) -> str:
            """Do something."""
            self.begun.set()
            if how == "fail":
                raise LookupError("on demand")
            if how == "hang":
                await asyncio.Event().wait()
            if how.startswith("ask"):
                answer = str(interrupt("may I?"))
                if how.endswith("fail"):
                    raise LookupError("on demand")
                return answer
            return f"did {how}"

        return [work]


def react_agent(model: Any, tools: list[Any], **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # in favour of create_agent
        from langgraph.prebuilt import create_react_agent

        return create_react_agent(model, tools, **options)


GRAPHS: dict[str, Callable[..., Any]] = {
    "create_react_agent": react_agent,
    "create_agent": create_agent,
}


@contextlib.asynccontextmanager
async def opened(saver: str) -> AsyncIterator[Any]:
    if saver == "in memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(":memory:") as sqlite:
        yield sqlite


class Asked:
    """An agent or a pool, the graph that answers for it, and the thread that it is asked on."""

    def __init__(self, who: str, graph: Any, model: Provider, tools: Tools) -> None:
        self.graph = graph
        self.model = model
        self.tools = tools
        self.agents: list[BaseAgent] = []
        self.question: Any = None  # what the last run that asked has raised
        persistence = graph.checkpointer if who.endswith("checkpointer") else None
        pool = AgentPool(self._make, persistence=persistence)
        self.who = self._make("agent") if who == "an agent" else pool

    def _make(self, thread_id: str) -> BaseAgent:
        self.agents.append(BaseAgent(thread_id, graph=self.graph))
        return self.agents[-1]

    async def ask(self, request: Any) -> Any:
        return await self.who.ainvoke(request, CONFIG)

    async def said(self) -> list[tuple[str, Any]]:
        """What the thread holds."""
        return said((await self.graph.aget_state(CONFIG)).values.get("messages", ()))

    def remembered(self) -> list[tuple[str, Any]]:
        """What the agent remembers."""
        return said(self.agents[-1].memory.to_langchain())


def said(messages: Any) -> list[tuple[str, Any]]:
    return [(message.type, message.content) for message in messages]


async def in_every_way(who: str) -> AsyncIterator[Asked]:
    """Over each kind of graph, with each saver."""
    for make in GRAPHS.values():
        for saver in ("in memory", "SQLite"):
            async with opened(saver) as checkpointer:
                tools, model = Tools(), provider()
                graph = make(model, tools.all(), checkpointer=checkpointer)
                yield Asked(who, graph, model, tools)


# -- how runs end ----------------------------------------------------------------------------------


async def times_out(asked: Asked) -> None:
    for agent in asked.agents:
        agent.timeout = 0.05
    await failed(asked.ask("use the tool: hang"), RunTimeoutError)
    for agent in asked.agents:
        agent.timeout = 30.0


async def fails(asked: Asked) -> None:
    await failed(asked.ask("use the tool: fail"), LookupError)


async def asks(asked: Asked, then: str = "") -> None:
    try:
        answer = await asked.ask(f"use the tool: ask{then}")
    except AgentInterruptedError as error:
        asked.question = error
    else:
        raise AssertionError(f"it answered {answer!r}")


async def asks_and_fails(asked: Asked) -> None:
    await asks(asked, ", then fail")
    await failed(asked.ask(Command(resume="yes")), LookupError)


async def is_cancelled(asked: Asked) -> None:
    task = asyncio.create_task(asked.ask("use the tool: hang"))
    await asked.tools.begun.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


async def failed(run: Any, expected: type[Exception]) -> None:
    try:
        answer = await run
    except expected:
        return
    raise AssertionError(f"it answered {answer!r}")


ENDINGS = {
    "its tool asks": asks,
    "its tool asks, and fails once it is answered": asks_and_fails,
    "its tool hangs until its time is over": times_out,
    "its tool raises": fails,
    "it is cancelled in its tool": is_cancelled,
}
