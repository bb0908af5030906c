"""Nodes of a Ray cluster on this machine, each in a session of processes of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

__all__ = ["Node", "free_port"]

# Seconds for a node to start.
_LIMIT = 45.0
_RAY = Path(sys.executable).parent / "ray"
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # several nodes on the loopback interface
    "PYTHONWARNINGS": "default",
}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class Node:
    """A node, from its start to its end; the first one of a cluster has its port.

    Args:
        port: That of the cluster.
        first: Whether it starts the cluster, or joins it.
        cpus: How many CPUs it says that it has.
    """

    def __init__(self, port: int, *, first: bool, cpus: int = 1) -> None:
        self.port = port
        self._folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # paths of sockets are short
        where = (
            ["--head", f"--port={port}", f"--temp-dir={self._folder}", "--include-dashboard=false"]
            if first
            else [f"--address=127.0.0.1:{port}"]
        )
        log = Path(self._folder, "output.txt")
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [
                    *(_RAY, "start", *where, "--node-ip-address=127.0.0.1", "--block"),
                    *(f"--num-cpus={cpus}", "--object-store-memory=80000000"),
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | _ENVIRONMENT,
            )
        until, pause = monotonic() + _LIMIT, threading.Event()
        while "Ray runtime started" not in log.read_text():
            assert self._process.poll() is None and monotonic() < until, log.read_text()
            pause.wait(0.05)

    def processes(self) -> list[int]:
        """Those of its session."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    session = os.getsid(int(entry.name))
                except OSError:
                    continue
                if session == self._process.pid:
                    found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """End all its processes at once."""
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(_LIMIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
