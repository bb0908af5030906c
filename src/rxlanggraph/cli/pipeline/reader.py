"""InputReader: the input as an Observable of messages, bounded, and stoppable at any time.

The input is read in a separate thread, because reading a pipe may block forever, and Ctrl-C must
end the stream at once. Two threads may therefore emit: the reader thread a message, another thread
the end. Two rules keep the Rx grammar (invariant 7) without a lock held while observers run
(invariant 4):

R1. Under the lock, the reader thread checks that the stream has not ended, and marks that it emits.
R2. Under the lock, `end` marks once that the stream has ended. It completes the stream only if the
    reader thread is not emitting; otherwise that thread does so when the observer returns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import reactivex as rx
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxlanggraph.cli.formats.readers import InputLine, Source
from rxlanggraph.cli.pipeline.limits import RateLimiter
from rxlanggraph.cli.pipeline.line_tracker import LineTracker
from rxlanggraph.messages import StreamMessage

__all__ = ["InputReader"]


class InputReader:
    """Reads lines, and emits those that are messages.

    Args:
        source: The input; only the reader thread iterates over it.
        tracker: Tracks every line that was read.
        window: The maximum number of lines without a record. The pipeline needs no other bound.
        rate: The limit on messages per second; None for no limit.
        on_invalid: Called in the reader thread for each line that is not a message.
        on_failure: Called in the reader thread with the error that ended the reading early.
    """

    def __init__(
        self,
        source: Source,
        tracker: LineTracker,
        *,
        window: int,
        rate: RateLimiter | None,
        on_invalid: Callable[[InputLine], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._source = source
        self._tracker = tracker
        self._slots = threading.Semaphore(window)
        self._rate = rate
        self._on_invalid = on_invalid
        self._on_failure = on_failure
        self._ended = threading.Event()
        # A leaf; a plain Lock, since neither signal handlers nor finalizers come here. Guards the
        # two after it.
        self._lock = threading.Lock()
        self._ending = False
        self._emitting = False
        # Written once, before the reader thread starts:
        self._observer: abc.ObserverBase[StreamMessage] | None = None

    def messages(self) -> Observable[StreamMessage]:
        """Return the Observable; subscribing, once only, starts the reader thread.

        A message has its line's number as ``metadata["line"]``. Disposing ends the stream.
        """

        def subscribe(
            observer: abc.ObserverBase[StreamMessage], _: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            self._observer = observer
            threading.Thread(target=self._read, name="rxlanggraph-reader", daemon=True).start()
            return Disposable(self.end)

        return rx.create(subscribe)

    def end(self) -> None:
        """Emit no further message: complete, now or after the message being emitted.

        Any thread, but no signal handler. Idempotent. It does not wait for the reader thread, which
        may be blocked in a read forever.
        """
        with self._lock:  # R2
            if self._ending:
                return
            self._ending = True
            complete = not self._emitting
        self._ended.set()
        self._slots.release()  # wakes a reader that waits for a slot; it then sees the event
        if complete:
            self._complete()

    def give_back_slot(self) -> None:
        """Let another line be read, since one has its record now. Any thread; never blocks."""
        self._slots.release()

    # -- the reader thread -------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while self._take_slot():
                line = next(self._source.lines, None)
                if line is None:
                    break
                self._tracker.add(line)
                self._emit_line(line)
        except Exception as error:
            self._on_failure(error)
        finally:
            self.end()
            self._source.stream.close()

    def _take_slot(self) -> bool:
        self._slots.acquire()
        return not self._ended.is_set()

    def _emit_line(self, line: InputLine) -> None:
        if line.problem is not None:
            self._on_invalid(line)
            return
        if self._rate is not None and not self._rate.wait(self._ended):
            return
        metadata = {"line": line.number}
        self._emit(StreamMessage(line.content, thread_id=line.thread_id, metadata=metadata))

    def _emit(self, message: StreamMessage) -> None:
        assert self._observer is not None
        with self._lock:  # R1
            if self._ending:
                return
            self._emitting = True
        self._observer.on_next(message)
        if self._stop_emitting():
            self._complete()

    def _stop_emitting(self) -> bool:
        """Mark that the reader thread emits no more; return whether it must complete (R2)."""
        with self._lock:
            self._emitting = False
            return self._ending

    def _complete(self) -> None:
        if self._observer is not None:
            self._observer.on_completed()
