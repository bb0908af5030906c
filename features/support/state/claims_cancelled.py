"""Claims that are cancelled while the database does them, held up at a place that is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any
from unittest import mock

import redis

from rxlanggraph.state import State, open_state
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession
from support.concurrency.tasks import PATIENCE, pass_turns
from support.servers.sql_servers import ACTIVITY, WAITING, until
from support.state.sql_ways import plain

__all__ = ["cancel_after_turns", "cancel_while", "cancel_while_closing", "gate_after"]

WORKERS = 3
# By then it is thousands of turns.
ROUNDS = 120

# Makes the calls, and holds them up for a block.
_Held = Callable[[State, Callable[[], Any]], AbstractAsyncContextManager[None]]


class Gate:
    """Lets the thread of SQLite through, when it is told to."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._open = threading.Event()

    def pass_through(self) -> None:
        self._came.set()
        assert self._open.wait(PATIENCE)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._came.wait, PATIENCE)

    def open(self) -> None:
        self._open.set()


@contextmanager
def gate_after(beginning: str) -> Iterator[Gate]:
    """Hold the thread of SQLite where it has just run a statement that begins like this."""
    query, gate = SqliteSession.query, Gate()

    def held(session: SqliteSession, statement: str, *values: Any, **named: Any) -> Any:
        rows = query(session, statement, *values, **named)
        if statement.lstrip().startswith(beginning):
            gate.pass_through()
        return rows

    with mock.patch.object(SqliteSession, "query", held):
        try:
            yield gate
        finally:
            gate.open()


_CLAIM = "UPDATE rxlanggraph_tasks SET state = 'claimed'"


@asynccontextmanager
async def _elsewhere(state: State, claim: Callable[[], Any]) -> AsyncIterator[None]:
    with gate_after("SELECT") as gate:
        reading = asyncio.ensure_future(state.get("key"))
        await gate.reached()
        claim()
        yield
        gate.open()
        await reading


@asynccontextmanager
async def _claiming(state: State, claim: Callable[[], Any]) -> AsyncIterator[None]:
    with gate_after(_CLAIM) as gate:
        claim()
        await gate.reached()
        yield


@asynccontextmanager
async def _waiting(state: State, claim: Callable[[], Any]) -> AsyncIterator[None]:
    # One goes ahead, alone; so the others wait for it, and are a batch then.
    with gate_after("INSERT") as gate:
        ahead = asyncio.ensure_future(state.increment_counter("count"))
        await gate.reached()
        claim()
        yield
        gate.open()
        await ahead


@asynccontextmanager
async def _together(state: State, claim: Callable[[], Any]) -> AsyncIterator[None]:
    with gate_after(_CLAIM) as gate:
        async with _waiting(state, claim):
            await pass_turns()
        await gate.reached()
        yield


@asynccontextmanager
async def _locked(url: str, _: State, claim: Callable[[], Any]) -> AsyncIterator[None]:
    with plain(url) as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE rxlanggraph_tasks IN EXCLUSIVE MODE")
        claim()
        await until(other, WAITING, 1)
        yield
        other.execute("ROLLBACK")


@asynccontextmanager
async def _paused(url: str, _: State, claim: Callable[[], Any]) -> AsyncIterator[None]:
    with redis.Redis.from_url(url) as other:
        other.client_pause(int(PATIENCE * 1000), all=False)
        try:
            claim()
            async with asyncio.timeout(PATIENCE):
                while not await asyncio.to_thread(_is_any_blocked, other):
                    pass  # each turn waits for an answer
            yield
        finally:
            other.client_unpause()


def _is_any_blocked(server: redis.Redis) -> bool:
    return any("b" in client["flags"] for client in server.client_list())


# What holds a claim up while the database has it in hand.
_HOLDING: dict[str, Callable[..., AbstractAsyncContextManager[None]]] = {
    "SQLite": lambda _, *arguments: _claiming(*arguments),
    "PostgreSQL": _locked,
    "Valkey": _paused,
}

# By what holds them up; and which of the calls is held there.
_PLACES: dict[str, tuple[_Held, int]] = {
    "the thread of SQLite is at something else": (_elsewhere, 0),
    "the thread of SQLite claims for it": (_claiming, 0),
    "it waits for its batch": (_waiting, 1),
    "the thread of SQLite claims for its batch": (_together, 1),
}


async def cancel_while(url: str, what: str, times: int) -> tuple[list[int], int]:
    """Cancel one of some workers while ``what``.

    The attempts of all claims in the end; and how many were made, with those given back.
    """
    held, who = _PLACES[what]
    claims: list[asyncio.Task[Any]] = []
    async with open_state(url) as state:
        await state.add_tasks("queue", range(WORKERS))
        before = await _next_number(state)

        def claim() -> None:
            claims.extend(_claims(state))

        async with held(state, claim):
            await pass_turns()
            for _ in range(times):
                claims[who].cancel()
                await pass_turns()
        attempts = await _attempts(state, claims, who)
        return attempts, await _next_number(state) - before - 1


async def cancel_while_closing(url: str, backend: str, first: str) -> list[bool]:
    """Cancel a worker whose claim is held up, and who closes the state meanwhile: were they?"""
    tasks: dict[str, asyncio.Task[Any]] = {}
    async with open_state(url) as state:
        await state.add_tasks("queue", range(WORKERS))

        def claim() -> None:
            tasks["worker"] = asyncio.create_task(state.claim_task("queue"))

        async with _HOLDING[backend](url, state, claim):
            tasks["closer"] = asyncio.create_task(state.aclose())
            await pass_turns()
            for who in sorted(tasks, key=lambda who: who != first):
                tasks[who].cancel()
                await pass_turns()
        await asyncio.wait(tasks.values())
        await _left(backend, url)
    return [task.cancelled() for task in tasks.values()]


async def _left(backend: str, url: str) -> None:
    """Wait until the server has no connections of ours."""
    if backend == "PostgreSQL":
        with plain(url) as other:
            await until(other, ACTIVITY, 0)
    elif backend == "Valkey":
        with redis.Redis.from_url(url) as other:
            async with asyncio.timeout(PATIENCE):
                while len(await asyncio.to_thread(other.client_list)) > 1:
                    pass  # each turn waits for an answer


async def cancel_after_turns(url: str) -> list[list[int]]:
    """The same after a growing number of turns of the loop: from none to more than claims take."""
    attempts: list[list[int]] = []
    turns = 0
    async with open_state(url) as state:
        for number in range(ROUNDS):
            await state.add_tasks("queue", range(WORKERS))
            claims = _claims(state)
            for _ in range(turns):
                await asyncio.sleep(0)
            who = number % WORKERS
            claims[who].cancel()
            attempts.append(await _attempts(state, claims, who))
            turns += 1 + turns // 20
    return attempts


def _claims(state: State) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(state.claim_task("queue")) for _ in range(WORKERS)]


async def _next_number(state: State) -> int:
    await state.set("key", "value")
    _, version = await state.get("key")
    return version


async def _attempts(state: State, tasks: list[asyncio.Task[Any]], who: int) -> list[int]:
    """The attempts of all claims, once there are no more."""
    await asyncio.wait(tasks)
    claims = [task.result() for task in tasks if not task.cancelled()]
    if tasks[who].cancelled():
        claims.append(await state.claim_task("queue"))
    assert await state.claim_task("queue") is None
    for claim in claims:
        await claim.complete()
    return [claim.attempt for claim in claims]
