"""``rxlanggraph state``: the administration of shared state.

A map; each imports only from those above it.

    location    where a state is, and opening it: without creating or migrating it by accident
    rendering   tasks, queues, keys and locks as text and as JSON
    commands    the commands
"""

from __future__ import annotations

from rxlanggraph.cli.state.commands import state

__all__ = ["state"]
