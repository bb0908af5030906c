"""Every method of a state, while the connection that it would use dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from rxlanggraph.state import QueueStats, State, Task, open_state
from support.servers.relay import End, Moment, Relay

__all__ = [
    "Outcome",
    "call_all",
    "count_through_resets",
    "expected",
    "open_through_death",
    "use_through_deaths",
]


@dataclass
class Outcome:
    """What became of the calls, by the name of the method; and of the one made afterwards."""

    answers: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    afterwards: Any = None


async def _set(state: State) -> bool:
    return await state.set("value", 1) > 0


async def _transact(state: State) -> int:
    async with state.transaction() as transaction:
        missing = await transaction.get("missing")
        transaction.set("other", 3)
    return missing.version


async def _hold(state: State) -> bool:
    async with state.lock("lock") as lease:
        return lease.token > 0


async def _add(state: State) -> int:
    return len(await state.add_tasks("queue", [Task(1, key="a")]))


async def _claim(state: State) -> Any:
    claim = await state.claim_task("claimed")
    return claim and claim.item


# Each method, and what it answers where nothing stands in its way.
CALLS: dict[str, tuple[Callable[[State], Awaitable[Any]], Any]] = {
    "get": (lambda state: state.get("missing"), (None, 0)),
    "set": (_set, True),
    "increment_counter": (lambda state: state.increment_counter("counter", 7), 7),
    "safe_update": (lambda state: state.safe_update("updated", lambda old: 5), 5),
    "transaction": (_transact, 0),
    "delete": (lambda state: state.delete("nothing"), False),
    "lock": (_hold, True),
    "add_tasks": (_add, 1),
    "claim_task": (_claim, "first"),
    "results": (lambda state: state.results("queue"), {}),
    "dead_letters": (lambda state: state.dead_letters("queue"), []),
    "requeue": (lambda state: state.requeue("queue"), 0),
    "stats": (lambda state: state.stats("unused"), QueueStats()),
    "purge": (lambda state: state.purge("queue"), 0),
}


async def _nothing() -> None:
    pass


async def call_all(state: State, before: Callable[[], Awaitable[None]] = _nothing) -> Outcome:
    """Call each method once; before it something is done."""
    outcome = Outcome()
    await state.add_tasks("claimed", ["first"])
    for name, (call, _) in CALLS.items():
        await before()
        try:
            outcome.answers[name] = await call(state)
        except Exception as error:
            outcome.errors[name] = error
    outcome.afterwards = await state.get("missing")
    return outcome


async def use_through_deaths(url: str, moment: Moment, how: End) -> Outcome:
    """Call each method once while its connection dies."""
    async with Relay(url) as relay, open_state(relay.url) as state:

        async def let_it_die() -> None:
            assert relay.has_ended_one(), "the last method has used no connection"
            await state.get("missing")  # so that there is a connection
            await relay.end(moment, how)

        return await call_all(state, let_it_die)


def expected(name: str) -> Any:
    """What the method answers where nothing stands in its way."""
    return CALLS[name][1]


async def count_through_resets(url: str, steps: int) -> list[int]:
    """Count twice after each of some resets, each noticed for one step of the loop more."""
    counted = []
    # A connection that is forgotten by the loop would be waited for during all of a minute.
    async with Relay(url) as relay, open_state(f"{relay.url}?socket_timeout=60") as state:
        for step in range(steps):
            await asyncio.gather(*[state.get("missing") for _ in range(3)])
            await relay.end("idle", "RST", step)
            counted += await asyncio.gather(*[state.increment_counter("n") for _ in range(2)])
    return counted


async def open_through_death(url: str, moment: Moment, how: End) -> Exception | None:
    """What opening a state ends with whose connection dies."""
    async with Relay(url) as relay:
        await relay.end(moment, how)
        try:
            async with open_state(relay.url):
                return None
        except Exception as error:
            return error
