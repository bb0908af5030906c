"""Connections to the primary of servers that Sentinels watch, wherever it is at the moment.

The primary is asked for with each new connection. After a failover the old one is gone, or refuses
writes; either ends a connection, and the next one finds the new primary. Confined to the loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio.sentinel import MasterNotFoundError, Sentinel

__all__ = ["Sentinels", "found_by"]


class Sentinels:
    """What knows the address of a primary. Holds no connection.

    Args:
        addresses: Hosts and ports of the Sentinels; the first one that answers is believed.
        name: By which they know the servers.
        options: Of the connections to them.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], name: str, options: dict[str, Any]
    ) -> None:
        self._addresses = tuple(addresses)
        self._name = name
        self._options = options

    async def find_primary(self) -> tuple[str, int]:
        """Return its host and port.

        Raises:
            MasterNotFoundError: None of them answers and knows one.
        """
        sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
            self._addresses, sentinel_kwargs=self._options
        )
        try:
            host, port = await sentinel.discover_master(self._name)
        except MasterNotFoundError:  # its message shows clients with all that they were made of
            asked = ", ".join(f"{host}:{port}" for host, port in self._addresses)
            message = f"none of the Sentinels at {asked} answers and knows a primary {self._name!r}"
            raise MasterNotFoundError(message) from None
        finally:
            for client in sentinel.sentinels:
                with contextlib.suppress(Exception):  # it was never connected, or is lost
                    await client.aclose()
        return host, port


def found_by(sentinels: Sentinels, kind: type[Any]) -> type[Any]:
    """Return a subclass of ``kind``, a class of redis-py's connections, that finds the primary."""

    class FoundConnection(kind):  # type: ignore[misc]
        async def connect(self) -> None:
            if not self.is_connected:
                self.host, self.port = await sentinels.find_primary()
            await super().connect()

    return FoundConnection
