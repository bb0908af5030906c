"""Keywords for stores of shared state: new and empty ones, on real servers."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

# The servers are those of the Behave scenarios.
sys.path.append(str(Path(__file__).resolve().parents[2] / "features"))
from support.servers import postgres_server
from support.servers.valkey_server import LocalValkey

# Processes die in these tests, never the machine: what has reached the kernel is safe. A file in
# memory saves SQLite most of its time, in which it waits for the disk.
IN_MEMORY = "/dev/shm"


@dataclass(frozen=True)
class Store:
    """Where state is kept.

    Attributes:
        url: For ``open_state``.
        restart: Crashes the server, and returns when it answers again; of a file, does nothing.
    """

    url: str
    restart: Callable[[], None]


class stores:
    """The library; one for each suite. Its servers run until they are stopped."""

    ROBOT_LIBRARY_SCOPE = "SUITE"

    def __init__(self) -> None:
        # What it has acknowledged is on the disk: so a crash costs nothing of it.
        self._valkey = LocalValkey(durable=True)
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    def new_store(self, where: str) -> Store:
        """Return an empty store; starts the server if it does not run."""
        if where == "SQLite":
            parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
            self._folders.append(tempfile.TemporaryDirectory(prefix="sqlite-", dir=parent))
            return Store(f"sqlite:///{self._folders[-1].name}/state.db", lambda: None)
        if where == "PostgreSQL":
            postgres_server.start()
            return Store(postgres_server.fresh_url(), partial(postgres_server.restart, crash=True))
        if not self._valkey.pid:
            self._valkey.start()
        with self._valkey.client() as client:
            client.flushall()
        return Store(self._valkey.url, self._crash_valkey)

    def stop_servers(self) -> None:
        """Stop what runs, and remove what was written."""
        while self._folders:
            self._folders.pop().cleanup()
        postgres_server.stop()
        self._valkey.close()

    def _crash_valkey(self) -> None:
        self._valkey.kill()
        self._valkey.start()
