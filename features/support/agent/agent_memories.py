"""Memories about which everything is known: talked to at random, interrupted, left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from rxlanggraph.agent import Memory, Message
from rxlanggraph.agent.conversation import memory as memory_module
from support.agent.agent_talk import call_ids, calling, check_tools, check_whole, turn_of
from support.concurrency.entering import Enterable
from support.concurrency.raising import error_of
from support.concurrency.waiting import Gate

__all__ = ["ENTERABLE", "Late", "RandomTalk", "Words"]

# -- at random -------------------------------------------------------------------------------------


class Words:
    """Counts words; raises, or does something else first, when told to."""

    def __init__(self) -> None:
        self.counted = 0
        self.error: Exception | None = None
        self.first: Callable[[], object] | None = None

    def __call__(self, messages: list[BaseMessage]) -> int:
        self.counted += 1
        first, self.first = self.first, None
        if first is not None:
            first()
        if self.error is not None:
            raise self.error
        return sum(len(str(message.content).split()) for message in messages)


class RandomTalk:
    """A conversation with tools in any order, and what a memory of it must show."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.limit = self._chance.randint(1, 8)
        self.memory = Memory(max_messages=self.limit)
        self.added: list[Message] = []
        self._open: dict[str, Message] = {}  # by id of a call that has no result yet
        self._last_call: Message | None = None
        self._late: set[str] = set()  # ids of results that came when their call had gone

    def steps(self, count: int) -> None:
        for number in range(count):
            self._step(number)
            self.check(self.memory.get_messages())

    def _step(self, number: int) -> None:
        does = self._chance.choice(["user", "assistant", "call", "result", "result", "turn"])
        if number == 0 and self._chance.random() < 0.3:
            self._add(Message("system", "be nice"))
        elif does == "call":
            ids = [f"{number}-{each}" for each in range(self._chance.randint(1, 3))]
            self._last_call = calling(*ids)
            self._add(self._last_call)
            self._open |= dict.fromkeys(ids, self._last_call)
        elif does == "result" and self._open:
            answered = self._chance.choice(list(self._open))
            result = Message("tool", "result", tool_call_id=answered)
            if self._open.pop(answered) not in self.memory.get_messages():
                self._late.add(result.id)
            self._add(result)
        elif does == "turn":
            turn = turn_of(str(number))
            self._last_call = turn[0]
            self._add(*turn)
        else:
            self._add(Message("user" if does == "user" else "assistant", "text"))

    def _add(self, *messages: Message) -> None:
        self.added += messages
        self.memory.add_all(messages)

    def _newest_turn(self) -> list[Message]:
        """That of the last call, if a result or the answer is to come."""
        call = self._last_call
        if call is None:
            return []
        since = self.added[self.added.index(call) + 1 :]
        turn = [call, *(each for each in since if each.tool_call_id in call_ids(call))]
        after = self.added[self.added.index(turn[-1]) + 1 :]
        answered = any(message.role == "assistant" for message in after)
        return [] if answered and call not in self._open.values() else turn

    def _asked(self, turn: Sequence[Message]) -> list[Message]:
        """What the user has said last, before ``turn`` if there is one."""
        said = self.added[: self.added.index(turn[0])] if turn else self.added
        return [each for each in said if each.role == "user"][-1:]

    def check(self, shown: Sequence[Message]) -> None:
        positions = [self.added.index(message) for message in shown]
        assert positions == sorted(set(positions)), positions
        turn = self._newest_turn()
        system = [each for each in self.added[:1] if each.role == "system"]
        assert all(each in shown for each in (*system, *turn)), (shown, turn)
        needed = {*system, *turn, *self._asked(turn), *self._asked([])}
        assert len(shown) <= max(self.limit, len(needed)), (self.limit, shown)
        first = next((each for each in shown if each.role != "system"), None)
        assert not first or first.role == "user" or not self._asked([first]), shown
        known = [each for each in self.added if each.id not in self._late]
        check_tools([each for each in shown if each.id not in self._late], known)


# -- interruptions ---------------------------------------------------------------------------------


class KnownMemory:
    """A bounded memory that is over its bound, and all that must be in it."""

    def __init__(self) -> None:
        self.memory = Memory(max_messages=8)
        self.memory.load(Message("user", f"before {number}") for number in range(10))
        self.turn = self.memory.turn()
        self.turn.add_all(turn_of("staged"))
        self.pieces: list[Sequence[Message]] = []  # each of which is there as a whole
        self.either: list[Sequence[Message]] = []  # each of which is there as a whole or not at all
        self.gone: list[Message] = []

    def add(self, *messages: Message) -> None:
        self.memory.add_all(messages)
        self.pieces.append(messages)

    def load(self) -> None:
        loaded = [Message("user", "loaded")]
        self.memory.load(loaded)
        self.pieces.append(loaded)
        for came_in in self.entered:
            self.pieces.remove(came_in)
            self.either.append(came_in)

    def commit(self) -> None:
        staged = list(self.turn._stage._entries.values())
        self.turn.commit()
        self.pieces.append(staged)

    def end_block(self) -> None:
        staged = list(self.turn._stage._entries.values())
        with self.turn:
            pass
        self.pieces.append(staged)

    def discard(self) -> None:
        self.gone = list(self.turn._stage._entries.values())
        self.turn.discard()

    @property
    def entered(self) -> list[Sequence[Message]]:
        return [piece for piece in self.pieces if piece[0].content == "entered"]

    def use_everything(self) -> None:
        pair = [Message("user", "entered"), Message("user", "entered")]
        self.memory.add_all(pair)
        self.pieces.append(pair)
        assert contains(self.memory.get_messages(), pair)
        with self.memory.turn():
            one = Message("user", "entered")
            self.memory.add(one)
            assert self.memory.get_messages()[-1] is one
        self.pieces.append([one])
        assert len(self.memory) <= 8
        self.memory.to_langchain()
        self.turn.get_messages()

    def check(self) -> None:
        shown = self.memory.get_messages()
        assert len(shown) <= 8 and len(set(shown)) == len(shown), shown
        assert all(contains(shown, piece) for piece in self.pieces), (self.pieces, shown)
        for piece in self.either:
            assert contains(shown, piece) or not set(piece) & set(shown), (piece, shown)
        assert not set(self.gone) & set(shown), (self.gone, shown)

    def check_cleared(self) -> None:
        shown = self.memory.get_messages()
        assert not [each for each in shown if str(each.content).startswith("before")], shown
        check_whole(shown)


def contains(messages: Sequence[Message], piece: Iterable[Message]) -> bool:
    """Whether ``piece`` is there, with nothing between."""
    piece = list(piece)
    places = range(len(messages) - len(piece) + 1)
    return any(list(messages[place : place + len(piece)]) == piece for place in places)


ENTERABLE = Enterable(
    files={memory_module.__file__},
    make=lambda _: KnownMemory(),
    entries={
        "uses all of it": (KnownMemory.use_everything, KnownMemory.check),
        "clears it": (lambda known: known.memory.clear(), KnownMemory.check_cleared),
    },
    operations={
        "adding to": lambda known: known.add(Message("user", "added")),
        "adding a turn to": lambda known: known.add(*turn_of("added")),
        "looking at": lambda known: known.memory.get_messages(),
        "loading": KnownMemory.load,
        "committing to": KnownMemory.commit,
        "ending a block of": KnownMemory.end_block,
        "discarding from": KnownMemory.discard,
    },
)


# -- left behind -----------------------------------------------------------------------------------


class Late:
    """Code that a turn has left behind, and that goes on when the turn is over."""

    def __init__(self, memory: Memory) -> None:
        self.error: Exception | None = None
        self._memory = memory
        self._over = Gate()
        self._added = Gate()

    async def leave_behind(self, where: str, *, fail: bool) -> None:
        left: asyncio.Future[Any] | None = None
        try:
            with self._memory.turn():
                self._memory.add("in time")
                if where == "a callback":
                    asyncio.get_running_loop().call_soon(self._add)
                else:
                    left = asyncio.ensure_future(self._in_task(in_thread=where == "a thread"))
                    await asyncio.sleep(0)
                if fail:
                    raise LookupError
        except LookupError:
            pass
        self._over.open()
        await self._added.wait_async()
        if left is not None:
            await left

    async def _in_task(self, *, in_thread: bool) -> None:
        if in_thread:
            await asyncio.to_thread(lambda: (self._over.wait(), self._add()))
        else:
            await self._over.wait_async()
            self._add()

    def _add(self) -> None:
        self.error = error_of(lambda: self._memory.add("late"))
        self._added.open()
