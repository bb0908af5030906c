"""Serving until a signal comes: what the servers of this package need of the process.

No lock is held here. What a signal handler does is to set an alarm and to call
`loop.call_soon_threadsafe`, which is made for that; all else happens on the loop that serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from rxlanggraph.errors import BlockingCallError

__all__ = ["ending_input", "serve_until_signalled"]

_log = logging.getLogger("rxlanggraph")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAST_SECONDS = 15.0
"""What the end of it all may take beside the grace: twice what a cancelled run has, and a guess."""


def serve_until_signalled(
    serve: Callable[[], Coroutine[Any, Any, object]],
    *,
    stop: Callable[[], Coroutine[Any, Any, object]],
    hurry: Callable[[], object],
    grace: float,
) -> None:
    """Run ``serve()`` on a loop of its own, until it ends; have it ended by SIGINT and SIGTERM.

    Blocks. Called in another thread than the main one, it hears no signals. It goes on where a task
    of the loop raises SystemExit or KeyboardInterrupt, or stops the loop.

    What holds up the end for good (a run that will not be cancelled or blocks the loop, a client
    that does not read) holds it up for a while only: then SIGALRM ends the process. Not on Windows.

    Args:
        serve: What to run. It is not cancelled: ``stop`` has to see to its end.
        stop: Called once, at the first signal, on the loop.
        hurry: Called at every further signal, on the loop.
        grace: Seconds that ``stop`` may take by itself, unless it is hurried.

    Raises:
        BlockingCallError: Called in a running loop's thread.
    """
    if asyncio._get_running_loop() is not None:
        raise BlockingCallError(
            "this would block the event loop of the thread; run the server of mcp_server() there"
        )
    heard = itertools.count()

    def set_alarm() -> None:
        _end_within(_LAST_SECONDS + (0 if next(heard) else grace))

    try:
        with asyncio.Runner() as runner:
            _serve(runner.get_loop(), serve, stop, hurry, set_alarm)
    finally:
        if next(heard):
            _end_within(0)


def _serve(
    loop: asyncio.AbstractEventLoop,
    serve: Callable[[], Coroutine[Any, Any, object]],
    stop: Callable[[], Coroutine[Any, Any, object]],
    hurry: Callable[[], object],
    set_alarm: Callable[[], None],
) -> None:
    # A handler runs on top of whatever it interrupts, a run of an agent for example. In a copy of
    # that one's context `stop` would count as started by the run, and be cancelled with it.
    context = contextvars.copy_context()
    stopping: asyncio.Task[object] | None = None

    def signalled() -> None:
        nonlocal stopping
        if stopping is None:
            stopping = loop.create_task(stop())
        else:
            hurry()

    def handler() -> None:
        set_alarm()
        loop.call_soon_threadsafe(signalled, context=context)

    with _on_signals(loop, handler):
        _complete(loop, loop.create_task(serve()))
        if stopping is not None:
            _complete(loop, stopping)


def _complete(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
    """Run the loop until ``task`` has ended; in the words of asyncio, until complete.

    Signals are heard elsewhere. So what ends the loop before is what the code of an agent has
    raised: that is the error of a call, and not the end of all others.
    """
    ended = False

    def end(_: object) -> None:
        nonlocal ended
        ended = True
        loop.stop()

    task.add_done_callback(end)
    while not ended:  # not: while the task is on; or else the stop would be left to the next one
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            _log.warning("%s on the loop of the server, which goes on", type(error).__name__)
    task.result()


def _end_within(seconds: float) -> None:
    """Have the kernel end the process after so many seconds, whatever it is at; 0: not any more."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def _on_signals(loop: asyncio.AbstractEventLoop, fn: Callable[[], object]) -> Iterator[None]:
    """Call ``fn`` at each SIGINT and SIGTERM, instead of whatever they did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        # For one thing that it does: a signal that comes as the loop is about to wait wakes it up.
        with contextlib.suppress(NotImplementedError):  # Windows, where its loop does so itself
            loop.add_signal_handler(number, lambda: None)
        signal.signal(number, lambda *_: fn())
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            # None stands for a handler that was not set from Python: it cannot be set again.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def ending_input() -> Iterator[Callable[[], None]]:
    """For a block, have standard input end when told to, and not only when its other side does.

    What reads it meanwhile may sit in a blocking read, in a thread that nothing can end but the
    end of the input. So descriptor 0 becomes a pipe that a thread here fills, and closes.

    On Windows it stays as it is, for want of a ``select`` on what is no socket.

    Yields:
        What ends it. Any thread; never blocks; idempotent.

    Raises:
        OSError: There is no standard input.
    """
    if sys.platform == "win32":
        yield lambda: None
        return
    source = os.dup(0)
    reader, sink = os.pipe()
    os.dup2(reader, 0)
    os.close(reader)
    told, tell = os.pipe()
    passing_on = threading.Thread(
        target=_pass_on, args=(source, sink, told), name="rxlanggraph-stdin", daemon=True
    )
    passing_on.start()
    try:
        yield lambda: _say(tell)
    finally:
        _say(tell)
        passing_on.join()
        os.dup2(source, 0)
        for descriptor in (source, told, tell):
            os.close(descriptor)


def _say(tell: int) -> None:
    os.write(tell, b".")


def _pass_on(source: int, sink: int, told: int) -> None:
    """Pass on what comes from ``source`` until it ends or fails, or until told to end."""
    try:
        while told not in select.select([source, told], [], [])[0]:
            data = os.read(source, select.PIPE_BUF)
            # A pipe that is writable takes so many bytes without blocking (POSIX).
            if not data or told in select.select([told], [sink], [])[0]:
                return
            os.write(sink, data)
    except OSError as error:  # EIO, of a terminal that is closed
        _log.warning("reading standard input failed: %s", error)
    finally:
        os.close(sink)
