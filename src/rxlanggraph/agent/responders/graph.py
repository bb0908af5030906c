"""The graph that answers for an agent, and the threads that its checkpointer keeps."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from reprlib import repr as shortened
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.types import StateSnapshot

from rxlanggraph.agent.conversation.graph_thread import GraphThread, delete_thread, keeps_threads
from rxlanggraph.agent.conversation.messages import Message, from_langchain, new_id, to_langchain
from rxlanggraph.agent.responders.contract import Answer, Question, check_calls, check_text
from rxlanggraph.bridge.chunks import GraphStream, StreamMode, is_graph
from rxlanggraph.bridge.graphs.interrupts import INTERRUPT, Refusal, ThreadGate, resume_of
from rxlanggraph.bridge.graphs.interrupts import asked as questions_in
from rxlanggraph.errors import (
    AgentError,
    AgentInterruptedError,
    InvalidArgumentError,
    StaleResumeError,
)
from rxlanggraph.messages import StreamMessage

__all__ = ["GraphResponder"]

_MAX_HISTORIES = 1000  # of an agent's threads, the most recently used ones
_STRUCTURED = "structured_response"


class GraphResponder:
    """A compiled graph, called with messages if its state has them, else with the request."""

    takes_answers = True

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        # By thread_id, the most recently used one last. Owned by the active run.
        self._histories: OrderedDict[Any, _ThreadHistory] = OrderedDict()
        self.of_messages = "messages" in getattr(graph, "channels", ())

    @property
    def remembers(self) -> bool:
        """Whether it keeps messages on a thread of its own."""
        return self.of_messages and keeps_threads(self._graph)

    def check_modes(self, modes: Sequence[StreamMode]) -> None:
        """Refuse all, unless it is a compiled graph."""
        if not is_graph(self._graph):
            raise InvalidArgumentError(
                f"stream_mode can only be passed with a compiled LangGraph graph, and "
                f"{self._graph!r} is not one; leave it out"
            )

    async def answer(self, asked: Question) -> Answer:
        """Call the graph with what its thread was not sent yet, or resume it."""
        if keeps_threads(self._graph):
            with _own_thread():
                outcome = await self._answer_on_thread(asked)
        else:
            outcome = await self._ask(asked, asked.messages)
        if isinstance(outcome, AgentInterruptedError):
            raise outcome
        return outcome

    async def _answer_on_thread(self, asked: Question) -> Answer | AgentInterruptedError:
        thread = GraphThread(self._graph, asked.config)
        history = await self._history_of(asked)
        anew = history.ids is not None and history.beginning is not asked.beginning
        resume: Any = None
        if resume_of(asked.request) is not None:
            resume = await self._admit(asked, None if anew else thread)
            rest = await thread.stay()
        else:
            rest = await (thread.begin_anew() if anew else thread.ensure_at_rest())
        outcome: Answer | AgentInterruptedError | None = None

        async def roll_back(error: BaseException) -> None:
            if error is outcome:  # it waits for an answer: the next request may roll it back
                return
            self._remember(asked, history._replace(failed=thread))
            await thread.roll_back()
            self._remember(asked, history)

        asked.on_failure(roll_back)
        kept = () if rest is None else _ids_in(rest.values)
        unsent = () if resume else _unsent(asked.messages, kept, None if anew else history.ids)
        outcome = await self._ask(asked, unsent, kept, thread, resume)
        if isinstance(outcome, Answer) and self.of_messages:
            ids = frozenset(message.id for message in (*asked.messages, *outcome.messages))
            self._remember(asked, _ThreadHistory(asked.beginning, ids))
        return outcome

    async def _ask(
        self,
        asked: Question,
        unsent: Sequence[Message],
        kept: Collection[str] = (),
        thread: GraphThread | None = None,
        resume: Any = None,
    ) -> Answer | AgentInterruptedError:
        sent = {"messages": to_langchain(unsent)} if self.of_messages else asked.request
        earlier = await self._structured_at(thread)
        state = await self._call(asked, resume or sent)
        if isinstance(state, Mapping) and INTERRUPT in state:
            return self._question(asked, questions_in(state))
        if thread is not None:
            _check_ended(await thread.head())
        if earlier is not None and earlier == await self._structured_at(thread):
            state = {key: value for key, value in state.items() if key != _STRUCTURED}
        if not self.of_messages:
            return Answer(state, ())
        if "messages" not in state:  # the graph has a separate output schema
            return Answer(_structured(state, state), ())
        said = from_langchain(state["messages"])
        known = {*kept, *(message.id for message in (*asked.messages, *unsent))}
        last = max((place for place, message in enumerate(said) if message.id in known), default=-1)
        replies = tuple(said[last + 1 :])
        if not replies:
            return Answer(_structured(state, None), ())
        check_calls(state["messages"][-1])
        for reply in replies:
            check_text(reply)
        return Answer(_structured(state, replies[-1].content), replies)

    async def _call(self, asked: Question, sent: Any) -> Any:
        if asked.chunks is None:
            return await self._graph.ainvoke(sent, asked.config, **asked.arguments)
        stream = GraphStream(self._graph, tuple(asked.modes), False)
        return (await stream.run(asked.chunks, sent, asked.config, **asked.arguments)).get()

    async def _admit(self, asked: Question, thread: GraphThread | None) -> Any:
        """Return the answer that the graph is to get; it names its questions.

        Raises:
            StaleResumeError: They are not pending; or the conversation that they are from is over,
                and there is no ``thread`` for it.
        """
        thread_id: str = asked.config["configurable"]["thread_id"]
        if thread is None:
            raise StaleResumeError(
                f"the question of this answer is not pending on thread {thread_id!r}: the agent's "
                "memory was cleared or replaced since it was asked; ask the agent again"
            )
        gate = ThreadGate(self._graph, self._graph.checkpointer, "discard")
        try:
            return await gate.admit(StreamMessage(asked.request, thread_id), asked.config)
        except Refusal as refusal:
            raise refusal.error from None

    def _question(self, asked: Question, interrupts: tuple[Any, ...]) -> AgentInterruptedError:
        thread_id = asked.config["configurable"]["thread_id"]
        named = ", ".join(f"{shortened(each.value)} (id {each.id})" for each in interrupts)
        if keeps_threads(self._graph):
            remedy = "answer with agent.run(Command(resume=...)); another request drops it"
        else:
            remedy = "to answer with Command(resume=...), compile the graph with a checkpointer"
        return AgentInterruptedError(
            f"the graph asks {named} on thread {thread_id!r}; {remedy}",
            interrupts=interrupts,
            thread_id=thread_id,
        )

    async def begin_anew(self, asked: Question) -> None:
        """Reset the thread; at once, since its next run may be one of another agent."""
        history = await self._history_of(asked)
        # Otherwise the run has reset the thread already, and used it since.
        if history.ids is None or history.beginning is not asked.beginning:
            with _own_thread():
                await GraphThread(self._graph, asked.config).begin_anew()
            self._remember(asked, _ThreadHistory(asked.beginning))

    async def forget(self, thread_id: str) -> None:
        """Delete the thread from the checkpointer, if there is one."""
        self._histories.pop(thread_id, None)
        if keeps_threads(self._graph):
            await delete_thread(self._graph.checkpointer, thread_id)

    async def _structured_at(self, thread: GraphThread | None) -> Any:
        """Return a version that changes with each structured response of the thread."""
        if thread is None or not {"messages", _STRUCTURED} <= self._graph.channels.keys():
            return None
        return await thread.version(_STRUCTURED)

    async def _history_of(self, asked: Question) -> _ThreadHistory:
        history = self._histories.get(_thread_of(asked))
        if history is None:
            return _ThreadHistory(asked.beginning)
        if history.failed is not None:  # rolling back failed too, and is tried again
            await history.failed.roll_back()
        return history._replace(failed=None)

    def _remember(self, asked: Question, history: _ThreadHistory) -> None:
        thread_id = _thread_of(asked)
        self._histories.pop(thread_id, None)
        if history != _ThreadHistory(history.beginning):
            self._histories[thread_id] = history
            if len(self._histories) > _MAX_HISTORIES:
                self._histories.popitem(last=False)


class _ThreadHistory(NamedTuple):
    """The messages that a thread was sent, whether or not the graph has them still."""

    beginning: object
    """The beginning of the memory that they are from."""

    ids: frozenset[str] | None = None
    """Their ids; None if this process has not sent any."""

    failed: GraphThread | None = None
    """The thread of a failed run that is still to be rolled back; None if there is none."""


def _thread_of(asked: Question) -> Any:
    return asked.config["configurable"]["thread_id"]


def _unsent(
    messages: Sequence[Message], kept: Collection[str], sent: Collection[str] | None
) -> list[Message]:
    """The ``messages`` that must be sent to a thread.

    Args:
        messages: The agent's memory.
        kept: The ids of the messages that the thread has.
        sent: The ids of the messages that it was sent; None if they are not known, because another
            process has sent them.
    """
    if not kept:
        return list(messages)
    if sent is None:  # assume that it was sent all messages before the first that it has
        known = (place for place, message in enumerate(messages) if message.id in kept)
        first = next(known, None)
        messages = messages[_after_last_answer(messages) if first is None else first :]
        sent = ()
    unsent = [each for each in messages if each.id not in sent and each.id not in kept]
    last = messages[-1] if messages else None
    if last is not None and last.role == "user" and last.id in kept and last.id not in sent:
        # Asked again, since its answer is lost: under its old id it would stay in its old place.
        unsent.append(replace(last, id=new_id()))
    return unsent


def _structured(state: Any, otherwise: Any) -> Any:
    """The structured response of a LangChain agent that has a response format."""
    answer = state.get(_STRUCTURED) if isinstance(state, Mapping) else None
    return otherwise if answer is None else answer


@contextlib.contextmanager
def _own_thread() -> Iterator[None]:
    """Make a graph use its own thread and checkpointer, even within a node of another graph.

    Otherwise LangGraph would treat it as a subgraph of the other graph.
    """
    token = var_child_runnable_config.set(None)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # closed by the collector, in another context
            var_child_runnable_config.reset(token)


def _ids_in(values: Any) -> Collection[str]:
    """The ids of the messages in the state of a graph."""
    messages = values.get("messages", ()) if isinstance(values, Mapping) else ()
    return {message.id for message in messages if isinstance(message, BaseMessage) and message.id}


def _after_last_answer(messages: Sequence[Message]) -> int:
    """The place of the first message after the last answer, or after the system message."""
    places = range(len(messages), 0, -1)
    said = ("assistant", "tool", "system")
    return next((place for place in places if messages[place - 1].role in said), 0)


def _check_ended(state: StateSnapshot) -> None:
    if state.next:
        raise AgentError(
            f"the graph has stopped before {', '.join(map(repr, state.next))}, and an agent cannot "
            "continue it: invoke the graph without an agent"
        )
