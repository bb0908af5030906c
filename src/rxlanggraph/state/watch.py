"""The versions of a key as an Observable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxlanggraph.errors import LoopUnavailableError, StateClosedError
from rxlanggraph.state.backend import Versioned
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import decode
from rxlanggraph.state.polling import wait_for_notification

__all__ = ["watch"]


def watch(client: BackendClient, key: str, interval: float) -> Observable[Versioned]:
    """Return the Observable of ``State.watch``; each subscription polls on its own."""

    def subscribe(
        observer: abc.ObserverBase[Versioned], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        watcher = _Watcher(client, key, interval, observer)
        watcher.start()
        return Disposable(watcher.stop)

    return Observable(subscribe)


class _Watcher:
    """One subscription, and its task that polls."""

    def __init__(
        self,
        client: BackendClient,
        key: str,
        interval: float,
        observer: abc.ObserverBase[Versioned],
    ) -> None:
        self._client = client
        self._key = key
        self._interval = interval
        self._observer = observer
        # Set once, by the thread that disposes of the subscription; read on the loop.
        self._stopped = False
        # Confined to the loop.
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start polling on the loop. Any thread; never blocks."""
        if not self._client.loop.is_running() or not self._on_loop(self._begin):
            self._observer.on_error(
                LoopUnavailableError(
                    f"{self._key!r} cannot be watched, as the event loop of the state is not "
                    "running; subscribe while it runs"
                )
            )

    def stop(self) -> None:
        """Stop polling. Any thread; never blocks."""
        self._stopped = True
        self._on_loop(self._cancel)

    def _on_loop(self, step: Callable[[], None]) -> bool:
        if asyncio._get_running_loop() is self._client.loop:
            step()
            return True
        try:
            self._client.loop.call_soon_threadsafe(step)
        except RuntimeError:  # it is closed
            return False
        return True

    def _begin(self) -> None:
        if self._stopped:
            return
        if self._client.closed:
            self._observer.on_error(
                StateClosedError(
                    f"{self._key!r} cannot be watched, as the state is closed; open_state(...) "
                    "opens it again"
                )
            )
        else:
            self._task = self._client.start_background(self._watch())

    def _cancel(self) -> None:
        # Not from inside the task: an observer that disposes of itself ends it by `_stopped`.
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def _watch(self) -> None:
        try:
            await self._poll()
        finally:
            # Also after a cancellation: that is how a closing state ends its background tasks.
            if self._client.closed and not self._stopped:
                self._observer.on_completed()

    async def _poll(self) -> None:
        client, seen = self._client, 0
        with client.notifier.listen(("key", self._key)) as notified:
            while self._is_active():
                notified.clear()
                try:
                    (entry,) = await client.call(client.backend.read, [self._key], repeatable=True)
                    is_new = entry.version > seen
                    value = decode(entry.text, "the value of", self._key) if is_new else None
                except Exception as error:
                    if self._is_active():
                        self._observer.on_error(error)
                    return
                if is_new and self._is_active():
                    seen = entry.version
                    self._observer.on_next(Versioned(value, entry.version))
                if self._is_active():
                    await wait_for_notification(notified, self._interval)

    def _is_active(self) -> bool:
        return not self._stopped and not self._client.closed
