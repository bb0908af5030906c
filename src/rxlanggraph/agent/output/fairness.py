"""RoundRobin: whose turn it is among consumers that request items again and again.

In each round every known consumer has one turn. What breaks without it: in a plain queue, a
consumer that is quicker to request again is served more often; one whose loop runs in another
thread is just waking up while another one, on a busy loop, has been served a hundred times.

1. A consumer that has had its turn in this round waits for the next one.
2. The next round begins when no consumer is left that is to have a turn in this one: neither one
   that requests, nor one that is expected to. Expected is a consumer that has been served, lives,
   and used to request again within ``fairness_timeout`` seconds; for so long, counted from when it
   was served or gave up. If it does not come within that time, it is not expected again until it
   has once come back so soon. So one that stops, or is slow, costs the others ``fairness_timeout``
   seconds at most, once.
3. A new consumer has a turn in this round, unless others wait for the next one already: then it
   waits with them, behind them. So a stream of new consumers starves no old one.

Nothing here waits, wakes anything or takes a lock: all of it is guarded by the lock of its owner. A
signal handler or a finalizer may come in between two lines of `RoundRobin.next`, to take a request
back.
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
    """The key that came first; None if there is none."""
    while True:
        try:
            return next(iter(entries), None)
        except RuntimeError:  # a handler has changed it between making the iterator and using it
            continue


class ConsumerKey(Protocol):
    """What stands for a consumer: its task, or its stream."""

    def done(self) -> bool:
        """Whether it will never request again. Any thread."""
        ...


class Consumer(Generic[_T]):
    """What is known of one consumer. Guarded by the owner's lock."""

    __slots__ = ("closed", "loop", "quick", "requests", "since", "who")

    def __init__(self, who: ConsumerKey) -> None:
        self.who = weakref.ref(who)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.requests: deque[_T] = deque()
        # When it was last served or gave up; None for one that requests for the first time.
        self.since: float | None = None
        self.quick = True
        self.closed = False

    def gone(self) -> bool:
        """Whether it cannot come back: it has ended, or its loop has."""
        who = self.who()
        return who is None or who.done() or (self.loop is not None and self.loop.is_closed())


class RoundRobin(Generic[_T]):
    """The requests of all consumers, and the order in which they are served.

    Args:
        fairness_timeout: Seconds for which a quick consumer that has not come back yet is expected.
        clock: Tells the time in seconds; one that never goes back.
    """

    def __init__(self, fairness_timeout: float, clock: Callable[[], float] = monotonic) -> None:
        self._fairness_timeout = fairness_timeout
        self._clock = clock
        # Never iterated over but as a copy: the collector may drop an entry from it any time.
        self._known: weakref.WeakKeyDictionary[ConsumerKey, Consumer[_T]]
        self._known = weakref.WeakKeyDictionary()
        # Ordered sets. A consumer that requests is in one of the first two; one that is expected is
        # in the fourth; the third has those that have had their turn.
        self._line: OrderedDict[Consumer[_T], None] = OrderedDict()
        self._later: OrderedDict[Consumer[_T], None] = OrderedDict()
        self._served: dict[Consumer[_T], None] = {}
        self._expected: dict[Consumer[_T], None] = {}
        # How many may have had their turn before it is worth while to look which of them are gone.
        self._crowd = _CROWD

    def knows(self, who: ConsumerKey) -> bool:
        """Whether ``who`` has come before."""
        return who in self._known

    def consumer(self, who: ConsumerKey) -> Consumer[_T]:
        """Return what is known of ``who``, which is not kept alive by it."""
        known = self._known.get(who)
        if known is None:
            known = self._known[who] = Consumer(who)
            self._forget_the_gone()
        return known

    def _forget_the_gone(self) -> None:
        # Where each item is got by a task of its own no consumer comes twice: the round never ends.
        if len(self._served) > self._crowd:
            for consumer in [each for each in list(self._served) if each.gone()]:
                self._served.pop(consumer, None)
            self._crowd = 2 * len(self._served) + _CROWD

    def enqueue(self, consumer: Consumer[_T], request: _T) -> None:
        """Line ``request`` up. A consumer may have several, and still has one turn in a round."""
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
        """Take ``request`` back, and with it the turn in this round if it was the consumer's last.

        Returns:
            False if it was served, or taken back, before.
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
        """Forget ``consumer``, which never comes back. Returns its requests."""
        consumer.closed = True
        requests = list(consumer.requests)
        consumer.requests.clear()
        for group in (self._line, self._later, self._served, self._expected):
            group.pop(consumer, None)
        return requests

    def next(self) -> _T | None:
        """Return the request whose turn it is, and end that turn; None if there is none now."""
        while self._line or self._begin_round():
            try:
                consumer, _ = self._line.popitem(last=False)
                request = consumer.requests.popleft()
            except (KeyError, IndexError):  # taken back between these very lines
                continue
            consumer.since = self._clock()
            self._served[consumer] = None
            if consumer.requests:
                self._later[consumer] = None
            return request
        return None

    def attended(self) -> bool:
        """Whether a known consumer may still come."""
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
        """Seconds after which to see whether it is the turn of ``consumer``, which requests.

        None if it does not wait for one that is expected.
        """
        if consumer not in self._later or not self._expected:
            return None
        # At once if that has just ended: the owner found it going on when it called `next`.
        return self._expecting() or 0.0

    def _expecting(self) -> float | None:
        """Seconds until a consumer is not expected any more; None if none is expected now."""
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
