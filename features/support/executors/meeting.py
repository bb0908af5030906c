"""Meeting: how a scenario waits for runs in other processes, without sleeping."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

__all__ = ["Guest", "Meeting"]

# Seconds for a run to begin, the start of its worker included.
LIMIT = 150.0


@dataclass
class Guest:
    """A run that has begun, in some process, and waits for a word."""

    n: int
    pid: int
    stream: Any

    def tell(self, word: str = "on") -> None:
        with contextlib.suppress(OSError):  # its process has been killed
            self.stream.write(f"{word}\n")
            self.stream.flush()

    def said(self) -> str:
        """Wait for what it says next; empty when it has ended."""
        return self.stream.readline().strip()


class Meeting:
    """A place where runs of `graphs.meeting` arrive. Confined to one thread."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self._listener.settimeout(LIMIT)
        self.port = self._listener.getsockname()[1]
        self.guests: list[Guest] = []

    def wait_for(self, count: int) -> list[Guest]:
        """Wait for so many further runs."""
        arrived = []
        for _ in range(count):
            connection, _ = self._listener.accept()
            connection.settimeout(LIMIT)
            stream = connection.makefile("rw")
            connection.close()  # the stream keeps it open
            n, pid = map(int, stream.readline().split())
            arrived.append(Guest(n, pid, stream))
        self.guests += arrived
        return arrived

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        for guest in self.guests:
            with contextlib.suppress(OSError):
                guest.stream.close()
