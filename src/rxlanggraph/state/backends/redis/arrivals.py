"""A subscription for notifications of tasks that have become claimable. Confined to the loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from redis.exceptions import NoPermissionError

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.redis.connections import Connection, packed_command

__all__ = ["watch_channel"]

_log = logging.getLogger("rxlanggraph")

# Seconds of silence after which the server is asked whether it is there, and seconds it has to
# answer. A network may forget an idle connection, and tell neither end.
_SILENCE: Final = 30.0


async def watch_channel(
    connection: Connection,
    channel: str,
    timeout: float,
    arrived: Callable[[str | None], None],
) -> None:
    """Subscribe to ``channel``; see `NotifyingBackend.watch_arrivals`.

    If cancelled, it releases the connection.

    Args:
        connection: A connection for this call alone, not connected yet.
        channel: The channel, whose messages are names of queues.
        timeout: Seconds that connecting and subscribing may take.
        arrived: Called with each message, and with None once it has subscribed.

    Raises:
        StateUnavailableError: The connection is lost, or there is none.
    """
    try:
        async with asyncio.timeout(timeout):
            await connection.connect()
            await _send(connection, "SUBSCRIBE", channel)
            await connection.read_response()
        arrived(None)
        await _receive(connection, arrived)
    except NoPermissionError as refusal:
        _log.info(
            "the Redis server does not allow a subscription to %r, so waiting workers poll: %s",
            channel,
            refusal,
        )
        return
    except Exception:  # noqa: S110 - redis-py, its parser and asyncio raise their own
        pass  # and the answer to a handshake may quote a password
    finally:
        with contextlib.suppress(Exception):  # it is lost already
            await connection.disconnect(nowait=True)
    raise StateUnavailableError(
        "the connection to the Redis server that tells of new tasks is lost", in_doubt=False
    )


async def _receive(connection: Connection, arrived: Callable[[str | None], None]) -> None:
    """Pass on messages, until the server is silent even if asked."""
    is_asked = False
    while True:
        message = await connection.read_response(timeout=_SILENCE)
        if message is None:
            if is_asked:
                return
            await _send(connection, "PING")
        elif message[0] == "message":
            arrived(message[2])
        is_asked = message is None


async def _send(connection: Connection, *words: str) -> None:
    await connection.send_packed_command(packed_command(words), check_health=False)
