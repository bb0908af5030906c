"""Checks: values under keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from rxlanggraph.errors import ContentionError, InvalidArgumentError, InvalidTypeError
from rxlanggraph.state.backend import Versioned, Write
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.transactions import Transaction
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    check,
    expect,
    gather,
    raises,
    until,
)

__all__ = ["CHECKS"]

CHECKS: list[Check] = []
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 10**40, 0.1, -0.0, 1e300, 1.0),
    *("", "text", "ünïcödé \U0001f600", "\x00", "\ud800", "'; DROP TABLE x; --", "null", "1"),
    *([], {}, [[]], {"a": {"b": [1, None, "c"]}}, {"": 0, "k y": 1}, ["x" * 100_000]),
]


@check("values", "A missing key has the value None, and the version 0", CHECKS)
async def _missing(store: Store) -> None:
    async with store.open() as state:
        expect(await state.get("k"), Versioned(None, 0), "get of a missing key")
        expect(await state.delete("k"), False, "delete of a missing key")


@check("values", "Every JSON value is read as it was written", CHECKS)
async def _values(store: Store) -> None:
    async with store.open() as state:
        for number, value in enumerate(VALUES):
            await state.set(f"k{number}", value)
        for number, value in enumerate(VALUES):
            expect((await state.get(f"k{number}")).value, value, f"value {number}")


@check("values", "A key with the value null exists", CHECKS)
async def _null(store: Store) -> None:
    async with store.open() as state:
        version = await state.set("k", None)
        expect(await state.get("k"), Versioned(None, version), "get of a null")
        expect(await state.set_if_not_exists("k", 1), False, "set_if_not_exists of a null")
        expect(await state.delete("k"), True, "delete of a null")


@check("values", "The version grows with every kind of write", CHECKS)
async def _versions(store: Store) -> None:
    async with store.open() as state:
        versions = [await state.set("k", 1)]
        await state.increment_counter("k")
        versions.append((await state.get("k")).version)
        expect(await state.compare_and_set("k", 1, versions[-1]), True, "compare_and_set")
        versions.append((await state.get("k")).version)
        await state.safe_update("k", lambda value: value)
        versions.append((await state.get("k")).version)
        async with state.transaction() as transaction:
            transaction.set("k", 1)
        versions.append((await state.get("k")).version)
        versions.append(await state.set("k", 1))
        expect(_growing(versions), True, f"whether the versions grow: {versions}")


@check("values", "A key that is created again never gets an old version", CHECKS)
async def _no_aba(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        versions = [await state.set("k", 1)]
        await other.delete("k")
        versions.append(await state.set("k", 1, ttl=0.05))
        await until(lambda: _gone(state, "k"))
        versions.append(await other.set("k", 1))
        expect(_growing(versions), True, f"whether the versions grow: {versions}")
        expect(await state.compare_and_set("k", 2, versions[0]), False, "a write over an old one")


@check("values", "compare_and_set writes if the version is as expected, and only then", CHECKS)
async def _compare(store: Store) -> None:
    async with store.open() as state:
        expect(await state.compare_and_set("k", 1, 1), False, "a missing key, expected at 1")
        expect(await state.compare_and_set("k", 1, 0), True, "a missing key, expected missing")
        expect(await state.compare_and_set("k", 2, 0), False, "a key that is there, at 0")
        version = (await state.get("k")).version
        expect(await state.compare_and_set("k", 2, version + 1), False, "a version to come")
        expect(await state.compare_and_set("k", 2, version), True, "the version")
        expect(await state.compare_and_set("k", 3, version), False, "an old version")
        expect((await state.get("k")).value, 2, "the value")


@check("values", "Of many concurrent calls of compare_and_set, one succeeds", CHECKS)
async def _compare_at_once(store: Store) -> None:
    async with store.open_many(4) as states:
        for expected in (0, await states[0].set("k", "first")):
            key = "k" if expected else "new"
            done = await gather(
                [states[i % 4].compare_and_set(key, i, expected) for i in range(20)]
            )
            expect(sum(done), 1, f"how many succeeded, expecting version {expected}")
            expect((await states[0].get(key)).value, done.index(True), "whose value it is")


@check("values", "Of many concurrent calls of set_if_not_exists, one succeeds", CHECKS)
async def _once(store: Store) -> None:
    async with store.open_many(4) as states:
        done = await gather([states[i % 4].set_if_not_exists("k", i) for i in range(20)])
        expect(sum(done), 1, "how many succeeded")
        expect((await states[0].get("k")).value, done.index(True), "whose value it is")


@check("values", "A hundred concurrent increments count to a hundred", CHECKS)
async def _counter(store: Store) -> None:
    async with store.open_many(4) as states:
        sums = await gather([states[i % 4].increment_counter("n") for i in range(100)])
        expect(sorted(sums), list(range(1, 101)), "the sums that were returned")
        expect((await states[0].get("n")).value, 100, "the counter")


@check("values", "A counter is exact up to 64 bits, and refuses to exceed them", CHECKS)
async def _large_counter(store: Store) -> None:
    async with store.open() as state:
        await state.set("n", 2**63 - 3)
        expect(await state.increment_counter("n"), 2**63 - 2, "the sum")
        expect(await state.increment_counter("n"), 2**63 - 1, "the sum")
        expect(await state.increment_counter("m", -(2**63)), -(2**63), "the smallest sum")
        for key, by, value in (("n", 1, 2**63 - 1), ("m", -1, -(2**63)), ("n", 2**62, 2**63 - 1)):
            with raises(InvalidArgumentError, f"{value} and {by}"):
                await state.increment_counter(key, by)
            expect((await state.get(key)).value, value, "the counter after that")
        await state.set("n", 10**40)
        with raises(InvalidArgumentError, "a counter of more than 64 bits"):
            await state.increment_counter("n")


@check("values", "A value that is not an integer is not incremented, and stays unchanged", CHECKS)
async def _no_counter(store: Store) -> None:
    async with store.open() as state:
        wrong: list[Any] = ["1", "", 1.0, 1e3, True, None, [1], {}, " 1"]
        for value in wrong:
            version = await state.set("k", value)
            with raises(InvalidTypeError, f"counting {value!r}"):
                await state.increment_counter("k")
            expect(await state.get("k"), Versioned(value, version), "the key after that")


@check("values", "A key expires after its time to live, and stays if written without one", CHECKS)
async def _expiry(store: Store) -> None:
    async with store.open() as state:
        await state.set("kept", 1, ttl=0.2)
        await state.set("kept", 2)
        for made in (_replaced, _counted):  # repeated if the key expired before the second call
            await until(lambda made=made: made(state))  # type: ignore[misc]  # not inferred
        await state.compare_and_set("compared", 1, 0, ttl=0.2)
        await state.set_if_not_exists("once", 1, 0.2)
        for key in ("counted", "compared", "once"):
            await until(lambda key=key: _gone(state, key))  # type: ignore[misc]  # not inferred
            expect(await state.get(key), Versioned(None, 0), f"{key} after its time")
            expect(await state.delete(key), False, f"delete of {key} after its time")
        expect(await state.increment_counter("counted"), 1, "counting again")
        expect(await state.set_if_not_exists("once", 2), True, "set_if_not_exists again")
        for key in ("kept", "replaced"):
            expect((await state.get(key)).value, 2, f"the key that was {key}, without a time")


@check("values", "A transaction writes all or, if a key that it read has changed, nothing", CHECKS)
async def _transaction(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        await state.set("gone", 1)
        async with state.transaction() as transaction:
            expect((await transaction.get("gone")).value, 1, "a value in a transaction")
            transaction.delete("gone")
            transaction.set("made", 1)
            transaction.set("brief", 1, ttl=0.05)
        expect(await state.delete("gone"), False, "whether a deleted key is there")
        expect((await state.get("made")).value, 1, "a key that was made")
        await until(lambda: _gone(state, "brief"))
        meddling: list[Callable[[], Awaitable[object]]] = [
            lambda: other.set("made", 1),
            lambda: other.delete("made"),
            lambda: other.set_if_not_exists("missing", 1),
        ]
        for meddle in meddling:
            await state.delete("missing")
            await state.set("made", 1)
            with raises(ContentionError, "a transaction with another write in it"):
                async with state.transaction() as transaction:
                    await transaction.get("made")
                    await transaction.get("missing")
                    transaction.set("written", 1)
                    await meddle()
            expect((await state.get("written")).version, 0, "whether something was written")


@check("values", "A commit may consist of checks alone, or of writes alone", CHECKS)
async def _commits(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend
        version = await state.set("k", 1)
        expect(await backend.commit({}, {"k": version, "missing": 0}), {}, "a check that holds")
        expect(await backend.commit({}, {"k": version, "missing": 1}), None, "one that does not")
        written = await backend.commit({"k": Write("2"), "no": Write(None)}, {})
        assert written is not None
        expect(written["k"].before, version, "the version before")
        expect(written["k"].after, (await state.get("k")).version, "the version after")
        expect(tuple(written["no"]), (0, 0), "deleting what is not there")
        expect((await backend.commit({"k": Write(None)}, {}) or {})["k"].after, 0, "once deleted")


@check("values", "Concurrent transfers between accounts keep the sum", CHECKS)
async def _transfers(store: Store) -> None:
    async with store.open_many(3) as states:
        for account in range(4):
            await states[0].set(f"account{account}", 100)

        async def transfer(number: int) -> None:
            # All pairs of accounts, as a lost update between two fixed ones could cancel out.
            giver, taker = f"account{number % 4}", f"account{(number + 1 + number // 4 % 3) % 4}"

            async def move(transaction: Transaction) -> None:
                given = (await transaction.get(giver)).value
                transaction.set(giver, given - 1)
                taken = (await transaction.get(taker)).value
                transaction.set(taker, taken + 1)

            await states[number % 3].transact(move, attempts=100)

        await gather([transfer(number) for number in range(24)])
        keys = [f"account{account}" for account in range(4)]
        entries = await states[0].backend.read(keys)
        expect(sum(int(entry.text or 0) for entry in entries), 400, "the sum of all accounts")


@check("values", "Concurrent calls of safe_update lose no update", CHECKS)
async def _updates(store: Store) -> None:
    async with store.open_many(4) as states:

        async def add(number: int) -> None:
            await states[number % 4].safe_update(
                "list", lambda value: [*(value or []), number], attempts=100
            )

        await gather([add(number) for number in range(16)])
        expect(sorted((await states[0].get("list")).value), list(range(16)), "the list")


def _growing(numbers: list[int]) -> bool:
    return all(earlier < later for earlier, later in pairwise(numbers))


async def _replaced(state: BaseState) -> bool:
    version = await state.set("replaced", 1, ttl=0.2)
    return await state.compare_and_set("replaced", 2, version)


async def _counted(state: BaseState) -> bool:
    await state.set("counted", 1, ttl=0.2)
    return await state.increment_counter("counted") == 2


async def _gone(state: BaseState, key: str) -> bool:
    return (await state.get(key)).version == 0
