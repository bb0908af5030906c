"""Outputs that survive: locked by one process at a time, and truncated to their valid beginning.

A file is locked by the system's own lock (``flock``): it ends with its process, however that ends,
and a suspended process keeps it. A lease would be lost then, and nothing could keep the late one
from writing: files check no tokens.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple, TextIO

from rxlanggraph.cli.errors import JournalMismatchError, OutputError
from rxlanggraph.cli.formats.sinks import Sink, open_sink

__all__ = ["ExistingRecord", "Output", "open_output"]


class ExistingRecord(NamedTuple):
    """A record found in an output, and where its line ends."""

    record: dict[str, Any]
    end: int


class Output:
    """Where records go. Confined to the thread that writes, but for `close`.

    Args:
        sink: Writes them.
        file: The same, if it is a regular file: it can be locked, read and cut.
    """

    def __init__(self, sink: Sink, file: io.FileIO | None) -> None:
        self.name = sink.name
        self._sink = sink
        self._file = file

    def try_lock(self) -> bool:
        """Lock the file; False if another process has it. A pipe has no lock.

        Raises:
            OutputError: The file system has no locks.
        """
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise OutputError(
                f"cannot lock {self.name}: {error.strerror or error}; name a file on a local disk"
            ) from error
        return True

    def existing_records(self) -> Iterator[ExistingRecord]:
        """Yield the records that are there, up to the first line that is not whole, or is none."""
        if self._file is None:
            return
        end = 0
        # Another descriptor would do, but one closed on the way would take some locks with it.
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
        """Keep so many bytes, and write behind them.

        Raises:
            OutputError: The file cannot be cut.
        """
        if self._file is None:
            return
        try:
            self._file.truncate(end)
            self._file.seek(end)
        except OSError as error:
            raise OutputError(f"cannot write {self.name}: {error.strerror or error}") from error

    def write(self, line: bytes) -> None:
        """Write one line.

        Raises:
            OutputError: It could not be written; a file has been cut back to the lines before.
        """
        self._sink.write(line)

    def close(self) -> None:
        """Close it, and with it free the lock. Idempotent.

        Raises:
            OutputError: The system reports only now that something was not written.
        """
        self._sink.close()


def _parsed(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None  # half-written
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def open_output(path: str, stdout: TextIO | None, *, again: bool) -> Output:
    """Open an output, and leave in it what is there.

    Args:
        path: A file's path, or ``-`` for ``stdout``.
        stdout: Standard output.
        again: Whether the run was begun before, and some of its records may be out already.

    Raises:
        OutputError: It cannot be opened.
        JournalMismatchError: It is standard output at the end of a file: what of it is there
            already could not be told.
    """
    if path == "-" and again and stdout is not None and _appends(stdout):
        raise JournalMismatchError(
            "standard output goes to the end of a file, where answers may be already; name the "
            "file with --output, so that only what it lacks is added"
        )
    if path == "-" or (os.path.exists(path) and not os.path.isfile(path)):
        return Output(open_sink(path, stdout), None)
    try:
        file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; name a file in a directory that "
            "exists, and that you may read and write"
        ) from error
    return Output(Sink(path, file, owned=True), file)


def _appends(stdout: TextIO) -> bool:
    try:
        descriptor = stdout.fileno()
        status = os.fstat(descriptor)
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    except (OSError, ValueError):  # replaced by something without a descriptor, as tests do
        return False
    return stat.S_ISREG(status.st_mode) and bool(flags & os.O_APPEND) and status.st_size > 0
