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

_logger = logging.getLogger(__name__)


class Renewable(Protocol):
    """A lease and its owner: what a `Heartbeat` renews."""

    def _renew(self, seconds: float) -> Awaitable[bool]:
        """Ask the server to renew the lease for ``seconds`` from now; False if it refuses."""


class Heartbeat:
    """Renews one lease after each third of it, on the loop of its state.

    Between two renewals there is only a deadline of a `SharedTimer`, no task. The owner is held
    weakly: a claim that was dropped unfinished is no longer renewed, so its task comes back.

    `lost` may be read from any thread; everything else is confined to the loop.

    Args:
        client: The state's.
        owner: The holder of the lease.
        lease: How many seconds it lasts.
        began: When the call that acquired it was made, in the loop's time.
    """

    # There are as many as claims, and a dictionary of each would be one more for the collector.
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
        """Whether the lease is over, as far as can be known here. Any thread; never blocks.

        The server said so, or was not heard of for the whole length of the lease. That is counted
        from before the server was asked, so this is never later than the server's view.
        """
        return self._refused or self._client.loop.time() >= self._until

    async def renew(self, owner: Renewable, lease: float | None = None) -> bool:
        """Renew now; ``lease`` becomes the length from now on. False if the server refuses."""
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
        """Stop renewing; a renewal under way is cancelled."""
        self._beating = False
        self._client.timer.discard(self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def stop(self) -> None:
        """`halt`, and wait until no renewal is under way."""
        self.halt()
        if self._task is not None:
            await asyncio.wait([self._task])

    def on_deadline(self) -> None:
        """Begin a renewal, as it is due; but not for an owner that is gone."""
        owner = self._owner()
        if owner is None:
            self.halt()
        elif self._task is None or self._task.done():
            self._task = self._client.start_background(self._attempt(owner))
        else:
            # It was cancelled, and takes its time to end.
            self._beat_at(self._client.loop.time() + self._lease / 10)

    def _beat_at(self, when: float) -> None:
        if self._beating:
            self._client.timer.set(self, when)

    async def _attempt(self, owner: Renewable) -> None:
        try:
            await self.renew(owner)
        except Exception as error:
            # Any error: until the server has refused, the lease may still be held, or be held
            # again. An unreachable server deserves no traceback.
            _logger.warning(
                "a lease could not be renewed, trying again: %s",
                error,
                exc_info=not isinstance(error, StateUnavailableError),
            )
            self._beat_at(self._client.loop.time() + self._lease / 10)
