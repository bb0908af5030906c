"""Shared state in this process: ``memory:`` and ``memory:NAME``.

A map; each imports only from those above it.

    queue                one queue of work
    backend              values, locks and queues of namespaces; the contract on top of them
"""

from rxlanggraph.state.backends.memory.backend import (
    ImmediateMemoryBackend,
    MemoryBackend,
    MemoryStore,
    open_backend,
)

__all__ = ["ImmediateMemoryBackend", "MemoryBackend", "MemoryStore", "open_backend"]
