"""Feed: one producer of snapshots for all clients, and their event streams.

What breaks without it: each open page would take snapshots of its own, and for a client that does
not read they would pile up. Here a snapshot is taken once for all, and a slow client skips some.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from contextvars import Context

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.live.source import Source

__all__ = ["Feed", "Feeds", "encoded"]

_log = logging.getLogger("rxlanggraph")
# The pause between two snapshots, in seconds: at least; as a multiple of the time that the last one
# took, which is long with a hundred thousand runs; and at most, as a snapshot may only have waited
# for the server of a journal.
_INTERVAL = 0.5
_PAUSE_PER_SNAPSHOT = 100
_LONGEST_PAUSE = 5.0
# Milliseconds after which a browser connects again.
_RETRY = 2000


class Feed:
    """The snapshots of one source, for the clients on one loop. Confined to that loop.

    Args:
        source: Makes the snapshots.
    """

    def __init__(self, source: Source) -> None:
        self.loop = asyncio.get_running_loop()  # never changed; read by any thread
        self._source = source
        self._listeners: set[asyncio.Event] = set()
        self._producer: asyncio.Task[None] | None = None
        self._number = 0
        self._latest = b""
        self._ending = asyncio.Event()
        self._reason: str | None = None  # why it is about to be over
        self.over: str | None = None

    async def listen(self) -> AsyncIterator[bytes]:
        """Yield events: the latest snapshot at once, then the latest one whenever it is new."""
        woken = asyncio.Event()
        self._listeners.add(woken)
        try:
            if self._producer is None:
                self._producer = self.loop.create_task(self._produce(), context=Context())
            yield f"retry: {_RETRY}\n\n".encode()
            number = 0
            while True:
                if self._number > number:
                    number = self._number
                    yield b"event: snapshot\nid: %d\ndata: %b\n\n" % (number, self._latest)
                elif self.over is not None:
                    yield b"event: end\ndata: %b\n\n" % encoded({"reason": self.over})
                    return
                else:
                    woken.clear()
                    await woken.wait()
        finally:
            self._listeners.discard(woken)
            if not self._listeners and self._producer is not None:
                self._producer.cancel()
                self._producer = None

    def end(self, reason: str) -> None:
        """Have all streams end, after one more snapshot."""
        self._reason = self._reason or reason
        self._ending.set()
        if self._producer is None:
            self.over = self._reason

    async def _produce(self) -> None:
        while self.over is None:
            # Checked before the snapshot, so that the last one is complete.
            last = self._reason or ("closed" if self._source.closed else None)
            began = time.monotonic()
            try:
                self._latest = encoded(await self._source.snapshot())
                self._number += 1
            except Exception:
                _log.exception("the live page has ended, because no snapshot could be taken")
                last = "error"
            self.over = last
            self._wake()
            pause = _PAUSE_PER_SNAPSHOT * (time.monotonic() - began)
            pause = min(max(_INTERVAL, pause), _LONGEST_PAUSE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()

    def _wake(self) -> None:
        for woken in self._listeners:
            woken.set()


class Feeds:
    """The feeds of one page, one for each loop that serves it.

    Args:
        source: Makes the snapshots.
        most: How many clients may listen at a time.
    """

    def __init__(self, source: Source, most: int) -> None:
        self._source = source
        self._most = most
        # A leaf, held for a few assignments. Guards all of the below. A feed exists while it has
        # listeners.
        self._lock = fork_safe_rlock()
        self._feeds: dict[asyncio.AbstractEventLoop, Feed] = {}
        self._listening: dict[Feed, int] = {}
        self._over: str | None = None

    def enter(self) -> Feed | None:
        """Take a place on the feed of the running loop; None if there are too many."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._forget_closed_loops()
            if sum(self._listening.values()) >= self._most:
                return None
            feed = self._feeds.get(loop)
            if feed is None or feed.over is not None:
                feed = self._feeds[loop] = Feed(self._source)
                if self._over is not None:
                    feed.end(self._over)
            self._listening[feed] = self._listening.get(feed, 0) + 1
            return feed

    def leave(self, feed: Feed) -> None:
        """Give the place back. On the loop of the feed; in any thread once that is closed."""
        with self._lock:
            left = self._listening.pop(feed, 0) - 1
            if left > 0:
                self._listening[feed] = left
            elif self._feeds.get(feed.loop) is feed:
                del self._feeds[feed.loop]

    def _forget_closed_loops(self) -> None:
        # Their clients cannot leave any more. In a new dict, as their finalizers may enter.
        self._listening = {
            feed: count
            for feed, count in self._listening.copy().items()
            if not feed.loop.is_closed()
        }
        for loop in self._feeds.copy():
            if loop.is_closed():
                self._feeds.pop(loop, None)

    def end(self, reason: str) -> None:
        """Have all streams end, and those that begin later. Any thread; never blocks."""
        with self._lock:
            self._over = reason
            feeds = list(self._feeds.copy().items())  # as finalizers of clients may enter
        for loop, feed in feeds:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(feed.end, reason)


def encoded(data: object) -> bytes:
    """Return ``data`` as JSON, in one line of ASCII. Any thread; never blocks."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")
