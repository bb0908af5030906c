"""Where a journal is, and what it is when it gives no answer."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_random_exponential,
)

from rxlanggraph.cli.errors import CommandError, JournalError
from rxlanggraph.cli.journal_secrets import journal_password
from rxlanggraph.cli.progress import say
from rxlanggraph.errors import (
    InvalidArgumentError,
    LoopUnavailableError,
    MissingExtraError,
    StateUnavailableError,
)
from rxlanggraph.state.addresses import check_address, has_password, masked, with_password

__all__ = ["Patience", "Place", "journal_errors", "place_of"]

_T = TypeVar("_T")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_URL = re.compile(r"sqlite(\+aiosqlite)?:///")
# What was to be a URL, or has a password in it, and not the name of a file.
_NO_FILE = re.compile(
    r"(sqlite|postgres(ql)?|rediss?|valkeys?|unix)(\+\w+)?:|[^/@]*:.*@", re.IGNORECASE | re.DOTALL
)
# Seconds: long enough for a server to be started again by whatever watches over it.
_PATIENCE = 60.0
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,56}")


class Place(NamedTuple):
    """Where a journal is.

    Attributes:
        name: For messages: as it was given, without a password.
        url: For `open_state`.
        namespace: For `open_state`.
        path: The SQLite file; None where it is on a server.
        tells: Whether the name that was given has a password in it.
    """

    name: str
    url: str
    namespace: str
    path: Path | None
    tells: bool = False

    @property
    def beside(self) -> tuple[str, ...]:
        """The files that SQLite keeps beside that one, whether they are there now or not."""
        if self.path is None:
            return ()
        file = os.path.realpath(self.path)  # to SQLite too a link is what it leads to
        return tuple(f"{file}-{kind}" for kind in ("journal", "wal", "shm"))


def place_of(where: str) -> Place:
    """Return the place that a path, or the address of a server, names.

    Raises:
        CommandError: It can be neither.
    """
    if where.startswith("memory:"):
        raise CommandError(
            "a journal in memory would die with the command; name a file, or a server"
        )
    if begin := _FILE_URL.match(where):
        if "?" in where:
            raise CommandError(
                f"{masked(where)} names no journal: a ? in the name of a file is %3F"
            )
        return _file(where, unquote(where[begin.end() :], errors="surrogateescape"))
    if _URL.match(where):
        return _on_server(where)
    if _NO_FILE.match(where):
        raise CommandError(
            f"{masked(where)} names no journal: a server's URL begins with postgresql:// or "
            "redis://, that of a file with sqlite:///; for a file of that name write ./ before it"
        )
    return _file(where, where)


def _on_server(where: str) -> Place:
    # What follows the # names one of several journals on one server.
    url, _, run = where.partition("#")
    name = masked(where)
    try:
        # A # in a password is as wrong there as a second @.
        check_address(where.replace("#", "@", 1) if "@" in run else url)
    except InvalidArgumentError as error:
        raise CommandError(f"{name} names no journal: {error}") from None
    if run and not _NAME.fullmatch(run):
        raise CommandError(
            f"{name} names no journal: after # come up to 56 letters, digits and . _ : -"
        )
    tells = has_password(url)
    if not tells and (password := journal_password()):
        url = with_password(url, quote(password, safe=""))
    return Place(name, url, f"journal:{run or 'run'}", None, tells)


class Patience:
    """Asks a journal that gives no answer again, for a while. Any thread; one for all of a job.

    That the journal is away is said once, however many wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a leaf, guards:
        self._away = False

    def call(self, call: Callable[[], _T]) -> _T:
        """Return what ``call`` returns. Blocks.

        Raises:
            StateUnavailableError: The journal gives no answer, for longer than is bearable.
        """
        result = Retrying(**self._options())(call)
        self._note(away=False)
        return result

    async def acall(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Return what awaiting ``call()`` returns.

        Raises:
            StateUnavailableError: As for `call`.
        """

        async def attempt() -> _T:
            return await call()

        result: _T = await AsyncRetrying(**self._options())(attempt)
        self._note(away=False)
        return result

    def _options(self) -> dict[str, Any]:
        failed_at: list[float] = []

        def too_long(_: RetryCallState) -> bool:
            # Not since the call began: what waits for work may have done so for hours.
            failed_at.append(time.monotonic())
            return failed_at[-1] - failed_at[0] >= _PATIENCE

        def tell(attempts: RetryCallState) -> None:
            if attempts.attempt_number == 1 and self._note(away=True):
                say(f"the journal gives no answer; trying again for {_PATIENCE:.0f} s")

        return {
            "stop": too_long,
            "wait": wait_random_exponential(multiplier=0.2, max=3),
            "retry": retry_if_exception_type(StateUnavailableError),
            "before_sleep": tell,
            "reraise": True,
        }

    def _note(self, *, away: bool) -> bool:
        """Note whether the journal is away; return whether that is news."""
        with self._lock:
            news, self._away = self._away is not away, away
            return news


def _file(name: str, path: str) -> Place:
    if not path:
        raise CommandError(f"{name!r} names no journal: give the path of a file")
    absolute = Path(path).absolute()
    return Place(name, f"sqlite:///{quote(os.fsencode(absolute))}", "journal:run", absolute)


@contextmanager
def journal_errors(place: Place, remedy: str = "go on with --resume") -> Iterator[None]:
    """Say what is wrong with a journal in the terms of the command.

    Args:
        place: The journal.
        remedy: What to do when its server is back.

    Raises:
        CommandError: It cannot be opened: a missing package, no such file, no such server.
        JournalError: It gives no answer any more.
    """
    try:
        yield
    except StateUnavailableError as error:
        raise JournalError(
            f"the journal {place.name} gives no answer: {error}; when it is back, {remedy}"
        ) from error
    except LoopUnavailableError as error:
        raise JournalError(f"the journal {place.name} was closed: {error}") from error
    except (InvalidArgumentError, MissingExtraError) as error:
        raise CommandError(f"cannot open the journal {place.name}: {error}") from error
