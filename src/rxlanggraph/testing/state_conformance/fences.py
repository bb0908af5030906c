"""Checks: locks, their tokens, and fenced writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rxlanggraph.errors import ContentionError, LockTimeoutError, StaleTokenError
from rxlanggraph.state.base import BaseState
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    check,
    expect,
    gather,
    locks_expired,
    raises,
    until,
)

__all__ = ["CHECKS"]

CHECKS: list[Check] = []
# Seconds: longer than a call takes; and on a machine that stood still in these.
_BRIEF = 2.0
_LONGER = 12.0


@check("locks", "A lock has one holder at a time", CHECKS)
async def _one_holder(store: Store) -> None:
    async with store.open_many(3) as states:
        inside = 0

        async def hold(number: int) -> None:
            nonlocal inside
            state = states[number % 3]
            async with state.lock("l", wait=50):
                inside += 1
                expect(inside, 1, "how many are inside")
                value = (await state.get("n")).value or 0
                await asyncio.sleep(0)
                await state.set("n", value + 1)
                inside -= 1

        await gather([hold(number) for number in range(12)])
        expect((await states[0].get("n")).value, 12, "what was counted under the lock")


@check("locks", "Each holder of a lock gets a larger token than the one before", CHECKS)
async def _tokens(store: Store) -> None:
    tokens = []
    async with store.open() as kept:
        for _ in range(3):
            async with store.open() as state:
                for taker in (state, kept):
                    async with taker.lock("l") as lease:
                        tokens.append(lease.token)
        expect(tokens, sorted(set(tokens)), "the tokens in the order of holding")


@check("locks", "A lock that is held cannot be acquired", CHECKS)
async def _not_free(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        async with state.lock("l"):
            for wait in (0, 0.05):
                with raises(LockTimeoutError, "taking it"):
                    async with other.lock("l", wait=wait):
                        pass
            async with other.lock("another", wait=0):
                pass
        async with other.lock("l", wait=0):
            pass


@check("locks", "Acquiring a lock again for the same owner returns the same token", CHECKS)
async def _same_owner(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend
        token = await backend.lock_acquire("l", "me", 60)
        expect(await backend.lock_acquire("l", "me", 60), token, "the token")
        expect(await backend.lock_acquire("l", "you", 60), None, "another's token")
        ttl, brief = _BRIEF, await backend.lock_acquire("brief", "me", _BRIEF)
        if await backend.lock_acquire("brief", "me", _LONGER) != brief:
            ttl, brief = _LONGER, await backend.lock_acquire("brief", "me", _LONGER)
        expect(await backend.lock_acquire("brief", "me", 60), brief, "the token, for longer")
        await locks_expired(backend, ttl)
        expect(await backend.lock_acquire("brief", "you", 60), None, "once the first lease is over")


@check("locks", "A renewed lease lasts, and a lease that is not renewed expires", CHECKS)
async def _renewal(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend

        async def acquire(ttl: float) -> tuple[int, int, bool]:
            kept = await backend.lock_acquire("kept", "me", ttl)
            lost = await backend.lock_acquire("lost", "me", ttl)
            assert kept is not None and lost is not None
            return kept, lost, await backend.lock_renew("kept", kept, 60)

        ttl, (kept, lost, renewed) = _BRIEF, await acquire(_BRIEF)
        if not renewed:
            ttl, (kept, lost, renewed) = _LONGER, await acquire(_LONGER)
        expect(renewed, True, "renewing")
        await locks_expired(backend, ttl)
        expect(await backend.lock_acquire("kept", "you", 60), None, "the renewed one")
        expect(await backend.lock_renew("lost", lost, 60), False, "renewing an expired one")
        expect(await backend.lock_release("lost", lost), False, "releasing an expired one")
        expect(await backend.lock_release("kept", kept), True, "releasing the renewed one")


@check("locks", "The former holder of a lock can neither renew nor release it", CHECKS)
async def _lost(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend
        old = await backend.lock_acquire("l", "old", 0.05)
        assert old is not None
        new = await until(lambda: backend.lock_acquire("l", "new", 60))
        assert new is not None
        expect(new > old, True, f"whether {new} is a later token than {old}")
        expect(await backend.lock_renew("l", old, 60), False, "renewing")
        expect(await backend.lock_release("l", old), False, "releasing")
        expect(await backend.lock_acquire("l", "third", 60), None, "whether it is free")
        expect(await backend.lock_renew("l", new, 60), True, "renewing by the new holder")


@check("fencing", "A write with an older token is refused, and changes nothing", CHECKS)
async def _fence(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        old, new = await _two_tokens(state)
        version = await state.set("n", 1, token=new)
        writes: list[Callable[[], Awaitable[object]]] = [
            lambda: other.set("n", 2, token=old),
            lambda: other.compare_and_set("n", 2, version, token=old),
            lambda: other.compare_and_set("n", 2, version + 1, token=old),
            lambda: other.set_if_not_exists("n", 2, token=old),
            lambda: other.increment_counter("n", token=old),
            lambda: other.safe_update("n", lambda value: value, token=old),
            lambda: other.delete("n", token=old),
            lambda: _write_two(other, old),
        ]
        for number, write in enumerate(writes):
            with raises(StaleTokenError, f"write {number}"):
                await write()
        expect((await state.get("n")).version, version, "the version after all that")
        expect((await state.get("beside")).version, 0, "the other key of the transaction")


@check("fencing", "A write with the same token, a newer one or none is accepted", CHECKS)
async def _no_fence(store: Store) -> None:
    async with store.open() as state:
        old, new = await _two_tokens(state)
        for token in (old, old, None, new, new, None):
            await state.set("n", 1, token=token)
            await state.increment_counter("n", token=token)
        with raises(StaleTokenError, "the old one, after a write without a token"):
            await state.set("n", 1, token=old)
        version = await state.set("compared", 1)
        expect(await state.compare_and_set("compared", 2, version, token=new), True, "comparing")
        with raises(StaleTokenError, "the old one, after a compare_and_set"):
            await state.set("compared", 1, token=old)


@check("fencing", "A key that was deleted or has expired remembers the highest token", CHECKS)
async def _fence_stays(store: Store) -> None:
    async with store.open() as state:
        old, new = await _two_tokens(state)
        await state.set("deleted", 1, token=new)
        await state.delete("deleted")
        await state.delete("never", token=new)
        await state.increment_counter("counted", token=new)
        await state.delete("counted", token=new)
        await state.set_if_not_exists("made once", 1, None, token=new)
        await state.delete("made once")
        await state.set("expired", 1, ttl=0.05, token=new)
        await until(lambda: state.set_if_not_exists("expired", 1, 0.05))
        for key in ("deleted", "never", "counted", "made once", "expired"):
            with raises(StaleTokenError, f"writing the {key} key"):
                await state.set(key, 1, token=old)


@check("fencing", "A write that fails leaves no token behind", CHECKS)
async def _fence_not_moved(store: Store) -> None:
    async with store.open() as state:
        old, new = await _two_tokens(state)
        await state.set("n", "text", token=old)
        expect(await state.compare_and_set("n", 1, 0, token=new), False, "a failing write")
        with raises(Exception, "counting a text"):
            await state.increment_counter("n", token=new)
        with raises(ContentionError, "a transaction with another write in it"):
            async with state.transaction() as transaction:
                await transaction.get("n")
                transaction.set("n", 1, token=new)
                await state.set("n", "other text")
        await state.set("n", 1, token=old)
        expect((await state.get("n")).value, 1, "the value")


async def _two_tokens(state: BaseState) -> tuple[int, int]:
    async with state.lock("l") as first:
        pass
    async with state.lock("l") as second:
        pass
    return first.token, second.token


async def _write_two(state: BaseState, token: int) -> None:
    async with state.transaction() as transaction:
        transaction.set("beside", 1)
        transaction.set("n", 2, token=token)
