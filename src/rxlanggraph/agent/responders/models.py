"""Responders without a memory of their own: chat models, other Runnables, and async functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from rxlanggraph.agent.conversation.messages import Message, to_langchain
from rxlanggraph.agent.responders.contract import Answer, Question, check_calls, check_text
from rxlanggraph.bridge.chunks import StreamMode, streamed_sum
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["FunctionResponder", "ModelResponder"]


class _Stateless:
    """A responder that gets the whole conversation each time."""

    of_messages = True
    takes_answers = False
    remembers = False

    async def begin_anew(self, asked: Question) -> None:
        """Do nothing: this responder has no memory of its own."""

    async def forget(self, thread_id: str) -> None:
        """Do nothing: this responder has no memory of its own."""


class ModelResponder(_Stateless):
    """A chat model, or any Runnable over a list of LangChain messages."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def check_modes(self, modes: Sequence[StreamMode]) -> None:
        """Accept tokens alone, of what can stream them."""
        if set(modes) != {"messages"} or not hasattr(self._model, "astream"):
            raise InvalidArgumentError(
                f"stream_mode must be 'messages', the tokens, for {self._model!r}, not "
                f"{', '.join(map(repr, modes))}: only a graph has other modes"
            )

    async def answer(self, asked: Question) -> Answer:
        """Call the model with the conversation."""
        messages = to_langchain(asked.messages)
        if asked.chunks is None:
            return _reply(await self._model.ainvoke(messages, asked.config))
        put, metadata = asked.chunks.put, dict(asked.config.get("metadata") or {})
        stream = self._model.astream(messages, asked.config)
        # As LangGraph has it in this mode: each token with the metadata of the call.
        return _reply(
            await streamed_sum(stream, lambda token: put((token, metadata), "messages", ()))
        )


class FunctionResponder(_Stateless):
    """An async function of the messages."""

    def __init__(self, function: Callable[[Sequence[Message]], Any]) -> None:
        self._function = function

    def check_modes(self, modes: Sequence[StreamMode]) -> None:
        """Refuse all: a function has no chunks."""
        raise InvalidArgumentError(
            f"stream_mode cannot be passed for {self._function!r}: an async function has no "
            "chunks; leave it out, or give the agent a chat model or a graph"
        )

    async def answer(self, asked: Question) -> Answer:
        """Call the function with the conversation."""
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
    elif isinstance(reply, BaseMessage) or _is_message_mapping(reply):
        reply = Message.of(reply)
    if not isinstance(reply, Message):  # a chain with a parser answers with something else
        return Answer(reply, ())
    check_calls(*to_langchain([reply]))
    check_text(reply)
    return Answer(reply.content, (reply,))


def _is_message_mapping(reply: Any) -> bool:
    """Whether ``reply`` is a message as a mapping, rather than any other mapping."""
    if not isinstance(reply, Mapping) or not {"role", "content"} <= reply.keys():
        return False
    try:
        Message.of(reply)
    except (InvalidArgumentError, InvalidTypeError):
        return False
    return True
