"""ResultReader: reads the answers to lines from the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rxlanggraph.cli.formats.records import to_line
from rxlanggraph.cli.journal.model import QUEUE, dead_record, line_from
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.state import DeadLetter

__all__ = ["LineResult", "ResultReader"]


class LineResult(NamedTuple):
    """The record of a line, as JSON text without a newline."""

    ok: bool
    text: str


class ResultReader:
    """Reads answers from a journal, and retries while its server does not answer.

    Any thread but that of the journal's loop; its methods block.

    Args:
        journal: Where the answers are.
    """

    def __init__(self, journal: OpenJournal) -> None:
        self._state = journal.state.sync
        self._run = journal.run
        self._retry = journal.retry.call

    def any_pending(self) -> bool:
        """Whether a message waits for its answer at this moment."""
        stats = self._retry(self._state.stats, QUEUE)
        return stats.waiting + stats.delayed + stats.claimed > 0

    def read(self, numbers: Sequence[int], *, any_failed: bool) -> dict[int, LineResult]:
        """Return the answers to these lines; lines without an answer are left out.

        Args:
            numbers: The numbers of the lines.
            any_failed: Whether to look for failures too, which costs a second request.
        """
        if not numbers:
            return {}
        keys = [str(number) for number in numbers]
        good = self._retry(self._state.results, QUEUE, keys=keys)
        results = {int(key): LineResult(True, text) for key, text in good.items()}
        rest = [key for key in keys if key not in good]
        if rest and any_failed:
            dead = self._retry(self._state.dead_letters, QUEUE, keys=rest)
            results |= {line_from(letter.item).line: self._failure(letter) for letter in dead}
        return results

    def _failure(self, letter: DeadLetter) -> LineResult:
        if isinstance(letter.error, str):
            return LineResult(False, letter.error)  # the record, as a worker stored it
        encoded, _ = to_line(dead_record(self._run, letter))
        return LineResult(False, encoded.decode().rstrip("\n"))
