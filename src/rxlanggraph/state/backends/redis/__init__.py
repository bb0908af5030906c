"""Shared state in a Redis or Valkey server; the extra ``redis`` brings what it needs."""

from __future__ import annotations

from rxlanggraph.state.backend import SchemaVersion
from rxlanggraph.state.backends.redis.backend import RedisBackend

__all__ = ["RedisBackend", "open_backend", "read_version"]


async def open_backend(url: str, namespace: str) -> RedisBackend:
    """Connect to the server at ``url``.

    On the loop that will use the backend. Cancelling it leaves nothing behind.

    Args:
        url: A URL as redis-py accepts it, or with ``valkey`` instead of ``redis``; with the options
            of redis-py, such as ``?socket_timeout=``, the seconds that an answer may take, and
            ``?max_connections=``, the number of concurrent requests.
        namespace: The namespace of the keys on the server.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL, or the server refuses the connection or
            is not fit for shared state.
        StateUnavailableError: The server does not answer.
    """
    backend = _backend(url, namespace)
    try:
        await backend.connect()
    except BaseException:
        await backend.close()
        raise
    return backend


async def read_version(url: str, namespace: str) -> SchemaVersion:
    """Return the version of the data of ``namespace`` at ``url``; creates and changes nothing.

    Args:
        url: As for `open_backend`.
        namespace: The namespace.

    Raises:
        InvalidArgumentError: redis-py cannot use the URL, or the server refuses the connection.
        StateUnavailableError: The server does not answer.
    """
    backend = _backend(url, namespace)
    try:
        return await backend.read_version()
    finally:
        await backend.close()


def _backend(url: str, namespace: str) -> RedisBackend:
    if url.startswith("valkey"):  # the same protocol, under names that redis-py does not know
        url = url.replace("valkey", "redis", 1)
    return RedisBackend(url, namespace)
