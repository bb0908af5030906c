"""What thread policies mean: one thread, one run at a time, and the messages that wait for it."""

from __future__ import annotations

from rxlanggraph.bridge.run import MultitaskStrategy

__all__ = ["Thread"]


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
