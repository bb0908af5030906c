"""Shared state in a Redis or Valkey server; the extra ``redis`` brings what it needs."""

from __future__ import annotations

from rxlanggraph.state.backends.redis.backend import RedisBackend

__all__ = ["RedisBackend", "open_backend"]


async def open_backend(url: str, namespace: str) -> RedisBackend:
    """Connect to the server at ``url``.

    On the loop that will use the backend. Cancelling it leaves nothing behind.

    Args:
        url: As redis-py takes it, or with ``valkey`` for ``redis``. Its options too: among them
            ``?socket_timeout=`` is how many seconds an answer may take, ``?max_connections=`` how
            many requests are under way at once.
        namespace: Which part of the server's data it is.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL, or the server refuses us.
        StateUnavailableError: The server is not there.
    """
    if url.startswith("valkey"):  # the same protocol; redis-py knows its own names alone
        url = url.replace("valkey", "redis", 1)
    backend = RedisBackend(url, namespace)
    try:
        await backend.connect()
    except BaseException:
        await backend.close()
        raise
    return backend
