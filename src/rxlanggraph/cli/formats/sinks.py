"""Sink: an unbuffered output for records; each line is written as a whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO, Self, TextIO

from rxlanggraph.cli.errors import OutputError
from rxlanggraph.cli.stdio import why_not_written

__all__ = ["Sink", "same_file", "try_lock"]

# The beginning of a record of a run with a journal: the id of the run, and the line's number.
_OF_JOURNAL = re.compile(rb'\{"line":(\d+),"id":"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-\1"')
_HEAD = 200


class Sink:
    """Writes lines to a file or a pipe. Confined to the thread that writes, which it may block.

    There is no buffer, so a written line survives however the process ends. This costs one system
    call for each line, which is little beside a run of a graph.

    Args:
        name: The path, or "standard output", for messages.
        stream: An unbuffered binary stream.
        owned: Whether `close` closes the stream.
    """

    def __init__(self, name: str, stream: BinaryIO, *, owned: bool) -> None:
        self.name = name
        self._stream = stream
        self._owned = owned

    @classmethod
    def open(cls, path: str, stdout: TextIO | None) -> Self:
        """Open an output without changing it: `empty` does. Blocks only as opening does.

        Args:
            path: A file's path, or ``-`` for ``stdout``.
            stdout: Standard output.

        Raises:
            OutputError: It cannot be opened, another run writes it, or it has records of a run with
                a journal.
        """
        if path == "-":
            if stdout is None:
                raise OutputError("cannot write standard output: it is closed; name a file (-o)")
            buffer = stdout.buffer
            with contextlib.suppress(OSError, ValueError):
                os.set_blocking(buffer.fileno(), True)  # the parent may share it with an event loop
            stream: Any = getattr(buffer, "raw", buffer)
            return cls("standard output", stream, owned=False)
        try:
            file = open(path, "wb", buffering=0, opener=_without_emptying)  # noqa: SIM115
        except OSError as error:
            raise OutputError(
                f"cannot write {path}: {error.strerror or error}; name a file in a directory that "
                "exists and that you may write to"
            ) from error
        try:
            _check_unused(path, file)
        except BaseException:
            file.close()
            raise
        return cls(path, file, owned=True)

    def empty(self) -> None:
        """Remove what a file had in it, once nothing can be wrong any more with the command.

        Raises:
            OutputError: It cannot be emptied.
        """
        if not self._owned or not _is_regular(self._stream):
            return
        try:
            self._stream.truncate(0)
        except OSError as error:
            raise OutputError(why_not_written(self.name, error)) from error

    def write(self, line: bytes) -> None:
        """Write one line.

        Raises:
            OutputError: It could not be written. A regular file was truncated to the lines before.
        """
        written = 0
        try:
            while written < len(line):
                written += self._stream.write(line[written:] if written else line)
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._truncate(written)
            raise OutputError(why_not_written(self.name, error)) from error

    def close(self) -> None:
        """Close the stream, if it is owned.

        Raises:
            OutputError: The system reports only now that something was not written.
        """
        if not self._owned:
            return
        try:
            # Not by closing alone: a child that was forked has the file open too.
            _unlock(self._stream)
            self._stream.close()
        except OSError as error:
            raise OutputError(why_not_written(self.name, error)) from error

    def _truncate(self, written: int) -> None:
        """Remove the last ``written`` bytes: an incomplete line."""
        try:
            if written and self._stream.seekable():
                self._stream.truncate(self._stream.tell() - written)
        except (OSError, ValueError):
            pass  # a pipe, or a broken disk: the error that led here is the better one


def _without_emptying(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC, 0o666)


def _is_regular(stream: BinaryIO) -> bool:
    return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


def _check_unused(path: str, file: BinaryIO) -> None:
    """Check that overwriting ``file`` takes nothing from another run."""
    if not _is_regular(file):
        return
    with contextlib.suppress(OSError):  # a file system without locks
        if not try_lock(file):
            raise OutputError(
                f"another run writes {path}; name another file, or wait until that has ended"
            )
    with contextlib.suppress(OSError), Path(path).open("rb") as found:  # one may not read it
        if _OF_JOURNAL.match(found.read(_HEAD)):
            raise OutputError(
                f"{path} has the records of a run with a journal: continue that with --journal and "
                "--resume, or name another file; to overwrite it, delete it first"
            )


def try_lock(file: BinaryIO) -> bool:
    """Lock a file for this process; return False if another one holds the lock. Never blocks.

    Raises:
        OSError: The file system does not support locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(file: BinaryIO) -> None:
    """Release the lock of a file, also for forked children; has no effect if there is none."""
    with contextlib.suppress(OSError, ValueError):  # not a file, or closed
        fcntl.flock(file, fcntl.LOCK_UN)


def same_file(first: str, second: str) -> bool:
    """Whether two paths lead to the same regular file, which one would overwrite for the other."""
    if "-" in (first, second):
        return first == second
    try:
        one, other = Path(first).stat(), Path(second).stat()
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)
    return os.path.samestat(one, other) and stat.S_ISREG(one.st_mode)
