"""What a signal handler or a finalizer does while a board is being used."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from langgraph.types import Interrupt

from rxlanggraph import StreamMessage
from rxlanggraph.hooks import RunEnded
from rxlanggraph.live import board, history, questions
from rxlanggraph.live.board import Board
from rxlanggraph.messages import InterruptedMessage, answer_to
from support.concurrency.entering import Enterable

__all__ = ["ENTERABLE", "NAIVE", "ended"]

FILES = {str(each.__file__) for each in (board, history, questions)}


def ended(
    number: int, kinds: int = 1, at: float | None = None, run: Future[Any] | None = None
) -> RunEnded:
    """The end of a message: of each second one, a failure of one of so many kinds."""
    message = StreamMessage({"n": number}, thread_id=f"thread-{number % 100}")
    error = ValueError("no") if number % 2 else None
    result = answer_to(message, "error" if error else "ok", None, error, 0.1)
    name = f"graph-{number % kinds}"
    at = time.time() if at is None else at
    duration = 0.001 * (number % 1000)
    return RunEnded(run or Future(), message, name, at, result, duration, 1)


class _Naive(Board):
    """A board that counts on, whether its own thread is in the middle of that or not."""

    @contextlib.contextmanager
    def _used(self) -> Iterator[bool]:
        with self._lock:
            yield False


class Known:
    """A board, and how many ends it was told of."""

    def __init__(self, kind: type[Board] = Board) -> None:
        self.board = kind(lambda: (1, 2), lambda run: None, show_content=True)
        self.told = 0
        self.runs = [Future[Any]() for _ in range(4)]
        self.board.note_nodes(dict.fromkeys(self.runs, "work"), time.time())
        for _ in range(3):
            self.tell()
        self.ask()

    def tell(self) -> None:
        self.told += 1
        run = self.runs.pop() if self.runs else None
        self.board._counted_at = 0.0
        self.board.on_ended(ended(2 * self.told + 1, at=time.time(), run=run))

    def ask(self) -> None:
        self.told += 1
        message = StreamMessage(1, thread_id=f"asking-{self.told % 3}")
        interrupts = (Interrupt(value=self.told, id=f"i-{self.told}"),)
        result = InterruptedMessage(None, message.thread_id, interrupts=interrupts)
        self.board.on_ended(RunEnded(Future(), message, "g", time.time(), result, 0.1, 1))

    def read(self) -> None:
        now = time.time()
        self.board.count(now)
        self.board.note_nodes(dict.fromkeys(self.runs, "check"), now)
        for run in self.runs:
            self.board.nodes_of(run)
        self.board.history(now, 1, 2)
        self.board.recent(200)
        self.board.slowest(now)
        self.board.failures(50)
        self.board.blocked()
        self.board.questions.pending(10)

    def answer(self) -> None:
        (first, *_), _ = self.board.questions.pending(10)
        taken = self.board.questions.take(first.id)
        if taken is not None:
            self.board.questions.drop(taken)

    def check(self) -> None:
        now = time.time()
        self.board.count(now)
        seen = self.board.history(now, 1, 2)
        counted = sum(sum(seen[status]) for status in ("ok", "error", "interrupted"))
        assert counted == self.told == len(self.board.recent(1000)[0]), (counted, self.told)
        kinds, others = self.board.failures(50)
        assert sum(kind["count"] for kind in kinds) + others == sum(seen["error"])
        asked = self.board.questions
        by_thread = [each for of_thread in asked._of_thread.values() for each in of_thread.values()]
        assert set(by_thread) == set(asked._by_id.values())
        assert not self.board._busy and not self.board._pending


_OPERATIONS = {
    "telling it of an end": Known.tell,
    "telling it of a question": Known.ask,
    "reading it": Known.read,
    "answering a question": Known.answer,
}
_ENTRIES = {
    "tells it of another end": (Known.tell, Known.check),
    "tells it of another question": (Known.ask, Known.check),
    "reads it": (Known.read, Known.check),
}
ENTERABLE: Enterable[Known] = Enterable(FILES, lambda _: Known(), _OPERATIONS, _ENTRIES)
NAIVE: Enterable[Known] = Enterable(
    FILES | {__file__}, lambda _: Known(_Naive), _OPERATIONS, _ENTRIES
)
