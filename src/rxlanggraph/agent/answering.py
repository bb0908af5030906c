"""Who answers for an agent: a chat model, a Runnable, an async function, or a graph."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from rxlanggraph.agent.graph_thread import GraphThread, delete_thread, keeps_threads
from rxlanggraph.agent.messages import Message, from_langchain, is_message, to_langchain
from rxlanggraph.errors import AgentError, InvalidTypeError

__all__ = ["Answer", "Answerer", "OnFailure", "answerer_for"]

OnFailure: TypeAlias = "Callable[[Callable[[], Coroutine[Any, Any, None]]], object]"
"""Takes what is to be done if the run does not end well."""


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

    async def answer(
        self,
        request: Any,
        messages: Sequence[Message],
        config: RunnableConfig,
        on_failure: OnFailure,
    ) -> Answer:
        """Answer ``request``, the last of ``messages``. On the loop of the run; cancellable.

        What it changes elsewhere, ``on_failure`` is told how to take back.
        """

    async def forget(self, thread_id: str) -> None:
        """Forget what it remembers itself under ``thread_id``."""


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
    if isinstance(llm, Pregel):
        raise InvalidTypeError(f"llm must be no graph, as {llm!r} is; pass graph=")
    if hasattr(llm, "ainvoke"):
        return _Model(llm)
    if callable(llm):
        return _Function(llm)
    raise InvalidTypeError(
        f"llm must be a chat model, a Runnable or an async function of the messages, not {llm!r}"
    )


class _Model:
    """A chat model, or any Runnable over a list of LangChain messages."""

    of_messages = True

    def __init__(self, model: Any) -> None:
        self._model = model

    async def answer(
        self,
        request: Any,
        messages: Sequence[Message],
        config: RunnableConfig,
        on_failure: OnFailure,
    ) -> Answer:
        return _reply(await self._model.ainvoke(to_langchain(messages), config))

    async def forget(self, thread_id: str) -> None:
        """Remember nothing, ever."""


class _Function:
    """An async function of the messages."""

    of_messages = True

    def __init__(self, function: Callable[[Sequence[Message]], Any]) -> None:
        self._function = function

    async def answer(
        self,
        request: Any,
        messages: Sequence[Message],
        config: RunnableConfig,
        on_failure: OnFailure,
    ) -> Answer:
        reply = self._function(messages)
        if not inspect.isawaitable(reply):
            raise InvalidTypeError(
                f"{self._function!r} is no async function: it returned {reply!r}; a sync one "
                "would block the loop, so wrap it with asyncio.to_thread"
            )
        return _reply(await reply)

    async def forget(self, thread_id: str) -> None:
        """Remember nothing, ever."""


def _reply(reply: Any) -> Answer:
    if isinstance(reply, AIMessage) and reply.tool_calls:
        names = ", ".join(call["name"] for call in reply.tool_calls)
        raise AgentError(
            f"the model asks for tools ({names}), and there is nobody to call them: give the agent "
            "a graph that does, such as langchain.agents.create_agent(), or a step of its own"
        )
    if isinstance(reply, str):
        reply = Message("assistant", reply)
    elif is_message(reply):
        reply = Message.of(reply)
    if not isinstance(reply, Message):  # of a chain that ends in a parser: an answer, no message
        return Answer(reply, ())
    return Answer(reply.content, (reply,))


class _Graph:
    """A compiled graph: of messages if its state has them, else of the request as it is."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.of_messages = "messages" in getattr(graph, "channels", ())

    async def answer(
        self,
        request: Any,
        messages: Sequence[Message],
        config: RunnableConfig,
        on_failure: OnFailure,
    ) -> Answer:
        if not keeps_threads(self._graph):
            return await self._ask(request, messages, config, frozenset())
        with _own_thread():
            thread = GraphThread(self._graph, config)
            kept = _ids_in((await thread.settle()).values)
            on_failure(thread.put_back)
            answer = await self._ask(request, messages, config, kept)
            _check_ended(await thread.head())
            return answer

    async def _ask(
        self,
        request: Any,
        messages: Sequence[Message],
        config: RunnableConfig,
        kept: Collection[str],
    ) -> Answer:
        if not self.of_messages:
            return Answer(_uninterrupted(await self._graph.ainvoke(request, config)), ())
        news = list(messages[_spoken(messages) :] if kept else messages)
        state = _uninterrupted(await self._graph.ainvoke({"messages": to_langchain(news)}, config))
        if "messages" not in state:  # the graph has an output schema of its own
            return Answer(state, ())
        said = from_langchain(state["messages"])
        known = {*kept, *(message.id for message in messages)}
        last = max((place for place, message in enumerate(said) if message.id in known), default=-1)
        replies = tuple(said[last + 1 :])
        return Answer(replies[-1].content if replies else None, replies)

    async def forget(self, thread_id: str) -> None:
        """Delete the thread from the checkpointer, if there is one."""
        if keeps_threads(self._graph):
            await delete_thread(self._graph.checkpointer, thread_id)


@contextlib.contextmanager
def _own_thread() -> Iterator[None]:
    """Have a graph use its own thread and checkpointer, also within a node of another graph.

    LangGraph would take it for that one's subgraph otherwise.
    """
    token = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _ids_in(values: Any) -> Collection[str]:
    """Of the messages that a graph remembers itself."""
    messages = values.get("messages", ()) if isinstance(values, Mapping) else ()
    return {message.id for message in messages if isinstance(message, BaseMessage) and message.id}


def _spoken(messages: Sequence[Message]) -> int:
    """Where what has come since the last answer begins."""
    places = range(len(messages), 0, -1)
    return next((place for place in places if messages[place - 1].role in ("assistant", "tool")), 0)


def _uninterrupted(state: Any) -> Any:
    if isinstance(state, Mapping) and "__interrupt__" in state:
        raise AgentError(
            f"the graph waits for an answer to {state['__interrupt__']!r}, and an agent cannot "
            "give it: use the graph itself where somebody is asked"
        )
    return state


def _check_ended(state: StateSnapshot) -> None:
    if state.next:
        raise AgentError(
            f"the graph has stopped before {', '.join(map(repr, state.next))}, and an agent cannot "
            "have it go on: use the graph itself where somebody does"
        )
