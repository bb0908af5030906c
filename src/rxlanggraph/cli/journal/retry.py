"""A journal that gives no answer: asked again for a while, then given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_random_exponential,
)

from rxlanggraph.cli.errors import CommandError, JournalError
from rxlanggraph.cli.journal.location import JournalLocation
from rxlanggraph.cli.stderr import print_stderr
from rxlanggraph.errors import (
    InvalidArgumentError,
    LoopUnavailableError,
    MissingExtraError,
    StateUnavailableError,
)

__all__ = ["JournalRetry", "journal_errors"]

_T = TypeVar("_T")

# Seconds: long enough for a server to be started again by whatever watches over it.
_RETRY_SECONDS = 60.0


class JournalRetry:
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
            return failed_at[-1] - failed_at[0] >= _RETRY_SECONDS

        def announce(attempts: RetryCallState) -> None:
            if attempts.attempt_number == 1 and self._note(away=True):
                print_stderr(
                    f"the journal gives no answer; trying again for {_RETRY_SECONDS:.0f} s"
                )

        return {
            "stop": too_long,
            "wait": wait_random_exponential(multiplier=0.2, max=3),
            "retry": retry_if_exception_type(StateUnavailableError),
            "before_sleep": announce,
            "reraise": True,
        }

    def _note(self, *, away: bool) -> bool:
        """Note whether the journal is away; return whether that is news."""
        with self._lock:
            news, self._away = self._away is not away, away
            return news


@contextmanager
def journal_errors(
    location: JournalLocation, remedy: str = "go on with --resume"
) -> Iterator[None]:
    """Say what is wrong with a journal in the terms of the command.

    Args:
        location: The journal.
        remedy: What to do when its server is back.

    Raises:
        CommandError: It cannot be opened: a missing package, no such file, no such server.
        JournalError: It gives no answer any more.
    """
    try:
        yield
    except StateUnavailableError as error:
        raise JournalError(
            f"the journal {location.name} gives no answer: {error}; when it is back, {remedy}"
        ) from error
    except LoopUnavailableError as error:
        raise JournalError(f"the journal {location.name} was closed: {error}") from error
    except (InvalidArgumentError, MissingExtraError) as error:
        raise CommandError(f"cannot open the journal {location.name}: {error}") from error
