"""Whether a server is fit for shared state: checked once, when a state is opened.

What breaks without it, without an error: keys that a server drops for lack of memory take tasks,
locks and fences with them, and data of another release would be read as this one's.

Confined to the loop of the connection.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from redis.exceptions import ResponseError

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.backends.redis.connection import SequencedConnection
from rxlanggraph.state.backends.redis.scripts import SCHEMA

__all__ = ["check_fitness"]

_logger = logging.getLogger(__name__)

# Of the keys and of what is in them (the list in backend.py, the scripts).
_VERSION: Final = 1
_POLICY: Final = re.compile(r"^maxmemory_policy:(\S+)", re.MULTILINE)
# Bytes of one argument of a command, where the server does not say: its default.
_LONGEST: Final = 512 * 2**20


async def check_fitness(connection: SequencedConnection, schema: str) -> None:
    """Refuse a server, or a namespace, that cannot be used; tell the connection how much it takes.

    One attempt. In a cluster the connection ends up at the node that has the namespace. Cancelling
    it leaves nothing behind but the version.

    Args:
        connection: Connected.
        schema: The key on the server of the version.

    Raises:
        InvalidArgumentError: The server drops keys when its memory is full, or does not let us
            do what is needed, or the namespace is of another release.
        StateUnavailableError: It does not answer.
    """
    known = await connection.call(SCHEMA, [schema], [""])
    if known not in (None, str(_VERSION)):
        raise InvalidArgumentError(
            f"what is under {schema!r} on the Redis server is of version {known}, this release of "
            f"rxlanggraph needs version {_VERSION}: use another namespace, or another release"
        )
    await _check_policy(connection)
    await _note_longest(connection)
    if known is None:
        await connection.call(SCHEMA, [schema], [_VERSION])


async def _check_policy(connection: SequencedConnection) -> None:
    try:
        told = _POLICY.search(str(await connection.ask("INFO", "memory")))
    except ResponseError as refusal:
        told = None
        why = f": {refusal}"
    else:
        why = ""
    if told is None:
        # Not refused: a user with minimal permissions may not ask this.
        _logger.warning(
            "the Redis server does not tell its maxmemory-policy%s; see to it that it is "
            "noeviction: any other drops keys when memory is full, and with them tasks and locks",
            why,
        )
    elif told[1] != "noeviction":
        raise InvalidArgumentError(
            f"the Redis server drops keys when its memory is full (maxmemory-policy {told[1]}), "
            "and with them counters, tasks, locks and fences, without an error: set "
            "maxmemory-policy noeviction, or use another server; one that is a cache as well will "
            "not do"
        )


async def _note_longest(connection: SequencedConnection) -> None:
    try:
        told = await connection.ask("CONFIG", "GET", "proto-max-bulk-len")
    except ResponseError:
        told = []  # providers often do not allow it
    values = list(told.values()) if isinstance(told, dict) else told[1:2]
    connection.longest = int(values[0]) if values else _LONGEST
