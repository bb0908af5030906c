"""Connections to PostgreSQL through psycopg, and statements on them.

Connections are few, kept, and looked at before they are used.

Between us and the server there may be a pooler, such as PgBouncer, that gives each transaction
another session of the server. Then nothing is left behind in a session: no statement is prepared,
and nothing is set that would stay. Every call is one transaction anyway.

The pool is our own because psycopg_pool connects in tasks of its own: a server that refuses the
database or the password is logged there, and the caller gets a timeout without the reason. Here it
is told at once, by an error of its own kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.addresses import may_be_quoted
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.retry import TransientError, retry_transient

__all__ = ["Connection", "Pool", "PooledConnection"]

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

# The class of SQLSTATEs that poolers speak in: of the connection between them and the server.
_CONNECTION_FAILED: Final = "08"
# More than one event loop keeps busy; 8 processes stay below PostgreSQL's default of 100.
_MOST: Final = 8
# Seconds.
_CONNECT: Final = 5
_LIMIT: Final = 10.0
# Of the limit: the server gives up first, so that it is known to have done nothing.
_SERVER_SHARE: Final = 0.8
# Options of the URL that libpq does not know, and what they may be.
_OURS: Final = ("pool_size", "command_timeout")
_LARGEST: Final = 1_000
_SHORTEST: Final = 0.1
_LONGEST: Final = 86_400
_ISOLATION: Final = "read committed"
_SETTINGS: Final = {
    # The procedures count on it: procedures.sql says how.
    "default_transaction_isolation": _ISOLATION,
    # A plan is made once, perhaps while the tables are empty, and lasts until they are analysed.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    # Of what has an order and a limit it would read everything, and sort it.
    "enable_bitmapscan": "off",
    "jit": "off",
}
# Sets what a session of our own is to have. Whose it is, a pooler cannot hide: it makes up a number
# of the server's process when it greets us, as it does not know yet which one that will be.
_MAKE_OURS: Final = """
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS setting (name, value)
WHERE pg_backend_pid() = $3::bigint
"""
_NO_SESSION: Final = (
    "there is a connection, but no session of the server for it; a pooler in session mode needs as "
    "many (default_pool_size) as connections are made to it"
)
_LOOK: Final = "SELECT current_setting('default_transaction_isolation')"
# What will be refused again. Of a connection that is refused libpq tells the message alone.
_FOR_GOOD: Final = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry"
    r"|not permitted|invalid |unrecognized configuration"
    r"|no such (database|user)|unsupported startup parameter"  # PgBouncer
)


# SQLSTATEs, by their class of two characters.
_ROLLED_BACK: Final = "40"  # deadlock, serialization failure
# Of values: out of range, against a constraint of the database, larger than any limit. Of users: no
# privilege.
_NEVER: Final = ("22", "23", "54", "42501")


class _NumberDumper(Dumper):
    """Leaves the type of a number to the server, which knows what a procedure takes.

    Psycopg would choose it by the size of the number, and prepare the statement once for each.
    """

    def dump(self, obj: float) -> bytes:
        return repr(obj).encode()


class PooledConnection:
    """One connection, and what one has to know of it. Confined to the loop of the pool.

    Attributes:
        connection: For one call at a time.
        cursor: The same, for all calls.
        server_closed: Whether the server has said farewell: what it had not answered by then it
            will not do any more.
        abort_reason: Why it was aborted here, if it was.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.server_closed = False
        self.abort_reason: str | None = None
        # The same that libpq has; a `PooledConnection` neither reads from it nor closes it.
        self._wire = socket.socket(fileno=connection.fileno())
        connection.add_notice_handler(self._hear)

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        # What comes right after an answer libpq takes for a notice. That of a pooler does not tell
        # what the server does with what it has been handed.
        is_last = notice.severity_nonlocalized == "FATAL"
        self.server_closed |= is_last and not (notice.sqlstate or "").startswith(_CONNECTION_FAILED)

    def is_alive(self) -> bool:
        """Whether nothing has come since the last answer: neither a farewell nor the end."""
        if self.server_closed:
            return False
        try:
            self._wire.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def unavailable(self, error: psycopg.Error, *, in_doubt: bool) -> StateUnavailableError:
        """Return what to say of a call that ended with ``error``."""
        # Of a connection that was cut libpq says that the server has closed it.
        return StateUnavailableError(
            f"PostgreSQL does not answer: {self.abort_reason or error}", in_doubt=in_doubt
        )

    def is_idle(self) -> bool:
        """Whether the last call has ended, and the connection is good for another one."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def abort(self, why: str) -> None:
        """End it as the network would: a pending call gets an error at once."""
        self.abort_reason = why
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)

    def discard(self) -> None:
        """Discard it, whatever it is in the middle of."""
        self._wire.detach()
        self.connection.pgconn.finish()


def _without_ours(dsn: str) -> tuple[str, dict[str, str]]:
    """Return a DSN without the options that are ours and not libpq's, and those."""
    address, _, query = dsn.partition("?")
    options = [option.partition("=") for option in query.split("&") if option]
    ours = {name: value for name, _, value in options if name in _OURS}
    rest = "&".join("".join(option) for option in options if option[0] not in _OURS)
    return (f"{address}?{rest}" if rest else address), ours


def _size(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text[:9]) <= _LARGEST):
        raise InvalidArgumentError(
            f"pool_size in the PostgreSQL URL must be a whole number from 1 to {_LARGEST:,}"
        )
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST <= seconds <= _LONGEST:
        raise InvalidArgumentError(
            f"command_timeout in the PostgreSQL URL must be {_SHORTEST:g} to {_LONGEST:,} seconds"
        )
    return seconds


class Pool:
    """Connections to one database. Confined to the loop that makes it.

    Args:
        dsn: As libpq knows it, but for two options of our own in its query: ``pool_size``, how many
            connections there may be, and ``command_timeout``, seconds for one call.

    Raises:
        InvalidArgumentError: It does not, or one of those cannot be.
    """

    def __init__(self, dsn: str) -> None:
        dsn, ours = _without_ours(dsn)
        self._most = _size(ours["pool_size"]) if "pool_size" in ours else _MOST
        self._limit = _seconds(ours["command_timeout"]) if "command_timeout" in ours else _LIMIT
        try:
            options = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            # It may quote a password.
            is_harmless = "query parameter" in str(error) and may_be_quoted(dsn)
            why = f": {error}" if is_harmless else "; in a password write & as %26 and % as %25"
            raise InvalidArgumentError(f"the PostgreSQL URL cannot be read{why}") from None
        given = str(options.get("options", ""))
        # What the URL sets, stays.
        patience = {"statement_timeout": f"{self._limit * _SERVER_SHARE * 1_000:.0f}"}
        wanted = _SETTINGS | patience
        self._settings = {name: value for name, value in wanted.items() if name not in given}
        options["client_encoding"] = "utf8"  # a name may have any character
        options.setdefault("application_name", "rxlanggraph")
        options.setdefault("connect_timeout", _CONNECT)
        self._dsn = make_conninfo("", **options)
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(self._most)
        # Those that are not in use, the last used last: a quiet state uses one alone.
        self._idle: list[PooledConnection] = []
        # Those that are in use, and when each is cut. One timer looks after all of them: most are
        # given back long before, and a timer for each would take as long as they do.
        self._limits: dict[PooledConnection, float] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def take(self) -> PooledConnection:
        """Hand out a connection for one call, until its time is up; then it is cut.

        Raises:
            StateUnavailableError: None is free, and none can be made.
            InvalidArgumentError: The server refuses us, and will do so again.
        """
        await self._enter()
        try:
            pooled = self._take_idle() or await self._connect()
        except BaseException:
            self._room.release()
            raise
        self._limits[pooled] = until = self._loop.time() + self._limit
        if self._watch is None:
            self._watch = self._loop.call_at(until, self._abort_overdue)
        return pooled

    def give_back(self, pooled: PooledConnection) -> None:
        """Take a connection back, whatever became of it."""
        del self._limits[pooled]
        if pooled.is_idle() and not self._is_closed:
            self._idle.append(pooled)
        else:
            # Lost, or left in the middle of something: what will come out of it is unknown.
            pooled.discard()
        self._room.release()

    def fetch(self, sql: str, arguments: Sequence[Any]) -> Coroutine[Any, Any, Sequence[Row]]:
        """Run a statement, again while the server refuses it in passing; return its rows.

        Raises:
            InvalidArgumentError: The server refuses it, now and later.
            StateUnavailableError: No answer came, or no connection is free.
        """
        return retry_transient(self._try, sql, arguments)

    async def _try(self, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        pooled = await self.take()
        try:
            await pooled.cursor.execute(sql, arguments)
            return await pooled.cursor.fetchall()
        except psycopg.Error as error:
            code = error.sqlstate or _CONNECTION_FAILED  # without one it is libpq that speaks
            if code.startswith(_ROLLED_BACK):
                raise TransientError from error
            if code.startswith(_NEVER):
                raise InvalidArgumentError(f"PostgreSQL refuses the call: {error}") from error
            # What the server gives as a reason, also while it shuts down, it gives instead of the
            # effect.
            in_doubt = code.startswith(_CONNECTION_FAILED) and not pooled.server_closed
            raise pooled.unavailable(error, in_doubt=in_doubt) from error
        finally:
            self.give_back(pooled)

    def close(self) -> None:
        """Release all connections; those in use, as they are given back. Idempotent."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().discard()
        if self._watch is not None and not self._limits:
            self._watch.cancel()
            self._watch = None

    def _abort_overdue(self) -> None:
        now = self._loop.time()
        later = []
        for pooled, until in self._limits.items():
            if until > now:
                later.append(until)
            else:
                pooled.abort(f"it took longer than {self._limit:g} seconds")
        self._watch = self._loop.call_at(min(later), self._abort_overdue) if later else None

    async def _enter(self) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._limit):
                await self._room.acquire()
        except TimeoutError as error:
            raise StateUnavailableError(
                f"none of {self._most} connections to PostgreSQL was free for {self._limit:g} "
                "seconds; ?pool_size= in the URL allows more",
                in_doubt=False,
            ) from error

    def _take_idle(self) -> PooledConnection | None:
        while self._idle:
            pooled = self._idle.pop()
            if pooled.is_alive():
                return pooled
            pooled.discard()
        return None

    async def _connect(self) -> PooledConnection:
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,
                prepare_threshold=0,
                cursor_factory=psycopg.AsyncRawCursor,
            )
        except (psycopg.Error, OSError) as error:
            if isinstance(error, psycopg.ProgrammingError) or _FOR_GOOD.search(str(error)):
                raise InvalidArgumentError(f"PostgreSQL refuses the URL: {error}") from error
            raise StateUnavailableError(
                f"PostgreSQL does not answer: {error}", in_doubt=False
            ) from error
        connection.adapters.register_dumper(int, _NumberDumper)
        connection.adapters.register_dumper(float, _NumberDumper)
        pooled = PooledConnection(connection)
        # Not `asyncio.timeout`: cancelled, psycopg waits for the server to agree.
        limit = self._loop.call_later(_CONNECT, pooled.abort, _NO_SESSION)
        try:
            await self._set_up(connection)
        except BaseException as error:
            pooled.discard()
            if not isinstance(error, psycopg.Error):
                raise
            raise pooled.unavailable(error, in_doubt=False) from error
        finally:
            limit.cancel()
        return pooled

    async def _set_up(self, connection: Connection) -> None:
        _check_encoding(connection)
        cursor = await connection.execute(
            _MAKE_OURS,
            [list(self._settings), list(self._settings.values()), connection.info.backend_pid],
            prepare=False,
        )
        if await cursor.fetchall():
            return
        connection.prepare_threshold = None
        cursor = await connection.execute(_LOOK)
        (isolation,) = await cursor.fetchone() or ("",)
        if isolation != _ISOLATION:
            raise InvalidArgumentError(
                f"behind the pooler, transactions of PostgreSQL are {isolation}: set default_"
                f"transaction_isolation to {_ISOLATION!r} for the database or the user (ALTER "
                "DATABASE ... SET), or connect without the pooler"
            )


def _check_encoding(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):  # not every pooler passes on what it is
        raise InvalidArgumentError(
            f"the PostgreSQL database takes text in {encoding} alone, and names may have any "
            "character: make one with ENCODING 'UTF8' (and TEMPLATE template0)"
        )
