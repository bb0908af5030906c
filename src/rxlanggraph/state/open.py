"""open_state: from a URL to a State."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from rxlanggraph.concurrency.run_on_loop import enter_on_loop
from rxlanggraph.concurrency.tasks import run_shielded
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, MissingExtraError
from rxlanggraph.state.addresses import check_address
from rxlanggraph.state.backend import Backend, SchemaVersion
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.blocking import SyncState
from rxlanggraph.state.retry import compensate
from rxlanggraph.state.single_use import SingleUseAsyncContext, SingleUseContext
from rxlanggraph.validation import check_attempts

__all__ = ["State", "open_state", "open_state_threadsafe", "read_version"]


class _Adapter(NamedTuple):
    module: str
    extra: str | None


_MEMORY = _Adapter("rxlanggraph.state.backends.memory", None)
_REDIS = _Adapter("rxlanggraph.state.backends.redis", "redis")
_ADAPTERS = {
    "memory": _MEMORY,
    "sqlite": _Adapter("rxlanggraph.state.backends.sql", None),
    "postgresql": _Adapter("rxlanggraph.state.backends.sql", "postgresql"),
    "redis": _REDIS,
    "rediss": _REDIS,
    "valkey": _REDIS,
    "valkeys": _REDIS,
    "unix": _REDIS,
}
_SERVER_EXTRAS = {"postgresql", "redis"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
# The namespace is part of keys; braces would change where a Redis cluster stores them.
_NAMESPACE = re.compile(r"[A-Za-z0-9._:-]{1,64}")


class State(BaseState):
    """State and work that agents share; opened by `open_state`.

    Values, locks and queues of work. Every operation is atomic on the server, across tasks,
    threads, processes and machines. Belongs to the event loop that opened it: its coroutines are
    awaited there; `sync` is for all other threads.

    A call that is cancelled has taken effect as a whole or not at all. Every call raises
    InvalidTypeError or InvalidArgumentError for invalid arguments, before anything is sent;
    StateUnavailableError if the server does not answer; StateClosedError once the state is closed;
    WrongThreadError on another loop.
    """

    def __init__(self, backend: Backend, *, max_attempts: int = 5) -> None:
        super().__init__(backend, max_attempts=max_attempts)
        self._sync = SyncState(self)

    @property
    def sync(self) -> SyncState:
        """The same methods, blocking, for every thread but that of the loop. Any thread."""
        return self._sync


def open_state(
    url: str, *, namespace: str = "rxlanggraph", max_attempts: int = 5
) -> AbstractAsyncContextManager[State]:
    """Open shared state, for the length of a block.

    ::

        async with open_state("sqlite:///state.db") as state:
            await state.increment_counter("answered")

    The state belongs to the event loop that enters the block, and is closed at its end. If
    cancelled while opening, it closes what it has opened.

    Args:
        url: The address. ``memory:`` (for this block alone) or ``memory:NAME`` (for this process,
            as long as any state has it open); ``sqlite:///FILE``; ``postgresql://...``;
            ``redis://...``, ``rediss://...`` (TLS), ``valkey://...``, ``valkeys://...``,
            ``redis+sentinel://HOST:PORT,.../NAME`` or ``unix://SOCKET``.
        namespace: Separates programs that share a server: up to 64 letters, digits and ``._:-``.
        max_attempts: How often a task may be claimed before it is dead; the default of
            ``add_tasks``.

    Raises:
        InvalidArgumentError: The URL, the namespace or the number of attempts is invalid.
        InvalidTypeError: The URL or the namespace is not a string.
        MissingExtraError: At the beginning of the block: a package is not installed; the error
            names the extra that brings it.
        StateUnavailableError: At the beginning of the block: the server does not answer.
        UsageError: At the beginning of a second block.
        WrongProcessError: At the beginning of the block: the process that this one was forked from
            was within a call on the SQLite file, at that moment.
    """
    for argument, text in (("url", url), ("namespace", namespace)):
        if not isinstance(text, str):
            raise InvalidTypeError(f"{argument} must be a string, not {text!r}")
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidArgumentError(
            f"namespace must be 1 to 64 letters, digits, '.', '_', ':' or '-', not {namespace!r}"
        )
    check_attempts("max_attempts", max_attempts)
    return SingleUseAsyncContext(
        "open_state(...)", _opened(_adapter(url), url, namespace, max_attempts)
    )


@contextlib.asynccontextmanager
async def _opened(
    adapter: _Adapter, url: str, namespace: str, max_attempts: int
) -> AsyncIterator[State]:
    backend = await run_shielded(
        _open_backend(adapter, url, namespace),
        undo=partial(compensate, lambda made: made.close()),
    )
    async with State(backend, max_attempts=max_attempts) as state:
        yield state


async def _open_backend(adapter: _Adapter, url: str, namespace: str) -> Backend:
    with _missing_named(adapter, url):
        opener = importlib.import_module(adapter.module).open_backend
        backend: Backend = await opener(url, namespace)
    return backend


async def read_version(url: str, namespace: str) -> SchemaVersion | None:
    """Return the version of the stored data; creates and migrates nothing, unlike `open_state`.

    On the loop that runs. Cancelling it changes nothing.

    Args:
        url: As for `open_state`.
        namespace: As for `open_state`.

    Returns:
        The versions; None for a store in memory, which has none.

    Raises:
        InvalidArgumentError, MissingExtraError, StateUnavailableError: As for `open_state`.
    """
    adapter = _adapter(url)
    with _missing_named(adapter, url):
        read = getattr(importlib.import_module(adapter.module), "read_version", None)
        version: SchemaVersion | None = None if read is None else await read(url, namespace)
    return version


@contextlib.contextmanager
def _missing_named(adapter: _Adapter, url: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if adapter.extra is None or (error.name or "").startswith("rxlanggraph"):
            raise
        if isinstance(error, ModuleNotFoundError):
            what = f"needs the package {error.name!r}, which is not installed"
        else:  # installed, but a system library that it needs is missing: psycopg without libpq
            what = f"needs a package that cannot be imported ({' '.join(str(error).split())})"
        raise MissingExtraError(
            f"{_scheme(url)}: {what}; install the extra {adapter.extra!r}: pip install "
            f"'rxlanggraph[{adapter.extra}]'",
            name=error.name,
        ) from error


def _adapter(url: str) -> _Adapter:
    # A driver may follow the scheme, after a plus sign; the backend checks it.
    adapter = _ADAPTERS.get(_scheme(url).partition("+")[0])
    if adapter is None:
        raise InvalidArgumentError(
            "the URL of a state must begin with one of "
            f"{', '.join(f'{name}:' for name in _ADAPTERS)}, not with {_scheme(url)!r}; for a file "
            "write sqlite:///FILE"
        )
    if adapter.extra in _SERVER_EXTRAS:
        check_address(url)
    return adapter


def _scheme(url: str) -> str:
    # Error messages quote the scheme alone: the rest of the URL may have a password in it.
    scheme = url.partition(":")[0]
    return scheme if _SCHEME.fullmatch(scheme) else "***"


# -- from a thread ---------------------------------------------------------------------------------


class _Bridge(Protocol):
    def create_future_task(
        self, graph: Callable[[Any], Awaitable[Any]], message: Any
    ) -> Future[Any]:
        """Submit a function; see `RxPyLangGraphBridge.create_future_task`."""


LoopOrBridge: TypeAlias = "asyncio.AbstractEventLoop | _Bridge"


def open_state_threadsafe(
    where: LoopOrBridge, url: str, *, namespace: str = "rxlanggraph", max_attempts: int = 5
) -> AbstractContextManager[State]:
    """Open shared state from a thread, on a loop of another thread, for the length of a block.

    ::

        with open_state_threadsafe(bridge, "sqlite:///state.db") as state:
            state.sync.increment_counter("answered")

    For pipelines that consist of threads: graphs on the bridge's loop use the state itself, threads
    use its ``sync``, and no second loop is needed. Blocks; any thread but the loop's own.

    Args:
        where: A running event loop, or an `RxPyLangGraphBridge`, for its loop. Close the
            state before the bridge.
        url: As for `open_state`.
        namespace: As for `open_state`.
        max_attempts: As for `open_state`.

    Raises:
        BlockingCallError: This is the thread of that loop.
        LoopUnavailableError: The loop does not run.
        InvalidArgumentError, InvalidTypeError, MissingExtraError, StateUnavailableError: As for
            `open_state`.
    """
    manager = open_state(url, namespace=namespace, max_attempts=max_attempts)
    return SingleUseContext("open_state_threadsafe(...)", _opened_on(where, manager))


@contextlib.contextmanager
def _opened_on(where: LoopOrBridge, manager: AbstractAsyncContextManager[State]) -> Iterator[State]:
    with enter_on_loop(_loop_of(where), manager) as state:
        yield state


def _loop_of(where: LoopOrBridge) -> asyncio.AbstractEventLoop:
    if isinstance(where, asyncio.AbstractEventLoop):
        return where
    if not hasattr(where, "create_future_task"):
        raise InvalidTypeError(f"where must be an event loop or a bridge, not {where!r}")
    # A bridge starts its loop with the first message, and exposes it only to what runs on it.
    run: Any = where.create_future_task(_begin, None)
    run.result()
    # Not the one on which the function was called: of several loops, any, which a node may end.
    loop: asyncio.AbstractEventLoop = run.get_loop()
    return loop


async def _begin(_: object) -> None:
    """Do nothing: what is sent starts the loop."""
