"""Parsing the URL of a Redis server.

Half of an unescaped password may be parsed as a database or an option, even if `check_address`
finds the URL unambiguous. Parsed parts of the URL are therefore quoted in no error message, and in
no cause of an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from redis.asyncio.connection import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.addresses import may_be_quoted
from rxlanggraph.state.backends.redis.connections import Connection, patched

__all__ = ["Address", "parse_address"]

# Concurrent requests, unless the URL sets ?max_connections=. A loop in Python cannot keep more
# connections busy: further requests would wait on the server instead of here.
_CONNECTIONS: Final = 32
_MAX_CONNECTIONS: Final = 1024
# Seconds that an answer may take, unless the URL sets ?socket_timeout=.
_TIMEOUT: Final = 5.0
_DATABASE: Final = re.compile("/?|/[0-9]+/?")
# Stored text is in UTF-8, whatever the URL sets.
_TEXT: Final = {"decode_responses": True, "encoding": "utf-8", "encoding_errors": "strict"}
_ESCAPE_HINT: Final = "in a user's name or password write / as %2F"


class Address(NamedTuple):
    """How to connect to a server.

    Attributes:
        make: Makes a connection, which is not connected yet.
        connections: The maximum number of connections.
        timeout: Seconds that an answer may take.
    """

    make: Callable[[], Connection]
    connections: int
    timeout: float


def parse_address(url: str) -> Address:
    """Parse ``url``.

    Raises:
        InvalidArgumentError: It cannot be parsed, or has invalid options.
    """
    what = _fault(url)
    if what is not None:
        raise InvalidArgumentError(f"the Redis URL of the state cannot be read: {what}")
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=_TIMEOUT,
            protocol=2,  # newer versions have nothing that is needed here
            retry=Retry(NoBackoff(), 0),
        )
        count, timeout = pool.max_connections, float(pool.connection_kwargs["socket_timeout"])
        # `SequencedConnection` has one timeout for the whole request; those of redis-py take longer
        # than a request.
        pool.connection_kwargs["socket_timeout"] = None
        pool.connection_kwargs |= _TEXT
        make: Callable[[], Any] = partial(patched(pool.connection_class), **pool.connection_kwargs)
        make()  # raises now for unknown options
    except Exception as error:  # each option has exceptions of its own
        # An "option" may be the part of a password that follows an &.
        why = str(error) if may_be_quoted(url) else "an option is unknown or invalid"
        raise InvalidArgumentError(f"redis-py cannot use the URL of the state: {why}") from None
    if not (1 <= count <= _MAX_CONNECTIONS and 0 < timeout < math.inf):
        raise InvalidArgumentError(
            "in the Redis URL of the state, max_connections must be 1 to "
            f"{_MAX_CONNECTIONS}, and socket_timeout more than 0 seconds"
        )
    return Address(make, count, timeout)


def _fault(url: str) -> str | None:
    """Return why redis-py would misread the URL, or None."""
    parts = urlsplit(url)
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        # redis-py would use database 0.
        return f"the path must be / and the number of a database, or empty; {_ESCAPE_HINT}"
    return None
