"""Subscription: a run for every message of a stream, and its result for the observer.

What breaks with ``flat_map`` over futures: all messages run at once, and the first failure ends the
stream and cancels its other runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeAlias

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SingleAssignmentDisposable

from rxlanggraph.bridge.deadlocks import Waiter, review
from rxlanggraph.bridge.engine import Engine
from rxlanggraph.bridge.operators.awaited import AwaitedStream, is_of_run, waiters_for
from rxlanggraph.bridge.operators.on_loop import OnLoop, loop_behind
from rxlanggraph.bridge.operators.pull import PulledSource
from rxlanggraph.bridge.operators.readers import ReaderRoom, StreamListener, reader_here
from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_options import ConcurrencyGroup, RunOptions
from rxlanggraph.concurrency.user_code import contain, is_interrupt
from rxlanggraph.errors import (
    BridgeClosedError,
    InvalidArgumentError,
    RunDrainedError,
    RunDroppedError,
    RunInterruptedError,
    ThreadBusyError,
)
from rxlanggraph.messages import StreamMessage, failure_of, passes_through
from rxlanggraph.rx.serialized_observer import SerializedObserver
from rxlanggraph.validation import check_plain

__all__ = ["Ended", "ErrorPolicy", "Subscription", "ThreadSelector", "make_operator"]

_log = logging.getLogger("rxlanggraph")

OBSERVER_RAISED = (
    "an observer behind the bridge %s raised: its subscription has ended, and its runs are "
    "cancelled; catch exceptions in the observer, and give it an on_error"
)
ErrorPolicy: TypeAlias = Literal["raise", "emit", "skip"]
Ended: TypeAlias = tuple[StreamMessage, Context]
"""What is to be emitted, and the context of its run."""
ThreadSelector: TypeAlias = "str | Callable[[Any], str | None] | None"
# What a policy of threads, or of overflow, does to a message does not end the stream for which it
# was chosen. Nor does draining end it at once: its other runs would be cancelled, not drained.
_NOT_ENDING = (RunDrainedError, RunDroppedError, RunInterruptedError, ThreadBusyError)


def make_operator(
    engine: Engine,
    owner: object,
    options: RunOptions,
    *,
    max_concurrency: int | None,
    ordered: bool,
    thread_id: ThreadSelector,
    errors: ErrorPolicy,
    single_lane: bool = False,
    subscription: Callable[..., Subscription] | None = None,
) -> Callable[[Observable[Any]], Observable[StreamMessage]]:
    """Return an operator, as `RxPyLangGraphBridge.invoke` and ``stream`` document it. Any thread.

    Args:
        engine: Executes the runs.
        owner: The bridge, kept alive by its runs.
        options: Of all runs.
        max_concurrency: As documented there.
        ordered: As documented there.
        thread_id: As documented there.
        errors: As documented there.
        single_lane: Whether the messages of a subscription that have no thread share a lane.
        subscription: Makes what emits the runs of one subscription; None for one result each.

    Raises:
        InvalidArgumentError: ``errors`` is not one of the three.
    """
    if errors not in ("raise", "emit", "skip"):
        raise InvalidArgumentError(f"errors must be 'raise', 'emit' or 'skip', not {errors!r}")
    look_ahead = 2 * (max_concurrency or engine.max_concurrency) if ordered else None

    def operator(source: Observable[Any]) -> Observable[StreamMessage]:
        def subscribe(
            observer: abc.ObserverBase[StreamMessage],
            scheduler: abc.SchedulerBase | None = None,
        ) -> abc.DisposableBase:
            if is_of_run(scheduler):
                engine.check_run_of_rx()
            loop = loop_behind(scheduler)
            group = None if max_concurrency is None else ConcurrencyGroup(max_concurrency)
            own_loop = asyncio._get_running_loop() is engine.inbox.loop
            reader = reader_here(may_block=engine.admission.bounded and not own_loop)
            if reader is not None:
                observer = reader.behind(observer)
            runs = (subscription or Subscription)(
                engine,
                owner,
                replace(options, group=group, lane=object() if single_lane else None),
                look_ahead=look_ahead,
                thread_id=thread_id,
                errors=errors,
                observer=observer if loop is None else OnLoop(observer, loop),
            )
            awaited = waiters_for(scheduler)
            if awaited is not None:
                runs.await_by(*awaited)
            if reader is not None:
                runs.read_by(reader)
            return runs.to(source, scheduler)

        return Observable(subscribe)

    return operator


class _Shared(NamedTuple):
    """What all runs of a subscription have in common.

    The same objects for all of them: with many messages in flight, each object of a run is more
    work for the collector.
    """

    callbacks: tuple[Callable[[Run], object], ...]
    withheld_by: Callable[[Run], Iterable[Waiter]]


class Subscription:
    """The runs of one subscription, from the source's notifications to the observer's."""

    # In the class, so that other subscriptions do without. Written once, before the source can
    # emit.
    _awaited: AwaitedStream | None = None
    _reader: ReaderRoom | None = None

    def __init__(
        self,
        engine: Engine,
        owner: object,
        options: RunOptions,
        *,
        look_ahead: int | None,
        thread_id: ThreadSelector,
        errors: ErrorPolicy,
        observer: abc.ObserverBase[StreamMessage],
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._options = options
        self._look_ahead = look_ahead
        self._thread_id = thread_id
        self._errors = errors
        # The lock of the bridge: guards everything below, and the fields of the serialized
        # observer.
        self._lock = engine.lock
        self._emitter = SerializedObserver(observer, self._lock)
        self._source = SingleAssignmentDisposable()
        self._indexes: dict[Run, int] = {}  # all unfinished runs
        self._entering: set[Run] = set()  # those that get room at the moment, or wait for it
        self._waiting: deque[Run] = deque()  # not handed over yet, for lack of look-ahead
        self._advancing = False
        self._arrived = 0
        self._head = 0  # with look-ahead: the next index to emit
        self._early: dict[int, Ended] = {}  # results that wait for an earlier one
        self._source_ended = False
        self._failed = False
        self._cut_off: BaseException | None = None  # why some runs did not end by themselves
        self._raised: BaseException | None = None  # by the observer; any thread, written once
        self._disposed = False

    def to(
        self, source: Observable[Any], scheduler: abc.SchedulerBase | None
    ) -> abc.DisposableBase:
        """Subscribe to ``source``; disposing the returned disposable cancels the runs."""
        # Held by the source: here they would make a cycle, for the collector to find.
        shared = _Shared((self._ended,), self._ahead_of)
        on_next = partial(self._on_next, shared)
        if self._awaited is not None and isinstance(source, PulledSource):
            source = source.with_room_for(self._engine, self._awaited.fed_by)
        reader = self._reader
        with contextlib.nullcontext() if reader is None else reader.subscribing_before():
            self._source.disposable = source.subscribe(
                on_next, self._on_source_error, self._on_completed, scheduler=scheduler
            )
        return Disposable(self._dispose)

    def await_by(self, waiters: Iterable[Waiter], listener: StreamListener | None) -> None:
        """Be waited for by ``waiters``, or by ``listener`` when that waits. Before `to`."""
        self._awaited = AwaitedStream(
            self._engine.inbox,
            self._options.group,
            self._pending,
            self._on_error,
            waiters,
            listener=listener,
        )

    def read_by(self, reader: ReaderRoom) -> None:
        """Start no more runs than ``reader`` has room for results. Before `to`.

        What breaks without it: results come on a loop, whose thread cannot be blocked. A reader
        that is on that loop itself gets a turn only after a burst of them.
        """
        self._reader = reader

    def _pending(self, most: int | None) -> tuple[list[Run], bool] | None:
        with self._lock:
            if self._emitter.is_busy():
                return None  # a result is on its way
            runs = [*islice(chain(self._indexes, self._entering), most)]
            return runs, not (self._source_ended or self._disposed)

    # -- from the source, in any thread --------------------------------------------------------

    def _on_next(self, shared: _Shared, item: Any) -> None:
        run = None
        try:
            run, unusable = self._new_run(item, shared)
            if unusable is not None:
                self._end_unusable(run, unusable)
            elif not self._engine.admission.bounded or self._enter(run):
                self._begin(run)
        except BridgeClosedError as error:
            self._cut_off_source(run, error)
        except BaseException as error:
            self._fail(run, error)
            if error is self._raised or is_interrupt(error):
                raise

    def _begin(self, run: Run) -> None:
        if not self._take(run):
            self._cancel_late(run)
        elif self._look_ahead is None and self._reader is None:
            self._hand_over(run)
        else:
            self._advance()
        if run.cancelled():  # by a hook: perhaps before it was noted, or had room
            self._engine.cancel(run)
            self._ended(run)
        if self._awaited is not None and len(self._indexes) == 1:
            self._awaited.changed()

    def _fail(self, run: Run | None, error: BaseException) -> None:
        if run is not None:
            with self._lock:
                self._indexes.pop(run, None)  # the error is emitted, not the end of this run
            self._engine.cancel(run)
        self._on_error(error)

    def _enter(self, run: Run) -> bool:
        """Get room for ``run``; False if it is not to start: rejected, or disposed of."""
        with self._lock:
            disposed = self._disposed
            if not disposed:
                self._entering.add(run)
            alone = len(self._entering) + len(self._indexes) == 1
        if disposed:
            self._engine.cancel(run)
            return False
        try:
            if alone and self._awaited is not None:
                self._awaited.changed()  # it may wait for room forever
            has_room = self._engine.enter(run)
        except BaseException:
            with self._lock:
                self._entering.discard(run)
            raise
        if not has_room:
            if self._take(run, to_start=False):
                self._engine.reject(run)
                self._ended(run)
            else:
                self._cancel_late(run)
        return has_room

    def _end_unusable(self, run: Run, error: Exception) -> None:
        """End ``run``, which needs no room, with ``error``. It keeps its place in the order."""
        if self._take(run, to_start=False):
            self._engine.fail(run, error)
            self._ended(run)
        else:
            self._cancel_late(run)

    def _cancel_late(self, run: Run) -> None:
        self._engine.cancel(run)
        self._flush()  # it may have been the last to be waited for

    def _take(self, run: Run, *, to_start: bool = True) -> bool:
        """Note ``run``, which has room, or will not get any; False if it comes too late."""
        with self._lock:
            self._entering.discard(run)
            if self._disposed or (self._source_ended and self._cut_off is not None):
                if not self._disposed:
                    self._put_end()
                return False
            self._indexes[run] = self._arrived
            self._arrived += 1
            if to_start and (self._look_ahead is not None or self._reader is not None):
                self._waiting.append(run)
            if to_start and self._engine.admission.may_drop:
                self._engine.admission.expose(run)
            return True

    def _new_run(self, item: Any, shared: _Shared) -> tuple[Run, Exception | None]:
        """Make the run on ``item``, and return it with what makes the item unusable, if anything.

        What breaks without the second: one item for which a function raises ends a stream that is
        to outlive its failures.
        """
        unusable = None
        try:
            message, options = self._bind(item)
        except Exception as error:
            if self._errors == "raise":
                raise
            message = item if isinstance(item, StreamMessage) else StreamMessage(item)
            options, unusable = self._options, error
        run = self._engine.new_run(message, options, self._owner, shared.callbacks)
        if self._look_ahead is not None or self._reader is not None:
            run.withheld_by = shared.withheld_by
        return run, unusable

    def _bind(self, item: Any) -> tuple[StreamMessage, RunOptions]:
        chosen = self._thread_id
        if callable(chosen):
            # An item that passes through has no content to choose a thread by.
            chosen = None if passes_through(item) else chosen(item)
            check_plain("thread_id", chosen)
        return self._options.bind(item, chosen)

    def _on_error(self, error: BaseException) -> None:
        self._emitter.put_error(error)
        self._flush()
        self._release()

    def _on_source_error(self, error: Exception) -> None:
        if isinstance(error, BridgeClosedError):
            self._end_source(error)  # what its source has taken before is not lost
        else:
            self._on_error(error)

    def _on_completed(self) -> None:
        self._end_source(None)

    def _end_source(self, cut_off: BridgeClosedError | None) -> None:
        """Note that nothing more comes; the runs in flight go on, and are emitted."""
        with self._lock:
            self._source_ended = True
            self._cut_off = self._cut_off or cut_off
            self._put_end()
        self._flush()
        if self._awaited is not None:
            self._awaited.changed()

    # -- the runs ------------------------------------------------------------------------------

    def _hand_over(self, run: Run) -> None:
        try:
            self._engine.hand_over(run)
        except BridgeClosedError as error:
            self._cut_off_source(run, error)
        except Exception as error:
            self._on_error(error)

    def _cut_off_source(self, run: Run | None, error: BridgeClosedError) -> None:
        """Take nothing more, as the bridge is closing; the runs in flight go on, and are emitted.

        What breaks without it: a source that emits while the bridge drains cancels what drains.
        """
        with self._lock:
            # What waits for look-ahead behind it will not be handed over either.
            late = [*(() if run is None else (run,)), *self._waiting]
            self._waiting.clear()
            for each in late:
                self._indexes.pop(each, None)
            if not self._disposed:
                self._source_ended = True
                self._cut_off = self._cut_off or error
                self._put_end()
        for each in late:
            self._engine.cancel(each)
        self._source.dispose()
        self._flush()
        if self._awaited is not None:
            self._awaited.changed()

    def _advance(self) -> None:
        # One thread at a time, so that a run that ends at once inside hand_over, and makes room for
        # the next, does not nest the calls as deep as there are messages.
        with self._lock:
            if self._advancing:
                return
            self._advancing = True
            run = self._next()
        while run is not None:
            self._hand_over(run)
            with self._lock:
                run = self._next()
        if self._reader is not None and self._waiting:
            review()  # what is withheld has room, for which the reader's loop may be blocked

    def _next(self) -> Run | None:
        """The next run to be handed over; if there is none, the advance is over. Under the lock."""
        while self._waiting and self._waiting[0].done():  # dropped just now, or cancelled
            self._waiting.popleft()
        if not self._waiting or not self._may_start(self._waiting[0]):
            self._advancing = False
            return None
        run = self._waiting.popleft()
        run.withheld_by = None
        return run

    def _may_start(self, run: Run) -> bool:
        """Whether ``run``, the next one, may start; it then does. Under the lock."""
        if not self._may_look_ahead_to(run):
            return False
        reader = self._reader
        return reader is None or reader.take(self, self._due_to_reader(), self._advance)

    def _may_look_ahead_to(self, run: Run) -> bool:
        return self._look_ahead is None or self._indexes[run] < self._head + self._look_ahead

    def _due_to_reader(self) -> int:
        """How many items may come before any is read. Under the lock.

        One of each run, the results that wait for an earlier one, and what is being emitted.
        """
        runs = len(self._indexes) - len(self._waiting)
        return runs + len(self._early) + self._emitter.count_undelivered()

    def _ahead_of(self, run: Run) -> Sequence[Waiter]:
        """The runs that have to end, or read on, before ``run`` is handed over; or a loop."""
        reader, look_ahead = self._reader, self._look_ahead
        if reader is not None:
            return self._unread(reader)
        assert look_ahead is not None
        with self._lock:
            return self._behind(self._indexes.get(run, self._arrived) - look_ahead)

    def _unread(self, reader: ReaderRoom) -> list[Waiter]:
        with self._lock:
            if not self._waiting:
                return []
            runs: list[Waiter] = []
            if not self._may_look_ahead_to(self._waiting[0]):
                runs += self._behind(self._arrived)
            elif reader.has_place(self, self._due_to_reader()):
                return []  # it is about to start
        runs += reader.in_flight()
        if reader.unread() > 0 and (reading := reader.reader) is not None:
            runs.append(reading)
        return runs

    def in_flight(self) -> list[Run]:
        """Return the runs that were handed over and have not ended. Any thread; never blocks."""
        return self._behind(self._arrived)

    def _behind(self, last: int) -> list[Run]:
        """The runs up to the index ``last`` that were handed over and have not ended."""
        with self._lock:
            indexes = self._indexes.items()
            return [run for run, index in indexes if index <= last and run.withheld_by is None]

    def _ended(self, future: object) -> None:
        # In the thread of the loop, or of the code that cancelled the run or took its room.
        assert isinstance(future, Run)
        result = future.result_nowait() or future.unanswered("cancelled")
        with self._lock:
            index = self._indexes.pop(future, None)
            if index is None:  # disposed
                return
            if future.withheld_by is not None and future in self._waiting:
                self._waiting.remove(future)
            # Each result is emitted in the context of its own run, whichever run's end released it.
            ended = (result, copy_context())
            due = (ended,) if self._look_ahead is None else self._due(index, ended)
            self._put(due)
            if result.status != "ok" and self._cut_off is None and self._engine.was_cut_off(future):
                self._cut_off = failure_of(result)
            if not self._indexes:
                self._put_end()
        if self._errors == "skip":
            _log_failures(due)
        try:
            self._flush()
        except Exception as error:  # the future would log it as that of a callback
            contain(error, _log, OBSERVER_RAISED, self._engine.name)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._failed:
            self._release()
        elif self._look_ahead is not None:
            self._advance()
        if self._awaited is not None:
            self._awaited.changed()

    def _due(self, index: int, ended: Ended) -> Sequence[Ended]:
        """The results that may be emitted in order now that ``ended`` is there. Under the lock."""
        self._early[index] = ended
        due = []
        while (head := self._early.pop(self._head, None)) is not None:
            self._head += 1
            due.append(head)
        return due

    def _put(self, results: Sequence[Ended]) -> None:
        """Queue the results as the error policy says. Under the lock."""
        for result, context in results:
            keep = result.status == "ok" or self._errors == "emit"
            failure = None if keep else failure_of(result)
            if failure is None:
                self._emitter.put_next(result, context)
            elif self._errors == "raise" and not isinstance(failure, _NOT_ENDING):
                self._emitter.put_error(failure)
                self._failed = True

    def _put_end(self) -> None:
        """Queue the end of the stream if it is due, and no run is left. Under the lock.

        One that waits for room is left too: a source may end in one thread while another one is
        blocked by its last message.
        """
        if self._indexes or self._entering:
            return
        if self._cut_off is not None:  # a stream that lacks results is not complete
            self._emitter.put_error(self._cut_off)
            self._failed = True
        elif self._source_ended:
            self._emitter.put_completed()

    # -- the end -------------------------------------------------------------------------------

    def _flush(self) -> None:
        try:
            self._emitter.flush()
        except BaseException as error:
            self._raised = error
            self._release()
            raise
        if self._reader is not None and not self._failed:
            self._give_up_places(self._reader)

    def _give_up_places(self, reader: ReaderRoom) -> None:
        """Let the streams of the reader have the places that are not needed any more."""
        with self._lock:
            reader.keep(self, self._due_to_reader())
        reader.go_on()

    def _dispose(self) -> None:
        self._emitter.stop()
        self._release()

    def _release(self) -> None:
        """Leave the source and cancel the runs; what is queued is still emitted.

        In this order: a thread of the source that is blocked for room is freed; the source is
        disposed of; the runs are cancelled. Their room would otherwise go to further items of a
        source that is pulled, which would be taken for nothing.
        """
        if self._awaited is not None:
            self._awaited.end()
        with self._lock:
            self._disposed = True
            entering, runs = [*self._entering], [*self._indexes]
            self._indexes.clear()
            self._waiting.clear()
            self._early.clear()
        if self._reader is not None:
            self._reader.leave(self)
        with contextlib.ExitStack() as later:  # each is called whatever the others raise
            for run in reversed(runs):
                later.callback(self._engine.cancel, run)
            later.callback(self._source.dispose)
            for run in reversed(entering):
                later.callback(self._engine.cancel, run)
        if self._reader is not None:
            self._give_up_places(self._reader)


def _log_failures(results: Sequence[Ended]) -> None:
    for result, _ in results:
        failure = failure_of(result)
        if failure is not None and not isinstance(failure, RunDroppedError):
            answered = result.source or result
            _log.warning("skipped message %s: %s", answered.id, result.status, exc_info=failure)
