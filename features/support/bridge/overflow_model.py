"""Which message gives way when there is no room: the policies once more, to be read by eye."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["BridgeModel", "Message", "Model", "gives_way"]


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


def together(one: Message, other: Message) -> bool:
    """Whether only one of the two may run at a time."""
    return one is other or one.thread == other.thread is not None


class BridgeModel:
    """A whole bridge: ``room`` for the messages that wait, and ``slots`` for those that run."""

    def __init__(self, policy: str, room: int, slots: int) -> None:
        self.policy, self.room, self.slots = policy, room, slots
        self.blocked: list[Message] = []  # wait for room
        self.waiting: list[Message] = []  # have room, in order of arrival
        self.inbox: list[Message] = []  # those that the loop has to look at
        self.ready: list[Message] = []  # seen, and no other of their thread is ahead
        self.behind: list[Message] = []  # seen, and others of their thread are ahead
        self.running: list[Message] = []
        self.begun: list[Message] = []  # all that ever ran, in order
        self.outcomes: dict[Message, str] = {}

    def send(self, message: Message) -> None:
        if self.blocked or len(self.waiting) == self.room:
            if self.policy == "block":
                self.blocked.append(message)
                return
            loser = gives_way(self.policy, self.waiting, message)
            self.outcomes[loser] = "rejected"
            if loser is message:
                return
            self.waiting.remove(loser)
            if loser in self.inbox:
                self.inbox.remove(loser)
            else:
                self.inbox.append(loser)
        self._admit(message)

    def _admit(self, message: Message) -> None:
        self.waiting.append(message)
        self.inbox.append(message)

    def _look_at(self, message: Message) -> None:
        if message in self.ready:  # it was dropped
            self.ready.remove(message)
            self._pass_on(message)
        elif message in self.behind:  # likewise
            self.behind.remove(message)
        elif message in self.waiting:
            self.behind.append(message)
            self._pass_on(message)

    def _pass_on(self, message: Message) -> None:
        """The next one of the thread of ``message`` is ready if no other of it is, or runs."""
        if not any(together(message, each) for each in (*self.running, *self.ready)):
            for each in [each for each in self.behind if together(message, each)][:1]:
                self.behind.remove(each)
                self.ready.append(each)

    def end(self, message: Message, outcome: str) -> None:
        self.outcomes[message] = outcome
        self.running.remove(message)
        self._pass_on(message)

    def cancel(self, message: Message) -> None:
        if message in self.running:
            self.end(message, "cancelled")
            return
        self.outcomes[message] = "cancelled"  # if it is ready, it keeps its thread until its turn
        for messages in (self.blocked, self.waiting, self.behind):
            if message in messages:
                messages.remove(message)

    def settle(self) -> None:
        """All happens that can. Half of the room has to be free before others are let in."""
        while True:
            if self.ready and len(self.running) < self.slots:
                self._start(self.ready.pop(0))
            elif self.blocked and len(self.waiting) <= self.room - max(1, self.room // 2):
                while self.blocked and len(self.waiting) < self.room:
                    self._admit(self.blocked.pop(0))
            elif self.inbox:
                self._look_at(self.inbox.pop(0))
            else:
                return

    def _start(self, message: Message) -> None:
        if message in self.waiting:
            self.waiting.remove(message)
            self.running.append(message)
            self.begun.append(message)
        else:
            self._pass_on(message)  # it was cancelled, or dropped just now
