"""Waiting for changes: notified of those that this process knows of, polling for all others.

It knows of its own changes, and of tasks that other processes have added if the backend can tell
(`rxlanggraph.state.backend.NotifyingBackend`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Hashable, Iterator
from itertools import islice

__all__ = ["Notifier", "PollSchedule", "wait_for_notification"]

# Seconds between two polls: short at first, for bursts of work; then longer, as each waiting worker
# polls the server. Guesses.
_FIRST_PAUSE = 0.01
_MAX_PAUSE = 0.25


class Notifier:
    """Wakes the listeners of a topic. Confined to the loop of its state."""

    def __init__(self) -> None:
        # By topic, those that listen, in the order in which they began.
        self._listeners: dict[Hashable, dict[asyncio.Event, None]] = {}

    @contextlib.contextmanager
    def listen(self, topic: Hashable) -> Iterator[asyncio.Event]:
        """Yield an event that each `notify` sets. Clear it, check, and only then wait for it."""
        notified = asyncio.Event()
        listeners = self._listeners.setdefault(topic, {})
        listeners[notified] = None
        try:
            yield notified
        finally:
            listeners.pop(notified)
            if not listeners and self._listeners.get(topic) is listeners:
                del self._listeners[topic]

    @contextlib.contextmanager
    def poll(self, topic: Hashable, wait: float) -> Iterator[PollSchedule]:
        """Yield the pauses between polls, which each `notify` ends; see `PollSchedule`."""
        with self.listen(topic) as notified:
            yield PollSchedule(notified, wait)

    def notify(self, topic: Hashable, count: int | None = None) -> None:
        """Wake ``count`` listeners of ``topic``, those that began first; None: all of them.

        One that was woken already does not count. A listener that does nothing about it, and leaves
        with its event set, has to pass it on.
        """
        listeners = self._listeners.get(topic)
        if listeners is None:  # as mostly, for keys
            return
        waiting = (event for event in listeners if not event.is_set())
        for notified in [*islice(waiting, count)]:
            notified.set()

    def notify_all(self) -> None:
        """Wake all listeners."""
        for topic in self._listeners:
            self.notify(topic)


class PollSchedule:
    """The pauses between polls, for at most ``wait`` seconds altogether.

    They grow and are random, so that many waiters do not poll in step.

    Attributes:
        notified: Ends a pause. Clear it, check, and only then pause.
        wait: The limit, in seconds.
    """

    def __init__(self, notified: asyncio.Event, wait: float) -> None:
        self.notified = notified
        self.wait = wait
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + wait
        self._pause = _FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds left; 0 or less once the time is up."""
        return self._end - self._loop.time()

    def timeout(self) -> asyncio.Timeout:
        """Return a timeout for a block that may take the time that is left."""
        return asyncio.timeout(None if math.isinf(self.wait) else self.left)

    async def pause(self) -> bool:
        """Wait for a notification or the next poll; False once the time is up."""
        if self.left <= 0:
            return False
        seconds = min(self._pause * random.uniform(0.5, 1.0), self.left)  # noqa: S311 - no secret
        self._pause = min(2 * self._pause, _MAX_PAUSE)
        await wait_for_notification(self.notified, seconds)
        return True


async def wait_for_notification(notified: asyncio.Event, seconds: float) -> None:
    """Wait for a notification, at most ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await notified.wait()
