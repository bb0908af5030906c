"""Which message gives way when there is no room: the policies once more, to be read by eye."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Message", "Model", "gives_way"]


@dataclass(frozen=True)
class Message:
    number: int
    thread: str | None

    def __str__(self) -> str:
        return f"{self.thread or ''}{self.number}"


def gives_way(policy: str, waiting: list[Message], new: Message) -> Message:
    """Of the ``waiting`` ones, in order of arrival, and a ``new`` one, for which there is no room.

    Slow, and in plain lists.
    """
    if policy in ("error", "drop_newest"):
        return new
    if policy == "latest":
        for later in (*waiting, new):  # in the order in which they superseded others
            for earlier in waiting:
                if earlier.number < later.number and earlier.thread == later.thread is not None:
                    return earlier
    return waiting[0]


@dataclass
class Model:
    """A bridge with ``room`` for messages that wait."""

    policy: str
    room: int
    waiting: list[Message] = field(default_factory=list)
    rejected: list[Message] = field(default_factory=list)

    def arrive(self, message: Message) -> None:
        if len(self.waiting) == self.room:
            loser = gives_way(self.policy, self.waiting, message)
            self.rejected.append(loser)
            if loser is message:
                return
            self.waiting.remove(loser)
        self.waiting.append(message)

    def start(self, message: Message) -> None:
        self.waiting.remove(message)
