"""Values under keys: read, written, counted and watched."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, overload

from reactivex import Observable

from rxlanggraph.errors import ContentionError
from rxlanggraph.state.backend import StoredValue, Versioned, Write, WriteResult, as_immediate
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import JSON_TYPES, decode, encode
from rxlanggraph.state.single_use import SingleUseAsyncContext
from rxlanggraph.state.transactions import Conflict, Transaction, retry_conflicts
from rxlanggraph.state.update_queue import UpdateQueue, UpdateSlot
from rxlanggraph.state.watch import watch
from rxlanggraph.validation import (
    check_duration,
    check_function,
    check_identifier,
    check_integer,
    check_token,
)

__all__ = ["KeyOperations"]

_T = TypeVar("_T")


class KeyOperations:
    """The methods of a `State` for values.

    For every method: it is called on the loop of the state and awaits the server. If cancelled, it
    has taken effect as a whole or not at all. It raises InvalidTypeError or InvalidArgumentError,
    before anything is sent, for an invalid key, value or number; StateUnavailableError if the
    server does not answer; StateClosedError once the state is closed; WrongThreadError on another
    loop.

    ``token`` of a write is the lease of a lock, a claim, or the token of either: each key remembers
    the highest token that has written it, and refuses a lower one (StaleTokenError), in the same
    step as the write. After Martin Kleppmann, "How to do distributed locking" (2016).
    """

    def __init__(self, client: BackendClient) -> None:
        self._client = client
        # None, unless the backend can read and replace one value without awaiting.
        self._immediate = as_immediate(client.backend)
        # The `safe_update` calls of this state, by key: concurrent ones would only conflict.
        self._updates: UpdateQueue[StoredValue] = UpdateQueue()

    async def get(self, key: str) -> Versioned:
        """Return the value of ``key`` and its version; None and 0 if there is none."""
        check_identifier("key", key)
        entry = await self._read(key)
        return Versioned(decode(entry.text, "the value of", key), entry.version)

    async def set(
        self, key: str, value: Any, *, ttl: float | None = None, token: Any = None
    ) -> int:
        """Write ``value`` under ``key``, whatever was there; return the new version.

        Args:
            key: The key.
            value: A JSON value.
            ttl: Seconds until the key expires; None: never. Replaces an earlier one.
            token: A lease, a claim, or the token of either: the write is refused if the key was
                written with a newer one. None: not fenced.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was written.
        """
        check_identifier("key", key)
        return (await self._write(key, encode(value), ttl, token)).after

    async def compare_and_set(
        self,
        key: str,
        value: Any,
        expected_version: int,
        *,
        ttl: float | None = None,
        token: Any = None,
    ) -> bool:
        """Write ``value`` if the version of ``key`` is ``expected_version`` (0: there is no key).

        Returns:
            False if it is not, and nothing was written.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was written.
        """
        check_identifier("key", key)
        check_integer("expected_version", expected_version)
        return await self._replace(key, expected_version, encode(value), ttl, token) is not None

    async def set_if_not_exists(
        self, key: str, value: Any, ttl: float | None = 60, *, token: Any = None
    ) -> bool:
        """Write ``value`` if there is no such key, for ``ttl`` seconds (None: forever).

        Returns:
            False if there is one, and nothing was written.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was written.
        """
        check_identifier("key", key)
        return await self._replace(key, 0, encode(value), ttl, token) is not None

    async def delete(self, key: str, *, token: Any = None) -> bool:
        """Delete ``key``; return whether it was there.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was deleted.
        """
        check_identifier("key", key)
        return (await self._write(key, None, None, token)).before != 0

    async def increment_counter(self, key: str, by: int = 1, *, token: Any = None) -> int:
        """Add ``by`` to the integer under ``key`` (0 if there is none); return the sum.

        One step on the server: each one of a hundred concurrent calls counts. A write like any
        other: the version grows, the time to live is kept.

        Raises:
            InvalidTypeError: Also if the value is not an integer; nothing was changed.
            InvalidArgumentError: Also if the sum would not fit into 64 bits; nothing was changed.
            StaleTokenError: ``token`` is too old; nothing was changed.
        """
        check_identifier("key", key)
        by, number = check_integer("by", by), check_token(token)
        total = await self._client.call(self._client.backend.increment, key, by, number)
        self._client.notifier.notify(("key", key))
        return total

    async def safe_update(
        self,
        key: str,
        fn: Callable[[Any], Any],
        attempts: int = 10,
        *,
        ttl: float | None = None,
        token: Any = None,
    ) -> Any:
        """Set ``key`` to ``fn(value)``; retry with the new value if it was changed meanwhile.

        Between attempts there are random, growing pauses. Nothing is locked while ``fn`` runs. But
        updates of one key through the same state take turns, as they would only conflict: each
        waits up to a second for those before it, and starts from the value that they have written.

        Args:
            key: The key.
            fn: Takes the value (None if there is none), returns the new one; sync or async. May be
                called several times; an exception ends the update.
            attempts: The number of attempts.
            ttl: As in `set`.
            token: A lease, a claim, or the token of either: the write is refused if the key was
                written with a newer one. None: not fenced.

        Returns:
            The value that was written.

        Raises:
            ContentionError: The value was changed concurrently on every attempt; nothing was
                written.
            StaleTokenError: ``token`` is too old; nothing was written.
        """
        check_identifier("key", key)
        check_function("fn", fn)
        self._client.check_open()
        slot = self._updates.begin(key) or await self._updates.wait(key)
        try:
            return await retry_conflicts(attempts, self._update, slot, key, fn, ttl, token)
        finally:
            self._updates.end(key, slot)

    async def _update(
        self,
        slot: UpdateSlot[StoredValue],
        key: str,
        fn: Callable[[Any], Any],
        ttl: Any,
        token: Any,
    ) -> Any:
        self._client.check_open()
        handover, slot.handover = slot.handover, None
        entry = handover or await self._read(key)
        updated = fn(decode(entry.text, "the value of", key))
        if type(updated) not in JSON_TYPES and inspect.isawaitable(updated):
            updated = await updated
        text = encode(updated)
        successor = slot.successor()
        version = await self._replace(key, entry.version, text, ttl, token)
        if version is None:
            raise Conflict(f"safe_update of {key!r}")
        if successor is not None:
            successor.handover = StoredValue(text, version)
        return updated

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Read and write several keys in one step: ``async with state.transaction() as tx``.

        ``await tx.get(key)``, ``tx.set(key, value)``, ``tx.delete(key)``; the writes are made at
        the end of the block, all or none. An exception that leaves the block discards them.

        Raises:
            ContentionError: At the end, if a key that was read has changed since; nothing was
                written. `transact` retries by itself.
            StaleTokenError: At the end, if a token is too old; nothing was written.
            UsageError: At the beginning of a second block.
        """
        return SingleUseAsyncContext("state.transaction()", self._transaction())

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Transaction]:
        transaction = Transaction(self._client)
        yield transaction
        if not await transaction._commit():
            raise ContentionError(
                "a key that this transaction has read was changed meanwhile, so nothing was "
                "written: run the transaction again, or use transact(fn), which does that"
            )

    @overload
    async def transact(
        self, fn: Callable[[Transaction], Awaitable[_T]], attempts: int = 10
    ) -> _T: ...

    @overload
    async def transact(self, fn: Callable[[Transaction], _T], attempts: int = 10) -> _T: ...

    async def transact(self, fn: Callable[[Transaction], Any], attempts: int = 10) -> Any:
        """Run ``fn`` in a `transaction`, again after each conflict; return its result.

        Args:
            fn: Takes the transaction; sync or async. May be called several times; an exception ends
                the whole call, with nothing written.
            attempts: The number of attempts; between them are random, growing pauses.

        Raises:
            ContentionError: Every attempt met a conflict; nothing was written.
            StaleTokenError: A token is too old; nothing was written.
        """
        check_function("fn", fn)

        async def attempt() -> Any:
            transaction = Transaction(self._client)
            result = fn(transaction)
            if inspect.isawaitable(result):
                result = await result
            if not await transaction._commit():
                raise Conflict("the transaction")
            return result

        return await retry_conflicts(attempts, attempt)

    def watch(self, key: str, interval: float = 0.2) -> Observable[Versioned]:
        """Return the versions of ``key`` as an Observable: the current one, then newer ones.

        Any thread may call this, subscribe and dispose; items arrive on the loop's thread. Versions
        only grow, and some may be skipped; deletion of the key is not reported. Writes through this
        state are seen at once, others after ``interval`` seconds.

        It completes when the state is closed, and ends with the error if the server is gone.
        """
        check_identifier("key", key)
        return watch(self._client, key, check_duration("interval", interval))

    async def _read(self, key: str) -> StoredValue:
        if self._immediate is not None:
            self._client.check_open()
            return self._immediate.read_now(key)
        (entry,) = await self._client.call(self._client.backend.read, [key], repeatable=True)
        return entry

    async def _replace(self, key: str, version: int, text: str, ttl: Any, token: Any) -> int | None:
        seconds = None if ttl is None else check_duration("ttl", ttl)
        number = check_token(token)
        if self._immediate is not None:
            self._client.check_open()
            after = self._immediate.replace_now(key, version, text, seconds, number)
        else:
            changes = {key: Write(text, seconds, number)}
            written = await self._client.call(self._client.backend.commit, changes, {key: version})
            after = None if written is None else written[key].after
        if after is not None:
            self._client.notifier.notify(("key", key))
        return after

    async def _write(self, key: str, text: str | None, ttl: Any, token: Any) -> WriteResult:
        seconds = None if ttl is None else check_duration("ttl", ttl)
        change = Write(text, seconds, check_token(token))
        written = await self._client.call(self._client.backend.commit, {key: change}, {})
        assert written is not None, "nothing was checked"
        self._client.notifier.notify(("key", key))
        return written[key]
