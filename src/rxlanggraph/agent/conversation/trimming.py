"""Trimming: the messages of a conversation that are kept when there is no room for all.

Model providers must accept the rest if they accept the whole. They refuse a conversation that does
not begin with the user, a result without its call, and a call without its results. Messages are
added concurrently, so the result of a call may not be there yet, or not directly follow the call.

- A system message at the very beginning is kept, and so is the user's last message.
- A call and its results are one unit, also as Anthropic's blocks, and are kept or dropped together.
  A result without its call goes with it.
- Messages being written are kept, and so is the newest open turn of tool calls: one that lacks a
  result, or the assistant's answer. If these alone exceed the limit, it is exceeded until the turn
  is over. Older open turns are kept while there is room.
- The rest of the room goes to the newest units.
- The first message kept is the user's: if need be the request that the kept messages answer,
  without the messages in between. This does not apply if there is no message of the user.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from itertools import islice, takewhile
from reprlib import repr as shortened
from typing import Any, TypeAlias

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from rxlanggraph.agent.conversation.messages import Message, to_langchain
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.validation import check_whole

__all__ = ["Entries", "TokenCounter", "TrimLimit", "make_limits"]

# The messages of a conversation in order, each under a key of its own.
Entries: TypeAlias = dict[object, Message]
TokenCounter: TypeAlias = "Callable[[list[BaseMessage]], int] | BaseLanguageModel[Any]"

# For counting alone, messages need not be converted: one of each kind stands for all.
_STAND_INS: dict[str, BaseMessage] = {
    "user": HumanMessage(""),
    "assistant": AIMessage(""),
    "tool": ToolMessage("", tool_call_id=""),
    "system": SystemMessage(""),
}


class TrimLimit:
    """A limit on the messages, or the tokens, of a conversation. Immutable; any thread.

    Args:
        limit: The maximum number.
        count: Counts the messages that ``convert`` returns; user code, never called under a lock.
        convert: Makes LangChain messages, one for each message.
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
        """Return ``entries``, or the part of them that is kept.

        Any thread; blocks as long as counting does.

        Args:
            entries: A whole conversation.
            written: The number of messages at its end that are being written.

        Raises:
            Exception: Whatever the counter raised.
        """
        messages = list(entries.values())
        converted = self._convert(messages)
        fits = self._cost(converted) <= self._limit
        if fits and not _has_strays(messages):
            return entries
        units = _units(messages)

        def cost(kept: Iterable[int]) -> int:
            places = sorted(place for each in kept for place in units[each].places)
            return self._cost([converted[place] for place in places])

        everything = range(len(units))
        kept = set(everything)
        if not fits:
            kept = self._needed(units, len(messages) - written, cost)
            free = [each for each in everything if each not in kept]
            newest = bisect_right(
                range(1, len(free) + 1),
                self._limit,
                key=lambda count: cost({*kept, *free[len(free) - count :]}),
            )
            kept = self._begin_with_user(units, kept, {*kept, *free[len(free) - newest :]}, cost)
        places = {place for each in kept for place in units[each].places}
        return {key: entries[key] for place, key in enumerate(entries) if place in places}

    def _needed(self, units: Sequence[_Unit], written: int, cost: _Cost) -> set[int]:
        """The units that must be kept, and older open turns while there is room."""
        needed = {each for each, unit in enumerate(units) if max(unit.places) >= written}
        if units and units[0].role == "system":
            needed.add(0)
        asks = (each for each in _newest_first(units) if units[each].role == "user")
        needed.update(islice(asks, 1))
        needed = _answering(units, needed)
        for older, turn in enumerate(each for each in _newest_first(units) if units[each].open):
            more = _answering(units, {*needed, turn})
            if older and cost(more) > self._limit:
                break
            needed = more
        return needed

    def _begin_with_user(
        self, units: Sequence[_Unit], needed: set[int], kept: set[int], cost: _Cost
    ) -> set[int]:
        """Make ``kept`` begin with the user: with the request that it answers, or a later one."""
        if all(unit.role != "user" for unit in units):
            return kept
        spoken = [each for each in sorted(kept) if each or units[0].role != "system"]
        free = list(takewhile(lambda each: each not in needed, spoken))

        def without(dropped: int) -> set[int] | None:
            more = _answering(units, kept.difference(free[:dropped]))
            first = _first(units, more)
            begins = first is None or (units[first].role == "user" and cost(more) <= self._limit)
            return more if begins else None

        # If so many do, so do more: they cost less, or begin with a request that was among them.
        least = bisect_left(range(len(free)), True, key=lambda count: without(count) is not None)
        return without(least) or kept.difference(free)

    def _cost(self, messages: list[BaseMessage]) -> int:
        return self._count(messages) if messages else 0


def make_limits(
    max_messages: int | None, max_tokens: int | None, token_counter: TokenCounter | None
) -> tuple[TrimLimit, ...]:
    """Make the limits for these arguments of a memory. Any thread; never blocks.

    Raises:
        InvalidArgumentError: A number is out of range, or ``token_counter`` is given without
            ``max_tokens``.
        InvalidTypeError: ``token_counter`` is neither a plain function nor a chat model.
    """
    limits = []
    if max_messages is not None:
        check_whole("max_messages", max_messages, least=1)
        limits.append(TrimLimit(max_messages, len, _stand_ins))
    if max_tokens is not None:
        check_whole("max_tokens", max_tokens, least=1)
        limits.append(TrimLimit(max_tokens, _counter(token_counter), to_langchain))
    elif token_counter is not None:
        raise InvalidArgumentError("token_counter needs max_tokens; pass both, or neither")
    return tuple(limits)


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
class _Unit:
    """A message; or an assistant's message with tool calls, and the results that have come."""

    role: str
    places: list[int]
    missing: set[str]  # ids of calls without a result
    open: bool = False


# The cost of some of the units.
_Cost: TypeAlias = Callable[[Iterable[int]], int]


def _units(messages: Sequence[Message]) -> list[_Unit]:
    """The units, in the order in which they begin. Results without their calls are in none."""
    units: list[_Unit] = []
    owners: dict[str, _Unit] = {}  # by id of a call; if an id recurs, the latest counts
    answered = -1
    for place, message in enumerate(messages):
        results = set(_result_ids(message))
        if results:
            owner = next((owners[each] for each in results if each in owners), None)
            if owner is not None:
                owner.places.append(place)
                owner.missing -= results
            continue
        if message.role == "assistant":
            answered = place
        unit = _Unit(message.role, [place], set(_call_ids(message)))
        unit.open = bool(unit.missing)
        owners.update(dict.fromkeys(unit.missing, unit))
        units.append(unit)
    for unit in units:
        unit.open = unit.open and bool(unit.missing or unit.places[-1] > answered)
    return units


def _has_strays(messages: Sequence[Message]) -> bool:
    """Whether there are results without their calls. Fast: checked at each read."""
    calls: set[str] = set()
    for message in messages:
        if message.role == "assistant":
            calls.update(_call_ids(message))
        elif message.role == "tool" or not isinstance(message.content, str):
            results = set(_result_ids(message))
            if results and calls.isdisjoint(results):
                return True
    return False


def _newest_first(units: Sequence[_Unit]) -> Iterable[int]:
    return reversed(range(len(units)))


def _first(units: Sequence[_Unit], kept: set[int]) -> int | None:
    """The first unit after a system message."""
    return min((each for each in kept if each or units[0].role != "system"), default=None)


def _answering(units: Sequence[_Unit], kept: set[int]) -> set[int]:
    """``kept``, with the user's message that the first of them answers, if there is one."""
    first = _first(units, kept)
    if first is None:
        return kept
    asked = next((each for each in range(first, -1, -1) if units[each].role == "user"), None)
    return kept if asked is None else {*kept, asked}


def _call_ids(message: Message) -> Iterator[str]:
    if message.role == "assistant":
        unreadable = message.extra.get("invalid_tool_calls", ())  # sent and answered too
        for call in (*message.tool_calls, *unreadable, *_blocks(message, "tool_use")):
            if call.get("id") is not None:
                yield call["id"]


def _result_ids(message: Message) -> Iterator[str]:
    if message.tool_call_id is not None:
        yield message.tool_call_id
    if message.role in ("tool", "user"):
        for block in _blocks(message, "tool_result"):
            if block.get("tool_use_id") is not None:
                yield block["tool_use_id"]


def _blocks(message: Message, kind: str) -> Iterator[dict[str, Any]]:
    if not isinstance(message.content, str):
        for block in message.content:
            if isinstance(block, dict) and block.get("type") == kind:
                yield block
