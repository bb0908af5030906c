"""From the lines of an input to tasks of the journal: each once, in order, despite kills.

Several processes may take over the same input. A lock keeps them from doing it at the same time,
and only saves work: a line that is known is not added again, since its number is its key. So a
process that adds on although it has lost the lock, having been stopped for a while, does no harm:
each process adds in the order of the input, without a gap, from where the input was taken over.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import cast

from rxlanggraph.cli.errors import InputError, JournalError
from rxlanggraph.cli.formats.lines import InputLine
from rxlanggraph.cli.formats.readers import Format, Source, format_of, open_source
from rxlanggraph.cli.journal.model import (
    INGEST,
    QUEUE,
    IngestProgress,
    as_stored,
    ingest_progress_from,
    task_of,
)
from rxlanggraph.cli.journal.retry import OpenJournal
from rxlanggraph.errors import InvalidArgumentError, LeaseLostError, LockTimeoutError
from rxlanggraph.state import Lease, SyncState, Task

__all__ = ["Ingester", "InputFile", "read_ingest_progress"]

# Limits of one step: a few milliseconds on every backend, and within its message size.
_BATCH_LINES = 200
_BATCH_CHARACTERS = 1_000_000
# Short: a process that takes over from a killed one has to wait for so long.
_LOCK_SECONDS = 2.0
_POLL_SECONDS = 0.5


class InputFile:
    """An input that can be read again, as long as it does not change. Any thread.

    Args:
        path: Of a regular file.
        form: How to read it; None goes by the suffix.
        thread_key: Which field names the threads.

    Raises:
        InputError: It cannot be read, or read only once.
    """

    def __init__(self, path: str, form: Format | None, thread_key: str | None) -> None:
        self.path = path
        self.thread_key = thread_key
        self.form = form or format_of(path)
        if path == "-" or _can_be_read_once(Path(path)):
            name = "standard input" if path == "-" else path
            raise InputError(
                f"cannot keep a journal of {name}, which can be read only once; write it to a "
                "file first"
            )
        with open_source(path, form).stream as stream:
            self._stamp = _stamp(stream.fileno())
            self.size = self._stamp[0]
            self.sha256 = hashlib.file_digest(cast("BufferedReader", stream), "sha256").hexdigest()

    def open(self) -> Source:
        """Open it from the beginning; the reader closes its ``stream``.

        Raises:
            InputError: It cannot be opened any more, or has changed.
        """
        source = open_source(self.path, self.form, thread_key=self.thread_key)
        if _stamp(source.stream.fileno()) != self._stamp:
            source.stream.close()
            raise InputError(self._changed())
        return source

    def check_unchanged(self, source: Source) -> None:
        """Raise if what was read is not what the digest was taken of.

        Raises:
            InputError: It has changed.
        """
        if _stamp(source.stream.fileno()) != self._stamp:
            raise InputError(self._changed())

    def check_known(self, line: InputLine) -> None:
        """Raise if a line goes on behind what the digest was taken of.

        Raises:
            InputError: It does: the input has grown.
        """
        if line.end > self.size:
            raise InputError(self._changed())

    def _changed(self) -> str:
        return f"{self.path} has changed since the command began; begin a new journal with it"


def _can_be_read_once(path: Path) -> bool:
    # A folder, or nothing at all, is said to be that where it is opened.
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _stamp(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def read_ingest_progress(state: SyncState) -> tuple[IngestProgress, int]:
    """Return how far the input was taken over, and the version of that."""
    value, version = state.get(INGEST)
    return ingest_progress_from(value), version


@dataclass(slots=True)
class _Batch:
    """Consecutive lines: the tasks of the good ones, and how many were invalid."""

    last: int = 0
    invalid: int = 0
    characters: int = 0
    tasks: list[Task] = field(default_factory=list)

    def take(self, line: InputLine, form: str) -> None:
        self.last = line.number
        self.characters += len(line.raw)
        if line.problem is None:
            self.tasks.append(task_of(line, form))
        else:
            self.invalid += 1

    @property
    def full(self) -> bool:
        return len(self.tasks) >= _BATCH_LINES or self.characters >= _BATCH_CHARACTERS


class Ingester:
    """Takes the input over into the journal, in a thread of its own.

    Args:
        journal: Where the tasks go.
        source: The input.
        max_attempts: Worker crashes before a message is dead-lettered.
        on_invalid: Told, in that thread, how many more lines are invalid.
        on_end: Told, in that thread, that it has ended, and by which error.
    """

    def __init__(
        self,
        journal: OpenJournal,
        source: InputFile,
        *,
        max_attempts: int,
        on_invalid: Callable[[int], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._state = journal.state.sync
        self._input = source
        self._max_attempts = max_attempts
        self._retrying = journal.retry.call
        self._on_invalid = on_invalid
        self._on_end = on_end
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._main, name="rxlanggraph-reader", daemon=True).start()

    def end(self) -> None:
        """Add nothing more, after the batch that is on its way. Any thread; never blocks."""
        self._ended.set()

    # -- the thread --------------------------------------------------------------------------

    def _main(self) -> None:
        crash: Exception | None = None
        try:
            self._retrying(self._take_over)
        except Exception as error:
            crash = error
        self._on_end(crash)

    def _take_over(self) -> None:
        while not self._ended.is_set() and not read_ingest_progress(self._state)[0].complete:
            self._take_turn()

    def _take_turn(self) -> None:
        try:
            with self._state.lock("ingest", _LOCK_SECONDS, wait=_POLL_SECONDS) as lease:
                self._add_rest(lease)
        except (LockTimeoutError, LeaseLostError):
            pass  # another process has it, or has taken it

    def _add_rest(self, lease: Lease) -> None:
        ingest, version = read_ingest_progress(self._state)
        if ingest.complete:
            return
        source = self._input.open()
        with source.stream:
            for batch in self._batches(source, ingest.line):
                if self._ended.is_set() or lease.lost:
                    return
                self._add(batch, ingest.line + 1)
                ingest = replace(
                    ingest,
                    line=batch.last,
                    messages=ingest.messages + len(batch.tasks),
                    invalid=ingest.invalid + batch.invalid,
                )
                if not self._note(ingest, version, lease):
                    return
                version = self._state.get(INGEST).version
                self._on_invalid(batch.invalid)
            self._input.check_unchanged(source)
        self._note(replace(ingest, complete=True), version, lease)

    def _add(self, batch: _Batch, first: int) -> None:
        try:
            self._state.add_tasks(QUEUE, batch.tasks, max_attempts=self._max_attempts)
        except InvalidArgumentError as refusal:
            raise JournalError(
                f"the journal does not take lines {first} to {batch.last} of {self._input.path}: "
                f"{refusal}"
            ) from refusal

    def _note(self, ingest: IngestProgress, version: int, lease: Lease) -> bool:
        # Only behind what is noted: a server that came back without its last second would have
        # a gap otherwise.
        return self._state.compare_and_set(INGEST, as_stored(ingest), version, token=lease)

    def _batches(self, source: Source, after: int) -> Iterator[_Batch]:
        batch = _Batch()
        for line in source.lines:
            self._input.check_known(line)  # before it is in the journal, for good
            if line.number <= after:
                continue
            batch.take(line, self._input.form)
            if batch.full:
                yield batch
                batch = _Batch()
        if batch.last:
            yield batch
