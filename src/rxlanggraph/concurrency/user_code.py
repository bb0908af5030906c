"""Containing the exceptions that user code raises where the library calls it.

Done-callbacks, observers and the like run in threads that serve all runs: the loop's, or that of a
call to ``cancel``. No caller there could handle an exception, whatever its class: a
``CancelledError`` would be taken for the cancellation of an unrelated task, a ``SystemExit`` would
end the loop. So an exception is logged, and does not propagate; but for one case.

``KeyboardInterrupt`` and ``SystemExit`` in the main thread may come from a signal handler that
happened to run there, and Ctrl-C must not be lost. These propagate after the library has completed
its own work: out of the call that was interrupted, or on a loop as they do from every asyncio
callback.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["call_for_future", "contain", "is_interrupt", "raise_on_loop"]


def call_for_future(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what ``function`` returns, in a thread whose outcome a future gets.

    Raises:
        RuntimeError: In the place of a StopIteration, which a future refuses: code that awaits it
            would wait forever.
        BaseException: What else it raises.
    """
    try:
        return function(*arguments, **options)
    except StopIteration as error:
        raise RuntimeError(f"{function!r} raised StopIteration") from error


def contain(
    error: BaseException, log: logging.Logger, message: str, *args: object
) -> BaseException | None:
    """Log ``error``, which user code raised. Any thread; called in the handler of the exception.

    Returns:
        The error itself if the caller has to raise it after completing its own work, otherwise
        None.
    """
    try:
        log.error(message, *args, exc_info=error)
    except BaseException:  # a repr that raises too; logging handles Exceptions only
        log.exception("an exception of type %s cannot be shown", type(error).__name__)
    return error if is_interrupt(error) else None


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler may have raised ``error`` in this thread. Never blocks."""
    return (
        isinstance(error, KeyboardInterrupt | SystemExit)
        and threading.current_thread() is threading.main_thread()
    )


def raise_on_loop(error: BaseException) -> None:
    """Raise ``error`` in a callback of the running loop, which ends the loop. Never blocks.

    Without a running loop it does nothing.
    """
    loop = asyncio._get_running_loop()
    if loop is not None:
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
