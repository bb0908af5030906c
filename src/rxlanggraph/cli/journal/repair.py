"""OutputRepair: the valid records at the beginning of the outputs, and nothing behind them.

Of each output, the longest prefix is kept in which each record is complete, belongs to this run,
agrees with the journal, is in its place and is no duplicate. The rest is cut off, to be written
again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from rxlanggraph.cli.journal.model import RunIdentity, message_id
from rxlanggraph.cli.journal.output_file import ExistingRecord, Output, Outputs
from rxlanggraph.cli.journal.reader import InputFile
from rxlanggraph.cli.journal.results import LineResult, ResultReader

__all__ = ["LineBitmap", "OutputRepair", "WrittenLines"]

# Records compared with the journal at a time. A guess.
_CHUNK = 500


class LineBitmap:
    """A set of line numbers, with a byte for each number instead of an object."""

    def __init__(self) -> None:
        self._flags = bytearray()
        self._count = 0
        self.highest = 0

    def add(self, number: int) -> None:
        """Add a number, counted from 1."""
        if number >= len(self._flags):
            self._flags.extend(bytes(number + 1))
        self._count += not self._flags[number]
        self._flags[number] = 1
        self.highest = max(self.highest, number)

    def discard(self, number: int) -> None:
        """Remove a number if it is in the set; `highest` stays as it is."""
        if number in self:
            self._flags[number] = 0
            self._count -= 1

    def __len__(self) -> int:
        """How many numbers are in the set."""
        return self._count

    def __contains__(self, number: int) -> bool:
        """Whether the number is in the set."""
        return 0 <= number < len(self._flags) and bool(self._flags[number])


class WrittenLines(NamedTuple):
    """The lines whose record is in the outputs.

    Attributes:
        all: All of them.
        failed: Those that failed, with the hash of the journal's record.
    """

    all: LineBitmap
    failed: dict[int, int]


class OutputRepair:
    """Repairs the outputs of a run. Confined to the thread that writes, which it blocks.

    Args:
        results: Reads the answers.
        run: The run.
        source: Its input.
        outputs: Its outputs, which are locked.
        answered: Lines known to be answered; those that it finds are added.
        ordered: Whether the order is that of the input.
    """

    def __init__(
        self,
        results: ResultReader,
        run: RunIdentity,
        source: InputFile,
        outputs: Outputs,
        *,
        answered: LineBitmap,
        ordered: bool,
    ) -> None:
        self._results = results
        self._run = run
        self._input = source
        self._outputs = outputs
        self._answered = answered
        self._ordered = ordered
        self._written = WrittenLines(LineBitmap(), {})

    def repair(self) -> WrittenLines:
        """Cut each output after its longest valid prefix; return the lines in it.

        Raises:
            OutputError: An output cannot be cut.
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        self._cut(None)
        gap = self._first_gap() if self._ordered else None
        if gap is not None and self._written.all.highest > gap:
            self._cut(gap)
        return self._written

    def _cut(self, before: int | None) -> None:
        self._written = WrittenLines(LineBitmap(), {})
        for output in self._outputs.all:
            output.cut(self._valid_prefix(output, before))

    def _valid_prefix(self, output: Output, before: int | None) -> int:
        """Return the length of the valid prefix in bytes, and note the lines in it.

        Args:
            output: The output to read.
            before: The prefix ends before this line; None for no such limit.
        """
        end, last = 0, 0
        found = output.existing_records()
        while chunk := list(islice(found, _CHUNK)):
            results = self._results.read(_failed_lines(chunk), any_failed=True)
            for record, record_end in chunk:
                number = record.get("line")
                if not isinstance(number, int) or not 0 < number <= self._input.size + 1:
                    return end
                if not self._is_valid(output, record, results):
                    return end
                if (self._ordered and number <= last) or (before is not None and number >= before):
                    return end
                self._written.all.add(number)
                if record.get("status") != "invalid":
                    self._answered.add(number)
                if number in results:
                    self._written.failed[number] = hash(results[number].text)
                end, last = record_end, number
        return end

    def _is_valid(
        self, output: Output, record: dict[str, Any], results: dict[int, LineResult]
    ) -> bool:
        number, status = record["line"], record.get("status")
        if record.get("id") != message_id(self._run, number) or number in self._written.all:
            return False
        if output is not self._outputs.of(status == "ok"):
            return False
        if status in ("ok", "invalid"):
            return True  # final: a requeue changes failures only
        result = results.get(number)
        written = {key: value for key, value in record.items() if key != "raw"}
        return result is not None and not result.ok and json.loads(result.text) == written

    def _first_gap(self) -> int | None:
        source = self._input.open()
        with source.stream:
            numbers = (line.number for line in source.lines)
            return next((number for number in numbers if number not in self._written.all), None)


def _failed_lines(chunk: Iterable[ExistingRecord]) -> list[int]:
    """Return the numbers of the records that a requeue can make stale."""
    numbers = (
        record.get("line") for record, _ in chunk if record.get("status") not in ("ok", "invalid")
    )
    return [number for number in numbers if isinstance(number, int)]
