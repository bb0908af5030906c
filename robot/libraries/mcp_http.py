"""Keywords for clients of an HTTP server of agents that do without HTTP's manners."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

DEADLINE = 30.0
VERSION = "2026-07-28"


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None, url
    return parts.hostname, parts.port


def _call(agent: str, message: str) -> bytes:
    """A whole request, as the protocol has been since 2026."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": agent, "arguments": {"message": message}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return _request(json.dumps(call), **{"Mcp-Method": "tools/call", "Mcp-Name": agent})


def _request(body: str, **headers: str) -> bytes:
    lines = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
        **headers,
    }
    if "Mcp-Method" in headers:
        lines["MCP-Protocol-Version"] = VERSION
    header = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{header}\r\n{body}".encode()


def _handshake() -> bytes:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "robot", "version": "1"},
    }
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    return _request(json.dumps(call))


PARTS = {
    "nothing": b"",
    "half a header": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    "half a body": _handshake()[:-5],
    "a whole request": _handshake(),
    "a request that is refused": _request("{}", Host="evil.example"),
}


class mcp_http:
    """The library; one for each test, which closes what it has opened."""

    ROBOT_LIBRARY_SCOPE = "TEST"
    ROBOT_LISTENER_API_VERSION = 3

    def __init__(self) -> None:
        self.ROBOT_LIBRARY_LISTENER = self
        self._open: list[socket.socket] = []

    def end_test(self, _data: object, _result: object) -> None:
        while self._open:
            self._open.pop().close()

    def connect_and_send(self, url: str, part: str, count: int = 1) -> list[socket.socket]:
        """Open so many connections, and send a part of a request on each."""
        opened = [self._connect(url) for _ in range(count)]
        for connection in opened:
            # It may have been dropped by now, to make room.
            try:
                connection.sendall(PARTS[part])
            except OSError:
                continue
        return opened

    def call_and_wait(self, url: str, agent: str, message: str) -> socket.socket:
        """Send a whole call on a connection of its own; do not read what comes."""
        connection = self._connect(url)
        connection.sendall(_call(agent, message))
        return connection

    def status_of(self, url: str, part: str = "a whole request") -> int:
        """Send something on a new connection, and return the status of the answer."""
        connection = self._connect(url)
        connection.sendall(PARTS[part])
        return self.status_on(connection)

    def status_on(self, connection: socket.socket) -> int:
        """Return the status of the next answer on a connection."""
        line = connection.recv(100).split()
        assert line[:1] == [b"HTTP/1.1"], line
        return int(line[1])

    def is_dropped(self, connection: socket.socket) -> None:
        """Wait until the server has ended the connection, whatever it has written before."""
        try:
            while connection.recv(65536):
                pass
        except ConnectionError:
            return

    def _connect(self, url: str) -> socket.socket:
        connection = socket.create_connection(_address(url), DEADLINE)
        self._open.append(connection)
        return connection
