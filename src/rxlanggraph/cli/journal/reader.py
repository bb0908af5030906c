"""Ingester: from the lines of an input to tasks of the journal, each once, in order, despite kills.

Every process of a run ingests the input, one at a time. The lock for that only saves work. A
process that was suspended may lose it and still add lines, without harm: a line's number is its
key, so adding it again has no effect, and each process adds in the order of the input, without a
gap, from the last ingested line.
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
from rxlanggraph.cli.formats.readers import Format, InputLine, Source, format_of, open_source
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
from rxlanggraph.state.backend import MAX_PER_STEP

__all__ = ["Ingester", "InputFile", "read_ingest_progress"]

# Limits of one step, so that it is short on every backend, and within its message size.
_BATCH_LINES = MAX_PER_STEP
_BATCH_CHARACTERS = 1_000_000
# Short, because after a kill the next process waits for that long.
_LOCK_SECONDS = 2.0
_POLL_SECONDS = 0.5


class InputFile:
    """An input that can be read again, as long as it does not change. Any thread.

    Args:
        path: The path of a regular file.
        form: The format; None goes by the suffix.
        thread_key: The field that names a message's thread; None: no message has a thread.

    Raises:
        InputError: It cannot be read, or can be read only once.
    """

    def __init__(self, path: str, form: Format | None, thread_key: str | None) -> None:
        self.path = path
        self.thread_key = thread_key
        self.form = form or format_of(path)
        if path == "-" or _is_read_only_once(Path(path)):
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
        """Check that the input is the one whose digest was taken.

        Raises:
            InputError: It has changed.
        """
        if _stamp(source.stream.fileno()) != self._stamp:
            raise InputError(self._changed())

    def check_within(self, line: InputLine) -> None:
        """Check that a line is within the part of the input whose digest was taken.

        Raises:
            InputError: The input has grown.
        """
        if line.end > self.size:
            raise InputError(self._changed())

    def _changed(self) -> str:
        return f"{self.path} has changed since the command began; begin a new journal with it"


def _is_read_only_once(path: Path) -> bool:
    # Opening a directory, or a file that does not exist, raises a better error.
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _stamp(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


def read_ingest_progress(state: SyncState) -> tuple[IngestProgress, int]:
    """Return how much of the input was ingested, and the version of that value."""
    value, version = state.get(INGEST)
    return ingest_progress_from(value), version


@dataclass(slots=True)
class _Batch:
    """Consecutive lines: the tasks of the valid ones, and how many are invalid."""

    last: int = 0
    invalid: int = 0
    characters: int = 0
    tasks: list[Task] = field(default_factory=list)

    def add(self, line: InputLine, form: str) -> None:
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
    """Ingests the input into the journal, in a thread of its own.

    Args:
        journal: Where the tasks go.
        source: The input.
        max_attempts: Worker crashes before a message is dead-lettered.
        on_invalid: Called in that thread with the number of further invalid lines.
        on_end: Called in that thread when it ends, with the error that ended it, or None.
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
        self._retry = journal.retry.call
        self._on_invalid = on_invalid
        self._on_end = on_end
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._main, name="rxlanggraph-reader", daemon=True).start()

    def end(self) -> None:
        """Add nothing more after the current batch. Any thread; never blocks."""
        self._ended.set()

    # -- the thread --------------------------------------------------------------------------

    def _main(self) -> None:
        crash: Exception | None = None
        try:
            self._retry(self._ingest)
        except Exception as error:
            crash = error
        self._on_end(crash)

    def _ingest(self) -> None:
        while not self._ended.is_set() and not read_ingest_progress(self._state)[0].complete:
            self._ingest_locked()

    def _ingest_locked(self) -> None:
        try:
            with self._state.lock("ingest", _LOCK_SECONDS, wait=_POLL_SECONDS) as lease:
                self._ingest_rest(lease)
        except (LockTimeoutError, LeaseLostError):
            pass  # another process holds the lock

    def _ingest_rest(self, lease: Lease) -> None:
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
                if not self._record(ingest, version, lease):
                    return
                version = self._state.get(INGEST).version
                self._on_invalid(batch.invalid)
            self._input.check_unchanged(source)
        self._record(replace(ingest, complete=True), version, lease)

    def _add(self, batch: _Batch, first: int) -> None:
        try:
            self._state.add_tasks(QUEUE, batch.tasks, max_attempts=self._max_attempts)
        except InvalidArgumentError as refusal:
            raise JournalError(
                f"the journal does not accept lines {first} to {batch.last} of "
                f"{self._input.path}: {refusal}"
            ) from refusal

    def _record(self, ingest: IngestProgress, version: int, lease: Lease) -> bool:
        # Only if the version is the expected one: a server that came back without its last writes
        # would have a gap otherwise.
        return self._state.compare_and_set(INGEST, as_stored(ingest), version, token=lease)

    def _batches(self, source: Source, after: int) -> Iterator[_Batch]:
        batch = _Batch()
        for line in source.lines:
            self._input.check_within(line)  # before the journal has it, and keeps it
            if line.number <= after:
                continue
            batch.add(line, self._input.form)
            if batch.full:
                yield batch
                batch = _Batch()
        if batch.last:
            yield batch
