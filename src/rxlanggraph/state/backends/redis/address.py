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
from urllib.parse import unquote, urlsplit, urlunsplit

from redis.asyncio.connection import ConnectionPool, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.addresses import may_be_quoted
from rxlanggraph.state.backends.redis.connections import Connection, patched
from rxlanggraph.state.backends.redis.sentinel import Sentinels, found_by

__all__ = ["Address", "parse_address"]

# Concurrent requests, unless the URL sets ?max_connections=. A loop in Python cannot keep more
# connections busy: further requests would wait on the server instead of here.
_CONNECTIONS: Final = 32
_MAX_CONNECTIONS: Final = 1024
# Seconds that an answer may take, unless the URL sets ?socket_timeout=.
_TIMEOUT: Final = 5.0
_DATABASE: Final = re.compile("/?|/[0-9]+/?")
# With Sentinels: the name of the servers, and a database.
_SERVICE: Final = re.compile(r"/(?P<name>[A-Za-z0-9._-]+)(?P<database>/?|/[0-9]+/?)")
_SENTINEL_PORT: Final = 26379
_SENTINEL_SCHEMES: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
# Options of the URL that redis-py does not know.
_OWN_OPTIONS: Final = ("wait_replicas", "sentinel_username", "sentinel_password")
_MAX_REPLICAS: Final = 100
# Stored text is in UTF-8, whatever the URL sets. What is not was written by other programs, and is
# refused where its name is known.
_TEXT: Final = {"decode_responses": True, "encoding": "utf-8", "encoding_errors": "surrogateescape"}
_NO_RETRY: Final = Retry(NoBackoff(), 0)
_ESCAPE_HINT: Final = "in a user's name or password write / as %2F"


class Address(NamedTuple):
    """How to connect to a server.

    Attributes:
        make: Makes a connection, which is not connected yet.
        connections: The maximum number of connections.
        timeout: Seconds that an answer may take.
        replicas: How many replicas have to confirm each call.
    """

    make: Callable[[], Connection]
    connections: int
    timeout: float
    replicas: int


def parse_address(url: str) -> Address:
    """Parse ``url``.

    Raises:
        InvalidArgumentError: It cannot be parsed, or has invalid options.
    """
    what = _fault(url)
    if what is not None:
        raise InvalidArgumentError(f"the Redis URL of the state cannot be read: {what}")
    url, own = _split_options(url)
    replicas = _parse_replicas(own.get("wait_replicas", "0"))
    url, service = _split_sentinels(url)
    try:
        pool = ConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            socket_timeout=_TIMEOUT,
            protocol=2,  # newer versions have nothing that is needed here
            retry=_NO_RETRY,
        )
        count, timeout = pool.max_connections, float(pool.connection_kwargs["socket_timeout"])
        # `SequencedConnection` has one timeout for the whole request; those of redis-py take longer
        # than a request.
        pool.connection_kwargs["socket_timeout"] = None
        pool.connection_kwargs |= _TEXT
        kind = pool.connection_class
        if service is not None:
            options = pool.connection_kwargs | {"ssl": issubclass(kind, SSLConnection)}
            kind = found_by(_sentinels(service, own, options, timeout), kind)
        make: Callable[[], Any] = partial(patched(kind), **pool.connection_kwargs)
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
    return Address(make, count, timeout, replicas)


def _fault(url: str) -> str | None:
    """Return why redis-py would misread the URL, or None."""
    parts = urlsplit(url)
    if parts.scheme in _SENTINEL_SCHEMES:
        if not _SERVICE.fullmatch(parts.path):
            return (
                "the path must be / and the name by which the Sentinels know the servers, such as "
                f"/mymaster, and perhaps / and the number of a database; {_ESCAPE_HINT}"
            )
    elif parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):
        # redis-py would use database 0.
        return f"the path must be / and the number of a database, or empty; {_ESCAPE_HINT}"
    return None


def _split_options(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without the options that redis-py does not know, and those options."""
    address, _, query = url.partition("?")
    options = [option.partition("=") for option in query.split("&") if option]
    own = {name: unquote(value) for name, _, value in options if name in _OWN_OPTIONS}
    rest = "&".join("".join(option) for option in options if option[0] not in _OWN_OPTIONS)
    return (f"{address}?{rest}" if rest else address), own


def _parse_replicas(text: str) -> int:
    if not (text.isdecimal() and int(text[:9]) <= _MAX_REPLICAS):
        raise InvalidArgumentError(
            "wait_replicas in the Redis URL of the state must be a whole number from 0 to "
            f"{_MAX_REPLICAS}"
        )
    return int(text)


class _Service(NamedTuple):
    """What the Sentinels of a URL watch."""

    name: str
    servers: str  # "host:port,host:port"


def _split_sentinels(url: str) -> tuple[str, _Service | None]:
    """Return a URL that redis-py knows, and what a URL with Sentinels says in addition."""
    parts = urlsplit(url)
    scheme = _SENTINEL_SCHEMES.get(parts.scheme)
    service = _SERVICE.fullmatch(parts.path)
    if scheme is None or service is None:
        return url, None
    user, at, servers = parts.netloc.rpartition("@")
    one_server = f"{user}{at}{servers.partition(',')[0]}"
    plain = parts._replace(scheme=scheme, netloc=one_server, path=service["database"])
    return urlunsplit(plain), _Service(service["name"], servers)


def _sentinels(
    service: _Service, own: dict[str, str], options: dict[str, Any], timeout: float
) -> Sentinels:
    servers = [urlsplit(f"//{server}") for server in service.servers.split(",")]
    addresses = [(each.hostname or "localhost", each.port or _SENTINEL_PORT) for each in servers]
    # Each may be silent, and the next one has to be asked within the time of a request.
    share = timeout / (len(addresses) + 1)
    chosen = {name: value for name, value in options.items() if name.startswith("ssl")}
    chosen |= {name.removeprefix("sentinel_"): own[name] for name in own if "sentinel" in name}
    chosen |= {"socket_timeout": share, "socket_connect_timeout": share}
    return Sentinels(addresses, service.name, chosen | {"retry": _NO_RETRY})
