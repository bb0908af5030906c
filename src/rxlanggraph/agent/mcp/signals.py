"""Serving until a signal arrives.

There are no locks. A signal handler only sets an alarm and calls `loop.call_soon_threadsafe`, which
is safe there; everything else happens on the loop that serves.
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
"""Seconds for the whole shutdown in addition to the grace period. A guess: more than twice the time
that a cancelled run has."""


def serve_until_signalled(
    serve: Callable[[], Coroutine[Any, Any, object]],
    *,
    stop: Callable[[], Coroutine[Any, Any, object]],
    hurry: Callable[[], object],
    grace: float,
) -> None:
    """Run ``serve()`` on a loop of its own, until it ends; SIGINT and SIGTERM make it end.

    Blocks. In a thread other than the main one, it receives no signals. It continues if a task of
    the loop raises SystemExit or KeyboardInterrupt, or stops the loop.

    The time for the shutdown is limited: if something blocks it (a run that resists cancellation or
    blocks the loop, a client that does not read), SIGALRM ends the process. Not on Windows.

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
            "serving would block the event loop of this thread; run the server that mcp_server() "
            "returns on it instead"
        )
    signals_received = itertools.count()

    def set_alarm() -> None:
        _end_within(_LAST_SECONDS + (0 if next(signals_received) else grace))

    try:
        with asyncio.Runner() as runner:
            _serve(runner.get_loop(), serve, stop, hurry, set_alarm)
    finally:
        if next(signals_received):
            _end_within(0)


def _serve(
    loop: asyncio.AbstractEventLoop,
    serve: Callable[[], Coroutine[Any, Any, object]],
    stop: Callable[[], Coroutine[Any, Any, object]],
    hurry: Callable[[], object],
    set_alarm: Callable[[], None],
) -> None:
    # A handler may interrupt a run of an agent. In the context of that run, `stop` would count as
    # started by the run, and be cancelled with it.
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

    Signals do not stop the loop, so if it stops earlier, the code of an agent has done so. That is
    the error of one call, and must not end the others.
    """
    ended = False

    def end(_: object) -> None:
        nonlocal ended
        ended = True
        loop.stop()

    task.add_done_callback(end)
    while not ended:  # not task.done(): a pending stop() would stop the next run of the loop
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            _log.warning(
                "an agent raised %s on the loop of the server, which continues",
                type(error).__name__,
            )
    task.result()


def _end_within(seconds: float) -> None:
    """Make the kernel end the process after ``seconds``, unconditionally; 0 disarms that."""
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
        # Only so that a signal that arrives just before the loop waits wakes it up.
        with contextlib.suppress(NotImplementedError):  # on Windows, the loop does so by itself
            loop.add_signal_handler(number, lambda: None)
        signal.signal(number, lambda *_: fn())
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            # None is a handler that was not installed from Python, and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def ending_input() -> Iterator[Callable[[], None]]:
    """During a block, let standard input be ended on request, not only by its writer.

    A thread that is blocked in reading it can be ended in no other way. Descriptor 0 therefore
    becomes a pipe, which a thread of this module fills from the real input, and closes on request.

    On Windows it stays as it is, because ``select`` there supports only sockets.

    Yields:
        A function that ends the input. Any thread; never blocks; idempotent.

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
    stop_reader, stop_writer = os.pipe()
    forwarder = threading.Thread(
        target=_forward, args=(source, sink, stop_reader), name="rxlanggraph-stdin", daemon=True
    )
    forwarder.start()
    try:
        yield lambda: _request_stop(stop_writer)
    finally:
        _request_stop(stop_writer)
        forwarder.join()
        os.dup2(source, 0)
        for descriptor in (source, stop_reader, stop_writer):
            os.close(descriptor)


def _request_stop(stop_writer: int) -> None:
    os.write(stop_writer, b".")


def _forward(source: int, sink: int, stop_reader: int) -> None:
    """Copy ``source`` to ``sink`` until it ends or fails, or until ``stop_reader`` is readable."""
    try:
        while stop_reader not in select.select([source, stop_reader], [], [])[0]:
            data = os.read(source, select.PIPE_BUF)
            # A writable pipe accepts this many bytes without blocking (POSIX).
            if not data or stop_reader in select.select([stop_reader], [sink], [])[0]:
                return
            os.write(sink, data)
    except OSError as error:  # EIO from a closed terminal, for example
        _log.warning("reading standard input failed: %s", error)
    finally:
        os.close(sink)
