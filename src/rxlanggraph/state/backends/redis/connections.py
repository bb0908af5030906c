"""The connections to one server, and recovery when one of them breaks.

A request without an answer may or may not have been executed. So each connection numbers its
requests, and the scripts that must not take effect twice store the last number and its answer
(lua/deduplicate.lua). Such a request is sent again, over a new connection, until its answer
arrives. This uses the connections of redis-py but not its client, which would repeat requests by
rules of its own, and hides whether a request was sent at all.

Confined to the loop that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from uuid import uuid4

from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay

from rxlanggraph.errors import (
    InvalidArgumentError,
    RxLangGraphError,
    StateClosedError,
    StateUnavailableError,
)
from rxlanggraph.state.backends.redis.scripts import Script
from rxlanggraph.state.retry import backoff

__all__ = ["Connection", "ConnectionPool", "SequencedConnection", "packed_command", "patched"]

# For how many of its timeouts a request in doubt is repeated: long enough to restart a server, and
# far shorter than the server stores a sequence.
_REPEAT_TIMEOUTS = 2
# Part of the timeout within which replicas have to confirm a call.
_CONFIRMING_SHARE = 0.5
# Refusals of a server that is loading its data, or in a failover. MOVED (an AskError too) and ASK:
# the namespace is on another node, or being moved to one.
_TEMPORARY_REFUSALS = (BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError, AskError)
# An unknown command, a key that another program uses for another type, and an argument that is too
# long for a limit that was lowered since the state was opened.
_PERMANENT_REFUSALS = ("unknown command", "WRONGTYPE", "Protocol error", "ACL failure")


class Connection(Protocol):
    """The part of a redis-py connection that is used here; unchanged from version 6.0 to 8."""

    host: str  # TCP only
    port: int
    is_connected: bool

    async def connect(self) -> None:
        """Connect and shake hands, if not connected."""

    async def send_packed_command(self, command: bytes, *, check_health: bool) -> None:
        """Send a packed command."""

    async def read_response(self, *, timeout: float | None = None) -> Any:
        """Return the next answer, None after ``timeout`` seconds; raise it if it is an error."""

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Close the connection, or abort it (``nowait``)."""


class _Patched:
    """A mixin for connections of redis-py, with work-arounds for two defects of asyncio.

    It writes a request in one piece. Before some release of Python 3.13, if a transport is given
    several pieces and its connection has just been reset, the loop continues to watch a file
    descriptor that is about to be closed. The next connection that gets this descriptor, of
    whatever code, is never read from.

    It retrieves the outcome of a connection's end. The stream does that when it is collected, but
    without the GIL its future may be collected first, and log an exception that was never
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
                ending.send(None)  # not awaited: if it has not ended yet, no exception is pending
            ending.close()


def patched(kind: type[Any]) -> Callable[..., Connection]:
    """Return a subclass of ``kind``, a class of redis-py's connections, with the work-arounds."""
    return type(kind.__name__, (_Patched, kind), {})


class _UnansweredError(Exception):
    """One attempt got no answer; the cause is the reason.

    Attributes:
        in_doubt: Whether the request may have been executed.
        refused_for_now: Whether the server has refused it temporarily.
    """

    def __init__(self, *, in_doubt: bool = False, refused_for_now: bool = False) -> None:
        super().__init__()
        self.in_doubt = in_doubt
        self.refused_for_now = refused_for_now


class _HandshakeRefusedError(Exception):
    """The server refuses the handshake of a connection; the text is its reason."""


class _Request:
    """A command that runs a script, packed.

    Packed here, which is faster than redis-py's way, by a noticeable part of a claim; and before it
    is sent, so that any later error is one of the connection.
    """

    def __init__(self, script: Script, words: tuple[str | int, ...]) -> None:
        self._script = script
        self._count = len(words) + 2
        self._words = _packed(words)

    @property
    def size(self) -> int:
        """Its length in bytes, an upper bound of the length of each word."""
        return len(self._words)

    def by_digest(self) -> bytes:
        """Return the command for a server that has the script."""
        return self._with_header("EVALSHA", self._script.sha) + self._words

    def with_source(self) -> bytes:
        """Return the command with the source of the script, which the server then keeps."""
        return self._with_header("EVAL", self._script.source) + self._words

    def _with_header(self, *words: str) -> bytes:
        return b"*%d\r\n%b" % (self._count, _packed(words))


class SequencedConnection:
    """A connection that executes one request at a time, and numbers them.

    Attributes:
        max_argument: The longest argument that the server accepts, in bytes; 0: not known.

    Args:
        connection: The connection; it connects when it is needed, and again after each failure.
        keys: The keys, on the server, of the namespace's counter and of this sequence.
        timeout: Seconds that an answer may take.
        replicas: How many replicas have to confirm each call.
    """

    def __init__(
        self, connection: Connection, keys: tuple[str, str], timeout: float, replicas: int = 0
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._timeout = timeout
        self._replicas = replicas
        self._serial = 0
        self.max_argument = 0
        self._is_sealed = False
        # In a cluster the connection follows its namespace to other nodes; it asks this one first.
        self._home = (connection.host, connection.port) if hasattr(connection, "host") else None

    async def connect(self) -> None:
        """Connect, if not connected.

        Raises:
            InvalidArgumentError: The server refuses the password, or lacks the database.
            StateUnavailableError: The server does not answer, or refuses temporarily.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._handshake()
        except _HandshakeRefusedError as refusal:
            raise InvalidArgumentError(
                f"the Redis server {self._where()} refuses the URL: {refusal}"
            ) from refusal
        except Exception as failure:  # as in `_attempt`
            raise self._unavailable(failure, in_doubt=False) from failure

    async def call(
        self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]
    ) -> Any:
        """Run ``script`` on the server; return its answer. One call at a time.

        If cancelled, the script may have been run.

        Raises:
            StateUnavailableError: No answer came, or the server refuses temporarily.
            InvalidArgumentError: The server refuses permanently: an argument is too long, or the
                user lacks a permission.
            StateClosedError: The connection is lost, and was sealed.
        """
        self._serial += 1
        keys = (*self._keys, *keys)
        words = (len(keys), *keys, self._serial, *arguments)
        request = _Request(script, words)
        if 0 < self.max_argument < request.size:
            self._check_length(words)
        try:
            return await self._attempt(request)
        except _UnansweredError as failure:
            if failure.refused_for_now or (failure.in_doubt and script.deduplicated):
                return await self._repeat(request, in_doubt=failure.in_doubt)
            raise self._unavailable(failure, in_doubt=failure.in_doubt) from failure.__cause__

    async def ask(self, *words: str) -> Any:
        """Send a command other than a script; return its answer. One attempt; must be connected.

        Raises:
            ResponseError: The server refuses it.
            StateUnavailableError: No answer came.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._exchange(packed_command(words))
        except ResponseError:
            raise
        except Exception as failure:  # as in `_attempt`
            await self.abort()
            raise self._unavailable(failure, in_doubt=False) from failure
        except BaseException:
            await self.abort()
            raise

    def seal(self) -> None:
        """Prevent new connections, so that a pending call is not repeated after the close."""
        self._is_sealed = True

    async def close(self) -> None:
        """Close the connection, even if it hangs. No call may be pending."""
        with contextlib.suppress(Exception):  # it is lost already, or the time is up
            async with asyncio.timeout(self._timeout):
                await self._connection.disconnect()

    async def abort(self) -> None:
        """Abort the connection: a late answer would be taken for that of the next request."""
        await self._connection.disconnect(nowait=True)

    async def _repeat(self, request: _Request, *, in_doubt: bool) -> Any:
        """Send the same request again, until an answer comes or the time is up."""

        async def again() -> Any:
            nonlocal in_doubt
            try:
                return await self._attempt(request)
            except _UnansweredError as failure:
                in_doubt |= failure.in_doubt
                raise

        stop = stop_after_delay(_REPEAT_TIMEOUTS * self._timeout)
        policy = backoff(first=0.02, longest=0.5, stop=stop)
        retrying = AsyncRetrying(retry=retry_if_exception_type(_UnansweredError), **policy)
        try:
            return await retrying(again)
        except _UnansweredError as failure:
            raise self._unavailable(failure, in_doubt=in_doubt) from failure.__cause__
        except StateUnavailableError as refusal:
            refusal.in_doubt |= in_doubt
            raise

    async def _attempt(self, request: _Request) -> Any:
        sent = False
        try:
            async with asyncio.timeout(self._timeout):
                if not self._connection.is_connected:
                    await self._connect()
                sent = True
                return await self._evaluate(request)
        except _TEMPORARY_REFUSALS as answer:
            # A new connection reaches the server that was promoted meanwhile, or has the slot.
            await self.abort()
            self._move((answer.host, answer.port) if isinstance(answer, MovedError) else self._home)
            raise _UnansweredError(refused_for_now=True) from answer
        except ResponseError as answer:
            if str(answer).startswith("BUSY "):  # executing a long script of another client
                raise _UnansweredError(refused_for_now=True) from answer
            raise self._refused(answer) from answer
        except RxLangGraphError:
            raise
        except Exception as failure:
            # Any exception: redis-py, its parser, asyncio and uvloop each raise their own for a
            # connection that has died or does not speak the protocol, some of them by accident.
            await self.abort()
            self._move(self._home)
            raise _UnansweredError(in_doubt=sent) from failure
        except BaseException:  # such as a cancellation
            await self.abort()
            raise

    async def _evaluate(self, request: _Request) -> Any:
        try:
            answer = await self._exchange(request.by_digest())
        except NoScriptError:  # the server was restarted, flushed or replaced
            answer = await self._exchange(request.with_source())
        if self._replicas:
            await self._confirm()
        return answer

    async def _confirm(self) -> None:
        """Wait until enough replicas have what this connection has written.

        A request that was sent again writes too (lua/deduplicate.lua), or the server would not
        know what this connection waits for.
        """
        share = int(self._timeout * 1_000 * _CONFIRMING_SHARE)
        confirmed = int(await self._exchange(packed_command(("WAIT", self._replicas, share))))
        if confirmed < self._replicas:
            raise StateUnavailableError(
                f"{confirmed} of {self._replicas} replicas of the Redis server {self._where()} "
                f"have confirmed the call within {share / 1_000:g} s; it took effect on the "
                "primary, and is lost if a replica takes over before it has caught up",
                in_doubt=True,
            )

    async def _exchange(self, command: bytes) -> Any:
        await self._connection.send_packed_command(command, check_health=False)
        return await self._connection.read_response()

    async def _connect(self) -> None:
        if self._is_sealed:
            raise StateClosedError("the state was closed while the call was under way")
        try:
            await self._handshake()
        except _HandshakeRefusedError as refusal:
            raise self._unavailable(refusal, in_doubt=False) from refusal

    async def _handshake(self) -> None:
        """Connect, and shake hands.

        Raises:
            _HandshakeRefusedError: The server refuses it.
        """
        try:
            await self._connection.connect()
        except _TEMPORARY_REFUSALS:
            raise
        except (AuthenticationError, ResponseError) as answer:
            # A server quotes the arguments of an unknown command, and one of AUTH is the password.
            # So the answer must not be the cause of the error either.
            why = str(answer).partition(", with args beginning with")[0]
        else:
            return
        raise _HandshakeRefusedError(why)

    def _move(self, address: tuple[str, int] | None) -> None:
        if address is not None:
            host, port = address
            self._connection.host = host or self._connection.host  # "" means another port only
            self._connection.port = port

    def _where(self) -> str:
        return "at its socket" if self._home is None else "at {}:{}".format(*self._home)

    def _check_length(self, words: Sequence[str | int]) -> None:
        """Refuse an argument that is too long: the server would close the connection instead."""
        longest = max(len(str(word).encode()) for word in words)
        if longest > self.max_argument:
            raise InvalidArgumentError(
                f"a value of {longest:,} bytes is more than the Redis server {self._where()} "
                f"accepts (proto-max-bulk-len {self.max_argument:,}): store the value elsewhere "
                "and a reference to it here, raise proto-max-bulk-len, or add fewer tasks in one "
                "call"
            )

    def _refused(self, answer: ResponseError) -> InvalidArgumentError | StateUnavailableError:
        text = f"the Redis server {self._where()} refuses the call: {answer}"
        if isinstance(answer, NoPermissionError) or str(answer).startswith(_PERMANENT_REFUSALS):
            return InvalidArgumentError(text)
        return StateUnavailableError(text, in_doubt=False)

    def _unavailable(self, failure: BaseException, *, in_doubt: bool) -> StateUnavailableError:
        cause = failure.__cause__ if isinstance(failure, _UnansweredError) else failure
        # The TimeoutError of asyncio has no text.
        why = str(cause) or f"no answer came within {self._timeout:g} seconds"
        return StateUnavailableError(
            f"the Redis server {self._where()} does not answer: {why}", in_doubt=in_doubt
        )


class ConnectionPool:
    """The connections to one server; each request takes a free one.

    Args:
        make: Makes a connection, which is not connected yet.
        count: How many there are.
        timeout: Seconds that an answer may take.
        prefix: The prefix of all keys on the server.
        replicas: How many replicas have to confirm each call.
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        count: int,
        timeout: float,
        prefix: str,
        replicas: int = 0,
    ) -> None:
        self._timeout = timeout
        name = uuid4().hex
        self._connections = [
            SequencedConnection(
                make(), (f"{prefix}clock", f"{prefix}sequence:{name}:{number}"), timeout, replicas
            )
            for number in range(count)
        ]
        # Last in, first out: a program with little load keeps few connections.
        self._free: asyncio.LifoQueue[SequencedConnection] = asyncio.LifoQueue()
        for connection in reversed(self._connections):
            self._free.put_nowait(connection)
        self._now = asyncio.get_running_loop().time
        self._answered_at = self._now()

    async def connect(self) -> SequencedConnection:
        """Connect one of them, and return it. Raises what `SequencedConnection.connect` raises."""
        first = self._connections[0]
        await first.connect()
        return first

    def limit_arguments(self, longest: int) -> None:
        """Refuse from now on arguments of more than ``longest`` bytes."""
        for connection in self._connections:
            connection.max_argument = longest

    async def call(self, script: Script, keys: Sequence[str], *arguments: str | int) -> Any:
        """Run ``script`` on the server; return its answer.

        If cancelled, the script may have been run.

        Raises:
            StateUnavailableError: No answer came, or the server refuses temporarily.
            InvalidArgumentError: The server refuses permanently.
            StateClosedError: The pool is closed.
        """
        connection = (
            self._free.get_nowait() if not self._free.empty() else await self._wait_for_connection()
        )
        try:
            answer = await connection.call(script, keys, arguments)
        finally:
            self._free.put_nowait(connection)
        self._answered_at = self._now()
        return answer

    async def _wait_for_connection(self) -> SequencedConnection:
        """Wait for a free connection, but not on a server that is silent (rule 6)."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout):
                    return await self._free.get()
            if self._now() - self._answered_at >= self._timeout:
                raise StateUnavailableError(
                    "the Redis server does not answer: all "
                    f"{len(self._connections)} connections wait for an answer",
                    in_doubt=False,
                )

    async def close(self) -> None:
        """Close the connections, even those that hang. No call may be pending.

        If cancelled, it aborts them, without waiting for the server.
        """
        for connection in self._connections:
            connection.seal()
        try:
            await asyncio.gather(*[connection.close() for connection in self._connections])
        except BaseException:
            # All of them: a task of the gather may have been cancelled before its first step.
            for connection in self._connections:
                await connection.abort()
            raise


def packed_command(words: Sequence[str | int]) -> bytes:
    """Return a command in the Redis protocol. Any thread; never blocks."""
    return b"*%d\r\n%b" % (len(words), _packed(words))


def _packed(words: Sequence[str | int]) -> bytes:
    """Return the words of a command in the Redis protocol."""
    encoded = [str(word).encode() for word in words]
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])
