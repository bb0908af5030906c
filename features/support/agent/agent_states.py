"""State machines under load, and a machine about which everything is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

from rxlanggraph.agent import AgentState, StateMachine, Transition, state_machine
from rxlanggraph.rx import serialized_observer, serialized_subject
from support.concurrency.entering import Enterable
from support.concurrency.waiting import in_threads
from support.controls import agent_naive

__all__ = [
    "ENTERABLE",
    "KINDS",
    "check_chain",
    "nest",
    "storm",
    "turns",
]

IDLE, THINKING, RUNNING, FINISHED, ERROR = AgentState
KINDS: dict[str, Callable[[], Any]] = {
    "a state machine": lambda: StateMachine("alice"),
    "a state that is saved and restored": agent_naive.SavedState,
    "a state that is locked while it is on": agent_naive.LockedState,
    "a state published through a Subject": agent_naive.PublishedState,
    "a state under a plain lock": agent_naive.PlainLockState,
}
TURNS = 100
"""Of a loop. More than anything takes that does not wait for good."""


def turns() -> Iterator[object]:
    """To be awaited one by one: what is on the loop has then had all the turns it can use."""
    for _ in range(TURNS):
        yield asyncio.sleep(0)


async def nest(machine: Any, outer: AgentState, inner: AgentState, inside: asyncio.Barrier) -> None:
    async with machine.context(outer):
        await inside.wait()
        async with machine.context(inner):
            await asyncio.sleep(0)


def storm(machine: StateMachine, threads: int, tasks: int, blocks: int) -> None:
    """Blocks in blocks, entered and left at once in tasks of loops of threads."""

    async def one(number: int) -> None:
        outer, inner = ((RUNNING, THINKING), (THINKING, RUNNING))[number % 2]
        for _ in range(blocks // 2):
            async with machine.context(outer):
                await asyncio.sleep(0)
                with machine.context(inner if number % 3 else FINISHED):
                    assert machine.state in (RUNNING, THINKING, FINISHED)
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(tasks)))

    in_threads(threads, lambda _: asyncio.run(main()))


def check_chain(history: Iterable[Transition]) -> None:
    history = list(history)
    assert history and history[0].before is IDLE, history[:1]
    assert all(each.before is not each.after for each in history)
    for before, after in pairwise(history):
        assert before.after is after.before, (before, after)
        assert before.at <= after.at, (before, after)
    assert all((each.cause is not None) == (each.after is ERROR) for each in history)


class Known:
    """A machine with a block of RUNNING that is open, and an observer who was told everything."""

    def __init__(self) -> None:
        self.machine = StateMachine("known", history=1000)
        self.told: list[Transition] = []
        self.machine.changes.subscribe(self.told.append)
        self.open = self.machine.context(RUNNING)
        self.open.__enter__()
        self.entered: list[Any] = []

    def enter(self) -> None:
        context = self.machine.context(THINKING)
        context.__enter__()
        self.entered.append(context)

    def leave(self, error: Exception | None = None) -> None:
        self.open.__exit__(type(error) if error else None, error, None)
        assert self.open not in self.machine._open

    def use_everything(self) -> None:
        """What comes in: it ends an ERROR, and leaves a block open behind it."""
        machine = self.machine
        late: list[Transition] = []
        subscription = machine.changes.subscribe(late.append)
        with machine.context(THINKING):
            assert machine.state in (THINKING, ERROR), machine.state
            machine.fail(KeyError("from inside"))
            assert machine.state is ERROR
            machine.reset()
            assert machine.state is THINKING, machine.state
        machine.history()
        subscription.dispose()
        self.enter()

    def check(self) -> None:
        machine = self.machine
        assert machine.history()[-1].after is machine.state, (machine.history(), machine.state)
        for context in self.entered:
            assert machine.state in (THINKING, ERROR), machine.state
            context.__exit__(None, None, None)
        self.open.__exit__(None, None, None)
        assert machine.state in (IDLE, ERROR), machine.state
        machine.reset()
        assert machine.state is IDLE and machine._open == [], machine._open
        check_chain(machine.history())
        assert machine.history()[-1].after is IDLE
        assert self.told == list(machine.history()), self.told


ENTERABLE = Enterable(
    files={state_machine.__file__, serialized_subject.__file__, serialized_observer.__file__},
    make=lambda _: Known(),
    entries={"uses all of it": (Known.use_everything, Known.check)},
    operations={
        "entering a block": Known.enter,
        "leaving a block": Known.leave,
        "leaving it by an error": lambda known: known.leave(ValueError("an error")),
        "failing": lambda known: known.machine.fail(ValueError("an error")),
        "resetting": lambda known: known.machine.reset(),
        "reading the history": lambda known: known.machine.history(),
        "subscribing": lambda known: known.machine.changes.subscribe(lambda _: None),
    },
)
