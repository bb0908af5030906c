"""One connection to the server, and what happens when it breaks.

A request whose answer does not come may or may not have been carried out. So each connection
numbers its requests, and the scripts that must not run twice keep the last number and its answer of
each sequence (lua/deduplicate.lua): such a request is simply sent again, over a new connection to
the server, until the server says what became of it. redis-py's client is not used, as it would
repeat by rules of its own, and hides whether a request was sent at all; its connections are.

Confined to the loop that made it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

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

__all__ = ["Connection", "SequencedConnection"]

# How many times its time-out a request is repeated that may have been carried out: long enough for
# a server that is started anew, and short beside the ten minutes that the server keeps a sequence.
_INSISTENCE = 2
# What a server says that does nothing for now: it reads its data, or has a fail-over on its hands.
# MOVED (an AskError too) and ASK: the namespace is on another node, or on its way to one.
_NOT_NOW = (BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError, AskError)
# Refusals that will recur: of a command that it does not have, of a key that another program uses
# differently, and of an argument too long for limits that were lowered since the state was opened.
_NEVER = ("unknown command", "WRONGTYPE", "Protocol error")


class Connection(Protocol):
    """What is used of a connection of redis-py: from 6.0 to 8 it has stayed the same."""

    host: str  # of those over TCP
    port: int
    is_connected: bool

    async def connect(self) -> None:
        """Connect and shake hands, unless that is done."""

    async def send_packed_command(self, command: bytes, *, check_health: bool) -> None:
        """Send a command that is packed already."""

    async def read_response(self) -> Any:
        """Return the next answer; an answer that is an error is raised."""

    async def disconnect(self, *, nowait: bool = False) -> None:
        """Release the connection, at once or in good order."""


class _UnansweredError(Exception):
    """One attempt came to nothing; the cause says why.

    Attributes:
        in_doubt: Whether the request may have been carried out.
        put_off: Whether there is a server, which said "not now".
    """

    def __init__(self, *, in_doubt: bool = False, put_off: bool = False) -> None:
        super().__init__()
        self.in_doubt = in_doubt
        self.put_off = put_off


class _UnwelcomeError(Exception):
    """The server refuses what a connection begins with; says why."""


class _Request:
    """What is sent to run a script, once or again.

    Packed here, as redis-py would take three times as long, a tenth of a claim; and before it is
    sent, so that what goes wrong later is the connection's.
    """

    def __init__(self, script: Script, words: tuple[str | int, ...]) -> None:
        self._script = script
        self._count = len(words) + 2
        self._words = _packed(words)

    @property
    def size(self) -> int:
        """How many bytes: at least as many as the longest of its words has."""
        return len(self._words)

    def short(self) -> bytes:
        """For a server that knows the script."""
        return self._begun("EVALSHA", self._script.sha) + self._words

    def whole(self) -> bytes:
        """With the script, which the server keeps."""
        return self._begun("EVAL", self._script.source) + self._words

    def _begun(self, *words: str) -> bytes:
        return b"*%d\r\n%b" % (self._count, _packed(words))


class SequencedConnection:
    """One connection, which does one request at a time, and numbers them.

    Attributes:
        longest: How many bytes an argument may have; 0: not known.

    Args:
        connection: Not connected yet; it is when it is needed, and again after each failure.
        keys: What the server keeps the counter of the namespace under, and what of this sequence.
        timeout: Seconds until an answer is given up.
    """

    def __init__(self, connection: Connection, keys: tuple[str, str], timeout: float) -> None:
        self._connection = connection
        self._keys = keys
        self._timeout = timeout
        self._serial = 0
        self.longest = 0
        self._is_sealed = False
        # On a cluster it follows its namespace to other nodes, and asks here where that is.
        self._home = (connection.host, connection.port) if hasattr(connection, "host") else None

    async def connect(self) -> None:
        """Connect; a second time there is nothing to do.

        Raises:
            InvalidArgumentError: The server refuses us: a password, a database that it has not.
            StateUnavailableError: There is no server, or it does nothing for now.
        """
        try:
            async with asyncio.timeout(self._timeout):
                await self._begin()
        except _UnwelcomeError as refusal:
            raise InvalidArgumentError(
                f"the Redis server {self._where()} refuses the URL: {refusal}"
            ) from refusal
        except Exception as failure:  # as in `_attempt`
            raise self._unavailable(failure, in_doubt=False) from failure

    async def call(
        self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]
    ) -> Any:
        """Have the server run ``script``; return its answer. One call at a time.

        Cancelling leaves open whether it was run.

        Raises:
            StateUnavailableError: No answer came, or a refusal.
            InvalidArgumentError: A refusal that will not change: an argument is too long, or the
                user may not do this.
            StateClosedError: There is no connection, and this one is sealed.
        """
        self._serial += 1
        keys = (*self._keys, *keys)
        words = (len(keys), *keys, self._serial, *arguments)
        request = _Request(script, words)
        if 0 < self.longest < request.size:
            self._check_length(words)
        try:
            return await self._attempt(request)
        except _UnansweredError as failure:
            if failure.put_off or (failure.in_doubt and script.deduplicated):
                return await self._insist(request, in_doubt=failure.in_doubt)
            raise self._unavailable(failure, in_doubt=failure.in_doubt) from failure.__cause__

    async def ask(self, *words: str) -> Any:
        """Return what the server answers to a command of its own. One attempt, over a connection.

        Raises:
            ResponseError: It refuses.
            StateUnavailableError: No answer came.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._exchange(_command(words))
        except ResponseError:
            raise
        except Exception as failure:  # as in `_attempt`
            await self.drop()
            raise self._unavailable(failure, in_doubt=False) from failure
        except BaseException:
            await self.drop()
            raise

    def seal(self) -> None:
        """Connect no more: a call that is under way in spite of the end is not repeated."""
        self._is_sealed = True

    async def close(self) -> None:
        """Close the connection, also one that hangs. No call may be under way."""
        with contextlib.suppress(Exception):  # it is lost already, or time is up
            async with asyncio.timeout(self._timeout):
                await self._connection.disconnect()

    async def drop(self) -> None:
        """Cut the connection: what comes over it now would be taken for the next answer."""
        await self._connection.disconnect(nowait=True)

    async def _insist(self, request: _Request, *, in_doubt: bool) -> Any:
        """Send the same request again, until there is an answer or time is up."""

        async def again() -> Any:
            nonlocal in_doubt
            try:
                return await self._attempt(request)
            except _UnansweredError as failure:
                in_doubt |= failure.in_doubt
                raise

        stop = stop_after_delay(_INSISTENCE * self._timeout)
        policy = backoff(first=0.02, longest=0.5, stop=stop)
        retrying = AsyncRetrying(retry=retry_if_exception_type(_UnansweredError), **policy)
        try:
            return await retrying(again)
        except _UnansweredError as failure:
            raise self._unavailable(failure, in_doubt=in_doubt) from failure.__cause__
        except StateUnavailableError as refusal:
            refusal.in_doubt = in_doubt
            raise

    async def _attempt(self, request: _Request) -> Any:
        sent = False
        try:
            async with asyncio.timeout(self._timeout):
                if not self._connection.is_connected:
                    await self._connect()
                sent = True
                return await self._evaluate(request)
        except _NOT_NOW as answer:
            # Connecting anew finds the server that was promoted meanwhile, or has the slot.
            await self.drop()
            self._move((answer.host, answer.port) if isinstance(answer, MovedError) else self._home)
            raise _UnansweredError(put_off=True) from answer
        except ResponseError as answer:
            if str(answer).startswith("BUSY "):  # with an endless script of another client
                raise _UnansweredError(put_off=True) from answer
            raise self._refused(answer) from answer
        except RxLangGraphError:
            raise
        except Exception as failure:
            # Of redis-py or from below it: asyncio, uvloop and the parser each have errors of their
            # own for a connection that has died, or speaks no Redis, and not all mean to.
            await self.drop()
            self._move(self._home)
            raise _UnansweredError(in_doubt=sent) from failure
        except BaseException:  # cancelled, for one
            await self.drop()
            raise

    async def _evaluate(self, request: _Request) -> Any:
        try:
            return await self._exchange(request.short())
        except NoScriptError:  # it was restarted, flushed or replaced
            return await self._exchange(request.whole())

    async def _exchange(self, command: bytes) -> Any:
        await self._connection.send_packed_command(command, check_health=False)
        return await self._connection.read_response()

    async def _connect(self) -> None:
        if self._is_sealed:
            raise StateClosedError("the state was closed while the call was under way")
        try:
            await self._begin()
        except _UnwelcomeError as refusal:
            raise self._unavailable(refusal, in_doubt=False) from refusal

    async def _begin(self) -> None:
        """Connect, and shake hands.

        Raises:
            _UnwelcomeError: The server refuses us.
        """
        try:
            await self._connection.connect()
        except _NOT_NOW:
            raise
        except (AuthenticationError, ResponseError) as answer:
            # A server repeats the words of a command that it does not know, and of AUTH one is
            # the password. So the answer is no cause either.
            why = str(answer).partition(", with args beginning with")[0]
        else:
            return
        raise _UnwelcomeError(why)

    def _move(self, address: tuple[str, int] | None) -> None:
        if address is not None:
            host, port = address
            self._connection.host = host or self._connection.host  # "": another port alone
            self._connection.port = port

    def _where(self) -> str:
        return "at its socket" if self._home is None else "at {}:{}".format(*self._home)

    def _check_length(self, words: Sequence[str | int]) -> None:
        """Refuse what the server would, which then closes the connection instead of saying why."""
        longest = max(len(str(word).encode()) for word in words)
        if longest > self.longest:
            raise InvalidArgumentError(
                f"a value of {longest:,} bytes is more than the Redis server {self._where()} takes "
                f"at once (proto-max-bulk-len {self.longest:,}): keep it elsewhere and store where "
                "that is, or set proto-max-bulk-len higher; of tasks, add fewer in one call"
            )

    def _refused(self, answer: ResponseError) -> InvalidArgumentError | StateUnavailableError:
        text = f"the Redis server {self._where()} refuses the call: {answer}"
        if isinstance(answer, NoPermissionError) or str(answer).startswith(_NEVER):
            return InvalidArgumentError(text)
        return StateUnavailableError(text, in_doubt=False)

    def _unavailable(self, failure: BaseException, *, in_doubt: bool) -> StateUnavailableError:
        cause = failure.__cause__ if isinstance(failure, _UnansweredError) else failure
        # A time-out of asyncio's has nothing to say.
        why = str(cause) or f"none came within {self._timeout:g} seconds"
        return StateUnavailableError(
            f"the Redis server {self._where()} does not answer: {why}", in_doubt=in_doubt
        )


def _command(words: Sequence[str | int]) -> bytes:
    """A command on the wire."""
    return b"*%d\r\n%b" % (len(words), _packed(words))


def _packed(words: Sequence[str | int]) -> bytes:
    """The words of a command on the wire."""
    encoded = [str(word).encode() for word in words]
    return b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded])
