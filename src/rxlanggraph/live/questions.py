"""Questions: the interrupts that wait for an answer, as far as the page knows them.

For each thread of a graph, the questions of its last run are kept. The threads' checkpoints have
them, too, but all checkpoints would have to be read for every snapshot.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import encodable
from rxlanggraph.live.schema import LONGEST_TEXT, Question
from rxlanggraph.live.source import Earlier, Resume
from rxlanggraph.messages import InterruptedMessage, StreamMessage
from rxlanggraph.validation import shortened

__all__ = ["PendingQuestion", "Questions", "as_json", "as_stack", "as_text", "from_json"]

# Questions that are kept. A guess: more than a person can answer. Their values stay in memory.
_KEPT = 1000
# Characters of a value, as JSON, and of a stack. A guess: some pages of text; longer ones are cut.
_LONGEST_VALUE = 20_000
# Whole numbers up to this one are exact in browsers.
_MOST_EXACT = 2**53 - 1


@dataclass(slots=True, eq=False)
class PendingQuestion:
    """A question that waits. Immutable but for ``answering``, which `Questions` guards."""

    id: str
    name: str
    thread_id: str
    interrupt: Any
    asked: float
    metadata: Mapping[str, Any]
    resume: Resume
    answering: bool = False

    def reply(self, value: Any) -> StreamMessage:
        """Make the message that answers it. Any thread; never blocks."""
        asked = InterruptedMessage(
            None, self.thread_id, self.metadata, interrupts=(self.interrupt,)
        )
        return asked.reply(value)

    def shown(self, *, show_content: bool) -> Question:
        """Return it as data. Any thread; blocks as long as the text of its value takes."""
        return {
            "id": self.id,
            "name": as_text(self.name),
            "thread_id": as_text(self.thread_id),
            "interrupt_id": str(self.interrupt.id),
            "asked": self.asked,
            "value": as_json(self.interrupt.value) if show_content else None,
            "answering": self.answering,
        }


class Questions:
    """The questions that wait. Any thread; nothing blocks."""

    def __init__(self) -> None:
        # A leaf, held for single calls of dictionaries; an RLock like all locks that hooks take.
        # Guards all of the below. The questions are in the order in which they were asked.
        self._lock = fork_safe_rlock()
        self._by_id: dict[str, PendingQuestion] = {}
        self._of_thread: dict[tuple[str, str], dict[str, PendingQuestion]] = {}
        self._numbers = itertools.count(1)
        self._forgotten = 0

    def asked(
        self,
        name: str,
        thread_id: str,
        interrupts: Iterable[Any],
        at: float,
        *,
        metadata: Mapping[str, Any],
        resume: Resume,
    ) -> None:
        """Note what a run asks when it ends, in place of what its thread has asked before.

        A question that was there keeps its id.
        """
        with self._lock:
            before = self._forget(name, thread_id)
            for interrupt in interrupts:
                old = before.get(interrupt.id)
                id_ = str(next(self._numbers)) if old is None else old.id
                since = at if old is None else old.asked
                question = PendingQuestion(id_, name, thread_id, interrupt, since, metadata, resume)
                self._by_id[id_] = question
                self._of_thread.setdefault((name, thread_id), {})[interrupt.id] = question
            while len(self._by_id) > _KEPT:
                oldest = next(iter(self._by_id.values()))
                self._remove(oldest)
                self._forgotten += 1

    def found(self, earlier: Iterable[Earlier]) -> None:
        """Note earlier questions, but of no thread that is known: what is known is newer."""
        of_thread: dict[tuple[str, str], list[Earlier]] = {}
        for each in earlier:
            of_thread.setdefault((each.name, each.thread_id), []).append(each)
        for (name, thread_id), its in of_thread.items():
            with self._lock:
                if (name, thread_id) in self._of_thread:
                    continue
                interrupts = [each.interrupt for each in its]
                first = its[0]
                self.asked(
                    name, thread_id, interrupts, first.asked, metadata={}, resume=first.resume
                )

    def settled(self, name: str, thread_id: str) -> None:
        """Note that a run has ended without a question: its thread asks nothing any more."""
        if self._of_thread:  # read without the lock: the run that asked ended before this one
            with self._lock:
                self._forget(name, thread_id)

    def take(self, id_: str) -> PendingQuestion | None:
        """Return a question to answer it; None if it is not there, or is being answered."""
        with self._lock:
            question = self._by_id.get(id_)
            if question is None or question.answering:
                return None
            question.answering = True
            return question

    def put_back(self, question: PendingQuestion) -> None:
        """Note that the answer to a question, which was taken, has not reached its graph."""
        with self._lock:
            question.answering = False

    def drop(self, question: PendingQuestion) -> None:
        """Forget a question, which is not asked any more; idempotent."""
        with self._lock:
            if self._by_id.get(question.id) is question:
                self._remove(question)

    def pending(self, most: int) -> tuple[list[PendingQuestion], int]:
        """Return the oldest questions, at most so many; and how many more there are."""
        with self._lock:
            known = list(self._by_id.copy().values())  # as those that enter may change it
            return known[:most], max(0, len(known) - most) + self._forgotten

    def _forget(self, name: str, thread_id: str) -> dict[str, PendingQuestion]:
        before = self._of_thread.pop((name, thread_id), {})
        for question in before.values():
            self._by_id.pop(question.id, None)
        return before

    def _remove(self, question: PendingQuestion) -> None:
        self._by_id.pop(question.id, None)
        key = (question.name, question.thread_id)
        of_thread = self._of_thread.get(key)
        if of_thread is not None:
            of_thread.pop(question.interrupt.id, None)
            if not of_thread:
                del self._of_thread[key]


def as_text(text: str) -> str:
    """Return ``text`` as a page can show it: cut, and without lone surrogates. Any thread."""
    if len(text) > LONGEST_TEXT:
        text = text[: LONGEST_TEXT - 1] + "…"
    return text if text.isascii() else encodable(text)


def as_stack(text: str) -> str:
    """Return a stack as a page can show it: its end, which is the innermost. Any thread."""
    return encodable(text if len(text) <= _LONGEST_VALUE else f"…{text[-_LONGEST_VALUE:]}")


def as_json(value: Any) -> Any:
    """Return ``value`` if JSON can hold it, and it is not too long; otherwise a text of it.

    Whole numbers that browsers would round are texts.
    """
    try:
        text = json.dumps(value, allow_nan=False)
        # Not the value itself: its owner may change it while it is encoded again.
        if len(text) > _LONGEST_VALUE:
            return f"{text[:_LONGEST_VALUE]}…"
        return json.loads(text, parse_int=_as_browsers_read)
    except Exception:  # of whatever the program has put there
        return encodable(shortened(value))


def from_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a text in JSON, which has neither NaN nor infinities. Any thread.

    Raises:
        ValueError, RecursionError: It is not JSON, or nested too deeply.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _as_browsers_read(digits: str) -> int | str:
    number = int(digits)
    return number if abs(number) <= _MOST_EXACT else digits
