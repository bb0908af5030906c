"""Messages into an agent's memory, and changes of its state.

The messages are made beforehand, as theirs is a cost that all sides share. The peers of the memory
hold messages, and that is all: a list under a lock knows neither turns nor bounds; one under an
`asyncio.Lock` has tasks of one loop in the place of threads, which it could not hold off.

A block of a state is two transitions. The floor remembers which blocks are open, under a lock; it
checks, records and publishes nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from rxlanggraph.agent import AgentState, Memory, Message, StateMachine

from .harness import DEADLINE, Ratio, paired

MESSAGES = 40_000
BLOCKS = 10_000


class ListAndLock:
    """The least that threads can add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[Message] = []

    def add(self, message: Message) -> None:
        with self._lock:
            self._messages.append(message)

    def __len__(self) -> int:
        return len(self._messages)


class AsyncioLock:
    """The least that tasks of one loop can add to."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._messages: list[Message] = []

    async def add(self, message: Message) -> None:
        async with self._lock:
            self._messages.append(message)

    def __len__(self) -> int:
        return len(self._messages)


class BareStates:
    """The least that knows which block was entered last, and is still open."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: list[BareBlock] = []

    def context(self, state: AgentState) -> BareBlock:
        return BareBlock(self, state)


class BareBlock:
    """What is open is on the list from enter to exit."""

    __slots__ = ("_states", "state")

    def __init__(self, states: BareStates, state: AgentState) -> None:
        self._states = states
        self.state = state

    def __enter__(self) -> None:
        with self._states.lock:
            self._states.open.append(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._states.lock:
            self._states.open.remove(self)


def messages(count: int) -> list[Message]:
    """Make so many messages of the user."""
    return [Message("user", "a question of medium length, as they are") for _ in range(count)]


def from_threads(memory: Any, threads: int, made: Sequence[Message]) -> None:
    """Add them from so many threads at once, and insist that all are there."""
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        add = memory.add
        together.wait(DEADLINE)
        for message in made[number::threads]:
            add(message)

    others = [threading.Thread(target=work, args=(number,)) for number in range(1, threads)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join(DEADLINE)
    _insist(memory, made)


def from_tasks(memory: Any, tasks: int, made: Sequence[Message]) -> None:
    """Add them from so many tasks of one loop, and insist that all are there."""

    async def work(number: int) -> None:
        add = memory.add
        for message in made[number::tasks]:
            await add(message)

    async def main() -> None:
        await asyncio.gather(*[work(number) for number in range(tasks)])

    asyncio.run(main())
    _insist(memory, made)


def _insist(memory: Any, made: Sequence[Message]) -> None:
    if len(memory) != len(made):
        raise AssertionError(f"{len(made)} messages went in, {len(memory)} are there")


def fill(peer: str, writers: int, made: Sequence[Message]) -> None:
    """Add them to a new memory of this kind, from so many threads or tasks."""
    make, way = PEERS[peer]
    way(make(), writers, made)


Way = Callable[[Any, int, Sequence[Message]], None]
#: What a peer is called in the results.
PEERS: dict[str, tuple[Callable[[], Any], Way]] = {
    "memory": (Memory, from_threads),
    "list-and-lock": (ListAndLock, from_threads),
    "asyncio-lock": (AsyncioLock, from_tasks),
}


def memory_ratio(peer: str, writers: int, *, pairs: int = 11, count: int = MESSAGES) -> Ratio:
    """Messages into the memory, from so many threads, over those into a peer."""
    made = messages(count)
    return paired(
        lambda: fill("memory", writers, made),
        lambda: fill(peer, writers, made),
        pairs=pairs,
        items=count,
    )


def change(machine: Any, blocks: int = BLOCKS) -> None:
    """Enter and leave so many blocks, one within the other by twos."""
    context = machine.context
    for _ in range(blocks // 2):
        with context(AgentState.RUNNING), context(AgentState.THINKING):
            pass


def state_ratio(*, pairs: int = 11, count: int = BLOCKS) -> Ratio:
    """A transition of the state machine over one of the floor."""
    ours, floor = StateMachine("measured"), BareStates()
    return paired(
        lambda: change(ours, count), lambda: change(floor, count), pairs=pairs, items=2 * count
    )


class IntoMemory:
    """Seconds for so many messages, by peer and by number of threads (or tasks)."""

    params = (list(PEERS), [1, 8])
    param_names = ("peer", "writers")
    timeout = 300
    number = 1
    warmup_time = 0

    def setup(self, peer: str, writers: int) -> None:
        self.made = messages(MESSAGES)

    def time_fill(self, peer: str, writers: int) -> None:
        fill(peer, writers, self.made)


class IntoMemoryRatio:
    """The memory over each peer, in pairs."""

    params = (["list-and-lock", "asyncio-lock"], [1, 8])
    param_names = ("peer", "writers")
    timeout = 600
    unit = "ratio"

    def track_fill(self, peer: str, writers: int) -> float:
        return memory_ratio(peer, writers).value


class States:
    """Seconds for so many blocks, by peer; and the machine over the floor."""

    timeout = 300
    number = 1
    warmup_time = 0

    def setup(self) -> None:
        self.ours = StateMachine("measured")
        self.floor = BareStates()

    def time_machine(self) -> None:
        change(self.ours)

    def time_floor(self) -> None:
        change(self.floor)

    def track_ratio(self) -> float:
        return state_ratio().value


States.track_ratio.unit = "ratio"  # type: ignore[attr-defined]
