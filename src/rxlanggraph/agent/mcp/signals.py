"""Serving until a signal arrives.

No lock is held here. A signal handler only sets an alarm and calls `loop.call_soon_threadsafe`,
which is made for that; everything else happens on the loop that serves.
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
"""Seconds for the whole shutdown in addition to the grace: twice a cancelled run's, a guess."""


def serve_until_signalled(
    serve: Callable[[], Coroutine[Any, Any, object]],
    *,
    stop: Callable[[], Coroutine[Any, Any, object]],
    hurry: Callable[[], object],
    grace: float,
) -> None:
    """Run ``serve()`` on a loop of its own, until it ends; SIGINT and SIGTERM make it end.

    Blocks. Called in another thread than the main one, it receives no signals. It continues if a
    task of the loop raises SystemExit or KeyboardInterrupt, or stops the loop.

    Anything that blocks the shutdown for good (a run that resists cancellation or blocks the loop,
    a client that does not read) does so for a limited time: then SIGALRM ends the process. Not on
    Windows.

    Args:
        serve: The server. It is not cancelled: ``stop`` has to make it end.
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
    # A handler interrupts any code, a run of an agent for example. In a copy of that run's context
    # `stop` would count as started by the run, and be cancelled with it.
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
    """Run the loop until ``task`` has ended, like asyncio's ``run_until_complete``.

    Signals are handled elsewhere. So anything that stops the loop earlier was raised by an agent's
    code: that is the error of one call, and must not end all others.
    """
    ended = False

    def end(_: object) -> None:
        nonlocal ended
        ended = True
        loop.stop()

    task.add_done_callback(end)
    while not ended:  # not task.done(): the loop's stop would be left to the next run
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            _log.warning("%s on the loop of the server, which goes on", type(error).__name__)
    task.result()


def _end_within(seconds: float) -> None:
    """Make the kernel end the process after so many seconds, unconditionally; 0 disarms it."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def _on_signals(loop: asyncio.AbstractEventLoop, fn: Callable[[], object]) -> Iterator[None]:
    """Call ``fn`` at each SIGINT and SIGTERM, replacing their current handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        # For one effect: a signal that comes just before the loop waits wakes it up.
        with contextlib.suppress(NotImplementedError):  # Windows, where its loop does so itself
            loop.add_signal_handler(number, lambda: None)
        signal.signal(number, lambda *_: fn())
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            # None stands for a handler that was not set from Python: it cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def ending_input() -> Iterator[Callable[[], None]]:
    """During a block, make standard input end on request, not only when its other side closes it.

    Its reader may be in a blocking read, in a thread that only the end of the input can end. So
    descriptor 0 becomes a pipe that a thread here fills, and closes.

    On Windows it stays as it is: ``select`` works for sockets alone.

    Yields:
        A function that ends it. Any thread; never blocks; idempotent.

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
