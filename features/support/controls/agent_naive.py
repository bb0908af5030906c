"""Naive ways to keep an agent's state and memory: controls that show that scenarios can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from reactivex import Subject

from rxlanggraph.agent import AgentState, Message, Transition
from support.controls.naive import CheckedLock

__all__ = [
    "BareMemory",
    "CutMemory",
    "LockedMemory",
    "LockedState",
    "PlainLockState",
    "PublishedState",
    "SavedState",
    "TailMemory",
]


class SavedState:
    """The state is saved when a block is entered, and put back when it is left."""

    def __init__(self) -> None:
        self.state = AgentState.IDLE

    @contextmanager
    def context(self, state: AgentState) -> Iterator[None]:
        before = self.state
        self.state = state
        yield
        self.state = before


class LockedState:
    """A state is locked for the whole of its block."""

    def __init__(self) -> None:
        self.state = AgentState.IDLE
        self._locks = {state: asyncio.Lock() for state in AgentState}

    @asynccontextmanager
    async def context(self, state: AgentState) -> AsyncIterator[None]:
        async with self._locks[state]:
            before, self.state = self.state, state
            try:
                yield
            finally:
                self.state = before


class PublishedState:
    """Changes are published through RxPY's Subject, in the thread that makes them."""

    def __init__(self) -> None:
        self.state = AgentState.IDLE
        self.changes: Subject[Transition] = Subject()

    @contextmanager
    def context(self, state: AgentState) -> Iterator[None]:
        before = self.state
        self._change(state)
        yield
        self._change(before)

    def _change(self, state: AgentState) -> None:
        before, self.state = self.state, state
        self.changes.on_next(Transition(before, state, 0.0))


class PlainLockState:
    """Every change under a lock that its holder cannot take again."""

    def __init__(self) -> None:
        self._lock = CheckedLock()
        self._open: list[AgentState] = []

    @contextmanager
    def context(self, state: AgentState) -> Iterator[None]:
        with self._lock:
            self._open.append(state)
        yield
        with self._lock:
            self._open.remove(state)


class BareMemory:
    """A list; what is added waits for something before it is there, as with any storage."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def add_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._messages.append(message)
            await asyncio.sleep(0)

    def get_messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)


class LockedMemory(BareMemory):
    """The same under an asyncio.Lock, which belongs to the loop that first waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = asyncio.Lock()

    async def add_all(self, messages: Iterable[Message]) -> None:
        async with self._lock:
            await super().add_all(messages)


class CutMemory:
    """Bounded now and then: what was read is written back, cut."""

    def __init__(self, texts: str) -> None:
        self.messages = list(texts)

    def add(self, message: str) -> None:
        self.messages.append(message)

    def trim(self) -> None:
        kept = self.messages[-2:]
        self.messages = kept


class TailMemory:
    """Bounded by keeping the end of the list."""

    def __init__(self, max_messages: int) -> None:
        self._max_messages = max_messages
        self._messages: list[Message] = []

    def add(self, message: Message) -> None:
        self._messages = [*self._messages, message][-self._max_messages :]

    def add_all(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.add(message)

    def get_messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)
