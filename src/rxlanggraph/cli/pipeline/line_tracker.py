"""LineTracker: the lines that a job has read, and their outcomes.

A line is open until its record is written. The summary reports the lines that are open at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rxlanggraph.cli.formats.readers import InputLine

__all__ = ["LineCounts", "LineOutcome", "LineTracker", "line_ranges"]

LineOutcome = Literal["ok", "failed", "invalid", "cancelled"]


@dataclass(frozen=True, slots=True)
class LineCounts:
    """The outcomes of the lines so far; ``read`` is the sum of the other counts of lines.

    Args:
        read: Lines read that were not blank.
        ok: Lines with a result.
        failed: Lines whose run failed, timed out or was interrupted.
        invalid: Lines that are not messages.
        cancelled: Lines whose run was cancelled or drained.
        open: Lines without a record: still in progress; at the end, not run or not written.
        bytes_read: Bytes of the input up to the last line read.
    """

    read: int = 0
    ok: int = 0
    failed: int = 0
    invalid: int = 0
    cancelled: int = 0
    open: int = 0
    bytes_read: int = 0

    @property
    def failures(self) -> int:
        """Lines that count for ``--halt``."""
        return self.failed + self.invalid

    @property
    def finished(self) -> int:
        """Lines that have a record."""
        return self.read - self.open

    def total(self, size: int | None) -> float | None:
        """Return the number of lines in the input, as far as can be told.

        Estimated from the bytes that the lines read so far take up; exact once all are read.

        Args:
            size: Bytes of the input, or None where that is unknown.
        """
        if not size or not self.bytes_read:
            return None
        return self.read * max(1.0, size / self.bytes_read)


class LineTracker:
    """Tracks open lines and counts outcomes. Any thread, but no signal handler; never blocks."""

    def __init__(self) -> None:
        # A leaf; a plain Lock, since neither signal handlers nor finalizers come here. Guards the
        # fields after it.
        self._lock = threading.Lock()
        self._read = 0
        self._bytes_read = 0
        self._finished: dict[LineOutcome, int] = dict.fromkeys(
            ("ok", "failed", "invalid", "cancelled"), 0
        )
        self._open: dict[int, InputLine] = {}

    def add(self, line: InputLine) -> None:
        """Add a line that has just been read."""
        with self._lock:
            self._open[line.number] = line
            self._read += 1
            self._bytes_read = line.end

    def get(self, number: int) -> InputLine | None:
        """Return the line of this number, or None if its record has been written."""
        with self._lock:
            return self._open.get(number)

    def finish(self, number: int, outcome: LineOutcome) -> None:
        """Note that a line's record has been written.

        Raises:
            KeyError: The line is not open.
        """
        with self._lock:
            del self._open[number]
            self._finished[outcome] += 1

    def counts(self) -> LineCounts:
        """Return the current counts."""
        with self._lock:
            return LineCounts(
                read=self._read,
                open=len(self._open),
                bytes_read=self._bytes_read,
                **self._finished,
            )

    def is_oldest(self, line: InputLine) -> bool:
        """Whether ``line`` is open, and no line before it is."""
        with self._lock:
            return next(iter(self._open), None) == line.number

    def open_lines(self) -> tuple[InputLine, ...]:
        """Return the lines that have no record yet, in the order of the input."""
        with self._lock:
            return tuple(self._open.values())


def line_ranges(numbers: Iterable[int]) -> str:
    """Return ascending line numbers as text, with ranges: ``3, 5-8, 12``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
