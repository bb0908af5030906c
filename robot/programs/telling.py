"""How a worker that may be killed at any moment tells what it has done: one line, one write."""

from __future__ import annotations

import os

__all__ = ["Teller"]


class Teller:
    """Writes lines to a pipe; the first one says which process has begun.

    What was written is heard, whatever becomes of the process.

    Args:
        path: Of a named pipe that is read. Once it is no longer read, the next line ends
            the process.
    """

    def __init__(self, path: str) -> None:
        self._pipe = os.open(path, os.O_WRONLY)
        self("begun", os.getpid())

    def __call__(self, event: str, *numbers: int) -> None:
        line = " ".join([event, *map(str, numbers)])
        # Shorter than PIPE_BUF: so the lines of several processes do not mix.
        os.write(self._pipe, f"{line}\n".encode())
