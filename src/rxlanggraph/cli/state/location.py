"""StoreLocation: where a state is; and opening it, without creating or migrating it by accident."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from rxlanggraph.cli.errors import CommandError, StateDownError
from rxlanggraph.cli.journal.location import (
    NAMESPACE,
    NOT_A_FILE,
    URL,
    parse_location,
    warn_of_password,
)
from rxlanggraph.cli.journal.model import RUN
from rxlanggraph.cli.journal.status_report import not_a_journal
from rxlanggraph.cli.passwords import STATE_PASSWORD, read_password, warn_of_visible_password
from rxlanggraph.cli.stdio import print_stderr
from rxlanggraph.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    MissingExtraError,
    StateUnavailableError,
    UndecodableError,
)
from rxlanggraph.state import State, open_state
from rxlanggraph.state.addresses import check_address, has_password, masked, with_password
from rxlanggraph.state.backend import SchemaVersion
from rxlanggraph.state.open import read_version

__all__ = [
    "StoreLocation",
    "in_state",
    "journal_store",
    "parse_store",
    "version_of",
]

_T = TypeVar("_T")


class StoreLocation(NamedTuple):
    """Where a state is.

    Attributes:
        name: The location as it was given, without a password, for messages.
        url: The URL, for `open_state`.
        namespace: The namespace, for `open_state`.
        is_journal: Whether it is to be that of a journal.
    """

    name: str
    url: str
    namespace: str
    is_journal: bool = False


def parse_store(where: str, namespace: str) -> StoreLocation:
    """Return the location that a path, or the URL of a state, names.

    Raises:
        CommandError: It names neither.
    """
    name = masked(where)
    if where.startswith("memory:"):
        raise CommandError(
            f"{name} cannot be looked at from outside: it is in the memory of one process"
        )
    if not URL.match(where):
        if not where or NOT_A_FILE.match(where):
            raise CommandError(
                f"{name!r} does not name a state: the URL of a server begins with postgresql:// or "
                "redis://, that of a file with sqlite:///; if it is the name of a file, write ./ "
                "before it"
            )
        return StoreLocation(name, _file_url(where), namespace)
    if where.startswith("sqlite:"):
        return StoreLocation(name, where, namespace)
    try:
        check_address(where)
    except InvalidArgumentError as error:
        raise CommandError(f"{name} does not name a state: {error}") from None
    url = where
    if has_password(where):
        warn_of_visible_password("state", STATE_PASSWORD)
    elif password := read_password(STATE_PASSWORD):
        url = with_password(where, quote(password, safe=""))
    return StoreLocation(name, url, namespace)


def journal_store(where: str) -> StoreLocation:
    """Return the location of a journal, named as ``rxlanggraph run --journal`` names it.

    Raises:
        CommandError: It names none.
    """
    journal = parse_location(where)
    warn_of_password(exposes_password=journal.exposes_password)
    return StoreLocation(journal.name, journal.url, journal.namespace, is_journal=True)


def _file_url(path: str) -> str:
    return f"sqlite:///{quote(os.fsencode(Path(path).absolute()))}"


def in_state(location: StoreLocation, do: Callable[[State], Awaitable[_T]]) -> _T:
    """Open the state, and return what ``do`` returns. Blocks; no loop may run in this thread.

    Raises:
        CommandError: There is none, it has to be migrated first, or it refuses the call.
        StateDownError: Its server does not answer.
    """

    async def opened() -> _T:
        version = await _version(location)
        if version.is_due:
            raise CommandError(
                f"{location.name} has version {version.stored}, and this release of rxlanggraph "
                f"needs version {version.needed}: once no program of an older release uses it, run "
                "'rxlanggraph state URL migrate'"
            )
        async with open_state(location.url, namespace=location.namespace) as state:
            # Otherwise a wrong name would look like a journal without any line, and a journal like
            # a state with nothing in it. That may be what it is, beside the journal: no error.
            if location.is_journal:
                if not (await state.get(RUN)).version:
                    raise not_a_journal(location.name)
            elif await _has_only_journal(location, state):
                print_stderr(f"the namespace {location.namespace!r} is empty; {_hint(location)}")
            return await do(state)

    with _state_errors(location):
        return asyncio.run(opened())


async def _has_only_journal(location: StoreLocation, state: State) -> bool:
    """Whether there is a journal, and nothing in the state itself."""
    # In this order, as on Redis the last two look at every key of the server.
    if await state.queues() or not await _has_journal(location):
        return False
    lists = (state.iter_keys(), state.iter_locks())
    return not any([await anext(aiter(each), None) for each in lists])


async def _has_journal(location: StoreLocation) -> bool:
    version = await read_version(location.url, NAMESPACE)
    if version is None or version.stored != version.needed:
        return False  # opening it would create or migrate it
    async with open_state(location.url, namespace=NAMESPACE) as journal:
        return (await journal.get(RUN)).version != 0


def version_of(location: StoreLocation, *, migrate: bool) -> SchemaVersion:
    """Return the version of a state, as it was before it was perhaps migrated. Blocks.

    Raises:
        CommandError: There is none, or this release cannot use it.
        StateDownError: Its server does not answer.
    """

    async def look() -> SchemaVersion:
        version = await _version(location)
        # Also where nothing is due: a version that cannot be used is refused with its reason.
        if migrate or (version.stored or 0) > version.needed:
            async with open_state(location.url, namespace=location.namespace):
                pass
        return version

    with _state_errors(location):
        return asyncio.run(look())


async def _version(location: StoreLocation) -> SchemaVersion:
    version = await read_version(location.url, location.namespace)
    if version is None or version.stored is None:
        is_beside = not location.is_journal and await _has_journal(location)
        remedy = _hint(location) if is_beside else "check the URL and --namespace"
        raise CommandError(
            f"there is no state at {location.name}, or not in the namespace "
            f"{location.namespace!r}: {remedy}"
        )
    return version


def _hint(location: StoreLocation) -> str:
    return (
        f"{location.name} is a journal, which is shown with --journal before it: rxlanggraph state "
        "--journal URL COMMAND"
    )


@contextlib.contextmanager
def _state_errors(location: StoreLocation) -> Iterator[None]:
    try:
        yield
    except StateUnavailableError as error:
        raise StateDownError(f"{location.name} does not answer: {error}; try again") from error
    except MissingExtraError as error:
        raise CommandError(f"cannot open {location.name}: {error}") from error
    except (InvalidArgumentError, InvalidTypeError, UndecodableError) as error:
        raise CommandError(f"{location.name}: {error}") from error
