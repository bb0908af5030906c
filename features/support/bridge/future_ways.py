"""What one does with futures; each way returns what it saw, to be compared between two kinds."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import (
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Future,
    as_completed,
    wait,
)
from typing import Any

from rxlanggraph.concurrency.future import SharedLockFuture
from support.concurrency.tasks import PATIENCE, run, start

__all__ = ["WAYS", "Light", "Stock", "Way"]

Seen = list[Any]


class Stock:
    """Futures of the standard library, as an executor treats them."""

    def make(self) -> Future[Any]:
        return Future()

    def set_outcome(self, future: Future[Any], result: Any, error: BaseException | None) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class Light:
    """Light futures, which share a lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def make(self) -> Future[Any]:
        return SharedLockFuture(self._lock)

    def set_outcome(self, future: Any, result: Any, error: BaseException | None) -> None:
        future.set_outcome(result, error)


class Way:
    """One future, and what is seen of it."""

    def __init__(self, kind: Stock | Light) -> None:
        self.kind = kind
        self.future = kind.make()
        self.error = ValueError("its own")

    def ok(self, future: Future[Any] | None = None, result: Any = 42) -> None:
        self.kind.set_outcome(self.future if future is None else future, result, None)

    def fail(self) -> None:
        self.kind.set_outcome(self.future, None, self.error)

    def outcome(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (Exception, CancelledError) as error:
            return type(error), error is self.error

    def states(self) -> tuple[bool, bool]:
        return self.future.done(), self.future.cancelled()

    # -- reading -------------------------------------------------------------------------------

    def result_there(self) -> Seen:
        self.ok()
        return [self.future.result(), self.future.result(0), self.future.result(timeout=-1)]

    def result_later(self) -> Seen:
        join = start(lambda: self.future.result(PATIENCE))
        self.ok()
        return [join()]

    def result_failed(self) -> Seen:
        self.fail()
        return [self.outcome(self.future.result) for _ in range(2)]

    def result_late(self) -> Seen:
        waits = (0, -1, 0.01)
        seen = [
            self.outcome(lambda seconds=seconds: self.future.result(seconds)) for seconds in waits
        ]
        self.ok()
        return [*seen, self.future.result()]

    def result_cancelled(self) -> Seen:
        self.future.cancel()
        return [self.outcome(self.future.result), self.outcome(self.future.exception)]

    def result_cancelled_later(self) -> Seen:
        join = start(lambda: self.outcome(lambda: self.future.result(PATIENCE)))
        self.future.cancel()
        return [join()]

    def exception_there(self) -> Seen:
        self.fail()
        return [self.future.exception() is self.error]

    def exception_none(self) -> Seen:
        self.ok()
        return [self.future.exception()]

    def exception_late(self) -> Seen:
        return [self.outcome(lambda: self.future.exception(0.01))]

    def in_turn(self) -> Seen:
        seen = [self.states()]
        self.ok()
        return [*seen, self.states(), self.future.running()]

    def three_threads(self) -> Seen:
        joins = [start(lambda: self.future.result(PATIENCE)) for _ in range(3)]
        self.ok()
        return [join() for join in joins]

    # -- cancelling ----------------------------------------------------------------------------

    def cancel_before(self) -> Seen:
        return [self.future.cancel(), self.states()]

    def cancel_after(self) -> Seen:
        self.ok()
        return [self.future.cancel(), self.states(), self.future.result()]

    def cancel_twice(self) -> Seen:
        seen = [self.future.cancel(), self.future.cancel()]
        self.ok()
        return [*seen, self.future.cancel(), self.states()]

    def result_after_cancel(self) -> Seen:
        self.future.cancel()
        self.ok()
        return [self.states(), self.outcome(self.future.result)]

    # -- callbacks -----------------------------------------------------------------------------

    def hear(self, act: Callable[[], object]) -> Seen:
        heard: Seen = []
        for number in range(3):
            self.future.add_done_callback(
                lambda future, number=number: heard.append((number, future is self.future))
            )
        act()
        return [*heard, self.states()]

    def callbacks_in_order(self) -> Seen:
        return self.hear(self.ok)

    def callback_too_late(self) -> Seen:
        self.ok()
        return self.hear(lambda: None)

    def callbacks_cancelled(self) -> Seen:
        return self.hear(lambda: (self.future.cancel(), self.ok()))

    def callbacks_failed(self) -> Seen:
        return self.hear(self.fail)

    def callback_raises(self) -> Seen:
        heard: Seen = []

        def listen(record: logging.LogRecord) -> bool:
            heard.append((record.levelname, record.msg, record.exc_info[1] is self.error))
            return False

        def fail(_future: Any) -> None:
            raise self.error

        logger = logging.getLogger("concurrent.futures")
        logger.addFilter(listen)
        try:
            self.future.add_done_callback(fail)
            self.future.add_done_callback(lambda _: heard.append("the next"))
            self.ok()
            self.future.add_done_callback(fail)
        finally:
            logger.removeFilter(listen)
        return heard

    def callback_adds(self) -> Seen:
        heard: Seen = []

        def add(future: Future[Any]) -> None:
            heard.append("first")
            future.add_done_callback(lambda _: heard.append("added"))

        self.future.add_done_callback(add)
        self.future.add_done_callback(lambda _: heard.append("second"))
        self.ok()
        return heard

    def callback_thread(self) -> Seen:
        heard: Seen = []
        self.future.add_done_callback(lambda _: heard.append(threading.get_ident()))
        join = start(lambda: (self.ok(), threading.get_ident())[1])
        return [heard == [join()]]

    # -- in company ----------------------------------------------------------------------------

    def company(self, how: str, act: Callable[[], object], timeout: float = PATIENCE) -> Seen:
        futures = [self.future, *(self.kind.make() for _ in range(2))]
        self.others = futures[1:]
        act()
        done, pending = wait(futures, timeout, how)
        seen = [sorted(map(futures.index, done)), sorted(map(futures.index, pending))]
        return [*seen, [len(future._waiters) for future in futures]]

    def wait_first(self) -> Seen:
        return self.company(FIRST_COMPLETED, self.ok)

    def wait_exception(self) -> Seen:
        return self.company(FIRST_EXCEPTION, lambda: (self.ok(self.others[0]), self.fail()))

    def wait_all(self) -> Seen:
        def act() -> None:
            self.fail()
            self.joins = [start(lambda other=other: self.ok(other)) for other in self.others]

        seen = self.company("ALL_COMPLETED", act)
        for join in self.joins:
            join()
        return seen

    def wait_late(self) -> Seen:
        return self.company("ALL_COMPLETED", self.ok, 0.01)

    def wait_cancelled(self) -> Seen:
        self.future.cancel()
        seen: Seen = [len(wait([self.future], 0.01).done)]
        joined = start(lambda: len(wait([self.future], PATIENCE).done))
        self.ok()
        return [*seen, joined()]

    def wait_within_wait(self) -> Seen:
        seen: Seen = []

        class Entered(Future[Any]):
            """Read by `wait` while it has all locks: there a signal handler may enter too."""

            @property
            def _state(_) -> str:
                seen.append(len(wait([self.future], 0).not_done))
                return "PENDING"

            @_state.setter
            def _state(_, state: str) -> None:
                pass

        seen.append(len(wait([self.future, Entered()], 0).not_done))
        self.ok()
        return [*seen, self.future.result(), len(wait([self.future], PATIENCE).done)]

    def completed(self) -> Seen:
        futures = [self.future, self.kind.make(), self.kind.make()]
        self.ok()
        futures[1].cancel()
        waiting = as_completed(futures, PATIENCE)
        seen = [futures.index(next(waiting))]
        self.ok(futures[1])
        seen.append(futures.index(next(waiting)))
        self.ok(futures[2])
        return [*seen, *map(futures.index, waiting)]

    def completed_late(self) -> Seen:
        return [self.outcome(lambda: list(as_completed([self.future], 0.01)))]

    def wrapped(self) -> Seen:
        async def main() -> Any:
            wrapped = asyncio.wrap_future(self.future)
            join = start(self.ok)
            result = await wrapped
            join()
            return result

        return [run(main())]

    def wrapped_cancelled(self) -> Seen:
        async def main() -> None:
            wrapped = asyncio.wrap_future(self.future)
            wrapped.cancel()
            await asyncio.wait([wrapped])

        run(main())
        return [self.states()]


WAYS: dict[str, Callable[[Way], Seen]] = {
    "result() once it is there": Way.result_there,
    "result() before it is there": Way.result_later,
    "result() of one that has failed": Way.result_failed,
    "result() when the time is over": Way.result_late,
    "result() of a cancelled one": Way.result_cancelled,
    "result() of one that is then cancelled": Way.result_cancelled_later,
    "exception() once it is there": Way.exception_there,
    "exception() of one with a result": Way.exception_none,
    "exception() when the time is over": Way.exception_late,
    "the states in turn": Way.in_turn,
    "three threads that wait for one": Way.three_threads,
    "cancel() before the result": Way.cancel_before,
    "cancel() after the result": Way.cancel_after,
    "cancel() twice": Way.cancel_twice,
    "the result after cancel()": Way.result_after_cancel,
    "the order of the callbacks": Way.callbacks_in_order,
    "a callback that is added too late": Way.callback_too_late,
    "the callbacks of a cancelled one": Way.callbacks_cancelled,
    "the callbacks of one that has failed": Way.callbacks_failed,
    "a callback that raises": Way.callback_raises,
    "a callback that adds a callback": Way.callback_adds,
    "the thread that the callbacks run in": Way.callback_thread,
    "wait() for the first": Way.wait_first,
    "wait() for the first exception": Way.wait_exception,
    "wait() for all": Way.wait_all,
    "wait() when the time is over": Way.wait_late,
    "wait() for a cancelled one": Way.wait_cancelled,
    "wait() by a handler within wait()": Way.wait_within_wait,
    "as_completed()": Way.completed,
    "as_completed() when the time is over": Way.completed_late,
    "asyncio.wrap_future()": Way.wrapped,
    "cancelling what asyncio.wrap_future() made": Way.wrapped_cancelled,
}
