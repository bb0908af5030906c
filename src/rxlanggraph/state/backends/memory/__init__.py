"""Shared state in this process: ``memory:`` and ``memory:NAME``.

A map; each imports only from those above it.

    queue                one queue of work
    namespace            values, locks and queues of one namespace
    backend              the contract of shared state, on top of it
"""

from rxlanggraph.state.backends.memory.backend import (
    ImmediateMemoryBackend,
    MemoryBackend,
    MemoryStore,
    open_backend,
)

__all__ = ["ImmediateMemoryBackend", "MemoryBackend", "MemoryStore", "open_backend"]
