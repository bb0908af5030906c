"""A Ray cluster for the scenarios of one process, which takes seconds to start.

Started in this process before the first scenario that needs it: its executors find the connection,
and leave it as it is.
"""

from __future__ import annotations

from rxlanggraph.executors.ray.connection import Connection, connect, disconnect

__all__ = ["start", "stop"]

_running: list[Connection] = []


def start() -> None:
    """Start it, unless it runs."""
    if not _running:
        _running.append(connect(None, loopback=True, dashboard=False))


def stop() -> None:
    """End it, if it runs."""
    if _running:
        disconnect(_running.pop())
