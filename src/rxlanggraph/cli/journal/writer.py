"""From answers in the journal to records in the output, each once.

The file tells what was written, the journal what was answered. So a writer that starts, after a
kill or for the first time, reads the file and keeps its beginning, as far as every line of it is
complete, is a record of this run, agrees with the journal, is at its right place and occurs for the
first time. The rest is cut off; it comes again from the journal. This repairs a half-written line,
replaces the record of a failed line by its better one, and overwrites a file of an earlier run.

Any process may requeue what has failed, at any time, and be killed at the next moment, so only the
journal's answers can tell that a record is no longer right. The failures are compared with them
once more after this process has stopped working: it has seen the run ended by then, so a run that
it reports as ok has no stale failure in its output.

An answer is looked for once. Which lines this process has answered, its workers say. Which ones
other processes have answered has to be searched for, but only while the journal counts more answers
than are known here.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from rxlanggraph.cli.errors import JournalError
from rxlanggraph.cli.formats.lines import InputLine
from rxlanggraph.cli.formats.records import invalid_record, to_line
from rxlanggraph.cli.journal.model import QUEUE, dead_record, line_from, message_id
from rxlanggraph.cli.journal.output_file import ExistingRecord, Output
from rxlanggraph.cli.journal.progress import RunProgress
from rxlanggraph.cli.journal.reader import InputFile
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.line_tracker import line_ranges
from rxlanggraph.errors import encodable
from rxlanggraph.state import DeadLetter

__all__ = ["JournalWriter", "LineResult", "ResultReader"]

# How many lines are looked for at a time, and how many may wait for their answer (as lines, and as
# characters of those that --errors will quote). Guesses.
_CHUNK = 200
# How many are looked for first where it is not known which lines are answered.
_FEWEST = 16
_WINDOW = 2000
_WINDOW_CHARACTERS = 16_000_000
# Seconds between two looks: while answers come, and at most when none do.
_PAUSE = 0.05
_LONGEST_PAUSE = 0.25


class LineResult(NamedTuple):
    """The record of a line, without the end of the line."""

    ok: bool
    text: str


class ResultReader:
    """Reads the answers to lines from a journal; while its server is away, it is asked again.

    For any thread but that of the journal's loop; its methods block.

    Args:
        journal: Where the answers are.
    """

    def __init__(self, journal: OpenJournal) -> None:
        self._state = journal.state.sync
        self._run = journal.run
        self._retrying = journal.retry.call

    def any_pending(self) -> bool:
        """Whether a message waits for its answer at this moment."""
        stats = self._retrying(self._state.stats, QUEUE)
        return stats.waiting + stats.delayed + stats.claimed > 0

    def read(self, numbers: Sequence[int], *, any_failed: bool) -> dict[int, LineResult]:
        """Look for the answers to these lines.

        Args:
            numbers: The numbers of the lines.
            any_failed: Whether to look for failures too, which costs a second look.
        """
        if not numbers:
            return {}
        keys = [str(number) for number in numbers]
        good = self._retrying(self._state.results, QUEUE, keys=keys)
        results = {int(key): LineResult(True, text) for key, text in good.items()}
        rest = [key for key in keys if key not in good]
        if rest and any_failed:
            dead = self._retrying(self._state.dead_letters, QUEUE, keys=rest)
            results |= {line_from(letter.item).line: self._failure(letter) for letter in dead}
        return results

    def _failure(self, letter: DeadLetter) -> LineResult:
        if isinstance(letter.error, str):
            return LineResult(False, letter.error)  # the record, as a worker left it
        encoded, _ = to_line(dead_record(self._run, letter))
        return LineResult(False, encoded.decode().rstrip("\n"))


class _LineBitmap:
    """Numbers of lines: a byte for each up to the highest, as there may be millions."""

    def __init__(self) -> None:
        self._flags = bytearray()
        self._count = 0
        self.highest = 0

    def add(self, number: int) -> None:
        """Put a number in; numbers count from 1."""
        if number >= len(self._flags):
            self._flags.extend(bytes(number + 1))
        self._count += not self._flags[number]
        self._flags[number] = 1
        self.highest = max(self.highest, number)

    def discard(self, number: int) -> None:
        """Take a number out, if it is in; `highest` stays as it is."""
        if number in self:
            self._flags[number] = 0
            self._count -= 1

    def __len__(self) -> int:
        """How many numbers are in."""
        return self._count

    def __contains__(self, number: int) -> bool:
        """Whether the number is in."""
        return 0 <= number < len(self._flags) and bool(self._flags[number])


class JournalWriter:
    """Writes the output of a journal's run, in a thread of its own.

    Args:
        journal: Where the answers are.
        source: The input.
        output: Where results go.
        errors: Where records that are not ok go, with the raw line; None: to ``output``.
        ordered: Whether the order is that of the input.
        progress: How far the run is.
        on_end: Told, in that thread, that it has ended, and by which error.
    """

    def __init__(
        self,
        journal: OpenJournal,
        source: InputFile,
        *,
        output: Output,
        errors: Output | None,
        ordered: bool,
        progress: Callable[[], RunProgress],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._results = ResultReader(journal)
        self._run = journal.run
        self._input = source
        self._output = output
        self._errors = errors
        self._ordered = ordered
        self._progress = progress
        self._on_end = on_end
        self._ending = threading.Event()
        self._stopped = threading.Event()
        self._complete = False  # set before `_ending`, read behind it
        # Appended to by any thread, taken by this one; each is one step of a deque.
        self._notes: deque[int] = deque()
        # Confined to the thread: lines whose record is in the outputs; those that failed, with the
        # hash of what the journal said of them; those that wait for their record, with their text
        # where it may be quoted; those of them whose record is yet to be read; records.
        self._written = _LineBitmap()
        self._failed: dict[int, int] = {}
        self._window: dict[int, str] = {}
        self._unread: dict[int, None] = {}
        self._ready: dict[int, tuple[Output, bytes]] = {}
        # Lines that are answered, as far as is known here; those of them to look for now; the
        # reading of the progress at the last look, and the one whose answers are all looked for.
        self._answered = _LineBitmap()
        self._due: deque[int] = deque()
        self._seen = RunProgress()
        self._searched: RunProgress | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._main, name="rxlanggraph-writer", daemon=True).start()

    def note_answered(self, line: int) -> None:
        """Note that a line was answered here: its answer is looked for once. Any thread.

        Never blocks. What other processes answer is searched for.
        """
        self._notes.append(line)

    def end(self, *, complete: bool) -> None:
        """Write what is answered by now, and end. Any thread; never blocks; idempotent.

        To be called when this process works no longer, however that came: it is waited for.

        Args:
            complete: Whether every line had its answer then.
        """
        self._complete = complete
        self._ending.set()

    def stop(self) -> None:
        """End after the record that is being written. Any thread; never blocks; idempotent."""
        self._stopped.set()
        self._ending.set()

    # -- the thread --------------------------------------------------------------------------

    def _main(self) -> None:
        crash: Exception | None = None
        try:
            self._write()
        except Exception as error:
            crash = error
        for output in self._outputs():
            try:
                output.close()
            except Exception as error:
                crash = crash or error
        self._on_end(crash)

    def _outputs(self) -> list[Output]:
        return [self._output] if self._errors is None else [self._output, self._errors]

    def _write(self) -> None:
        while not all(output.try_lock() for output in self._outputs()):
            if self._stopped.wait(_LONGEST_PAUSE) or (self._ending.is_set() and not self._complete):
                return
        self._repair()
        while self._copy():
            self._ending.wait()
            if self._stopped.is_set() or not self._any_stale():
                return
            self._repair()

    def _any_stale(self) -> bool:
        """Whether a line that failed has another answer by now; none yet is no other."""
        numbers = iter(list(self._failed))
        while chunk := list(islice(numbers, _CHUNK)):
            for number, result in self._results.read(chunk, any_failed=True).items():
                if result.ok or hash(result.text) != self._failed[number]:
                    return True
        return False

    # -- what is there already ---------------------------------------------------------------

    def _repair(self) -> None:
        self._written, self._failed = _LineBitmap(), {}
        for output in self._outputs():
            output.cut(self._keep(output, None))
        gap = self._first_gap() if self._ordered else None
        if gap is not None and self._written.highest > gap:
            self._written, self._failed = _LineBitmap(), {}
            for output in self._outputs():
                output.cut(self._keep(output, gap))

    def _keep(self, output: Output, before: int | None) -> int:
        """Return how many bytes to keep, and note which lines these are.

        Args:
            output: The output to look at.
            before: Keep only lines before this one.
        """
        end, last = 0, 0
        found = output.existing_records()
        while chunk := list(islice(found, _CHUNK)):
            results = self._results.read(_failed_lines(chunk), any_failed=True)
            for record, behind in chunk:
                number = record.get("line")
                if not isinstance(number, int) or not 0 < number <= self._input.size + 1:
                    return end
                if not self._is_right(output, record, results):
                    return end
                if (self._ordered and number <= last) or (before is not None and number >= before):
                    return end
                self._written.add(number)
                if record.get("status") != "invalid":
                    self._answered.add(number)
                if number in results:
                    self._failed[number] = hash(results[number].text)
                end, last = behind, number
        return end

    def _is_right(
        self, output: Output, record: dict[str, Any], results: dict[int, LineResult]
    ) -> bool:
        number, status = record["line"], record.get("status")
        if record.get("id") != message_id(self._run, number) or number in self._written:
            return False
        if output is not self._output_for(status == "ok"):
            return False
        if status in ("ok", "invalid"):
            return True  # is so forever
        result = results.get(number)
        said = {key: value for key, value in record.items() if key != "raw"}
        return result is not None and not result.ok and json.loads(result.text) == said

    def _output_for(self, ok: bool) -> Output:
        return self._output if ok or self._errors is None else self._errors

    def _first_gap(self) -> int | None:
        source = self._input.open()
        with source.stream:
            numbers = (line.number for line in source.lines)
            return next((number for number in numbers if number not in self._written), None)

    # -- what is not -------------------------------------------------------------------------

    def _copy(self) -> bool:
        """Write the records that lack; return whether none lacks any more."""
        self._window, self._unread, self._ready = {}, {}, {}
        self._due.clear()
        source = self._input.open()
        with source.stream:
            missing = (line for line in source.lines if line.number not in self._written)
            pause, in_vain = _PAUSE, 0
            while not self._stopped.is_set():
                self._fill(missing)
                if not self._window:
                    self._input.check_unchanged(source)
                    return True
                due = self._read_due()
                searched = 0 if self._due else self._search()
                self._write_ready()
                if due or searched:
                    pause, in_vain = _PAUSE, 0
                elif self._window and self._ending.is_set():
                    if not self._complete or self._results.any_pending():
                        return False  # they come when the run is resumed
                    in_vain += 1
                    self._check_lost(in_vain)
                if self._window and not (self._due or searched):
                    self._ending.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        return False

    def _check_lost(self, in_vain: int) -> None:
        """Raise if what is looked for will never be answered.

        Twice in vain, since the first look may have begun before all was answered.
        """
        if in_vain > 1:
            lines = line_ranges(sorted(self._unread)[:20])
            raise JournalError(
                f"the journal has no answer for line {lines}, although it is finished: it has lost "
                "what it kept; begin a new one"
            )

    def _fill(self, missing: Iterator[InputLine]) -> None:
        held = sum(map(len, self._window.values())) if self._errors is not None else 0
        while len(self._window) < _WINDOW and held < _WINDOW_CHARACTERS:
            line = next(missing, None)
            if line is None:
                return
            self._window[line.number] = "" if self._errors is None else line.raw
            held += len(self._window[line.number])
            if line.problem is None:
                self._unread[line.number] = None
                if line.number in self._answered:
                    self._due.append(line.number)
            else:
                record = invalid_record(line)
                record["id"] = message_id(self._run, line.number)
                self._put(line.number, False, to_line(record)[0])

    def _put(self, number: int, ok: bool, encoded: bytes) -> None:
        """Have a record ready, made complete with the raw line where that is asked for."""
        if not ok and self._errors is not None:
            raw = {"raw": encodable(self._window[number])}
            encoded, _ = to_line(json.loads(encoded) | raw)
        self._ready[number] = (self._output_for(ok), encoded)

    def _write_ready(self) -> None:
        for number in list(self._window if self._ordered else self._ready):
            if number not in self._ready or self._stopped.is_set():
                return
            output, encoded = self._ready.pop(number)
            output.write(encoded)
            del self._window[number]

    def _read_due(self) -> int:
        """Look for the next answers that are known to be there; return how many were found."""
        while self._notes:
            number = self._notes.popleft()
            self._answered.add(number)
            if number in self._unread:
                self._due.append(number)
        due = (self._due.popleft() for _ in range(min(_CHUNK, len(self._due))))
        chunk = [number for number in due if number in self._unread]
        found = self._read(chunk, any_failed=True)
        for number in chunk:
            if number in self._unread:
                self._answered.discard(number)  # it had failed, and was put back
        return found

    def _search(self) -> int:
        """Look for what other processes have answered; return how many answers were found.

        Lines are claimed in the order of the input, and so they are looked for, from the first one
        on, until the answers are those that the journal counts. At the end of the run all are.
        """
        # The reading of the last look: what was answered here before it has been noted by now.
        progress, self._seen = self._seen, self._progress()
        ending = self._ending.is_set()
        if not ending and (progress is self._searched or not self._lacks(progress)):
            return 0
        found, size, numbers = 0, min(_FEWEST, _CHUNK), iter(list(self._unread))
        while chunk := list(islice(numbers, size)):
            results = self._read(chunk, any_failed=ending or self._seen.stats.dead > 0)
            found += results
            self._write_ready()
            if self._stopped.is_set() or not (ending or self._lacks(progress)):
                break
            if self._ordered and results < max(size // 2, 1):
                break  # nothing else helps before these
            size = min(_CHUNK, max(2 * results, _FEWEST) if self._ordered else 2 * size)
        if not found:
            self._searched = progress
        return found

    def _lacks(self, progress: RunProgress) -> bool:
        """Whether the journal counts more answers than are known here."""
        return progress.answered > len(self._answered)

    def _read(self, chunk: list[int], *, any_failed: bool) -> int:
        """Look for these answers, and have their records ready; return how many were found."""
        results = self._results.read(chunk, any_failed=any_failed)
        for number, result in results.items():
            del self._unread[number]
            self._answered.add(number)
            if not result.ok:
                self._failed[number] = hash(result.text)
            self._put(number, result.ok, result.text.encode() + b"\n")
        return len(results)


def _failed_lines(chunk: Iterable[ExistingRecord]) -> list[int]:
    """Return the numbers of records that hold only as long as the journal says the same."""
    numbers = (
        record.get("line") for record, _ in chunk if record.get("status") not in ("ok", "invalid")
    )
    return [number for number in numbers if isinstance(number, int)]
