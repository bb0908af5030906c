"""What the journal says of lines: their records, as far as they are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rxlanggraph.cli.journal import QUEUE, RunIdentity, dead_record, line_from
from rxlanggraph.cli.journal_place import Patience
from rxlanggraph.cli.records import to_line
from rxlanggraph.state import DeadLetter, SyncState

__all__ = ["Answer", "Answers"]


class Answer(NamedTuple):
    """The record of a line, without the end of the line."""

    ok: bool
    text: str


class Answers:
    """Reads answers from a journal, patiently: while the server is away, it is asked again.

    For any thread but that of the journal's loop; its methods block.

    Args:
        state: The journal.
        run: Whose journal it is.
        patience: With a journal that gives no answer.
    """

    def __init__(self, state: SyncState, run: RunIdentity, patience: Patience) -> None:
        self._state = state
        self._run = run
        self._patiently = patience.call

    def any_open(self) -> bool:
        """Whether a message waits for its answer at this moment."""
        stats = self._patiently(lambda: self._state.stats(QUEUE))
        return stats.waiting + stats.delayed + stats.claimed > 0

    def look_up(self, numbers: Sequence[int], *, any_failed: bool) -> dict[int, Answer]:
        """Look for the answers to these lines.

        Args:
            numbers: The numbers of the lines.
            any_failed: Whether to look for failures too, which costs a second look.
        """
        if not numbers:
            return {}
        keys = [str(number) for number in numbers]
        good = self._patiently(lambda: self._state.results(QUEUE, keys=keys))
        answers = {int(key): Answer(True, text) for key, text in good.items()}
        rest = [key for key in keys if key not in good]
        if rest and any_failed:
            dead = self._patiently(lambda: self._state.dead_letters(QUEUE, keys=rest))
            answers |= {line_from(letter.item).line: self._failure(letter) for letter in dead}
        return answers

    def _failure(self, letter: DeadLetter) -> Answer:
        if isinstance(letter.error, str):
            return Answer(False, letter.error)  # the record, as a worker left it
        encoded, _ = to_line(dead_record(self._run, letter))
        return Answer(False, encoded.decode().rstrip("\n"))
