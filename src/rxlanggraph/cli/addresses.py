"""Addresses that the command listens on: ``[HOST:]PORT``."""

from __future__ import annotations

from typing import NamedTuple

from rxlanggraph.errors import InvalidArgumentError

__all__ = ["Address", "parse_address"]

_LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """Where something is served."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it is written on the command line, and in URLs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address for ``HOST:PORT``, or a port on the loopback interface.

    Raises:
        InvalidArgumentError: It is neither.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise InvalidArgumentError(
            f"{text!r} is not an address: write HOST:PORT, such as 127.0.0.1:9400, or a port"
        )
    return Address(host or _LOOPBACK, int(port))
