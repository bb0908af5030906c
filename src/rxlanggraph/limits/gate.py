"""ModelGate: the limits of one key: which call is next, and how many are made at once.

What breaks without it: each run that a provider refuses retries on its own. Together the retries
ask for more than before, and what one run has learned (the limit, the pause) does not help the
others.

Calls wait in order of arrival for three things: the end of a pause, a place among the concurrent
calls, and room in the `Window`. The number of places adapts by additive increase and multiplicative
decrease, as in TCP (RFC 5681): it grows by one after as many answers as there are places, and is
halved when the provider refuses a call, once for all calls that were in flight at that time.

A call that is made inside another call of the same context (while a stream is being read, by a
model that calls a model, in a batch) neither takes nor waits for a place: the place that it would
wait for may be the one that its own caller holds.

Invariant kept here (its number as in docs/design.md): 5. A finalizer that enters here only adds to
a queue.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from rxlanggraph.concurrency.clock import SYSTEM_CLOCK, Clock
from rxlanggraph.limits.shared import SharedWindow
from rxlanggraph.limits.waits import InThread, OnLoop, Wait
from rxlanggraph.limits.windows import Slot, Window
from rxlanggraph.validation import check_duration, check_whole

__all__ = ["LimitStatistics", "ModelGate", "ModelLimit", "ProviderRefusal", "Ticket"]

# By what a refusal multiplies the number of places.
_FACTOR = 0.5
# Seconds of the first pause where the server does not say how long, and the longest one. Guesses.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
# Seconds. A wait for less than the resolution of a clock would be repeated without end.
_LEAST_WAIT = 0.001
# The estimated tokens of the first answer, and the weight of each later one in the estimate, as for
# TCP's round-trip time (RFC 6298). Guesses.
_FIRST_ANSWER = 500.0
_WEIGHT = 0.125


@dataclass(frozen=True, slots=True)
class ModelLimit:
    """What a provider allows for one key.

    Args:
        requests: How many requests are sent in any ``per`` seconds; None for any number.
        tokens: How many tokens these may have, questions and answers together; None for any number.
        per: Seconds of the interval: 60 for limits by the minute.
        concurrency: How many calls may be under way at once. It falls when the provider refuses,
            and grows again up to this number. None: as many as come, until it refuses.

    Raises:
        InvalidArgumentError: A number is out of range.
        InvalidTypeError: One is not a number.
    """

    requests: int | None = None
    tokens: int | None = None
    per: float = 60.0
    concurrency: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("requests", "tokens", "concurrency"):
            value = getattr(self, name)
            if value is not None:
                check_whole(name, value, least=1)
        check_duration("per", self.per)


class LimitStatistics(NamedTuple):
    """The calls of one key, at one moment.

    Attributes:
        calls: How many were let through, since the beginning.
        refused: How many of them the provider has refused, with 429, 503 or 529.
        in_flight: How many are under way.
        waiting: How many wait.
        concurrency: How many may be under way at once; infinity for any number.
        paused: Seconds until the provider is called again; 0 if it is not paused.
        tokens: How many tokens they had, by the provider's count where it gives one.
    """

    calls: int
    refused: int
    in_flight: int
    waiting: int
    concurrency: float
    paused: float
    tokens: int


class ProviderRefusal(NamedTuple):
    """What a provider says when it refuses a call.

    Attributes:
        pause: Seconds that it asks to wait; None if it does not say.
        insists: Whether it refuses all calls of this key, so that a pause is due in any case.
    """

    pause: float | None
    insists: bool


class Ticket:
    """One call, from its arrival to its end.

    Args:
        clock: The clock of its bridge.
        wait: How it waits; None if it does not.
        prompt: Estimated tokens of its question.
        answer: Tokens that its answer may have at most; None if that is not known.
        inner: Whether it is made within another call, and so needs no place of its own.
    """

    # All of these, and `wait`, are guarded by the lock of the gate; `open` is read without it, too.
    open = False  # whether it is under way
    queued = False
    abandoned = False  # whether it must wait no longer
    has_place = False
    tokens = 0  # those reserved
    slot: Slot = 0
    epoch = 0  # how many refusals had counted when it began

    def __init__(
        self, clock: Clock, wait: Wait | None, prompt: int, answer: int | None, *, inner: bool
    ) -> None:
        self.clock = clock
        self.wait = wait
        self.prompt = prompt
        self.answer = answer
        self.inner = inner


class ModelGate:
    """The calls of one key.

    Args:
        limit: What is allowed.
        lock: The lock of all gates; a leaf.
        shared: The window that other processes share; None: it is not shared.
    """

    def __init__(
        self, limit: ModelLimit, lock: threading.RLock, shared: SharedWindow | None = None
    ) -> None:
        self.limit = limit
        # Guards all that follows.
        self._lock = lock
        self._shared = shared  # never changed
        self._clock = SYSTEM_CLOCK  # of the last call
        self._window = Window(limit.requests, limit.tokens, limit.per)
        # In order of arrival. A deque would be searched for each call that is cancelled.
        self._queue: OrderedDict[Ticket, None] = OrderedDict()
        self._most = math.inf if limit.concurrency is None else limit.concurrency
        self._places: float = self._most
        self._taken = 0  # places
        self._answered = 0  # since there is one place more
        self._in_flight = 0
        self._paused_until = -math.inf
        self._epoch = 0
        self._refused_in_a_row = 0
        # Tokens of an answer on average, and how far from it they are.
        self._answer = _FIRST_ANSWER
        self._deviation = 0.0
        self._calls = self._refused = self._tokens = 0
        # Calls that ended unreported: added by finalizers, one call each, without the lock.
        self._lost: deque[Ticket] = deque()

    # -- one call ------------------------------------------------------------------------------

    async def enter_async(self, ticket: Ticket, wait: OnLoop) -> None:
        """Wait until ``ticket`` is admitted. On any loop. Cancelling it leaves the queue.

        Raises:
            CancelledError: It was abandoned meanwhile.
        """
        try:
            while True:
                delay = self._attempt(ticket)
                if not delay and self._shared is not None:
                    ticket.slot, delay = await self._shared.reserve_async(ticket.tokens)
                    if not delay:
                        self._granted(ticket, self._shared)
                if not delay:
                    return
                await wait.wait(delay)
        except BaseException:
            self.leave(ticket)
            raise

    def enter(self, ticket: Ticket, wait: InThread) -> None:
        """Block until ``ticket`` is admitted. In a thread without a loop.

        Raises:
            CancelledError: It was abandoned meanwhile.
        """
        try:
            while True:
                delay = self._attempt(ticket)
                if not delay and self._shared is not None:
                    ticket.slot, delay = self._shared.reserve(ticket.tokens)
                    if not delay:
                        self._granted(ticket, self._shared)
                if not delay:
                    return
                wait.wait(delay)
        except BaseException:
            self.leave(ticket)
            raise

    def enter_nowait(self, ticket: Ticket) -> None:
        """Admit ``ticket`` at once, and count it. Any thread; never blocks."""
        with self._lock:
            self._collect()
            ticket.tokens = self._expected(ticket)
            now = ticket.clock.now()
            ticket.slot = self._window.slot_of(now) if self._shared is None else self._shared.slot()
            self._change(ticket.slot, 1, ticket.tokens)
            self._admit(ticket)

    def _attempt(self, ticket: Ticket) -> float:
        """Admit ``ticket`` if possible, and return 0; otherwise the seconds until the next attempt.

        With a shared window, 0 means that this may be asked for room; the ticket is not admitted.
        """
        with self._lock:
            self._collect()
            if ticket.abandoned:
                raise asyncio.CancelledError
            assert ticket.wait is not None
            ticket.wait.prepare()
            if not ticket.inner:
                if not ticket.queued:
                    ticket.queued = True
                    self._queue[ticket] = None
                if next(iter(self._queue)) is not ticket or self._taken >= self._places:
                    return math.inf
            now = ticket.clock.now()
            if self._paused_until > now:
                return max(self._paused_until - now, _LEAST_WAIT)
            ticket.tokens = self._expected(ticket)
            if self._shared is not None:
                return 0.0
            ticket.slot, delay = self._window.reserve(ticket.tokens, now)
            if not delay:
                self._admit(ticket)
                return 0.0
            return max(delay, _LEAST_WAIT)

    def _granted(self, ticket: Ticket, shared: SharedWindow) -> None:
        """Admit ``ticket``, for which a shared window had room, unless it was abandoned."""
        with self._lock:
            if ticket.abandoned:
                shared.change(ticket.slot, -1, -ticket.tokens)
                raise asyncio.CancelledError
            self._admit(ticket)

    def _admit(self, ticket: Ticket) -> None:
        self._clock = ticket.clock
        ticket.open = True
        ticket.wait = None  # it refers to a loop, and contexts that refer to this may live long
        ticket.epoch = self._epoch
        ticket.has_place = ticket.queued
        self._calls += 1
        self._in_flight += 1
        if ticket.queued:
            self._taken += 1
            ticket.queued = False
            del self._queue[ticket]
            self._wake_next()

    def leave(self, ticket: Ticket) -> None:
        """Remove ``ticket``: it waits no longer, or ended unreported. Any thread; never blocks."""
        with self._lock:
            self._collect()
            self._remove(ticket)

    def abandon(self, ticket: Ticket) -> None:
        """End the wait of ``ticket`` with a CancelledError. Any thread; never blocks."""
        with self._lock:
            ticket.abandoned = True
            if not ticket.open:
                self._remove(ticket)
                if ticket.wait is not None:
                    ticket.wait.wake()

    def lose(self, ticket: Ticket) -> None:
        """As `leave`, but later, in the next call of any other method. In a finalizer."""
        self._lost.append(ticket)

    def collect(self) -> None:
        """Remove now the tickets that `lose` was called with. Any thread; never blocks."""
        with self._lock:
            self._collect()

    def answered(self, ticket: Ticket, tokens: int | None, pause: float | None) -> None:
        """Note that ``ticket`` has its answer. Any thread; never blocks.

        Args:
            ticket: The call.
            tokens: How many tokens question and answer had; None if the provider does not say.
            pause: Seconds until it will answer the next one; None if it does not say.
        """
        with self._lock:
            if not ticket.open:
                return
            if tokens is not None:
                self._learn(tokens - ticket.prompt)
                self._correct(ticket, tokens)
            if pause is not None:
                self._pause(ticket, pause)
            self._refused_in_a_row = 0
            if self._places < self._most and (self._queue or self._taken >= self._places):
                self._answered += 1
                if self._answered >= self._places:
                    self._answered = 0
                    self._places += 1
            self._remove(ticket)

    def failed(self, ticket: Ticket, tokens: int | None, refusal: ProviderRefusal | None) -> None:
        """Note that ``ticket`` has ended without an answer. Any thread; never blocks.

        Args:
            ticket: The call.
            tokens: How many of its tokens count; None if that is not known.
            refusal: If the provider has refused it, what it says.
        """
        with self._lock:
            if not ticket.open:
                return
            if tokens is not None:
                self._correct(ticket, tokens)
            if refusal is not None:
                self._refused += 1
                self._slow_down(ticket, refusal)
            self._remove(ticket)

    # -- what is known of the provider, under the lock ---------------------------------------------

    def _expected(self, ticket: Ticket) -> int:
        if self.limit.tokens is None:
            return ticket.prompt
        answer = int(self._answer + 2 * self._deviation)
        return ticket.prompt + (answer if ticket.answer is None else min(answer, ticket.answer))

    def _learn(self, answer: int) -> None:
        error = max(0, answer) - self._answer
        self._answer += _WEIGHT * error
        self._deviation += _WEIGHT * (abs(error) - self._deviation)

    def _correct(self, ticket: Ticket, tokens: int) -> None:
        self._tokens += tokens
        if tokens != ticket.tokens:
            self._change(ticket.slot, 0, tokens - ticket.tokens)

    def _change(self, slot: Slot, requests: int, tokens: int) -> None:
        if self._shared is None:
            self._window.change(slot, requests, tokens)
        else:
            self._shared.change(slot, requests, tokens)

    def _slow_down(self, ticket: Ticket, refusal: ProviderRefusal) -> None:
        seconds = refusal.pause
        if seconds is None and refusal.insists:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._refused_in_a_row, 10))
            seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
        if seconds is not None:
            self._pause(ticket, seconds)
        if ticket.epoch == self._epoch:  # the first refusal among those under way together
            self._epoch += 1
            self._refused_in_a_row += 1
            self._answered = 0
            self._places = max(1, int(min(self._places, max(self._taken, 1)) * _FACTOR))

    def _pause(self, ticket: Ticket, seconds: float) -> None:
        self._paused_until = max(self._paused_until, ticket.clock.now() + seconds)
        if self._shared is not None:
            self._shared.pause(seconds)

    # -- the queue, under the lock -----------------------------------------------------------------

    def _collect(self) -> None:
        while self._lost:
            self._remove(self._lost.popleft())

    def _remove(self, ticket: Ticket) -> None:
        if ticket.open:
            ticket.open = False
            self._in_flight -= 1
            self._taken -= ticket.has_place
        elif ticket.queued:
            ticket.queued = False
            del self._queue[ticket]
        self._wake_next()

    def _wake_next(self) -> None:
        while self._queue:
            ticket = next(iter(self._queue))
            if ticket.wait is not None and ticket.wait.wake():
                return
            ticket.queued = False  # its loop is closed
            del self._queue[ticket]

    def is_idle(self) -> bool:
        """Whether no call waits, is under way, or counts, and there is no pause. Any thread."""
        with self._lock:
            self._collect()
            now = self._clock.now()
            in_use = self._queue or self._in_flight or self._paused_until > now
            return not in_use and self._window.is_empty(now)

    def statistics(self) -> LimitStatistics:
        """Return the figures of this moment. Any thread; never blocks."""
        with self._lock:
            self._collect()
            return LimitStatistics(
                calls=self._calls,
                refused=self._refused,
                in_flight=self._in_flight,
                waiting=len(self._queue),
                concurrency=self._places,
                paused=max(0.0, self._paused_until - self._clock.now()),
                tokens=self._tokens,
            )
