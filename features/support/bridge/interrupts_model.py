"""What a thread of a graph that asks does with what comes to it: the rules once more, by eye."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["AskingThread", "Question"]

# The number of the input that led to it, and its text.
Question = tuple[int, str]


class AskingThread:
    """A thread on which every input leads to the same ``questions``, in turn or side by side.

    Each method returns what becomes of the message.
    """

    def __init__(self, questions: Sequence[str], *, side_by_side: bool) -> None:
        self.said: list[str] = []
        self.runs = 0  # that have used the thread; a message that is refused does not
        self._questions, self._side_by_side = questions, side_by_side
        self._inputs = 0
        self._answers: dict[str, str] | None = None  # None: no input is being worked on

    def pending(self) -> list[Question]:
        if self._answers is None:
            return []
        asked = [(self._inputs, each) for each in self._questions if each not in self._answers]
        return asked if self._side_by_side else asked[:1]

    def take_input(self, word: str, on_pending: str) -> str:
        if self.pending() and on_pending == "reject":
            return "PendingInterruptError"
        self._inputs += 1
        self.said.append(word)
        self._answers = {}
        return self.go_on()

    def go_on(self) -> str:
        self.runs += 1
        if not self.said:
            return "EmptyInputError"
        if self._answers is not None and not self.pending():
            self._end()
        return "interrupted" if self.pending() else "ok"

    def _end(self) -> None:
        answers = self._answers or {}
        self.said += [f"{each} {answers[each]}" for each in self._questions if each in answers]
        self._answers = None

    def take_answer(self, value: str, named: Sequence[Question]) -> str:
        if self._answers is None or not set(named) <= set(self.pending()):
            return "StaleResumeError"
        self._answers.update({question: value for _, question in named})
        return self.go_on()

    def take_unnamed(self, value: str, source: Sequence[Question]) -> str:
        """An answer that names none of the questions of its ``source``."""
        meant = [each for each in self.pending() if each in source]
        if len(meant) > 1:
            self.runs += 1
            return "RuntimeError"  # LangGraph's own
        return self.take_answer(value, meant) if meant else "StaleResumeError"

    def take_blind(self, value: str, runs: int) -> str:
        """An answer without a source, given when the thread had had so many ``runs``."""
        return self.take_unnamed(value, self.pending() if runs == self.runs else [])

    def expire(self) -> list[Question]:
        dropped = self.pending()
        if dropped and self._side_by_side:
            self._end()  # what other nodes have returned stays
        self._answers = None
        return dropped
