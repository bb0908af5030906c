"""The stores of shared state that scenarios use, each started when a scenario first needs it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from behave.model import Scenario
from behave.runner import Context

from support.servers import postgres_server, ray_server, valkey_server

__all__ = ["BACKENDS", "fresh_url", "start_for", "stop"]

# What a scenario is tagged with that needs one.
SERVERS: dict[str, Any] = {
    "postgresql": postgres_server,
    "valkey": valkey_server,
    "ray": ray_server,
}
_numbers = itertools.count(1)


def start_for(scenario: Scenario) -> None:
    """Start the servers that the scenario is tagged with, unless they run."""
    for tag, server in SERVERS.items():
        if tag in scenario.effective_tags:
            server.start()


def stop() -> None:
    """Stop what runs. At the end of the behave run."""
    for server in SERVERS.values():
        server.stop()


def _memory(_: Context) -> str:
    return f"memory:scenario-{next(_numbers)}"


def _sqlite(context: Context) -> str:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    return f"sqlite:///{Path(folder.name, 'state.db')}"


BACKENDS: dict[str, Callable[[Context], str]] = {
    "memory": _memory,
    "SQLite": _sqlite,
    "PostgreSQL": lambda _: postgres_server.fresh_url(),
    "Valkey": lambda _: valkey_server.fresh_url(),
}


def fresh_url(context: Context, backend: str) -> str:
    """The URL of an empty store, gone with the scenario."""
    tag = backend.lower()
    assert tag not in SERVERS or tag in context.tags, f"the scenario needs the tag @{tag}"
    return BACKENDS[backend](context)
