"""Messages on standard error.

A standard error that has gone, or is full, stops nothing: the records and the exit status say the
same.
"""

from __future__ import annotations

import contextlib
import io
import sys

import click

__all__ = ["discard_stderr_buffer", "print_stderr"]


def print_stderr(text: str) -> None:
    """Write a message to standard error."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"rxlanggraph: {text}", err=True)


def discard_stderr_buffer() -> None:
    """Discard what standard error has not accepted. The last thing before the program ends.

    It stays in the stream's buffer otherwise, and the interpreter, which flushes that at exit,
    would make 120 of the exit status.
    """
    try:
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # None where it was closed from the beginning
        sys.stderr = io.StringIO()
