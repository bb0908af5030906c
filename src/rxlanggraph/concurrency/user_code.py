"""What user code raises where the library calls it, and who must not suffer from that.

Done-callbacks, observers and the like run on threads that carry everybody's runs: the loop's, or
that of whoever cancels. An exception there is nobody's to catch, whatever its class: a
``CancelledError`` would be taken for the end of somebody's task, a ``SystemExit`` would end the
loop. So it is logged, and goes no further, with one exception of its own.

``KeyboardInterrupt`` and ``SystemExit`` in the main thread may come from a signal handler that
happened to run there, and no program wants its Ctrl-C lost. These go on when what had to be done is
done: out of the call that was interrupted, or on a loop as they do for every callback of asyncio.
"""

from __future__ import annotations

import asyncio
import logging
import threading

__all__ = ["contain", "is_interrupt", "raise_on_loop"]


def contain(
    error: BaseException, log: logging.Logger, message: str, *args: object
) -> BaseException | None:
    """Log ``error``, which user code raised. Any thread; call it where it was caught.

    Returns:
        The error itself if it has to go on when the caller has done what it has to, otherwise None.
    """
    try:
        log.error(message, *args, exc_info=error)
    except BaseException:  # a repr that raises as well; logging lets all but Exceptions pass
        log.exception("an exception of type %s cannot be shown", type(error).__name__)
    return error if is_interrupt(error) else None


def is_interrupt(error: BaseException) -> bool:
    """Whether a signal handler may have raised ``error`` in this thread. Never blocks."""
    return (
        isinstance(error, KeyboardInterrupt | SystemExit)
        and threading.current_thread() is threading.main_thread()
    )


def raise_on_loop(error: BaseException) -> None:
    """Raise ``error`` in a step of its own of the running loop; if none runs, not at all.

    The loop ends with it then, as it does with every callback that raises such an error.
    """
    loop = asyncio._get_running_loop()
    if loop is not None:
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error
