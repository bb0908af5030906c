"""Standard output and standard error of the commands.

A standard error that is closed or full stops nothing: records and exit status do not depend on it.
A standard output that is closed or full ends the command, with an error of one line.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import sys
from collections.abc import Iterator

import click

from rxlanggraph.cli.errors import OutputError

__all__ = ["discard_buffers", "logged", "print_stderr", "print_stdout", "why_not_written"]


def print_stdout(text: str = "") -> None:
    """Write text to standard output, with escapes for characters that its encoding lacks.

    Raises:
        OutputError: It could not be written.
    """
    try:
        try:
            click.echo(text)
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding
            click.echo(text.encode(encoding, "backslashreplace").decode(encoding))
    except (OSError, ValueError) as error:
        raise OutputError(why_not_written("standard output", error)) from error


def why_not_written(name: str, error: Exception) -> str:
    """Return the message for an output that could not be written."""
    if isinstance(error, BrokenPipeError):
        return f"the reader of {name} has gone (closed pipe)"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no room left for {name} ({error.strerror}); make room, then try again"
    return f"cannot write {name}: {getattr(error, 'strerror', None) or error}"


def print_stderr(text: str) -> None:
    """Write a message to standard error."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"rxlanggraph: {text}", err=True)


class _Handler(logging.Handler):
    """Writes records to the current standard error. Any thread."""

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError, ValueError):
            click.echo(self.format(record), err=True)


@contextlib.contextmanager
def logged(verbosity: int) -> Iterator[None]:
    """Show log records on standard error for the length of a block. The main thread.

    Args:
        verbosity: 0 for none of them, 1 for level INFO, 2 for DEBUG.
    """
    if not verbosity:
        yield
        return
    root, handler = logging.getLogger(), _Handler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def discard_buffers() -> None:
    """Discard what standard output and standard error did not accept, at the program's end.

    Otherwise the interpreter would flush the buffers at exit, fail, and replace the exit status.
    """
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except (AttributeError, OSError, ValueError):  # None where it was closed from the beginning
            setattr(sys, name, io.StringIO())
