"""Output: a file that is locked by one process at a time, and can be read and truncated.

The lock is the operating system's (``flock``): it ends with its process and not before. A lease
could be lost while its holder is suspended, and files do not refuse stale tokens.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, TextIO

from rxlanggraph.cli.errors import JournalMismatchError, OutputError
from rxlanggraph.cli.formats.sinks import Sink, try_lock

__all__ = ["ExistingRecord", "Output", "Outputs", "open_output"]


class ExistingRecord(NamedTuple):
    """A record found in an output, and where its line ends."""

    record: dict[str, Any]
    end: int


class Output(Sink):
    """A `Sink` that can be repaired. Confined to the thread that writes, except for `close`.

    `close` releases the lock.

    Args:
        name: The path, or "standard output", for messages.
        stream: An unbuffered binary stream.
        owned: Whether `close` closes the stream.
        file: The same stream, to be locked, read and truncated; None if it is not a regular file.
    """

    def __init__(
        self, name: str, stream: BinaryIO, *, owned: bool, file: io.FileIO | None = None
    ) -> None:
        super().__init__(name, stream, owned=owned)
        self._file = file

    def try_lock(self) -> bool:
        """Lock the file; return False if another process holds the lock. A pipe has none.

        Raises:
            OutputError: The file system does not support locks.
        """
        if self._file is None:
            return True
        try:
            return try_lock(self._file)
        except OSError as error:
            raise OutputError(
                f"cannot lock {self.name}: {error.strerror or error}; name a file on a local disk"
            ) from error

    def existing_records(self) -> Iterator[ExistingRecord]:
        """Yield the records in the file, up to the first line that is incomplete or no record."""
        if self._file is None:
            return
        end = 0
        # Not through another descriptor: closing it would release some kinds of locks.
        self._file.seek(0)
        reader = io.BufferedReader(self._file)
        try:
            for line in reader:
                end += len(line)
                record = _parsed(line)
                if record is None:
                    return
                yield ExistingRecord(record, end)
        finally:
            reader.detach()

    def cut(self, end: int) -> None:
        """Truncate the file to ``end`` bytes, and continue writing there.

        Raises:
            OutputError: The file cannot be truncated.
        """
        if self._file is None:
            return
        try:
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as error:
            raise OutputError(f"cannot write {self.name}: {error.strerror or error}") from error


class Outputs(NamedTuple):
    """The outputs of one run.

    Attributes:
        results: Where records go.
        failures: Where those go that are not ok; None: to ``results`` too.
    """

    results: Output
    failures: Output | None

    @property
    def all(self) -> list[Output]:
        """Each of them."""
        return [self.results] if self.failures is None else [self.results, self.failures]

    def of(self, ok: bool) -> Output:
        """Return where a record goes that is ok, or is not."""
        return self.results if ok or self.failures is None else self.failures


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None  # half-written
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def open_output(path: str, stdout: TextIO | None, *, again: bool) -> Output:
    """Open an output without changing its content.

    Args:
        path: A file's path, or ``-`` for ``stdout``.
        stdout: Standard output.
        again: Whether the run has begun before, so that some records may be written already.

    Raises:
        OutputError: It cannot be opened.
        JournalMismatchError: It is standard output, appended to a file whose records cannot be
            read.
    """
    if path == "-" and again and stdout is not None and _appends(stdout):
        raise JournalMismatchError(
            "standard output is appended to a file that may have records of this run; name the "
            "file with --output, so that only the missing records are added"
        )
    if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
        return Output.open(path, stdout)
    try:
        file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; name a file in a directory that "
            "exists, and that you may read and write"
        ) from error
    return Output(path, file, owned=True, file=file)


def _appends(stdout: TextIO) -> bool:
    try:
        descriptor = stdout.fileno()
        status = os.fstat(descriptor)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    except (OSError, ValueError):  # replaced by something without a descriptor, as tests do
        return False
    return stat.S_ISREG(status.st_mode) and bool(flags & os.O_APPEND) and status.st_size > 0
