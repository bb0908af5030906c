"""Leases that are renewed in the background while they are held."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable
from typing import Protocol

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.client import BackendClient

__all__ = ["Heartbeat", "Renewable"]

_log = logging.getLogger("rxlanggraph")


class Renewable(Protocol):
    """The owner of a lease, such as a claim, whose `Heartbeat` renews it."""

    def _renew(self, seconds: float) -> Awaitable[bool]:
        """Ask the server to renew the lease for ``seconds`` from now; False if it refuses."""


class Heartbeat:
    """Renews one lease each time a third of it has passed, on the loop of its state.

    Between two renewals there is only a deadline of a `SharedTimer`, no task. The owner is held
    weakly: the lease of a claim that was garbage-collected while open ends, and its task comes
    back.

    `lost` may be read from any thread; everything else is confined to the loop.

    Args:
        client: The client of the state.
        owner: The owner of the lease.
        lease: The length of the lease, in seconds.
        began: When the call that acquired it was made, in the loop's time.
    """

    # One per claim: without __slots__, each would have a dictionary for the collector to visit.
    __slots__ = (
        "_beating",
        "_client",
        "_lease",
        "_owner",
        "_refused",
        "_task",
        "_until",
    )

    def __init__(self, client: BackendClient, owner: Renewable, lease: float, began: float) -> None:
        self._client = client
        self._owner = weakref.ref(owner)
        self._lease = lease
        self._until = began + lease
        self._refused = False
        self._beating = True
        self._task: asyncio.Task[None] | None = None
        client.timer.set(self, began + lease / 3)

    @property
    def lost(self) -> bool:
        """Whether the lease is over, as far as is known here. Any thread; never blocks.

        True if the server has refused a renewal, or has confirmed none for the length of the lease.
        That time begins before the request was sent, so it never ends after the lease on the
        server.
        """
        return self._refused or self._client.loop.time() >= self._until

    @property
    def remaining(self) -> float:
        """Seconds until it is `lost`, unless renewed; 0 if it is. Any thread; never blocks."""
        return 0.0 if self._refused else max(0.0, self._until - self._client.loop.time())

    async def renew(self, owner: Renewable, lease: float | None = None) -> bool:
        """Renew now, for ``lease`` seconds from now on if given. False if the server refuses."""
        began = self._client.loop.time()
        length = self._lease if lease is None else lease
        held = await owner._renew(length)
        if held:
            self._lease, self._until = length, began + length
            self._beat_at(began + length / 3)
        else:
            self._refused = True
            self.halt()
        return held

    def resume(self) -> None:
        """Continue after `halt`."""
        if not self._refused:
            self._beating = True
            self._beat_at(self._until - self._lease * 2 / 3)

    def halt(self) -> None:
        """Stop renewing; a pending renewal is cancelled."""
        self._beating = False
        self._client.timer.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    @staticmethod
    async def stop(*heartbeats: Heartbeat) -> None:
        """`halt` each, and wait until no renewal is pending."""
        for heartbeat in heartbeats:
            heartbeat.halt()
        pending = [heartbeat._task for heartbeat in heartbeats if heartbeat._task is not None]
        if pending:
            await asyncio.wait(pending)

    def on_deadline(self) -> None:
        """Start the renewal that is due, unless the owner was garbage-collected."""
        owner = self._owner()
        if owner is None:
            self.halt()
        elif self._task is None or self._task.done():
            try:
                self._task = self._client.start_background(self._attempt(owner))
            except BaseException as error:
                self._try_again(error)
                if not isinstance(error, Exception):
                    raise
        else:
            # The cancelled renewal has not ended yet.
            self._beat_soon()

    def _beat_at(self, when: float) -> None:
        if self._beating:
            self._client.timer.set(self, when)

    async def _attempt(self, owner: Renewable) -> None:
        try:
            await self.renew(owner)
        except Exception as error:
            self._try_again(error)
        else:
            self._client.is_renewing = True

    def _try_again(self, error: BaseException) -> None:
        # Whatever the error: unless the server has refused, the lease can still be renewed.
        if not isinstance(error, StateUnavailableError):
            words = "a lease could not be renewed, trying again: %s"
            _log.warning(words, error, exc_info=error)
        elif self._client.is_renewing:
            self._client.is_renewing = False
            _log.warning("leases cannot be renewed, trying again: %s", error)
        self._beat_soon()

    def _beat_soon(self) -> None:
        self._beat_at(self._client.loop.time() + self._lease / 10)
