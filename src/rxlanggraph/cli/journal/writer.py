"""JournalWriter: from answers in the journal to records in the outputs, each once.

The journal defines what is answered, the files show what is written. A writer begins by repairing
its files (`OutputRepair`), and writes what is missing in them from the journal.

Failures can become stale: any process may requeue them, and be killed before it writes their new
answers. The writer therefore compares its failures with the journal once more after the workers of
this process have ended. By then the process has seen the end of the run, so a run that it reports
as ok has no stale failure in its output.

Each answer is read once at most. The workers of this process report the lines that they have
answered, and the records, unless they are long or the writer is far behind. Answers of other
processes are searched for, but only while the journal counts more answers than the writer knows of.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from rxlanggraph.cli.errors import JournalError
from rxlanggraph.cli.formats.readers import InputLine
from rxlanggraph.cli.formats.records import invalid_record, to_line
from rxlanggraph.cli.journal.model import message_id
from rxlanggraph.cli.journal.output_file import Output, Outputs
from rxlanggraph.cli.journal.progress import ProgressMonitor, RunProgress
from rxlanggraph.cli.journal.reader import InputFile
from rxlanggraph.cli.journal.repair import LineBitmap, OutputRepair
from rxlanggraph.cli.journal.results import LineResult, ResultReader
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.cli.pipeline.line_tracker import line_ranges
from rxlanggraph.errors import encodable

__all__ = ["JournalWriter"]

# Lines looked up in the journal at a time. A guess.
_CHUNK = 500
# Lines looked up first in a search for answers of other processes.
_FIRST_CHUNK = 16
# Lines that may wait for their answers, and the characters of those that --errors will quote.
# Guesses.
_WINDOW = 2000
_WINDOW_CHARACTERS = 16_000_000
# Characters of a record that is reported and not read. A guess.
_REPORTED_CHARACTERS = 8_000
# Seconds between two reads of the journal: while answers arrive, and at most while none do.
_PAUSE = 0.05
_MAX_PAUSE = 0.25
# Lines that an error names.
_LINES_NAMED = 20


class JournalWriter:
    """Writes the output of a journal's run, in a thread of its own.

    Args:
        journal: Where the answers are.
        source: The input.
        output: Where results go.
        errors: Where records that are not ok go, with the raw line; None: to ``output``.
        ordered: Whether the order is that of the input.
        monitor: Has the progress of the run, as last read.
        on_end: Called in that thread when it ends, with the error that ended it, or None.
    """

    def __init__(
        self,
        journal: OpenJournal,
        source: InputFile,
        *,
        output: Output,
        errors: Output | None,
        ordered: bool,
        monitor: ProgressMonitor,
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._results = ResultReader(journal)
        self._run = journal.run
        self._input = source
        self._outputs = Outputs(output, errors)
        self._ordered = ordered
        self._monitor = monitor
        self._on_end = on_end
        self._ending = threading.Event()
        self._stopped = threading.Event()
        self._complete = False  # written before `_ending` is set, read after it
        # Lines answered here, with the record, or None if it is to be read. Appended to by any
        # thread, emptied by the writer thread; each is a single step of a deque.
        self._reported: deque[tuple[int, LineResult | None]] = deque()
        # The rest is confined to the writer thread.
        # Lines known to be answered.
        self._answered = LineBitmap()
        self._repair = OutputRepair(
            self._results,
            journal.run,
            source,
            self._outputs,
            answered=self._answered,
            ordered=ordered,
        )
        # Lines whose record is in the outputs.
        self._written = LineBitmap()
        # Those of them that failed, with the hash of the journal's record.
        self._failed: dict[int, int] = {}
        # Lines that wait for their record to be written, with their text if it may be quoted.
        self._window: dict[int, str] = {}
        # Those of them whose record is not read yet; an ordered set.
        self._unread: dict[int, None] = {}
        # Those of them whose record is read, with the output that it is for.
        self._ready: dict[int, tuple[Output, bytes]] = {}
        # Those of them, known to be answered, to look up next.
        self._due: deque[int] = deque()
        # The progress at the last search, and the one for which a search found nothing.
        self._last_progress = RunProgress()
        self._searched: RunProgress | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._main, name="rxlanggraph-writer", daemon=True).start()

    def note_answered(self, line: int, result: LineResult) -> None:
        """Report that this process has answered a line, and the answer is in the journal.

        Any thread; never blocks. Only few and short results are kept here, so that a writer that is
        held up, by a pipe or a lock, does not fill the memory.
        """
        is_kept = len(self._reported) < _WINDOW and len(result.text) <= _REPORTED_CHARACTERS
        self._reported.append((line, result if is_kept else None))

    def end(self, *, complete: bool) -> None:
        """Write what is answered by now, and end. Any thread; never blocks; idempotent.

        Must be called once the workers of this process have ended, for whatever reason: the writer
        waits for it.

        Args:
            complete: Whether every line of the input was answered by then.
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
        for output in self._outputs.all:
            try:
                output.close()
            except Exception as error:
                crash = crash or error
        self._on_end(crash)

    def _write(self) -> None:
        while not all(output.try_lock() for output in self._outputs.all):
            if self._stopped.wait(_MAX_PAUSE) or (self._ending.is_set() and not self._complete):
                return
        self._written, self._failed = self._repair.repair()
        while self._copy():
            self._ending.wait()
            if self._stopped.is_set() or not self._any_stale():
                return
            self._written, self._failed = self._repair.repair()

    def _any_stale(self) -> bool:
        """Whether a failed line has a different answer by now; one without any is not stale."""
        numbers = iter(list(self._failed))
        while chunk := list(islice(numbers, _CHUNK)):
            for number, result in self._results.read(chunk, any_failed=True).items():
                if result.ok or hash(result.text) != self._failed[number]:
                    return True
        return False

    # -- writing the missing records ---------------------------------------------------------

    def _copy(self) -> bool:
        """Write the missing records; return whether all are written."""
        self._window, self._unread, self._ready = {}, {}, {}
        self._due.clear()
        source = self._input.open()
        with source.stream:
            missing = (line for line in source.lines if line.number not in self._written)
            pause, misses = _PAUSE, 0
            while not self._stopped.is_set():
                self._fill(missing)
                if not self._window:
                    self._input.check_unchanged(source)
                    return True
                due = self._read_due()
                searched = 0 if self._due else self._search()
                self._write_ready()
                if due or searched:
                    pause, misses = _PAUSE, 0
                elif self._window and self._ending.is_set():
                    if not self._complete or self._results.any_pending():
                        return False  # unanswered lines are answered when the run is resumed
                    misses += 1
                    self._check_lost(misses)
                if self._window and not (self._due or searched):
                    self._ending.wait(pause)
                    pause = min(2 * pause, _MAX_PAUSE)
        return False

    def _check_lost(self, misses: int) -> None:
        """Raise if a finished run lacks answers: the journal has lost them.

        The first miss does not count: that search may have begun before the last answer.
        """
        if misses > 1:
            lines = line_ranges(sorted(self._unread)[:_LINES_NAMED])
            raise JournalError(
                f"the journal has no answer for line {lines}, although its run is finished: it has "
                "lost data; begin a new journal"
            )

    def _fill(self, missing: Iterator[InputLine]) -> None:
        held = sum(map(len, self._window.values())) if self._outputs.failures is not None else 0
        while len(self._window) < _WINDOW and held < _WINDOW_CHARACTERS:
            line = next(missing, None)
            if line is None:
                return
            self._window[line.number] = "" if self._outputs.failures is None else line.raw
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
        """Queue a record for its output; in the file of failures, with its raw line."""
        if not ok and self._outputs.failures is not None:
            raw = {"raw": encodable(self._window[number])}
            encoded, _ = to_line(json.loads(encoded) | raw)
        self._ready[number] = (self._outputs.of(ok), encoded)

    def _write_ready(self) -> None:
        for number in list(self._window if self._ordered else self._ready):
            if number not in self._ready or self._stopped.is_set():
                return
            output, encoded = self._ready.pop(number)
            output.write(encoded)
            del self._window[number]

    def _read_due(self) -> int:
        """Take or read the next answers that are known to exist; return how many were found."""
        taken = 0
        while self._reported:
            number, result = self._reported.popleft()
            self._answered.add(number)
            if number in self._unread and result is not None:
                self._accept(number, result)
                taken += 1
            elif number in self._unread:
                self._due.append(number)
        due = (self._due.popleft() for _ in range(min(_CHUNK, len(self._due))))
        chunk = [number for number in due if number in self._unread]
        found = self._read(chunk, any_failed=True) if chunk else 0
        for number in chunk:
            if number in self._unread:
                self._answered.discard(number)  # it had failed, and was requeued
        return taken + found

    def _search(self) -> int:
        """Search for answers of other processes; return how many were found.

        Lines are claimed in the order of the input. The search follows that order, until the writer
        knows of as many answers as the journal counts; at the end of the run, to the last line.
        """
        # As of the last search: the answers of this process that it counts are reported by now.
        progress, self._last_progress = self._last_progress, self._monitor.progress
        ending = self._ending.is_set()
        if not ending and (progress is self._searched or not self._lacks(progress)):
            return 0
        found, size, numbers = 0, _FIRST_CHUNK, iter(list(self._unread))
        while chunk := list(islice(numbers, size)):
            results = self._read(chunk, any_failed=ending or self._last_progress.stats.dead > 0)
            found += results
            self._write_ready()
            if self._stopped.is_set() or not (ending or self._lacks(progress)):
                break
            if self._ordered and results < max(size // 2, 1):
                break  # later records cannot be written before the missing ones
            size = min(_CHUNK, max(2 * results, _FIRST_CHUNK) if self._ordered else 2 * size)
        if not found:
            self._searched = progress
        return found

    def _lacks(self, progress: RunProgress) -> bool:
        """Whether the journal counts more answers than the writer knows of."""
        return progress.answered > len(self._answered)

    def _read(self, chunk: list[int], *, any_failed: bool) -> int:
        """Read these answers, and queue their records; return how many were found."""
        results = self._results.read(chunk, any_failed=any_failed)
        for number, result in results.items():
            self._answered.add(number)
            self._accept(number, result)
        return len(results)

    def _accept(self, number: int, result: LineResult) -> None:
        """Queue the record of an answer."""
        del self._unread[number]
        if not result.ok:
            self._failed[number] = hash(result.text)
        self._put(number, result.ok, result.text.encode() + b"\n")
