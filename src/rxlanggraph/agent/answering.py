"""Who answers for an agent: a chat model, a Runnable, an async function, or a graph."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from langchain_core.messages import BaseMessage

from rxlanggraph.agent.messages import Message, from_langchain, to_langchain
from rxlanggraph.errors import InvalidTypeError

__all__ = ["Answer", "Answerer", "answerer_for"]


class Answer(NamedTuple):
    """What came of one step."""

    value: Any
    """What `BaseAgent.run` returns."""

    messages: tuple[Message, ...]
    """What the memory keeps of it."""


class Answerer(Protocol):
    """Answers a conversation, or a request that is none."""

    of_messages: bool
    """Whether requests are messages, which the agent remembers."""

    async def answer(self, request: Any, messages: Sequence[Message], thread_id: str) -> Answer:
        """Answer ``request``, the last of ``messages``. On the loop of the run; cancellable."""


def answerer_for(llm: Any, graph: Any) -> Answerer | None:
    """Find out how ``llm`` or ``graph`` is asked; None if there is neither. Any thread.

    Raises:
        InvalidTypeError: Both were given, or one that cannot be asked.
    """
    if llm is not None and graph is not None:
        raise InvalidTypeError("an agent has an llm or a graph, not both; put the llm in a node")
    if graph is not None:
        if not hasattr(graph, "ainvoke"):
            remedy = "pass graph.compile()" if hasattr(graph, "compile") else "compile a StateGraph"
            raise InvalidTypeError(
                f"graph must be a compiled LangGraph graph, not {graph!r}; {remedy}"
            )
        return _Graph(graph)
    if llm is None:
        return None
    if hasattr(llm, "ainvoke"):
        return _Model(llm.ainvoke)
    if callable(llm):
        return _Function(llm)
    raise InvalidTypeError(
        f"llm must be a chat model, a Runnable or an async function of the messages, not {llm!r}"
    )


class _Model:
    """A chat model, or any Runnable over a list of LangChain messages."""

    of_messages = True

    def __init__(self, ainvoke: Callable[[list[BaseMessage]], Awaitable[Any]]) -> None:
        self._ainvoke = ainvoke

    async def answer(self, request: Any, messages: Sequence[Message], thread_id: str) -> Answer:
        return _reply(await self._ainvoke(to_langchain(messages)))


class _Function:
    """An async function of the messages."""

    of_messages = True

    def __init__(self, function: Callable[[Sequence[Message]], Any]) -> None:
        self._function = function

    async def answer(self, request: Any, messages: Sequence[Message], thread_id: str) -> Answer:
        reply = self._function(messages)
        if not inspect.isawaitable(reply):
            raise InvalidTypeError(
                f"{self._function!r} is no async function: it returned {reply!r}; a sync one "
                "would block the loop, so wrap it with asyncio.to_thread"
            )
        return _reply(await reply)


def _reply(reply: Any) -> Answer:
    if isinstance(reply, str):
        reply = Message("assistant", reply)
    elif isinstance(reply, BaseMessage):
        (reply,) = from_langchain([reply])
    elif isinstance(reply, Mapping):
        reply = Message.of(reply)
    if not isinstance(reply, Message):  # of a chain that ends in a parser: an answer, no message
        return Answer(reply, ())
    return Answer(reply.content, (reply,))


class _Graph:
    """A compiled graph: of messages if its state has them, else of the request as it is."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.of_messages = "messages" in getattr(graph, "channels", ())

    async def answer(self, request: Any, messages: Sequence[Message], thread_id: str) -> Answer:
        config = {"configurable": {"thread_id": thread_id}}  # where a checkpointer looks for it
        if not self.of_messages:
            return Answer(await self._graph.ainvoke(request, config), ())
        state = await self._graph.ainvoke({"messages": to_langchain(messages)}, config)
        said = from_langchain(state["messages"])
        sent = {message.id for message in messages}
        # A checkpointer may remember more than the agent does: new is what follows what was sent.
        last = max((place for place, message in enumerate(said) if message.id in sent), default=-1)
        replies = tuple(said[last + 1 :])
        return Answer(replies[-1].content if replies else None, replies)
