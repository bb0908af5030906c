"""Optimistic transactions: read, decide, write all or nothing, and retry after a conflict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple

from tenacity import stop_after_attempt

from rxlanggraph.errors import ContentionError, UsageError
from rxlanggraph.state.backend import StoredValue, Versioned, Write
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import decode, encode
from rxlanggraph.state.retry import backoff, repeat, repeat_blocking
from rxlanggraph.validation import check_attempts, check_duration, check_identifier, check_token

__all__ = ["Conflict", "Transaction", "retry_conflicts", "retry_conflicts_blocking"]

_T = TypeVar("_T")
_Args = TypeVarTuple("_Args")


class Transaction:
    """A transaction on several keys; made by ``state.transaction()`` and ``state.transact()``.

    Optimistic: nothing is locked. At the commit, which is the end of the block or of the function,
    the server compares the versions of all keys that were read, and writes all changes or none.
    Confined to the loop of its state.
    """

    def __init__(self, client: BackendClient) -> None:
        self._client = client
        self._read: dict[str, StoredValue] = {}
        self._changes: dict[str, Write] = {}
        self._ended = False

    async def get(self, key: str) -> Versioned:
        """Return the value and version of ``key``; the same ones on every call.

        For a key that this transaction has written, it is the new value, with version 0. Cancelling
        it changes nothing.

        Raises:
            InvalidTypeError, InvalidArgumentError: ``key`` is not a valid key.
            UsageError: The transaction has ended.
            StateUnavailableError: The server does not answer.
        """
        self._check(key)
        if key in self._changes:
            return Versioned(decode(self._changes[key].text, "the value of", key), 0)
        if key not in self._read:
            entries = await self._client.call(self._client.backend.read, [key], repeatable=True)
            # The first value read counts, as a concurrent task may have returned it already.
            self._read.setdefault(key, entries[0])
        entry = self._read[key]
        return Versioned(decode(entry.text, "the value of", key), entry.version)

    def set(self, key: str, value: Any, *, ttl: float | None = None, token: Any = None) -> None:
        """Write ``value`` at the commit. On the loop; sends nothing yet.

        Args:
            key: The key.
            value: A JSON value.
            ttl: Seconds until the key expires; None: never.
            token: A lease, a claim, or the token of either; if it is older than the newest that has
                written the key, the commit fails with StaleTokenError.

        Raises:
            InvalidTypeError, InvalidArgumentError: An argument is invalid.
            UsageError: The transaction has ended.
        """
        self._check(key)
        text = encode(value)
        seconds = None if ttl is None else check_duration("ttl", ttl)
        self._changes[key] = Write(text, seconds, check_token(token))

    def delete(self, key: str, *, token: Any = None) -> None:
        """Delete ``key`` at the commit, if it is there. On the loop; sends nothing yet.

        Raises:
            InvalidTypeError, InvalidArgumentError: An argument is invalid.
            UsageError: The transaction has ended.
        """
        self._check(key)
        self._changes[key] = Write(None, None, check_token(token))

    async def _commit(self) -> bool:
        """End the transaction: write everything, if nothing that was read has changed since.

        ``state.transaction()`` and ``state.transact()`` do this. If cancelled, it was done as a
        whole or not at all.

        Returns:
            False if a key that was read has changed: nothing was written.

        Raises:
            UsageError: The transaction has ended already.
            StaleTokenError: A token is too old; nothing was written.
            StateUnavailableError: The server does not answer.
        """
        self._check_open()
        self._ended = True
        if not self._read and not self._changes:
            return True
        checks = {key: entry.version for key, entry in self._read.items()}
        written = await self._client.call(self._client.backend.commit, self._changes, checks)
        if written is None:
            return False
        for key in written:
            self._client.notifier.notify(("key", key))
        return True

    def _check(self, key: str) -> None:
        check_identifier("key", key)
        self._check_open()

    def _check_open(self) -> None:
        if self._ended:
            raise UsageError("this transaction has ended; start another one")


class Conflict(Exception):  # noqa: N818 - internal: callers get a ContentionError
    """A key that was read was changed concurrently; the text names the operation to retry."""


async def retry_conflicts(
    attempts: int, attempt: Callable[[*_Args], Awaitable[_T]], *args: *_Args
) -> _T:
    """Await ``attempt(*args)`` until it raises no `Conflict`, with random, growing pauses.

    Raises:
        InvalidTypeError, InvalidArgumentError: ``attempts`` is not a valid number of attempts.
        ContentionError: Every attempt met a conflict.
    """
    check_attempts("attempts", attempts)
    try:
        try:
            return await attempt(*args)
        except Conflict as conflict:
            return await repeat(Conflict, conflict, _policy(attempts), attempt, *args)
    except Conflict as conflict:
        raise _contention(conflict, attempts) from None


def retry_conflicts_blocking(attempts: int, attempt: Callable[[], _T]) -> _T:
    """Do what `retry_conflicts` does, blocking."""
    check_attempts("attempts", attempts)
    try:
        try:
            return attempt()
        except Conflict as conflict:
            return repeat_blocking(Conflict, conflict, _policy(attempts), attempt)
    except Conflict as conflict:
        raise _contention(conflict, attempts) from None


def _policy(attempts: int) -> dict[str, Any]:
    # Of many updates that start together, one succeeds per round trip: the pauses have to spread
    # the others over many round trips before their attempts are used up (figures:
    # docs/benchmarks.md).
    return backoff(first=0.02, longest=1.0, stop=stop_after_attempt(attempts))


def _contention(conflict: Conflict, attempts: int) -> ContentionError:
    return ContentionError(
        f"{conflict}: a concurrent write came first on each of {attempts} attempts; allow more "
        "attempts, or let one worker at a time write (a lock, a StateActor)"
    )
