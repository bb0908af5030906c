"""What a signal handler or a finalizer emits while its thread is inside a SerializedObserver."""

from __future__ import annotations

from reactivex import Observer

from rxlanggraph.rx import serialized_observer
from rxlanggraph.rx.serialized_observer import SerializedObserver
from support.concurrency.entering import Enterable

__all__ = ["ENTERABLE"]


class Emitted:
    """An observer, what was put for it, and what it has received."""

    def __init__(self) -> None:
        self.put: list[str] = []
        self.received: list[str] = []
        self.serialized = SerializedObserver(Observer(self.received.append))

    def emit(self, value: str) -> None:
        self.put.append(value)
        self.serialized.put_next(value)
        self.serialized.flush()

    def check(self) -> None:
        self.emit("last")
        assert sorted(self.received) == sorted(self.put), self.received
        assert self.received[-1] == "last", self.received
        assert not self.serialized.is_busy()


ENTERABLE = Enterable(
    files={str(serialized_observer.__file__)},
    make=lambda _: Emitted(),
    operations={"emitting": lambda emitted: emitted.emit("first")},
    entries={"emits": (lambda emitted: emitted.emit("of the handler"), Emitted.check)},
)
