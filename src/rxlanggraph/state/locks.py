"""Locks between processes: a lease that is renewed, and a token that fences off former holders."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager
from functools import partial

from uuid_utils import uuid7

from rxlanggraph.concurrency.tasks import run_shielded
from rxlanggraph.errors import ClosedError, LeaseLostError, LockTimeoutError, StateError
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.leases import Heartbeat
from rxlanggraph.state.polling import PollSchedule
from rxlanggraph.state.retry import compensate
from rxlanggraph.state.single_use import SingleUseAsyncContext
from rxlanggraph.validation import check_duration, check_identifier, check_wait

__all__ = ["Lease", "LockOperations"]


class Lease:
    """A lock that is held, unless it was `lost`.

    Attributes:
        key: The key of the lock.
        token: The fencing token: larger than that of every earlier holder.
        ttl: Seconds that the lease lasts without being renewed.
    """

    def __init__(
        self, client: BackendClient, key: str, token: int, ttl: float, began: float
    ) -> None:
        self.key = key
        self.token = token
        self.ttl = ttl
        self._released = False  # set once, on the loop; read from any thread
        self._client = client
        self._heartbeat = Heartbeat(client, self, ttl, began)

    def __repr__(self) -> str:
        """Return key, token, and whether it is released or lost."""
        end = ", released" if self._released else ", lost" if self.lost else ""
        return f"<Lease of {self.key!r}, token {self.token}{end}>"

    @property
    def lost(self) -> bool:
        """Whether the lock is, or may be, held by another owner by now. Any thread; never blocks.

        True if the server has refused a renewal, or has confirmed none for ``ttl`` seconds; or if
        the block has ended and the lock was released. The code in the block is not interrupted: it
        has to check this before doing what only the holder may do, and pass the token to each
        write.
        """
        return self._released or self._heartbeat.lost

    @property
    def remaining(self) -> float:
        """Seconds until it is `lost`, unless renewed; 0 if it is. Any thread; never blocks."""
        return 0.0 if self._released else self._heartbeat.remaining

    def check(self) -> None:
        """Raise if the lease is `lost`. Any thread; never blocks.

        Raises:
            LeaseLostError: It is lost, or its block has ended.
        """
        if self._released:
            raise LeaseLostError(
                f"the lease of the lock {self.key!r} (token {self.token}) ended with its block; "
                "use the lease inside the block only"
            )
        if self.lost:
            raise LeaseLostError(
                f"the lease of the lock {self.key!r} (token {self.token}) is lost: it was not "
                f"renewed within {self.ttl} s, because the server did not answer, or this process "
                "or its event loop was suspended or blocked; acquire the lock again"
            )

    def _renew(self, seconds: float) -> Awaitable[bool]:
        client = self._client
        return client.call(
            client.backend.lock_renew, self.key, self.token, seconds, repeatable=True
        )


class LockOperations:
    """The methods of a `State` for locks. Confined to its loop."""

    def __init__(self, client: BackendClient) -> None:
        self._client = client
        # By key: held by the waiter of this state that polls the server; the others queue for it.
        self._local_locks: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    def lock(
        self, key: str, ttl: float = 30.0, *, wait: float | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold the lock ``key`` for the length of a block: ``async with state.lock(key) as lease``.

        On the loop of the state; each call returns a single-use context manager. Within this state
        the lock is granted in the order of requests; between states, to the first that requests it
        once it is free. It is not reentrant: a holder that requests it again waits for itself.

        While the block runs, the lease is renewed each time a third of ``ttl`` has passed. If it is
        lost nevertheless, ``lease.lost`` is True, and the block ends with an error. If cancelled
        while waiting, the lock is not held; if cancelled inside the block, it is released.

        Args:
            key: The key of the lock, independent of the keys of values.
            ttl: Seconds until the lock is free if its holder dies.
            wait: Seconds to wait for the lock; None: no limit; 0: do not wait.

        Raises:
            LockTimeoutError: Another owner held it for all of ``wait``.
            LeaseLostError: At the end of the block: it was lost meanwhile.
            StateUnavailableError: The server does not answer.
            InvalidTypeError, InvalidArgumentError: An argument is invalid.
            UsageError: At the beginning of a second block.
        """
        check_identifier("key", key)
        seconds = float("inf") if wait is None else check_wait(wait)
        block = self._locked(key, check_duration("ttl", ttl), seconds)
        return SingleUseAsyncContext(f"state.lock({key!r})", block)

    @contextlib.asynccontextmanager
    async def _locked(self, key: str, ttl: float, wait: float) -> AsyncIterator[Lease]:
        lease = await self._acquire(key, ttl, wait)
        try:
            yield lease
        except BaseException as error:
            with contextlib.suppress(StateError, ClosedError):
                if not await run_shielded(self._release(lease)):
                    error.add_note(f"and the lease of the lock {key!r} was lost meanwhile")
            raise
        if not await run_shielded(self._release(lease)):
            raise LeaseLostError(
                f"the lock {key!r} (token {lease.token}) was lost before the end of its block; "
                "another holder may have had it meanwhile"
            )

    async def _acquire(self, key: str, ttl: float, wait: float) -> Lease:
        owner = uuid7().hex
        with self._client.notifier.poll(("lock", key), wait) as schedule:
            async with self._local_turn(key, schedule):
                while True:
                    schedule.notified.clear()
                    lease = await run_shielded(
                        self._try(key, owner, ttl), undo=partial(compensate, self._give_back)
                    )
                    if lease is not None:
                        return lease
                    if not await schedule.pause():
                        raise _timeout(key, wait)

    @contextlib.asynccontextmanager
    async def _local_turn(self, key: str, schedule: PollSchedule) -> AsyncIterator[None]:
        local = self._local_locks.setdefault(key, asyncio.Lock())
        if schedule.left <= 0:
            yield  # a single attempt, which need not wait behind others
            return
        try:
            async with schedule.timeout():
                await local.acquire()
        except TimeoutError:
            raise _timeout(key, schedule.wait) from None
        try:
            yield
        finally:
            local.release()

    async def _try(self, key: str, owner: str, ttl: float) -> Lease | None:
        client = self._client
        began = client.loop.time()
        token = await client.call(client.backend.lock_acquire, key, owner, ttl, repeatable=True)
        if client.closed:
            client.check_open()  # raises: a closed state would not renew the lease
        return None if token is None else Lease(client, key, token, ttl, began)

    async def _give_back(self, lease: Lease | None) -> None:
        if lease is not None:
            await self._release(lease)

    async def _release(self, lease: Lease) -> bool:
        lease._released = True  # before the call, which the server may execute at any moment
        await Heartbeat.stop(lease._heartbeat)
        held = await self._client.call(self._client.backend.lock_release, lease.key, lease.token)
        self._client.notifier.notify(("lock", lease.key))
        return held


def _timeout(key: str, wait: float) -> LockTimeoutError:
    return LockTimeoutError(
        f"the lock {key!r} was not free within {wait} s; pass a larger wait=, or retry"
    )
