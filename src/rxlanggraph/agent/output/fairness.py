"""RoundRobin: serves consumers that request items again and again in turn.

In each round every known consumer is served once. What breaks without it: in a plain queue, a
consumer that requests again sooner is served more often; one whose loop runs in another thread is
still waking up when another one, on a busy loop, has been served a hundred times.

1. A consumer that was served in this round waits for the next one.
2. The next round begins when no consumer is left to be served in this one: none that has a request,
   and none that is expected. A consumer is expected if it has been served, is alive, and its last
   request came within ``fairness_timeout`` seconds; for that long, counted from when it was served
   or gave up. If it does not come back in time, it is not expected again until it has once come
   back that soon. So a consumer that stops, or is slow, costs the others ``fairness_timeout``
   seconds at most, once.
3. A new consumer is served in this round, unless others already wait for the next one: then it
   waits with them, behind them. So a stream of new consumers starves no old one.

Nothing here waits, wakes anything or takes a lock: everything is guarded by the lock of its owner.
A signal handler or a finalizer may withdraw a request between two lines of `RoundRobin.next`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Consumer", "ConsumerKey", "RoundRobin", "oldest"]

_T = TypeVar("_T")
_CROWD = 64


def oldest(entries: dict[_T, Any]) -> _T | None:
    """The key that was inserted first; None if there is none."""
    while True:
        try:
            return next(iter(entries), None)
        except RuntimeError:  # a handler changed it since the iterator was made
            continue


class ConsumerKey(Protocol):
    """Identifies a consumer: its task, or its stream."""

    def done(self) -> bool:
        """Whether it will never request again. Any thread."""
        ...


class Consumer(Generic[_T]):
    """The state of one consumer. Guarded by the owner's lock."""

    __slots__ = ("closed", "loop", "quick", "requests", "since", "who")

    def __init__(self, who: ConsumerKey) -> None:
        self.who = weakref.ref(who)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.requests: deque[_T] = deque()
        # When it was last served or gave up; None before its first request.
        self.since: float | None = None
        self.quick = True
        self.closed = False

    def gone(self) -> bool:
        """Whether it cannot come back: it has ended, or its loop has been closed."""
        who = self.who()
        return who is None or who.done() or (self.loop is not None and self.loop.is_closed())


class RoundRobin(Generic[_T]):
    """The requests of all consumers, and the order in which they are served.

    Args:
        fairness_timeout: Seconds during which a fast consumer is expected to come back.
        clock: Returns the time in seconds; must be monotonic.
    """

    def __init__(self, fairness_timeout: float, clock: Callable[[], float] = monotonic) -> None:
        self._fairness_timeout = fairness_timeout
        self._clock = clock
        # Iterated over only as a copy: the collector may remove an entry at any time.
        self._known: weakref.WeakKeyDictionary[ConsumerKey, Consumer[_T]]
        self._known = weakref.WeakKeyDictionary()
        # Ordered sets. A consumer with a request is in one of the first two; an expected one is in
        # the fourth; the third has those that were served in this round.
        self._line: OrderedDict[Consumer[_T], None] = OrderedDict()
        self._later: OrderedDict[Consumer[_T], None] = OrderedDict()
        self._served: dict[Consumer[_T], None] = {}
        self._expected: dict[Consumer[_T], None] = {}
        # How many may have been served before checking which of them are gone is worthwhile.
        self._crowd = _CROWD

    def knows(self, who: ConsumerKey) -> bool:
        """Whether ``who`` is known already."""
        return who in self._known

    def consumer(self, who: ConsumerKey) -> Consumer[_T]:
        """Return the state of ``who``, which is held weakly."""
        known = self._known.get(who)
        if known is None:
            known = self._known[who] = Consumer(who)
            self._forget_the_gone()
        return known

    def _forget_the_gone(self) -> None:
        # If each item is fetched by a new task, no consumer comes twice: the round never ends.
        if len(self._served) > self._crowd:
            for consumer in [each for each in list(self._served) if each.gone()]:
                self._served.pop(consumer, None)
            self._crowd = 2 * len(self._served) + _CROWD

    def enqueue(self, consumer: Consumer[_T], request: _T) -> None:
        """Queue ``request``. A consumer may have several, and is still served once in a round."""
        new = consumer.since is None
        if consumer.since is not None and not consumer.requests:
            consumer.quick = self._clock() - consumer.since < self._fairness_timeout
        consumer.requests.append(request)
        self._expected.pop(consumer, None)
        if consumer in self._line or consumer in self._later:
            return
        waits = consumer in self._served or (new and self._later)
        (self._later if waits else self._line)[consumer] = None

    def leave(self, consumer: Consumer[_T], request: _T) -> bool:
        """Withdraw ``request``; without another one, its consumer is not served in this round.

        Returns:
            False if it was served or withdrawn before.
        """
        try:
            consumer.requests.remove(request)
        except ValueError:
            return False
        if not consumer.requests:
            consumer.since = self._clock()
            self._line.pop(consumer, None)
            self._later.pop(consumer, None)
        return True

    def close(self, consumer: Consumer[_T]) -> list[_T]:
        """Remove ``consumer``, which never comes back. Return its requests."""
        consumer.closed = True
        requests = list(consumer.requests)
        consumer.requests.clear()
        for group in (self._line, self._later, self._served, self._expected):
            group.pop(consumer, None)
        return requests

    def next(self) -> _T | None:
        """Return the request to serve next, and mark it served; None if there is none now."""
        while self._line or self._begin_round():
            try:
                consumer, _ = self._line.popitem(last=False)
                request = consumer.requests.popleft()
            except (KeyError, IndexError):  # withdrawn between these two lines
                continue
            consumer.since = self._clock()
            self._served[consumer] = None
            if consumer.requests:
                self._later[consumer] = None
            return request
        return None

    def attended(self) -> bool:
        """Whether a known consumer may still come back."""
        whos = [who for ref in self._known.keyrefs() if (who := ref()) is not None]
        return not all(self.consumer(who).gone() for who in whos)

    def waiting(self) -> bool:
        """Whether there are requests."""
        return bool(self._line or self._later)

    def pending(self) -> list[_T]:
        """All requests."""
        consumers = [*self._line, *self._later]
        return [request for consumer in consumers for request in list(consumer.requests)]

    def delay(self, consumer: Consumer[_T]) -> float | None:
        """Seconds after which to check again whether ``consumer``, which has a request, is served.

        None if it does not wait for an expected consumer.
        """
        if consumer not in self._later or not self._expected:
            return None
        # At once if the time has just ended: the owner found it unfinished when it called `next`.
        return self._expecting() or 0.0

    def _expecting(self) -> float | None:
        """Seconds until no consumer is expected any more; None if none is expected now."""
        now = self._clock()
        while (consumer := oldest(self._expected)) is not None:
            left = (consumer.since or 0.0) + self._fairness_timeout - now
            if left > 0 and not consumer.gone():
                return left
            self._expected.pop(consumer, None)
        return None

    def _begin_round(self) -> bool:
        if not self._later or self._expecting() is not None:
            return False
        served, self._served = self._served, {}
        self._line, self._later = self._later, OrderedDict()
        now = self._clock()
        for consumer in served:
            soon = consumer.quick and now - (consumer.since or 0.0) < self._fairness_timeout
            if soon and not consumer.requests:
                self._expected[consumer] = None
        return True
