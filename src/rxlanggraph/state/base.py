"""BaseState: values, locks and queues on one backend, for the loop that opened it."""

from __future__ import annotations

import asyncio

from rxlanggraph.concurrency.closing import AsyncClosingContext
from rxlanggraph.state.administration import AdministrationOperations
from rxlanggraph.state.backend import Backend
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.keys import KeyOperations
from rxlanggraph.state.locks import LockOperations
from rxlanggraph.state.queues import QueueOperations
from rxlanggraph.validation import check_attempts

__all__ = ["BaseState"]


class BaseState(
    AsyncClosingContext, KeyOperations, LockOperations, QueueOperations, AdministrationOperations
):
    """A `State` without its ``sync``.

    Made on a running event loop, to which it belongs; used there by any number of tasks at once.
    As an async context manager it closes itself at the end of the block.

    Args:
        backend: An opened backend, for its sole use; closed with the state.
        max_attempts: How often a task may be claimed before it is dead; the default of
            ``add_tasks``.

    Raises:
        InvalidTypeError, InvalidArgumentError: ``max_attempts`` is not a valid number of attempts.
    """

    def __init__(self, backend: Backend, *, max_attempts: int = 5) -> None:
        check_attempts("max_attempts", max_attempts)
        client = BackendClient(backend)
        KeyOperations.__init__(self, client)
        LockOperations.__init__(self, client)
        QueueOperations.__init__(self, client, max_attempts)
        AdministrationOperations.__init__(self, client)

    @property
    def backend(self) -> Backend:
        """The backend below, for conformance checks and tools. Any thread."""
        return self._client.backend

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that the state belongs to. Any thread."""
        return self._client.loop

    async def aclose(self) -> None:
        """Close the state: refuse new calls, stop heartbeats and watchers, disconnect.

        On the loop. Idempotent. It lets pending calls end; those that wait for a lock or an item
        raise StateClosedError. Open leases and claims expire, as those of a process that died. If
        cancelled, it closes without waiting for pending calls.

        Raises:
            WrongThreadError: This is not the loop that opened the state, which stays as it is.
        """
        await self._client.close()
