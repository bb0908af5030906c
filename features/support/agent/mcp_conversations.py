"""Agents that say what they have heard, and clients that talk to them in several ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import httpx2
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer

from rxlanggraph.agent import AgentPool, BaseAgent, Memory
from rxlanggraph.agent.mcp.calls import DisconnectMiddleware
from support.agent.mcp_agents import made_tools
from support.concurrency.waiting import LIMIT, Gate

__all__ = ["HOW", "QUESTION", "WHOM", "Served", "Talk", "in_front_of", "said_in"]

QUESTION = "what was said?"
URL = "http://127.0.0.1:8000/mcp"
HOW = {
    "in this process": ("process", "auto"),
    "in this process, as in 2025": ("process", "legacy"),
    "over HTTP": ("http", "auto"),
    "over HTTP, as in 2025": ("http", "legacy"),
}


class Served:
    """What is served, and what can be looked at from outside of the server."""

    def __init__(self) -> None:
        self.saver = InMemorySaver()
        self.begun, self.gate = Gate(), Gate()
        self.agent: BaseAgent | None = None
        self.pool: AgentPool | None = None

    async def recall(self, messages: Sequence[Any]) -> str:
        """Answer with all that the user has said."""
        said = [message.content for message in messages if message.role == "user"]
        if said[-1] == "fail":
            raise LookupError(said[-1])
        if said[-1] == "wait":
            self.begun.open()
            await self.gate.wait_async()
        return ", ".join(said)

    def graph(self, **options: Any) -> Any:
        def recall(state: MessagesState) -> dict[str, Any]:
            said = [message.content for message in state["messages"] if message.type == "human"]
            return {"messages": [AIMessage(", ".join(said))]}

        builder = StateGraph(MessagesState)
        builder.add_node("recall", recall)
        builder.add_edge(START, "recall")
        return builder.compile(**options)

    def make_pool(self, max_agents: int = 100, **options: Any) -> AgentPool:
        answering = options or {"llm": self.recall}
        make: Any = lambda thread_id: BaseAgent("helper", **answering)  # noqa: E731
        self.pool = AgentPool(make, max_agents=max_agents)
        return self.pool


class Reading(BaseAgent):
    async def step(self) -> Any:
        said = [message for message in self.memory.get_messages() if message.role == "user"]
        return ", ".join(str(message.content) for message in said)


class Resetting(Reading):
    """Begins a new memory with whatever is not a question."""

    async def step(self) -> Any:
        if self.request != QUESTION:
            memory = Memory()
            memory.add(self.request)
            self.memory = memory
        return await super().step()


class Asking(BaseAgent):
    """Passes its request on to another agent, in a task of its own or not."""

    def __init__(self, other: BaseAgent, *, in_a_task: bool = False) -> None:
        super().__init__("supervisor")
        self.other, self.in_a_task = other, in_a_task

    async def step(self) -> Any:
        asked = self.other.run(self.request, on_busy="enqueue")
        return await (asyncio.create_task(asked) if self.in_a_task else asked)


def worker(served: Served) -> BaseAgent:
    return BaseAgent("worker", llm=served.recall)


WHOM: dict[str, Callable[[Served], Any]] = {
    "an agent with a model": lambda served: BaseAgent("ann", llm=served.recall),
    "an agent with a graph": lambda served: BaseAgent("ann", graph=served.graph()),
    "an agent with a checkpointed graph": lambda served: BaseAgent(
        "ann", graph=served.graph(checkpointer=served.saver)
    ),
    "an agent that reads its memory": lambda served: Reading("ann"),
    "an agent that asks another one": lambda served: Asking(worker(served)),
    "an agent that asks another in a task": lambda served: Asking(worker(served), in_a_task=True),
    "a pool of agents": lambda served: served.make_pool(),
    "a pool over a checkpointed graph": lambda served: served.make_pool(
        graph=served.graph(checkpointer=served.saver)
    ),
    "a pool of one agent": lambda served: served.make_pool(max_agents=1),
    "an agent that begins a new memory when told to": lambda served: Resetting("ann"),
    "an agent that was made a tool": lambda served: made_tools(BaseAgent("ann", llm=served.recall)),
}


class Talk:
    """Clients that talk to one server. Confined to one loop.

    Args:
        server: The server.
        how: A key of `HOW`.
    """

    def __init__(self, server: MCPServer[Any], how: str) -> None:
        self._server = server
        self._transport, self._mode = HOW[how]
        self._stack = AsyncExitStack()
        self._app: Any = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(asyncio.timeout(LIMIT))
        if self._transport == "http":
            self._app = DisconnectMiddleware(self._server.streamable_http_app())
            await self._stack.enter_async_context(self._server.session_manager.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def client(self, user: Any = None) -> AsyncIterator[Client]:
        """A client of its own, which leaves at the end of the block."""
        async with AsyncExitStack() as stack:
            where: Any = self._server
            if self._transport == "http":
                transport = httpx2.ASGITransport(in_front_of(self._app, user))
                http = await stack.enter_async_context(httpx2.AsyncClient(transport=transport))
                where = streamable_http_client(URL, http_client=http)
            yield await stack.enter_async_context(Client(where, mode=self._mode))


def in_front_of(app: Any, user: Any) -> Any:
    """Have each request come from ``user``, as a proof of who it is would."""

    async def named(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "user": user} if user else scope, receive, send)

    return named


async def said_in(client: Client, message: str, conversation: str | None = None) -> Any:
    """Call the only tool that there is."""
    (tool,) = (await client.list_tools()).tools
    fields = {"message": message, **({"conversation": conversation} if conversation else {})}
    return await client.call_tool(tool.name, fields)
