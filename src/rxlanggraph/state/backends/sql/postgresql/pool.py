"""A pool of connections to PostgreSQL through psycopg, and statements on them.

A pooler, such as PgBouncer, may stand between this program and the server, and give each
transaction another session. Behind one, sessions are left unchanged: no statement is prepared, and
no setting outlives its transaction. Every call is one transaction anyway.

psycopg_pool is not used, because it connects in tasks of its own: if the server refuses the
database or the password, that is logged there, and the caller gets a timeout without the reason.
Here the caller gets the reason at once, in an exception of its own type.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.addresses import may_be_quoted
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.retry import TransientError, repeat_transient

__all__ = ["Connection", "Pool", "PooledConnection"]

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

# The class of SQLSTATEs for failed connections; poolers use it for their connection to the server.
_CONNECTION_FAILED: Final = "08"
# More connections than one event loop keeps busy; and several processes stay below the default
# limit of PostgreSQL.
_POOL_SIZE: Final = 8
# Seconds.
_CONNECT_TIMEOUT: Final = 5
_CALL_TIMEOUT: Final = 10.0
# Part of the timeout after which the server itself gives up: then the call certainly had no effect.
_SERVER_SHARE: Final = 0.8
# A plan that was made while a table was small may use an index that has become a bad choice. A call
# that takes this long has the plans of its connection made again, at most this often. Guesses.
_SLOW: Final = 0.005
_REPLAN_FIRST: Final = 0.25
_REPLAN_LAST: Final = 60.0
# Options of the URL that libpq does not know, and their ranges.
_OWN_OPTIONS: Final = ("pool_size", "command_timeout")
_MAX_POOL_SIZE: Final = 1_000
_MIN_TIMEOUT: Final = 0.1
_MAX_TIMEOUT: Final = 86_400
_ISOLATION: Final = "read committed"
# Seconds after which either end notices that the network has lost the other one: an idle connection
# is probed after the first, that often at the second interval; sent data has to arrive within the
# last. The default is hours, during which the server keeps the sessions of lost clients, up to its
# limit of connections. Guesses.
_PROBE_AFTER, _PROBE_INTERVAL, _PROBES, _UNACKNOWLEDGED = 30, 10, 3, 60
_SETTINGS: Final = {
    # The procedures rely on it, see procedures.sql.
    "default_transaction_isolation": _ISOLATION,
    # A plan is made once, perhaps for empty tables, and used until they are analysed.
    # See `Pool._replan`.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    # A bitmap scan would read and sort all rows for a query with ORDER BY and LIMIT.
    "enable_bitmapscan": "off",
    "jit": "off",
    "tcp_keepalives_idle": f"{_PROBE_AFTER}",
    "tcp_keepalives_interval": f"{_PROBE_INTERVAL}",
    "tcp_keepalives_count": f"{_PROBES}",
    "tcp_user_timeout": f"{_UNACKNOWLEDGED * 1_000}",
}
# Applies the settings, unless there is a pooler: that makes up the pid of the server process in its
# handshake, as it does not know yet which process it will be.
_APPLY_SETTINGS: Final = """
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS setting (name, value)
WHERE pg_backend_pid() = $3::bigint
"""
_NO_SESSION: Final = (
    "there is a connection, but no session of the server for it; a pooler in session mode needs a "
    "default_pool_size of at least the number of connections to it"
)
_SHOW_ISOLATION: Final = "SELECT current_setting('default_transaction_isolation')"
# Refusals of a connection that are permanent. libpq gives no SQLSTATE for these, only a message.
_PERMANENT_REFUSAL: Final = re.compile(
    r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry"
    r"|not permitted|invalid |unrecognized configuration"
    r"|certificate verify failed|does not match host name|does not support SSL"
    r"|no such (database|user)|unsupported startup parameter"  # PgBouncer
)


# SQLSTATEs, by their class of two characters.
_ROLLED_BACK: Final = "40"  # deadlock, serialization failure
# Values that are out of range, violate a constraint, or exceed a limit; missing privileges.
_PERMANENT_STATES: Final = ("22", "23", "54", "42501")


class _NumberDumper(Dumper):
    """Leaves the type of a number to the server, which knows the parameters of a procedure.

    Psycopg would choose the type by the size of the number, and prepare the statement for each
    type.
    """

    def dump(self, obj: float) -> bytes:
        return repr(obj).encode()


class PooledConnection:
    """One connection of a pool, and its state. Confined to the loop of the pool.

    Attributes:
        connection: The connection, for one call at a time.
        cursor: Its cursor, shared by all calls.
        server_closed: Whether the server has announced the end of the session: it executes no
            request that it has not answered by then.
        abort_reason: Why `abort` was called, or None.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.server_closed = False
        self.abort_reason: str | None = None
        # When its plans may be made again, and after how long the time after that.
        self.replan_at = 0.0
        self.replan_after = _REPLAN_FIRST
        # A second object for the socket of libpq; never read from or closed here.
        self._socket = socket.socket(fileno=connection.fileno())
        connection.add_notice_handler(self._on_notice)

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        # libpq takes a message right after an answer for a notice. One of a pooler says nothing
        # about the requests that the server has already received.
        is_last = notice.severity_nonlocalized == "FATAL"
        self.server_closed |= is_last and not (notice.sqlstate or "").startswith(_CONNECTION_FAILED)

    @property
    def has_pooler(self) -> bool:
        """Whether there is a pooler, which may give each transaction another session."""
        return self.connection.prepare_threshold is None

    def is_alive(self) -> bool:
        """Whether nothing has arrived since the last answer: no final message, no end of file."""
        if self.server_closed:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def unavailable(self, error: psycopg.Error, *, in_doubt: bool) -> StateUnavailableError:
        """Return the exception for a call that ended with ``error``."""
        # libpq reports an aborted connection as closed by the server.
        return StateUnavailableError(
            f"PostgreSQL does not answer: {self.abort_reason or error}", in_doubt=in_doubt
        )

    def is_idle(self) -> bool:
        """Whether the connection can be used for another call."""
        return self.connection.pgconn.transaction_status == TransactionStatus.IDLE

    def abort(self, why: str) -> None:
        """Abort it as a network failure would: a pending call fails at once."""
        self.abort_reason = why
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def discard(self) -> None:
        """Release it, in whatever state it is."""
        self._socket.detach()
        self.connection.pgconn.finish()


def _split_options(dsn: str) -> tuple[str, dict[str, str]]:
    """Return a DSN without the options that only this pool knows, and those options."""
    address, _, query = dsn.partition("?")
    options = [option.partition("=") for option in query.split("&") if option]
    own = {name: value for name, _, value in options if name in _OWN_OPTIONS}
    rest = "&".join("".join(option) for option in options if option[0] not in _OWN_OPTIONS)
    return (f"{address}?{rest}" if rest else address), own


def _parse_size(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text[:9]) <= _MAX_POOL_SIZE):
        raise InvalidArgumentError(
            f"pool_size in the PostgreSQL URL must be a whole number from 1 to {_MAX_POOL_SIZE:,}"
        )
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _MIN_TIMEOUT <= seconds <= _MAX_TIMEOUT:
        raise InvalidArgumentError(
            f"command_timeout in the PostgreSQL URL must be {_MIN_TIMEOUT:g} to "
            f"{_MAX_TIMEOUT:,} seconds"
        )
    return seconds


class Pool:
    """Connections to one database. Confined to the loop that makes it.

    Args:
        dsn: A connection URI of libpq, with two options of this pool: ``pool_size``, the maximum
            number of connections, and ``command_timeout``, the seconds that a call may take.

    Raises:
        InvalidArgumentError: It cannot be parsed, or one of those options is invalid.
    """

    def __init__(self, dsn: str) -> None:
        dsn, own = _split_options(dsn)
        self._size = _parse_size(own["pool_size"]) if "pool_size" in own else _POOL_SIZE
        self._timeout = (
            _parse_seconds(own["command_timeout"]) if "command_timeout" in own else _CALL_TIMEOUT
        )
        try:
            options = conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            # The error may quote part of a password.
            is_harmless = "query parameter" in str(error) and may_be_quoted(dsn)
            why = f": {error}" if is_harmless else "; in a password write & as %26 and % as %25"
            raise InvalidArgumentError(f"the PostgreSQL URL cannot be read{why}") from None
        given = str(options.get("options", ""))
        # Settings in the URL take precedence.
        timeout = f"{self._timeout * _SERVER_SHARE * 1_000:.0f}"
        # The second one is for a client that the network has lost in the middle of a migration.
        wanted = _SETTINGS | dict.fromkeys(
            ("statement_timeout", "idle_in_transaction_session_timeout"), timeout
        )
        self._settings = {name: value for name, value in wanted.items() if name not in given}
        options["client_encoding"] = "utf8"  # a name may have any character
        options.setdefault("application_name", "rxlanggraph")
        options.setdefault("connect_timeout", _CONNECT_TIMEOUT)
        options.setdefault("keepalives_idle", _PROBE_AFTER)
        options.setdefault("keepalives_interval", _PROBE_INTERVAL)
        options.setdefault("keepalives_count", _PROBES)
        self._dsn = make_conninfo("", **options)
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(self._size)
        # Idle connections, the last used one last: a state with little load uses a single one.
        self._idle: list[PooledConnection] = []
        # Connections in use, and when each is aborted. With one timer for all: most are given back
        # long before, and a timer for each would take as long as its call.
        self._deadlines: dict[PooledConnection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def take(self) -> PooledConnection:
        """Return a connection for one call; it is aborted when the time of the call is up.

        Raises:
            StateUnavailableError: No connection is free, or the server does not answer.
            InvalidArgumentError: The server refuses the connection permanently.
        """
        await self._reserve()
        try:
            pooled = self._take_idle() or await self._connect()
        except BaseException:
            self._slots.release()
            raise
        self._deadlines[pooled] = until = self._loop.time() + self._timeout
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._abort_overdue)
        return pooled

    def give_back(self, pooled: PooledConnection) -> None:
        """Return a connection to the pool, or release it if it cannot be used again."""
        del self._deadlines[pooled]
        if pooled.is_idle() and not self._is_closed:
            self._idle.append(pooled)
        else:
            # Lost, or in the middle of a call, whose answer would be taken for that of the next.
            pooled.discard()
        self._slots.release()

    async def fetch(self, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        """Run a statement, repeated while the server refuses it temporarily; return its rows.

        Raises:
            InvalidArgumentError: The server refuses it permanently.
            StateUnavailableError: No answer came, or no connection is free.
        """
        try:
            return await self._try(sql, arguments)
        except TransientError as refusal:
            return await repeat_transient(refusal, self._try, sql, arguments)

    async def _try(self, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        pooled = await self.take()
        began = self._loop.time()
        try:
            await pooled.cursor.execute(sql, arguments)
            rows = await pooled.cursor.fetchall()
            if self._loop.time() - began > _SLOW:
                await self._replan(pooled)
            return rows
        except psycopg.Error as error:
            code = error.sqlstate or _CONNECTION_FAILED  # errors of libpq itself have none
            if code.startswith(_ROLLED_BACK):
                raise TransientError from error
            if code.startswith(_PERMANENT_STATES):
                raise InvalidArgumentError(f"PostgreSQL refuses the call: {error}") from error
            # If the server has sent an error, even while shutting down, the call had no effect.
            in_doubt = code.startswith(_CONNECTION_FAILED) and not pooled.server_closed
            raise pooled.unavailable(error, in_doubt=in_doubt) from error
        finally:
            self.give_back(pooled)

    async def _replan(self, pooled: PooledConnection) -> None:
        """Have the plans of a connection made again that was slow, unless they are new.

        What breaks without it: the server keeps plans until the tables are analysed, by default
        once a minute at most; a queue that has grown by then is searched from end to end.
        """
        if (now := self._loop.time()) < pooled.replan_at:
            return
        pooled.replan_at = now + pooled.replan_after
        pooled.replan_after = min(2 * pooled.replan_after, _REPLAN_LAST)
        with contextlib.suppress(psycopg.Error):  # the call has its answer; the next one notices
            await pooled.connection.execute(b"DISCARD PLANS", prepare=False)

    async def connect_apart(self) -> PooledConnection:
        """Connect beside the connections of the pool; the caller discards the connection.

        Raises:
            InvalidArgumentError: The server refuses the connection permanently.
            StateUnavailableError: The server does not answer.
        """
        return await self._connect()

    def close(self) -> None:
        """Release all connections; those in use when they are given back. Idempotent."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().discard()
        if self._timer is not None and not self._deadlines:
            self._timer.cancel()
            self._timer = None

    def _abort_overdue(self) -> None:
        now = self._loop.time()
        later = []
        for pooled, until in self._deadlines.items():
            if until > now:
                later.append(until)
            else:
                pooled.abort(f"it took longer than {self._timeout:g} seconds")
        self._timer = self._loop.call_at(min(later), self._abort_overdue) if later else None

    async def _reserve(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError as error:
            raise StateUnavailableError(
                f"none of {self._size} connections to PostgreSQL was free for {self._timeout:g} "
                "seconds; allow more by ?pool_size= in the URL",
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
            if isinstance(error, psycopg.ProgrammingError) or _PERMANENT_REFUSAL.search(str(error)):
                raise InvalidArgumentError(f"PostgreSQL refuses the URL: {error}") from error
            raise StateUnavailableError(
                f"PostgreSQL does not answer: {error}", in_doubt=False
            ) from error
        connection.adapters.register_dumper(int, _NumberDumper)
        connection.adapters.register_dumper(float, _NumberDumper)
        pooled = PooledConnection(connection)
        # Not `asyncio.timeout`: if cancelled, psycopg waits for the server to confirm that.
        limit = self._loop.call_later(_CONNECT_TIMEOUT, pooled.abort, _NO_SESSION)
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
            _APPLY_SETTINGS,
            [list(self._settings), list(self._settings.values()), connection.info.backend_pid],
            prepare=False,
        )
        if await cursor.fetchall():
            return
        connection.prepare_threshold = None
        cursor = await connection.execute(_SHOW_ISOLATION)
        (isolation,) = await cursor.fetchone() or ("",)
        if isolation != _ISOLATION:
            raise InvalidArgumentError(
                f"behind the pooler, transactions of PostgreSQL are {isolation}: set default_"
                f"transaction_isolation to {_ISOLATION!r} for the database or the user (ALTER "
                "DATABASE ... SET), or connect without the pooler"
            )


def _check_encoding(connection: Connection) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in (None, "UTF8"):  # None: some poolers do not report it
        raise InvalidArgumentError(
            f"the PostgreSQL database has the encoding {encoding}, and names may have any "
            "character: create one with ENCODING 'UTF8' (and TEMPLATE template0)"
        )
