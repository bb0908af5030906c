"""RoundRobin: serves consumers in turn that request items again and again.

What breaks without it: in a plain queue, a consumer that requests again sooner is served more
often; a consumer whose loop runs in another thread is still waking up when another one, on a busy
loop, has been served many times.

In each round every known consumer is served once.

1. A consumer that was served in this round waits for the next one.
2. The next round begins when this one has no consumer left to serve: none with a request, and none
   that is expected. A consumer is expected for ``fairness_timeout`` seconds after it was served or
   gave up, if it is alive and was that quick to request again the last time. If it exceeds that
   time, it is not expected again until it has been quick once more. A consumer that stops, or is
   slow, therefore costs the others at most ``fairness_timeout`` seconds, once.
3. A new consumer is served in this round, unless others already wait for the next one: then it
   waits behind them. A stream of new consumers therefore starves no old one.

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
_PRUNE_STEP = 64


def oldest(entries: dict[_T, Any]) -> _T | None:
    """The key that was inserted first; None if there is none."""
    while True:
        try:
            return next(iter(entries), None)
        except RuntimeError:  # a signal handler has changed the dict in between
            continue


class ConsumerKey(Protocol):
    """Identifies a consumer: its task, or its stream."""

    def done(self) -> bool:
        """Whether it will never request again. Any thread."""
        ...


class Consumer(Generic[_T]):
    """The state of one consumer. Guarded by the owner's lock."""

    __slots__ = ("closed", "key", "loop", "quick", "requests", "since")

    def __init__(self, key: ConsumerKey) -> None:
        self.key = weakref.ref(key)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.requests: deque[_T] = deque()
        # When it was last served or gave up; None before its first request.
        self.since: float | None = None
        # Whether its last request came within the fairness timeout.
        self.quick = True
        self.closed = False

    def gone(self) -> bool:
        """Whether it cannot come back: it has ended, or its loop has been closed."""
        key = self.key()
        return key is None or key.done() or (self.loop is not None and self.loop.is_closed())


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
        self._this_round: OrderedDict[Consumer[_T], None] = OrderedDict()
        self._next_round: OrderedDict[Consumer[_T], None] = OrderedDict()
        self._served: dict[Consumer[_T], None] = {}
        self._expected: dict[Consumer[_T], None] = {}
        # The number of served consumers from which on those that are gone are removed.
        self._prune_at = _PRUNE_STEP

    def knows(self, key: ConsumerKey) -> bool:
        """Whether ``key`` belongs to a known consumer."""
        return key in self._known

    def consumer(self, key: ConsumerKey) -> Consumer[_T]:
        """Return the consumer with ``key``, which is held weakly; a new one if it is not known."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Consumer(key)
            self._prune()
        return known

    def _prune(self) -> None:
        # If a new task gets each item, no consumer comes twice, so the round never ends.
        if len(self._served) > self._prune_at:
            for consumer in [each for each in list(self._served) if each.gone()]:
                self._served.pop(consumer, None)
            self._prune_at = 2 * len(self._served) + _PRUNE_STEP

    def enqueue(self, consumer: Consumer[_T], request: _T) -> None:
        """Queue ``request``. A consumer may have several, and is still served once in a round."""
        new = consumer.since is None
        if consumer.since is not None and not consumer.requests:
            consumer.quick = self._clock() - consumer.since < self._fairness_timeout
        consumer.requests.append(request)
        self._expected.pop(consumer, None)
        if consumer in self._this_round or consumer in self._next_round:
            return
        waits = consumer in self._served or (new and self._next_round)
        (self._next_round if waits else self._this_round)[consumer] = None

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
            self._this_round.pop(consumer, None)
            self._next_round.pop(consumer, None)
        return True

    def close(self, consumer: Consumer[_T]) -> list[_T]:
        """Remove ``consumer``, which never comes back. Return its requests."""
        consumer.closed = True
        requests = list(consumer.requests)
        consumer.requests.clear()
        for group in (self._this_round, self._next_round, self._served, self._expected):
            group.pop(consumer, None)
        return requests

    def next(self) -> _T | None:
        """Return the request to serve next, and mark it served; None if there is none now."""
        while self._this_round or self._begin_round():
            try:
                consumer, _ = self._this_round.popitem(last=False)
                request = consumer.requests.popleft()
            except (KeyError, IndexError):  # withdrawn between these two lines
                continue
            consumer.since = self._clock()
            self._served[consumer] = None
            if consumer.requests:
                self._next_round[consumer] = None
            return request
        return None

    def has_live_consumer(self) -> bool:
        """Whether a known consumer may still come back."""
        keys = [key for ref in self._known.keyrefs() if (key := ref()) is not None]
        return not all(self.consumer(key).gone() for key in keys)

    def waiting(self) -> bool:
        """Whether there are requests."""
        return bool(self._this_round or self._next_round)

    def pending(self) -> list[_T]:
        """All requests."""
        consumers = [*self._this_round, *self._next_round]
        return [request for consumer in consumers for request in list(consumer.requests)]

    def delay(self, consumer: Consumer[_T]) -> float | None:
        """Seconds after which to check again whether ``consumer``, which has a request, is served.

        None if it does not wait for an expected consumer.
        """
        if consumer not in self._next_round or not self._expected:
            return None
        # 0 if the time has just ended: it had not when the owner called `next`.
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
        if not self._next_round or self._expecting() is not None:
            return False
        served, self._served = self._served, {}
        self._this_round, self._next_round = self._next_round, OrderedDict()
        now = self._clock()
        for consumer in served:
            soon = consumer.quick and now - (consumer.since or 0.0) < self._fairness_timeout
            if soon and not consumer.requests:
                self._expected[consumer] = None
        return True
