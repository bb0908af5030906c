"""An open journal, and retries while it does not answer."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from tenacity import RetryCallState, stop_after_delay

from rxlanggraph.cli.errors import CommandError, JournalError
from rxlanggraph.cli.journal.location import JournalLocation
from rxlanggraph.cli.journal.model import RunIdentity
from rxlanggraph.cli.stdio import print_stderr
from rxlanggraph.errors import (
    InvalidArgumentError,
    LoopUnavailableError,
    MissingExtraError,
    StateUnavailableError,
    UndecodableError,
)
from rxlanggraph.state import State
from rxlanggraph.state.retry import backoff, repeat, repeat_blocking

__all__ = ["JournalRetry", "OpenJournal", "journal_errors"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Seconds: long enough for a server to be restarted by its service manager.
_RETRY_SECONDS = 60.0


class JournalRetry:
    """Retries calls on a journal that does not answer, for a limited time. Any thread.

    One for all parts of a job, so that an outage is announced once.
    """

    def __init__(self) -> None:
        # A leaf; a plain Lock, since neither signal handlers nor finalizers come here. Guards the
        # field after it.
        self._lock = threading.Lock()
        self._away = False  # whether the journal did not answer the latest call

    def call(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what ``call(*args, **kwargs)`` returns. Blocks.

        Raises:
            StateUnavailableError: The journal did not answer, and the time for retries is over.
        """
        try:
            result = call(*args, **kwargs)
        except StateUnavailableError as failure:
            result = repeat_blocking(
                StateUnavailableError, failure, self._policy(), call, *args, **kwargs
            )
        self._set_away(False)
        return result

    async def acall(
        self, call: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Return what awaiting ``call(*args, **kwargs)`` returns.

        Raises:
            StateUnavailableError: As for `call`.
        """
        try:
            result = await call(*args, **kwargs)
        except StateUnavailableError as failure:
            result = await repeat(
                StateUnavailableError, failure, self._policy(), call, *args, **kwargs
            )
        self._set_away(False)
        return result

    def _policy(self) -> dict[str, Any]:
        return {
            **backoff(first=0.2, longest=3, stop=stop_after_delay(_RETRY_SECONDS)),
            "before_sleep": self._announce,
        }

    def _announce(self, attempts: RetryCallState) -> None:
        if attempts.attempt_number == 1 and self._set_away(True):
            print_stderr(f"the journal does not answer; trying again for {_RETRY_SECONDS:.0f} s")

    def _set_away(self, away: bool) -> bool:
        """Note whether the journal is away; return whether that has changed."""
        with self._lock:
            changed, self._away = self._away is not away, away
            return changed


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """The journal that the parts of a job share. Any thread.

    Attributes:
        state: Its shared state; threads other than that of its loop use ``state.sync``.
        run: The run that it belongs to.
        name: Where it is, for messages.
        retry: Retries calls on it.
    """

    state: State
    run: RunIdentity
    name: str
    retry: JournalRetry = field(default_factory=JournalRetry)


@contextmanager
def journal_errors(
    location: JournalLocation, remedy: str = "continue with --resume"
) -> Iterator[None]:
    """Turn errors of shared state into errors of the command that name the journal.

    Args:
        location: The journal.
        remedy: What to do once its server is back, for the message.

    Raises:
        CommandError: It cannot be opened: a missing package, no such file, no such server.
        JournalError: It does not answer any more, or another program has written into it.
    """
    try:
        yield
    except StateUnavailableError as error:
        raise JournalError(
            f"the journal {location.name} does not answer: {error}; when it is back, {remedy}"
        ) from error
    except UndecodableError as error:
        raise JournalError(f"the journal {location.name} cannot be read: {error}") from error
    except LoopUnavailableError as error:
        raise JournalError(f"the journal {location.name} was closed: {error}") from error
    except (InvalidArgumentError, MissingExtraError) as error:
        raise CommandError(f"cannot open the journal {location.name}: {error}") from error
