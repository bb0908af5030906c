"""What thread policies mean: one thread, one run at a time, and the messages that wait for it."""

from __future__ import annotations

from dataclasses import dataclass

from rxlanggraph.bridge.run_options import MultitaskStrategy

__all__ = ["Sent", "Thread", "Threads"]


class Thread:
    """A thread of a bridge, to be read by eye.

    Args:
        limit: How many messages may wait; None for any number.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.running: int | None = None
        self.waiting: list[int] = []
        self.outcomes: dict[int, str] = {}
        self._limit = limit

    def send(self, message: int, strategy: MultitaskStrategy) -> None:
        if self.running is None:
            self.running = message
        elif strategy == "interrupt":
            for each in (self.running, *self.waiting):
                self.outcomes[each] = "interrupted"
            self.running, self.waiting = message, []
        elif strategy == "reject" or len(self.waiting) == self._limit:
            self.outcomes[message] = "rejected"
        else:
            self.waiting.append(message)

    def end(self) -> None:
        """What runs has ended by itself."""
        if self.running is not None:
            self.outcomes[self.running] = "ok"
            self.running = self.waiting.pop(0) if self.waiting else None

    def cancel_last(self) -> None:
        """The last message that has no outcome is cancelled by its sender."""
        if self.waiting:
            self.outcomes[self.waiting.pop()] = "cancelled"
        elif self.running is not None:
            self.outcomes[self.running] = "cancelled"
            self.running = None


@dataclass(frozen=True)
class Sent:
    """A message; one that is ``slow`` goes on when it is cancelled, until it is told to end."""

    number: int
    thread: str | None
    strategy: MultitaskStrategy
    slow: bool

    @property
    def lane(self) -> str:
        return self.thread or f"message {self.number}"


class Threads:
    """All threads of a bridge with so many ``slots``; ``limit`` as above."""

    def __init__(self, slots: int, limit: int | None) -> None:
        self.running: list[Sent] = []
        self.outcomes: dict[Sent, str] = {}
        self._slots, self._limit = slots, limit
        # By thread: the one that runs or is ready, also if it was cancelled; and those behind it.
        self._lanes: dict[str, list[Sent]] = {}
        self._ready: list[Sent] = []

    def active(self) -> list[Sent]:
        """Those without an outcome, and those that have one and run on."""
        return [each for lane in self._lanes.values() for each in lane if self._is_active(each)]

    def _is_active(self, message: Sent) -> bool:
        return message in self.running or message not in self.outcomes

    def send(self, new: Sent) -> None:
        lane = self._lanes.setdefault(new.lane, [])
        first, *others = [*filter(self._is_active, lane)] or [None]
        if first is not None:
            kept = new.strategy == "rollback" != first.strategy and first in self.running
            full = new.strategy == "enqueue" and len(others) == self._limit
            if new.strategy == "reject" or full or kept:
                self.outcomes[new] = "rejected"
                return
            if new.strategy != "enqueue":
                for each in filter(None, (first, *others)):
                    self.outcomes.setdefault(each, "interrupted")
                del lane[1:]
        lane.append(new)
        if lane[0] is new:
            self._ready.append(new)
        self._start()

    def _start(self) -> None:
        while self._ready and len(self.running) < self._slots:
            message = self._ready.pop(0)
            if message in self.outcomes:
                self._leave_lane(message)
            else:
                self.running.append(message)

    def _leave_lane(self, message: Sent) -> None:
        lane = self._lanes[message.lane]
        lane.remove(message)
        self._ready += lane[:1]
        if not lane:
            del self._lanes[message.lane]

    def cancel(self, message: Sent) -> None:
        self.outcomes[message] = "cancelled"
        if message is not self._lanes[message.lane][0]:
            self._lanes[message.lane].remove(message)

    def end(self, message: Sent) -> None:
        """``message``, which runs, ends by itself, or its cleanup does."""
        self.outcomes.setdefault(message, "ok")
        self.running.remove(message)
        self._leave_lane(message)
        self._start()

    def settle(self) -> None:
        """What runs and was cancelled ends, unless it is slow."""
        for each in tuple(self.running):
            if each in self.outcomes and not each.slow:
                self.end(each)
