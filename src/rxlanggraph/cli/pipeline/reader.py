"""InputReader: the input as an Observable of messages, with a limit, stoppable at any time.

A thread of its own reads, because reading a pipe may block forever while Ctrl-C has to end the
stream at once. So two threads may want to emit: the reader its next message, another one the end.
The rules that keep Rx's grammar (invariant 7) with no lock held while observers run (invariant 4):

R1. The reader marks under the lock that it emits, and emits only if the stream has not ended.
R2. What ends the stream marks that under the lock, once, and completes it only if the reader does
    not emit; otherwise the reader completes it as soon as it comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import reactivex as rx
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxlanggraph.cli.formats.lines import InputLine
from rxlanggraph.cli.formats.readers import Source
from rxlanggraph.cli.pipeline.limits import RateLimiter
from rxlanggraph.cli.pipeline.line_tracker import LineTracker
from rxlanggraph.messages import StreamMessage

__all__ = ["InputReader"]


class InputReader:
    """Reads lines, and emits those that are messages.

    Args:
        source: Where the lines come from; iterated in the reader thread alone.
        tracker: Where every line that was read is added.
        window: How many lines may be without a record at a time. This is the only bound that the
            pipeline needs: nothing behind it can hold more.
        rate: How fast to take lines in.
        on_invalid: Told, in the reader thread, of each line that is not a message.
        on_failure: Told, in the reader thread, of what ended the reading early.
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
        # Written once, before the reader starts:
        self._observer: abc.ObserverBase[StreamMessage] | None = None

    def messages(self) -> Observable[StreamMessage]:
        """Return the Observable, for one subscription: it starts the reader thread.

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
        """Emit no further message: complete, now or after the one being emitted.

        Any thread but a signal handler; does not wait for the reader, which may be blocked in a
        read and is left there. Idempotent.
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
        """Note that a line has its record, so that another may be read. Any thread."""
        self._slots.release()

    # -- the reader thread -------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while self._may_go_on():
                line = next(self._source.lines, None)
                if line is None:
                    break
                self._tracker.add(line)
                self._pass_on(line)
        except Exception as error:
            self._on_failure(error)
        finally:
            self.end()
            self._source.stream.close()

    def _may_go_on(self) -> bool:
        self._slots.acquire()
        return not self._ended.is_set()

    def _pass_on(self, line: InputLine) -> None:
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
        if self._emitted():
            self._complete()

    def _emitted(self) -> bool:
        """Note that the reader emits no more; return whether it has to complete (R2)."""
        with self._lock:
            self._emitting = False
            return self._ending

    def _complete(self) -> None:
        if self._observer is not None:
            self._observer.on_completed()
