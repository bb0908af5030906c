"""What the URL of a Redis server says.

A password in it that is not escaped makes it say something else, even where `check_address` finds
it unambiguous: half of it may be taken for a database or an option. What the URL says instead is
therefore in no message, and in no cause.
"""

from __future__ import annotations

import contextlib
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
from rxlanggraph.state.backends.redis.connection import Connection

__all__ = ["Address", "understood"]

# How many requests are under way at once, unless the URL says otherwise (?max_connections=). A
# loop in Python cannot keep more of them busy; they would only wait on the server instead of here.
_CONNECTIONS: Final = 32
_MOST_CONNECTIONS: Final = 1024
# Seconds until an answer is given up, unless the URL says otherwise (?socket_timeout=).
_TIMEOUT: Final = 5.0
_DATABASE: Final = re.compile("/?|/[0-9]+/?")
# What is kept is text in UTF-8, whatever the URL says.
_TEXT: Final = {"decode_responses": True, "encoding": "utf-8", "encoding_errors": "strict"}
_ESCAPES: Final = "in a user's name or password write / as %2F"


class Address(NamedTuple):
    """What is to be known of a server.

    Attributes:
        make: Makes a connection, which is not connected yet.
        connections: How many there are to be at the most.
        timeout: Seconds until an answer is given up.
    """

    make: Callable[[], Connection]
    connections: int
    timeout: float


def understood(url: str) -> Address:
    """Read ``url``.

    Raises:
        InvalidArgumentError: It cannot be read, or has options that cannot be.
    """
    what = _fault(url)
    if what is not None:
        raise InvalidArgumentError(f"the Redis URL of the state cannot be read: {what}")
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=_TIMEOUT,
            protocol=2,  # nothing of a newer one is used
            retry=Retry(NoBackoff(), 0),
        )
        count, timeout = pool.max_connections, float(pool.connection_kwargs["socket_timeout"])
        # A time-out of ours is around the whole request; redis-py's costs more than the request.
        pool.connection_kwargs["socket_timeout"] = None
        pool.connection_kwargs |= _TEXT
        make: Callable[[], Any] = partial(_mended(pool.connection_class), **pool.connection_kwargs)
        make()  # what it says to options that it does not know, it says here
    except Exception as error:  # each option has errors of its own
        # What it does not know may be what follows an & in a password.
        why = "an option is unknown, or cannot be" if not may_be_quoted(url) else str(error)
        raise InvalidArgumentError(f"redis-py cannot use the URL of the state: {why}") from None
    if not (1 <= count <= _MOST_CONNECTIONS and 0 < timeout < math.inf):
        raise InvalidArgumentError(
            "in the URL of the state, max_connections must be 1 to "
            f"{_MOST_CONNECTIONS}, and socket_timeout more than 0 seconds"
        )
    return Address(make, count, timeout)


class _Mended:
    """For connections of redis-py: what they leave to asyncio, and asyncio does not bear.

    What they have to write is one piece. Up to some release of Python 3.13, a transport that is
    given several pieces, and whose connection has just been reset, makes the loop watch the number
    of a file that is about to be closed. The next connection that gets that number is never read
    from, whatever code made it.

    And how a connection has ended is looked at. The stream does that when it is collected, but
    without the GIL its future may be collected before, and report an error that was never
    retrieved.
    """

    _writer: Any  # redis-py's

    async def _connect(self) -> None:
        await super()._connect()  # type: ignore[misc]
        writer = self._writer
        writer.writelines = lambda pieces: writer.write(b"".join(pieces))

    async def disconnect(self, *args: Any, **options: Any) -> None:
        writer = self._writer
        await super().disconnect(*args, **options)  # type: ignore[misc]
        if writer is not None:
            ending = writer.wait_closed()
            with contextlib.suppress(StopIteration, OSError):
                ending.send(None)  # not awaited: what has not ended by now ends in good order
            ending.close()


def _mended(kind: type[Any]) -> Callable[..., Any]:
    return type(kind.__name__, (_Mended, kind), {})


def _fault(url: str) -> str | None:
    """What is wrong with a URL that redis-py would read as something else; None: nothing."""
    parts = urlsplit(url)
    if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        # For redis-py it would be database 0.
        return f"after the server comes / and the number of a database, or nothing; {_ESCAPES}"
    return None
