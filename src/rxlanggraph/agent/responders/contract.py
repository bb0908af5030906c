"""The contract of responders: the question of an agent, the answer, and what no answer may have."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from reprlib import repr as shortened
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig

from rxlanggraph.agent.conversation.messages import Message
from rxlanggraph.bridge.chunks import ChunkTarget, StreamMode
from rxlanggraph.errors import AgentError, encodable

__all__ = ["Answer", "OnFailure", "Question", "Responder", "check_calls", "check_text"]

OnFailure: TypeAlias = "Callable[[Callable[[BaseException], Coroutine[Any, Any, None]]], object]"
"""Registers what is to be done if the run does not succeed, given what it raises."""


class Question(NamedTuple):
    """The input of a responder in one step."""

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

    modes: Sequence[StreamMode] = ()
    """LangGraph's modes of the chunks to stream; empty: none."""

    chunks: ChunkTarget | None = None
    """Where the chunks go, if there are modes."""

    arguments: Mapping[str, Any] = MappingProxyType({})
    """LangGraph's other arguments, for a graph."""


class Answer(NamedTuple):
    """The outcome of one step."""

    value: Any
    """The value that `BaseAgent.run` returns."""

    messages: tuple[Message, ...]
    """The messages that are added to the memory."""


class Responder(Protocol):
    """Answers a conversation, or a request that is not one."""

    of_messages: bool
    """Whether requests are messages, which the agent adds to its memory."""

    takes_answers: bool
    """Whether a request may be an answer, ``Command(resume=...)``."""

    @property
    def remembers(self) -> bool:
        """Whether it keeps messages itself, and begins anew when the agent's memory does."""

    def check_modes(self, modes: Sequence[StreamMode]) -> None:
        """Refuse modes of which there are no chunks. Any thread; never blocks.

        Raises:
            InvalidArgumentError: One of them has none.
        """

    async def answer(self, asked: Question) -> Answer:
        """Answer the question. On the loop of the run; can be cancelled."""

    async def begin_anew(self, asked: Question) -> None:
        """Reset the responder's own memory, as the run, which is ending, has reset the agent's."""

    async def forget(self, thread_id: str) -> None:
        """Delete the responder's own memory of ``thread_id``."""


def check_calls(reply: BaseMessage) -> None:
    """Refuse an answer with tool calls: an agent makes none, and some cannot be parsed.

    Raises:
        AgentError: It has some.
    """
    if not isinstance(reply, AIMessage):
        return
    if reply.invalid_tool_calls:
        details = "; ".join(
            f"{call['name']}: {call['error'] or shortened(call['args'])}"
            for call in reply.invalid_tool_calls
        )
        raise AgentError(
            f"the model asks for tools in a form that cannot be read ({details}): ask it again, or "
            "raise its limit of output tokens"
        )
    if reply.tool_calls:
        names = ", ".join(call["name"] for call in reply.tool_calls)
        raise AgentError(
            f"the model asks for tools ({names}), which the agent does not call: give it a graph "
            "that does, such as langchain.agents.create_agent(), or a step of its own"
        )


def check_text(reply: Message) -> None:
    """Refuse text that cannot be encoded: models would reject the conversation ever after.

    Raises:
        AgentError: It cannot.
    """
    parts = [reply.content] if isinstance(reply.content, str) else reply.content
    for part in parts:
        text = part if isinstance(part, str) else part.get("text")
        if isinstance(text, str) and encodable(text) != text:
            raise AgentError(
                f"the answer cannot be encoded: half of a character is in {shortened(text)}; ask "
                "again, or have what splits the model's output into pieces split it elsewhere"
            )
