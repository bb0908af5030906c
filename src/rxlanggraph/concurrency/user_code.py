"""Exceptions that user code raises where the library calls it, and containing them.

Done-callbacks, observers and the like run on threads that carry the runs of all users: the loop's,
or that of a call to ``cancel``. No caller there could handle an exception, whatever its class: a
``CancelledError`` would be taken for the end of an unrelated task, a ``SystemExit`` would end the
loop. So it is logged, and does not propagate, with one exception.

``KeyboardInterrupt`` and ``SystemExit`` in the main thread may come from a signal handler that
happened to run there, and no program wants its Ctrl-C lost. These propagate after the necessary
work is done: out of the call that was interrupted, or on a loop as they do from every asyncio
callback.
"""

from __future__ import annotations

import asyncio
import logging
import threading

__all__ = ["contain", "is_interrupt", "raise_on_loop"]


def contain(
    error: BaseException, log: logging.Logger, message: str, *args: object
) -> BaseException | None:
    """Log ``error``, which user code raised. Any thread; call it where the error was caught.

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
    """Raise ``error`` in a step of its own of the running loop; without one, not at all.

    It ends the loop then, as from every callback that raises such an error.
    """
    loop = asyncio._get_running_loop()
    if loop is not None:
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
