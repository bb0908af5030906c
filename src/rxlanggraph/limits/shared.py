"""Shared windows: how much of a key's limit all processes have used, and until when it is paused.

What breaks without it: each process uses the whole limit, so two of them are refused half of the
time, and each has to be refused once before it knows that the provider asks for a pause.

The record of a key is one value of a `State`, replaced by compare-and-set. Its times are those of
the system clock, so the clocks of the machines should agree with each other and with the
provider's. The number of concurrent calls is not shared, as in TCP, where each connection adapts by
itself: a refusal slows down the process that was refused, and pauses all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from rxlanggraph.concurrency.run_on_loop import await_on_loop, run_on_loop
from rxlanggraph.errors import ClosedError, RxLangGraphError, StateUnavailableError
from rxlanggraph.limits.windows import Slot, Window

if TYPE_CHECKING:
    from rxlanggraph.state import State

__all__ = ["SharedWindow"]

_log = logging.getLogger("rxlanggraph")
# Seconds after which a waiting call checks again: others may have used less than they reserved. A
# guess.
_LOOK_EVERY = 1.0
# Seconds that a call waits at most when others have changed the record again and again.
_AGAIN = 0.05
_ATTEMPTS = 10
# Seconds that calls wait for a state that does not answer, before they fail. A guess: as long as a
# server takes to be restarted.
_PATIENCE = 60.0
# Seconds that a record outlives its last slot.
_SPARE = 60.0
# Corrections that are remembered while the store does not answer. A bound.
_MOST_CHANGES = 10_000
# The longest key that is part of the record's name as it is, in characters.
_LONG = 100


class _Change(NamedTuple):
    slot: Slot
    requests: int
    tokens: int
    paused_until: float
    # The version of the record that a write with it was to replace, if it is unknown whether that
    # was executed.
    replacing: int | None = None

    def is_due(self, version: int) -> bool:
        """Whether it is to be applied to the record of this version.

        Not if it may be in there: amounts that are given back twice would let too much through. A
        pause may be applied any number of times.
        """
        return self.replacing in (None, version) or self.paused_until > 0


class SharedWindow:
    """The record of one key. Its methods may be called by any thread, or on any loop.

    Args:
        state: Where it is.
        key: The key.
        window: Makes an empty window for the limit.
        per: Seconds of the limit's interval.
        time: Returns the seconds since the epoch.
    """

    def __init__(
        self,
        state: State,
        key: str,
        window: Callable[[], Window],
        per: float,
        time: Callable[[], float],
    ) -> None:
        if len(key) > _LONG or "\0" in key or not key.isascii():
            key = hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest()
        self._state = state
        self._name = f"rxlanggraph-limit/{key}"
        self._window = window
        self._per = per
        self._time = time
        # What is still to be written: single calls of a deque, by any thread.
        self._changes: deque[_Change] = deque(maxlen=_MOST_CHANGES)
        # Confined to the loop of the state.
        self._writing: asyncio.Task[None] | None = None
        # Since when the state does not answer, and when it did not the last time.
        self._silent: tuple[float, float] | None = None

    async def reserve_async(self, tokens: int) -> tuple[Slot, float]:
        """Count a request of so many tokens if there is room for it. On any loop.

        Returns:
            Its slot, and 0; or the seconds until there may be room.

        Raises:
            StateUnavailableError: The state has not answered for a minute.
            StateClosedError: It is closed.
            LoopUnavailableError: Its loop does not run.
        """
        return await await_on_loop(self._state.loop, self._reserve(tokens))

    def reserve(self, tokens: int) -> tuple[Slot, float]:
        """As `reserve_async`, but block. Any thread but that of the state's loop."""
        return run_on_loop(self._state.loop, self._reserve(tokens))

    def change(self, slot: Slot, requests: int, tokens: int) -> None:
        """Add amounts, which may be negative, to what was used in ``slot``, soon. Never blocks.

        What cannot be written is left to the next call.
        """
        self._post(_Change(slot, requests, tokens, 0.0))

    def pause(self, seconds: float) -> None:
        """Pause the calls of all processes for so many seconds, soon. Never blocks."""
        self._post(_Change(self.slot(), 0, 0, self._time() + seconds))

    def slot(self) -> Slot:
        """Return the slot of this moment. Never blocks."""
        return self._window().slot_of(self._time())

    def _post(self, change: _Change) -> None:
        self._changes.append(change)
        try:
            self._state.loop.call_soon_threadsafe(self._write_soon)
        except RuntimeError:  # the loop is closed
            self._changes.clear()

    # -- on the loop of the state ------------------------------------------------------------------

    def _write_soon(self) -> None:
        if self._changes and self._writing is None:
            self._writing = self._state.loop.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._changes:
                await self._update(None)
        except ClosedError:
            self._changes.clear()  # too much stays reserved, until its slot has left the window
        except RxLangGraphError as error:
            _log.warning("what calls of %r have used was not saved: %r", self._name, error)
        finally:
            self._writing = None

    async def _reserve(self, tokens: int) -> tuple[Slot, float]:
        try:
            found = await self._update(tokens)
        except StateUnavailableError:
            now = self._state.loop.time()
            since, last = self._silent or (now, now)
            if now - last > _PATIENCE:  # it may have answered meanwhile: nothing has asked
                since = now
            self._silent = since, now
            if now - since >= _PATIENCE:
                raise
            return 0, _LOOK_EVERY
        self._silent = None
        return found

    async def _update(self, tokens: int | None) -> tuple[Slot, float]:
        """Write the changes, and reserve ``tokens``, unless that is None."""
        for _ in range(_ATTEMPTS):
            changes = [self._changes.popleft() for _ in range(len(self._changes))]
            replacing: int | None = None
            try:
                found = await self._state.get(self._name)
                changes = [change for change in changes if change.is_due(found.version)]
                record = _Record.read(self._window(), found.value)
                for change in changes:
                    record.apply(change)
                slot, delay = record.reserve(tokens, self._time())
                if not changes and (delay or tokens is None):
                    return slot, delay
                replacing = found.version
                if await self._replace(record, replacing):
                    return slot, delay
                self._changes.extendleft(reversed(changes))
            except BaseException as error:
                has_no_effect = isinstance(error, StateUnavailableError) and not error.in_doubt
                if replacing is not None and not has_no_effect:  # cancelled, for example
                    changes = [change._replace(replacing=replacing) for change in changes]
                self._changes.extendleft(reversed(changes))
                raise
        return 0, random.uniform(_AGAIN / 2, _AGAIN)  # noqa: S311 - not for secrets

    async def _replace(self, record: _Record, version: int) -> bool:
        pause = max(0.0, record.paused_until - self._time())
        ttl = 2 * self._per + pause + _SPARE
        return await self._state.compare_and_set(self._name, record.value(), version, ttl=ttl)


class _Record:
    """The saved record of a key."""

    def __init__(self, window: Window, paused_until: float) -> None:
        self.window = window
        self.paused_until = paused_until

    @classmethod
    def read(cls, window: Window, value: Any) -> _Record:
        """Read what `value` has returned, or nothing."""
        if value is None:
            return cls(window, 0.0)
        for slot, requests, tokens in value["used"]:
            window.change(slot, requests, tokens)
        return cls(window, value["paused_until"])

    def value(self) -> dict[str, Any]:
        """Return it as JSON."""
        used = [[slot, *amounts] for slot, amounts in self.window.used.items()]
        return {"used": used, "paused_until": self.paused_until}

    def apply(self, change: _Change) -> None:
        """Apply a change."""
        self.window.change(change.slot, change.requests, change.tokens)
        self.paused_until = max(self.paused_until, change.paused_until)

    def reserve(self, tokens: int | None, time: float) -> tuple[Slot, float]:
        """As `Window.reserve`, but not during a pause."""
        if tokens is None:
            return 0, 0.0
        if self.paused_until > time:
            return 0, min(self.paused_until - time, _LOOK_EVERY)
        slot, delay = self.window.reserve(tokens, time)
        return slot, min(delay, _LOOK_EVERY)
