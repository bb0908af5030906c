"""One timer of an event loop for many who want to be rung up, most of whom think better of it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Protocol

from rxlanggraph.state.agenda import Agenda

__all__ = ["Alarm", "Ringable"]


class Ringable(Hashable, Protocol):
    """Who wants to be rung up."""

    def ring(self) -> None:
        """The time has come. On the loop; never blocks, never raises."""


class Alarm:
    """Rings at the time that each has set. Confined to its loop.

    A lease is renewed long after most claims have ended: to set a timer of the loop for each, and
    to take it back, would take as long as all else that a claim takes in this process.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._agenda: Agenda[Ringable] = Agenda()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def set(self, whom: Ringable, when: float) -> None:
        """Ring ``whom`` at ``when``, in the loop's time, instead of at any other."""
        if self._is_stopped:
            return
        self._agenda.put(whom, when)
        if self._timer is None or when < self._timer.when():
            self._wind(when)

    def discard(self, whom: Ringable) -> None:
        """Do not ring ``whom``."""
        # The timer stays: when it comes it is wound for who is left.
        self._agenda.discard(whom)

    def stop(self) -> None:
        """Ring nobody any more, whatever is set."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._agenda = Agenda()

    def _wind(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        for whom in self._agenda.take_due(self._loop.time()):
            whom.ring()
        first = self._agenda.first()
        if first is not None:
            self._wind(first)
