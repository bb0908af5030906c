"""Whether a server is fit for shared state: checked once, when a state is opened.

What breaks without it, silently: a server that evicts keys when its memory is full loses tasks,
locks and fences; and data in the layout of another release would be misread.

Confined to the loop of the connection.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from redis.exceptions import ResponseError

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.backend import SchemaVersion, other_version
from rxlanggraph.state.backends.redis.connections import SequencedConnection
from rxlanggraph.state.backends.redis.scripts import ADD_TIMES, SCHEMA

__all__ = ["check_fitness", "read_version"]

_log = logging.getLogger("rxlanggraph")

# Version of the layout: of the keys in backend.py, and of their contents in the scripts.
_VERSION: Final = 2
# A change of the layout increments it, and adds the script that makes it of the previous version,
# in one step, if the namespace has that version still: so any number of processes may migrate it at
# once. Programs of the previous version that have the namespace open continue, so a script only
# adds what they leave alone; and it must be short (rule 9 of the contract).
_MIGRATIONS: Final = {2: ADD_TIMES}  # by the version that it leads to
_POLICY: Final = re.compile(r"^maxmemory_policy:(\S+)", re.MULTILINE)
# The default of a server for the length of an argument, in bytes; used if it does not allow the
# question.
_DEFAULT_BULK_LENGTH: Final = 512 * 2**20


async def check_fitness(connection: SequencedConnection, schema: str, since: str) -> int:
    """Refuse a server, or a namespace, that cannot be used; migrate that of an older release.

    One attempt. In a cluster the connection ends up at the node that has the namespace. Cancelling
    it leaves at most the version behind.

    Args:
        connection: A connection, connected.
        schema: The key of the version on the server.
        since: The key of the moment since when tasks have times.

    Returns:
        The length of the longest argument that the server accepts, in bytes.

    Raises:
        InvalidArgumentError: The server evicts keys when its memory is full, or denies a necessary
            permission, or the namespace has a layout that this release cannot migrate.
        StateUnavailableError: The server does not answer.
    """
    version = await read_version(connection, schema)
    if version.stored is not None and not min(_MIGRATIONS) - 1 <= version.stored <= _VERSION:
        raise other_version(f"the data under {schema!r} on the Redis server", version, "namespace")
    await _check_policy(connection)
    longest = await _argument_limit(connection)
    if version.stored is None:
        await connection.call(SCHEMA, [schema], [_VERSION])
    elif version.is_due:
        for number in range(version.stored + 1, _VERSION + 1):
            await connection.call(_MIGRATIONS[number], [schema, since], [number - 1, number])
    return longest


async def read_version(connection: SequencedConnection, schema: str) -> SchemaVersion:
    """Return the version of the layout; changes nothing.

    Args:
        connection: A connection, connected.
        schema: The key of the version on the server.

    Raises:
        StateUnavailableError: The server does not answer.
    """
    known = await connection.call(SCHEMA, [schema], [""])
    stored = None if known is None else int(known) if known.isdigit() else 0
    return SchemaVersion(stored, _VERSION)


async def _check_policy(connection: SequencedConnection) -> None:
    try:
        reply = _POLICY.search(str(await connection.ask("INFO", "memory")))
    except ResponseError as refusal:
        reply = None
        why = f": {refusal}"
    else:
        why = ""
    if reply is None:
        # Not refused: a user with minimal permissions may not read it.
        _log.warning(
            "the maxmemory-policy of the Redis server cannot be read%s; make sure that it is "
            "noeviction: any other evicts keys when memory is full, and with them tasks and locks",
            why,
        )
    elif reply[1] != "noeviction":
        raise InvalidArgumentError(
            f"the Redis server evicts keys when its memory is full (maxmemory-policy {reply[1]}), "
            "and with them counters, tasks, locks and fences, without an error: set "
            "maxmemory-policy noeviction, or use another server that is not also a cache"
        )


async def _argument_limit(connection: SequencedConnection) -> int:
    try:
        reply = await connection.ask("CONFIG", "GET", "proto-max-bulk-len")
    except ResponseError:
        reply = []  # providers often forbid CONFIG
    values = list(reply.values()) if isinstance(reply, dict) else reply[1:2]
    return int(values[0]) if values else _DEFAULT_BULK_LENGTH
