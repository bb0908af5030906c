"""Messages on standard error.

A standard error that is closed or full stops nothing: records and exit status do not depend on it.
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
    """Discard what standard error has not accepted. To be called last, before the program ends.

    Otherwise the interpreter would flush the buffer at exit, fail, and replace the exit status.
    """
    try:
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # None where it was closed from the beginning
        sys.stderr = io.StringIO()
