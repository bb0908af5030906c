"""Responders: the chat model, Runnable, async function or graph that answers for an agent."""

from __future__ import annotations

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from reprlib import repr as shortened
from typing import Any, NamedTuple, Protocol, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot

from rxlanggraph.agent.conversation.graph_thread import GraphThread, delete_thread, keeps_threads
from rxlanggraph.agent.conversation.messages import Message, from_langchain, new_id, to_langchain
from rxlanggraph.errors import AgentError, InvalidArgumentError, InvalidTypeError, encodable

__all__ = ["Answer", "OnFailure", "Question", "Responder", "make_responder"]

_MOST_TOLD = 1000  # for an agent with many threads, the most recently used ones
_STRUCTURED = "structured_response"

OnFailure: TypeAlias = "Callable[[Callable[[], Coroutine[Any, Any, None]]], object]"
"""Registers what is to be done if the run does not succeed."""


class Question(NamedTuple):
    """What a responder is asked in one step."""

    request: Any
    """The request of the run."""

    messages: Sequence[Message]
    """The agent's memory, including the request if that consists of messages."""

    beginning: object
    """The beginning of the memory; see `Memory.beginning`."""

    config: RunnableConfig
    """LangGraph's config."""

    on_failure: OnFailure
    """Registers how to undo changes made elsewhere."""


class Answer(NamedTuple):
    """The outcome of one step."""

    value: Any
    """What `BaseAgent.run` returns."""

    messages: tuple[Message, ...]
    """What is added to the memory."""


class Responder(Protocol):
    """Answers a conversation, or a request that is not one."""

    of_messages: bool
    """Whether requests are messages, which the agent adds to its memory."""

    async def answer(self, asked: Question) -> Answer:
        """Answer the question. On the loop of the run; can be cancelled."""

    async def begin_anew(self, asked: Question) -> None:
        """Begin the responder's own memory anew, as the ending run did with the agent's."""

    async def forget(self, thread_id: str) -> None:
        """Delete what the responder itself keeps under ``thread_id``."""


def make_responder(llm: Any, graph: Any) -> Responder | None:
    """Determine how to call ``llm`` or ``graph``; None if there is neither. Any thread.

    Raises:
        InvalidTypeError: Both were given, or one that cannot answer.
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


class _Stateless:
    """A responder that gets the whole conversation each time."""

    of_messages = True

    async def begin_anew(self, asked: Question) -> None:
        """Do nothing: this responder has no memory of its own."""

    async def forget(self, thread_id: str) -> None:
        """Do nothing: this responder has no memory of its own."""


class _Model(_Stateless):
    """A chat model, or any Runnable over a list of LangChain messages."""

    def __init__(self, model: Any) -> None:
        self._model = model

    async def answer(self, asked: Question) -> Answer:
        return _reply(await self._model.ainvoke(to_langchain(asked.messages), asked.config))


class _Function(_Stateless):
    """An async function of the messages."""

    def __init__(self, function: Callable[[Sequence[Message]], Any]) -> None:
        self._function = function

    async def answer(self, asked: Question) -> Answer:
        reply = self._function(asked.messages)
        if not inspect.isawaitable(reply):
            raise InvalidTypeError(
                f"{self._function!r} is not an async function: it returned {reply!r}; a sync one "
                "would block the loop, so wrap it with asyncio.to_thread"
            )
        return _reply(await reply)


def _reply(reply: Any) -> Answer:
    if isinstance(reply, str):
        reply = Message("assistant", reply)
    elif isinstance(reply, BaseMessage) or _is_spoken(reply):
        reply = Message.of(reply)
    if not isinstance(reply, Message):  # from a chain with a parser: an answer, not a message
        return Answer(reply, ())
    _check_calls(*to_langchain([reply]))
    _check_text(reply)
    return Answer(reply.content, (reply,))


def _is_spoken(reply: Any) -> bool:
    """Whether it is a message as a mapping, and not an answer of a chain that looks like one."""
    if not isinstance(reply, Mapping) or not {"role", "content"} <= reply.keys():
        return False
    try:
        Message.of(reply)
    except (InvalidArgumentError, InvalidTypeError):
        return False
    return True


def _check_calls(reply: BaseMessage) -> None:
    """Refuse an answer with tool calls, which are not made here, or that cannot be read."""
    if not isinstance(reply, AIMessage):
        return
    if reply.invalid_tool_calls:
        told = "; ".join(
            f"{call['name']}: {call['error'] or shortened(call['args'])}"
            for call in reply.invalid_tool_calls
        )
        raise AgentError(
            f"the model asks for tools in a form that cannot be read ({told}): ask it again, or "
            "raise the number of tokens that it may answer with"
        )
    if reply.tool_calls:
        names = ", ".join(call["name"] for call in reply.tool_calls)
        raise AgentError(
            f"the model asks for tools ({names}), which the agent does not call: give it a graph "
            "that does, such as langchain.agents.create_agent(), or a step of its own"
        )


def _check_text(reply: Message) -> None:
    """Refuse text that models reject: as part of the conversation it would always fail."""
    parts = [reply.content] if isinstance(reply.content, str) else reply.content
    for part in parts:
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str) and encodable(text) != text:
            raise AgentError(
                f"the answer cannot be encoded: half of a character is in {shortened(text)}; ask "
                "again, or have what splits the model's output into pieces split it elsewhere"
            )


class _Graph:
    """A compiled graph: called with messages if its state has them, else with the request as is."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        # By thread_id, the most recently used last. Owned by the active run.
        self._told: OrderedDict[Any, _Told] = OrderedDict()
        self.of_messages = "messages" in getattr(graph, "channels", ())

    async def answer(self, asked: Question) -> Answer:
        if not keeps_threads(self._graph):
            return await self._ask(asked, asked.messages)
        with _own_thread():
            thread, told = GraphThread(self._graph, asked.config), await self._told_of(asked)
            anew = told.ids is not None and told.beginning is not asked.beginning
            rest = await (thread.begin_anew() if anew else thread.ensure_at_rest())

            async def take_back() -> None:
                self._remember(asked, told._replace(failed=thread))
                await thread.put_back()
                self._remember(asked, told)

            asked.on_failure(take_back)
            kept = _ids_in(rest.values)
            news = _news(asked.messages, kept, None if anew else told.ids)
            answer = await self._ask(asked, news, kept, thread)
            if self.of_messages:  # otherwise there is no memory to begin anew with
                ids = frozenset(message.id for message in (*asked.messages, *answer.messages))
                self._remember(asked, _Told(asked.beginning, ids))
            return answer

    async def _ask(
        self,
        asked: Question,
        news: Sequence[Message],
        kept: Collection[str] = (),
        thread: GraphThread | None = None,
    ) -> Answer:
        sent = {"messages": to_langchain(news)} if self.of_messages else asked.request
        earlier = await self._structured_at(thread)
        state = _uninterrupted(await self._graph.ainvoke(sent, asked.config))
        if thread is not None:
            _check_ended(await thread.head())
        if earlier is not None and earlier == await self._structured_at(thread):
            state = {key: value for key, value in state.items() if key != _STRUCTURED}
        if not self.of_messages:
            return Answer(state, ())
        if "messages" not in state:  # the graph has a separate output schema
            return Answer(_structured(state, state), ())
        said = from_langchain(state["messages"])
        known = {*kept, *(message.id for message in (*asked.messages, *news))}
        last = max((place for place, message in enumerate(said) if message.id in known), default=-1)
        replies = tuple(said[last + 1 :])
        if not replies:
            return Answer(_structured(state, None), ())
        _check_calls(state["messages"][-1])
        for reply in replies:
            _check_text(reply)
        return Answer(_structured(state, replies[-1].content), replies)

    async def begin_anew(self, asked: Question) -> None:
        """Begin the thread anew; at once, since the next run may be another agent's."""
        if not (self.of_messages and keeps_threads(self._graph)):
            return
        told = await self._told_of(asked)
        if told.ids is None or told.beginning is not asked.beginning:  # otherwise it was used since
            with _own_thread():
                await GraphThread(self._graph, asked.config).begin_anew()
            self._remember(asked, _Told(asked.beginning))

    async def forget(self, thread_id: str) -> None:
        """Delete the thread from the checkpointer, if there is one."""
        self._told.pop(thread_id, None)
        if keeps_threads(self._graph):
            await delete_thread(self._graph.checkpointer, thread_id)

    async def _structured_at(self, thread: GraphThread | None) -> Any:
        """Return a version that changes with each structured response of the thread."""
        if thread is None or not {"messages", _STRUCTURED} <= self._graph.channels.keys():
            return None
        return await thread.version(_STRUCTURED)

    async def _told_of(self, asked: Question) -> _Told:
        told = self._told.get(_thread_of(asked))
        if told is None:
            return _Told(asked.beginning)
        if told.failed is not None:  # and could not be undone then
            await told.failed.put_back()
        return told._replace(failed=None)

    def _remember(self, asked: Question, told: _Told) -> None:
        thread_id = _thread_of(asked)
        self._told.pop(thread_id, None)
        if told != _Told(told.beginning):
            self._told[thread_id] = told
            if len(self._told) > _MOST_TOLD:
                self._told.popitem(last=False)


class _Told(NamedTuple):
    """What a thread knows of a memory, whether or not the graph has kept it there."""

    beginning: object
    ids: frozenset[str] | None = None
    """None if this process has not sent it anything."""

    failed: GraphThread | None = None
    """The state before a run that failed; None if none did."""


def _thread_of(asked: Question) -> Any:
    return asked.config["configurable"]["thread_id"]


def _news(
    messages: Sequence[Message], kept: Collection[str], told: Collection[str] | None
) -> list[Message]:
    """The ``messages`` that still have to be sent to a thread that has ``kept``."""
    if not kept:
        return list(messages)
    if told is None:  # not by this process: it had whatever precedes what it has
        known = (place for place, message in enumerate(messages) if message.id in kept)
        first = next(known, None)
        messages = messages[_begun(messages) if first is None else first :]
        told = ()
    news = [each for each in messages if each.id not in told and each.id not in kept]
    last = messages[-1] if messages else None
    if last is not None and last.role == "user" and last.id in kept and last.id not in told:
        # Sent again because its answer is gone: under its old id it would stay at its old place.
        news.append(replace(last, id=new_id()))
    return news


def _structured(state: Any, otherwise: Any) -> Any:
    """The structured response of a LangChain agent that has a response format."""
    answer = state.get(_STRUCTURED) if isinstance(state, Mapping) else None
    return otherwise if answer is None else answer


@contextlib.contextmanager
def _own_thread() -> Iterator[None]:
    """Make a graph use its own thread and checkpointer, even within a node of another graph.

    Otherwise LangGraph would treat it as a subgraph of that one.
    """
    token = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # closed by the collector, in another context
            var_child_runnable_config.reset(token)


def _ids_in(values: Any) -> Collection[str]:
    """The ids of messages that a graph remembers itself."""
    messages = values.get("messages", ()) if isinstance(values, Mapping) else ()
    return {message.id for message in messages if isinstance(message, BaseMessage) and message.id}


def _begun(messages: Sequence[Message]) -> int:
    """Where the messages since the last answer begin; at least behind a system message."""
    places = range(len(messages), 0, -1)
    said = ("assistant", "tool", "system")
    return next((place for place in places if messages[place - 1].role in said), 0)


def _uninterrupted(state: Any) -> Any:
    if isinstance(state, Mapping) and "__interrupt__" in state:
        raise AgentError(
            f"the graph waits for an answer to {state['__interrupt__']!r}, which an agent cannot "
            "give: invoke the graph without an agent, and resume it with Command(resume=...)"
        )
    return state


def _check_ended(state: StateSnapshot) -> None:
    if state.next:
        raise AgentError(
            f"the graph has stopped before {', '.join(map(repr, state.next))}, and an agent cannot "
            "continue it: invoke the graph without an agent"
        )
