"""Trimming: which messages of a conversation are kept when there is no room for all of them.

LangChain's ``trim_messages`` says how many of the newest there is room for. What it does not know
is added here: that others write at the same time, so that the result of a call may be still to
come, or stand apart from it.

- A system message at the very beginning is kept.
- So are the messages that are being written, and the newest turn of tool calls that is open: a
  result is missing, or the assistant has not answered yet. Where these alone exceed the bound, it
  is exceeded by as much, until the turn is over. Older open turns are kept while there is room.
- The rest of the room goes to the newest messages, beginning with a user's or an assistant's.
- A result whose call has gone goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from reprlib import repr as shortened
from typing import Any, TypeAlias

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately, trim_messages

from rxlanggraph.agent.checks import check_whole
from rxlanggraph.agent.messages import Message, to_langchain
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["Bound", "Entries", "TokenCounter", "bounds_of"]

# The messages of a conversation in their order, each under a key of its own.
Entries: TypeAlias = dict[object, Message]
TokenCounter: TypeAlias = "Callable[[list[BaseMessage]], int] | BaseLanguageModel[Any]"

# What is only counted need not be converted: one of a kind stands for all.
_STAND_INS: dict[str, BaseMessage] = {
    "user": HumanMessage(""),
    "assistant": AIMessage(""),
    "tool": ToolMessage("", tool_call_id=""),
    "system": SystemMessage(""),
}


class Bound:
    """How many messages, or tokens, a conversation may have. Immutable; any thread.

    Args:
        limit: That number.
        count: Counts what ``convert`` has made; the user's code, so never called under a lock.
        convert: Makes LangChain messages, one of each.
    """

    def __init__(
        self,
        limit: int,
        count: Callable[[list[BaseMessage]], int],
        convert: Callable[[Sequence[Message]], list[BaseMessage]],
    ) -> None:
        self._limit = limit
        self._count = count
        self._convert = convert

    def fit(self, entries: Entries, written: int = 0) -> Entries:
        """Return ``entries``, or those of them that are kept.

        Any thread; blocks as long as counting does.

        Args:
            entries: A whole conversation.
            written: How many, at its end, are being written.

        Raises:
            Exception: Whatever the counter raised.
        """
        messages = list(entries.values())
        converted = self._convert(messages)
        if self._cost(converted) <= self._limit:
            return entries

        def cost(positions: Iterable[int]) -> int:
            return self._cost([converted[position] for position in sorted(positions)])

        everything = range(len(messages))
        kept = set(everything[max(0, len(messages) - written) :])
        if messages[0].role == "system":
            kept.add(0)
        for older, turn in enumerate(reversed(_open_turns(messages))):
            if older and cost(kept | turn) > self._limit:
                break
            kept |= turn
        free = [position for position in everything if position not in kept]
        room = max(0, self._limit - cost(kept))
        newest = self._newest([converted[position] for position in free], room)
        kept.update(free[len(free) - newest :])
        whole = _whole(messages, kept)
        return {key: entries[key] for position, key in enumerate(entries) if position in whole}

    def _newest(self, messages: list[BaseMessage], room: int) -> int:
        """How many there is room for."""
        start_on = ("human", "ai")
        return len(
            trim_messages(messages, max_tokens=room, token_counter=self._cost, start_on=start_on)
        )

    def _cost(self, messages: list[BaseMessage]) -> int:
        return self._count(messages) if messages else 0


def bounds_of(
    max_messages: int | None, max_tokens: int | None, token_counter: TokenCounter | None
) -> tuple[Bound, ...]:
    """Make the bounds that these arguments of a memory stand for. Any thread; never blocks.

    Raises:
        InvalidArgumentError: A number is out of its range, or there is a counter and nothing to
            count.
        InvalidTypeError: The counter can count nothing.
    """
    bounds = []
    if max_messages is not None:
        check_whole("max_messages", max_messages, least=1)
        bounds.append(Bound(max_messages, len, _stand_ins))
    if max_tokens is not None:
        check_whole("max_tokens", max_tokens, least=1)
        bounds.append(Bound(max_tokens, _counter(token_counter), to_langchain))
    elif token_counter is not None:
        raise InvalidArgumentError("token_counter needs max_tokens: how many may there be?")
    return tuple(bounds)


def _counter(counter: TokenCounter | None) -> Callable[[list[BaseMessage]], int]:
    if counter is None:
        return count_tokens_approximately
    if isinstance(counter, BaseLanguageModel):
        return counter.get_num_tokens_from_messages
    if iscoroutinefunction(counter) or not callable(counter):
        raise InvalidTypeError(
            "token_counter must be a chat model or a plain function of a list of LangChain "
            f"messages, not {shortened(counter)}"
        )
    return counter


def _stand_ins(messages: Sequence[Message]) -> list[BaseMessage]:
    return [_STAND_INS[message.role] for message in messages]


@dataclass(slots=True)
class _ToolTurn:
    """An assistant's message with tool calls, and the results that have come."""

    positions: set[int]
    missing: set[str | None]


def _open_turns(messages: Sequence[Message]) -> list[set[int]]:
    """The positions of each turn of which a result, or the answer to the last one, is to come."""
    turns: list[_ToolTurn] = []
    owners: dict[str | None, _ToolTurn] = {}
    answered = -1
    for position, message in enumerate(messages):
        if message.role == "assistant":
            answered = position
            if message.tool_calls:
                turn = _ToolTurn({position}, set(_call_ids(message)))
                turns.append(turn)
                owners.update(dict.fromkeys(turn.missing, turn))
        elif message.role == "tool" and message.tool_call_id in owners:
            owner = owners[message.tool_call_id]
            owner.positions.add(position)
            owner.missing.discard(message.tool_call_id)
    return [turn.positions for turn in turns if turn.missing or max(turn.positions) > answered]


def _whole(messages: Sequence[Message], kept: set[int]) -> set[int]:
    """The positions ``kept``, without those of results whose calls are not among them."""
    whole = set()
    stayed: dict[str | None, bool] = {}  # by id; where ids come again, the latest call counts
    for position, message in enumerate(messages):
        stays = position in kept
        if message.role == "assistant":
            stayed.update(dict.fromkeys(_call_ids(message), stays))
        elif message.role == "tool":
            stays = stays and stayed.get(message.tool_call_id, True)
        if stays:
            whole.add(position)
    return whole


def _call_ids(message: Message) -> Iterator[str | None]:
    return (call.get("id") for call in message.tool_calls)
