"""Sink: an unbuffered output for records; each line is written as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Self, TextIO

from rxlanggraph.cli.errors import OutputError
from rxlanggraph.cli.stdio import why_not_written

__all__ = ["Sink", "same_file"]


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
        """Open an output, and empty it if it is an existing file. Blocks only as opening does.

        Args:
            path: A file's path, or ``-`` for ``stdout``.
            stdout: Standard output.

        Raises:
            OutputError: It cannot be opened.
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
            return cls(path, Path(path).open("wb", buffering=0), owned=True)
        except OSError as error:
            raise OutputError(
                f"cannot write {path}: {error.strerror or error}; name a file in a directory that "
                "exists and that you may write to"
            ) from error

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


def same_file(first: str, second: str) -> bool:
    """Whether two paths lead to the same regular file, which one would overwrite for the other."""
    if "-" in (first, second):
        return first == second
    try:
        one, other = Path(first).stat(), Path(second).stat()
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)
    return os.path.samestat(one, other) and stat.S_ISREG(one.st_mode)
