"""Writer: from results and invalid lines to records, in a thread of its own.

The loop's thread must not wait for a disk: it only puts results into a queue, which the window of
the reader bounds. The rest happens in the writer thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from rxlanggraph.cli.errors import OutputError
from rxlanggraph.cli.formats.readers import InputLine
from rxlanggraph.cli.formats.records import (
    Record,
    invalid_record,
    to_line,
    was_drained,
)
from rxlanggraph.cli.formats.sinks import Sink
from rxlanggraph.cli.pipeline.line_tracker import LineOutcome, LineTracker
from rxlanggraph.errors import encodable
from rxlanggraph.messages import StreamMessage

__all__ = ["Writer"]

_OUTCOMES: dict[str, LineOutcome] = {"ok": "ok", "invalid": "invalid", "cancelled": "cancelled"}


class _End:
    """Put into the queue after the last result."""


class Writer:
    """Writes a record for every result and every invalid line.

    Args:
        tracker: Tracks which lines have their record.
        output: Where results go.
        errors: Where records that are not ok go, with the raw line; None: to ``output``.
        ordered: Whether an invalid line waits for the results of the lines before it.
        record_of: Returns the record of a line whose run has this result.
        on_record: Called in the writer thread for each line whose record was written or, after a
            failure, dropped.
        on_failure: Called in the writer thread, once, with the error after which nothing more is
            written.
        on_end: Called in the writer thread when it ends, with the defect that ended it, or None.
    """

    def __init__(
        self,
        tracker: LineTracker,
        output: Sink,
        errors: Sink | None,
        *,
        ordered: bool,
        record_of: Callable[[int, StreamMessage], Record],
        on_record: Callable[[], None],
        on_failure: Callable[[OutputError], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._tracker = tracker
        self._output = output
        self._errors = errors
        self._ordered = ordered
        self._record_of = record_of
        self._on_record = on_record
        self._on_failure = on_failure
        self._on_end = on_end
        self._queue: SimpleQueue[StreamMessage | InputLine | _End] = SimpleQueue()
        # Confined to the writer thread:
        self._held: deque[InputLine] = deque()  # invalid lines that wait for earlier results
        self._failed = False  # whether a record could not be written

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="rxlanggraph-writer", daemon=True).start()

    def put(self, item: StreamMessage | InputLine) -> None:
        """Hand over a result, or an invalid line. Any thread; never blocks."""
        self._queue.put(item)

    def end(self) -> None:
        """Write the items put so far, and end. Any thread; never blocks; idempotent."""
        self._queue.put(_End())

    # -- the writer thread -------------------------------------------------------------------

    def _run(self) -> None:
        crash: Exception | None = None
        try:
            while not isinstance(item := self._queue.get(), _End):
                self._take(item)
        except Exception as error:
            crash = error
        self._close()
        self._on_end(crash)

    def _take(self, item: StreamMessage | InputLine) -> None:
        if isinstance(item, StreamMessage):
            line = self._tracker.get(item.metadata["line"])
            if line is not None:
                self._write(line, self._record_of(line.number, item))
        elif self._ordered:
            self._held.append(item)
        else:
            self._write(item, invalid_record(item))
        while self._held and self._tracker.is_oldest(self._held[0]):
            invalid = self._held.popleft()
            self._write(invalid, invalid_record(invalid))

    def _write(self, line: InputLine, record: Record) -> None:
        encoded, record = to_line(record)
        sink = self._output
        if self._errors is not None and record["status"] != "ok":
            sink = self._errors
            encoded, record = to_line(record | {"raw": encodable(line.raw)})
        if not self._failed:
            try:
                sink.write(encoded)
                self._tracker.finish(line.number, _outcome_of(record))
            except OutputError as error:
                self._failed = True
                self._on_failure(error)
        self._on_record()

    def _close(self) -> None:
        for sink in (self._output, self._errors):
            try:
                if sink is not None:
                    sink.close()
            except OutputError as error:
                if not self._failed:
                    self._failed = True
                    self._on_failure(error)


def _outcome_of(record: Record) -> LineOutcome:
    return "cancelled" if was_drained(record) else _OUTCOMES.get(record["status"], "failed")
