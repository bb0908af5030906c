"""Subscribers that notice what must not happen, and pipelines to try."""

from __future__ import annotations

import threading
from typing import Any

from reactivex import Observable, abc

from support.concurrency.waiting import Gate, Log

__all__ = ["Subscriber", "value_of"]


def value_of(result: Any) -> Any:
    return result.content["value"]


class Subscriber(abc.ObserverBase[Any]):
    """Records what it gets, and how often it was entered while it was entered already."""

    def __init__(self) -> None:
        self.log = Log()
        self.ends: list[str] = []
        self.error: BaseException | None = None
        self.overlaps = 0
        self.subscription: abc.DisposableBase | None = None
        self._inside = threading.Lock()
        self._ended = Gate()

    def subscribe(self, source: Observable[Any]) -> None:
        self.subscription = source.subscribe(self.on_next, self.on_error, self.on_completed)

    @property
    def items(self) -> list[Any]:
        return list(self.log)

    def wait_for_end(self) -> Subscriber:
        self._ended.wait()
        return self

    def on_next(self, value: Any) -> None:
        self._enter(self.log.add, value)

    def on_error(self, error: Exception) -> None:
        self.error = error
        self._enter(self.ends.append, f"error {error}")
        self._ended.open()

    def on_completed(self) -> None:
        self._enter(self.ends.append, "completed")
        self._ended.open()

    def _enter(self, record: Any, what: Any) -> None:
        if not self._inside.acquire(blocking=False):
            self.overlaps += 1
            return
        try:
            assert len(self.ends) == 0, f"{what} after {self.ends}"
            record(what)
        finally:
            self._inside.release()
