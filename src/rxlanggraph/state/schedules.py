"""Periodic tasks and retention: any number of processes, one of which runs them at a time.

    scheduler = Scheduler(
        state,
        [Schedule("report", "0 6 * * mon-fri", "reports", None, timezone="Europe/Rome")],
        retention=[Retention("reports", older_than=30 * 86400, keep=1000)],
    )
    await scheduler.run()

What breaks without it: a timer in each process adds each task once per process, and a timer in one
of them adds none once that one has died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
)
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, tzinfo
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, TypeVar
from zoneinfo import ZoneInfo

from rxlanggraph.concurrency.run_on_loop import enter_on_loop
from rxlanggraph.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    LeaseLostError,
    MissingExtraError,
    StaleTokenError,
    StateUnavailableError,
)
from rxlanggraph.state.administration import check_states
from rxlanggraph.state.backend import COMPLETED, Task, TaskState
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.codec import encode
from rxlanggraph.state.locks import Lease
from rxlanggraph.state.single_use import SingleUseContext
from rxlanggraph.validation import (
    check_attempts,
    check_duration,
    check_identifier,
    check_integer,
    check_seconds,
    shortened,
)

if TYPE_CHECKING:
    from cronsim import CronSim

__all__ = ["Retention", "Schedule", "ScheduleInfo", "Scheduler", "iter_schedules"]

_T = TypeVar("_T")
_log = logging.getLogger("rxlanggraph")

# Keys of the state: the last due time of each schedule that is done.
_PREFIX: Final = "rxlanggraph-schedule/"
# Due times that are added in one step.
_BATCH: Final = 500
# Seconds: the clock may be set while the leader sleeps, or the machine be suspended.
_LONGEST_SLEEP: Final = 60.0
# Seconds: a loop wakes a little early, by its own clock.
_SHORTEST_SLEEP: Final = 0.001
# Seconds before the lease is requested again after an error.
_PAUSE: Final = 1.0
# The last second of Python's calendar, in UTC.
_LAST: Final = 253_402_300_799
_MISSED: Final = ("last", "all", "none")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A task that is added to a queue again and again; for a `Scheduler`. Any thread.

    The key of each task is made of ``name`` and the due time in UTC: ``report
    2026-11-24T06:00:00Z``. A worker reads the due time there.

    Attributes:
        name: Identifies the schedule within the namespace of the state.
        cron: A cron expression of five fields, or of six with seconds first, as ``cronsim`` reads
            it.
        queue: The queue.
        item: The item of each task, a JSON value.
        timezone: The IANA name of the time zone in which ``cron`` is meant. When clocks are
            changed, it does what Debian's cron does.
        missed: Which due times are added that passed while no process ran: the ``"last"`` one,
            ``"all"`` or ``"none"``.
        thread_id: Of each task.
        priority: Of each task.
        max_attempts: As for ``add_tasks``.

    Raises:
        MissingExtraError: The package ``cronsim`` is not installed.
        InvalidTypeError, InvalidArgumentError: One of them is invalid.
    """

    name: str
    cron: str
    queue: str
    item: Any
    _: KW_ONLY
    timezone: str = "UTC"
    missed: Literal["last", "all", "none"] = "last"
    thread_id: str | None = None
    priority: int = 0
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        """Check them all: a wrong expression is reported where it is written."""
        check_identifier("name", self.name)
        check_identifier("name", _PREFIX + self.name)  # with what is added, it must be no longer
        check_identifier("queue", self.queue)
        encode(self.item)
        if self.missed not in _MISSED:
            raise InvalidArgumentError(
                f"missed must be one of {', '.join(map(repr, _MISSED))}, not "
                f"{shortened(self.missed)}"
            )
        if self.thread_id is not None:
            check_identifier("thread_id", self.thread_id)
        check_integer("priority", self.priority, bits=32)
        if self.max_attempts is not None:
            check_attempts("max_attempts", self.max_attempts)
        for argument, text in (("cron", self.cron), ("timezone", self.timezone)):
            if not isinstance(text, str):
                raise InvalidTypeError(f"{argument} must be a string, not {shortened(text)}")
        self.next_due(time.time())

    def next_due(self, after: float) -> int | None:
        """Return the first due time after this one; None if there is none. Any thread.

        Never blocks. No due time is after the year 9999, with which Python's calendar ends.

        Args:
            after: Seconds since 1970.

        Raises:
            InvalidArgumentError: ``after`` is not a number from 0.
        """
        check_seconds("after", after)
        return next(self._due_times(after), None)

    def _due_times(self, after: float) -> Iterator[int]:
        """Yield all due times after this one, in seconds since 1970, as they are asked for."""
        last = int(min(after, _LAST))
        with contextlib.suppress(OverflowError):  # at the end of the calendar
            for moment in _cronsim(self, last, reverse=False):
                due = int(moment.timestamp())
                if due > last:
                    yield due
                    last = due

    def _last_due(self, until: int) -> int | None:
        """Return the last due time that is not after ``until``."""
        # Backwards, cronsim skips or invents one where clocks are changed: so a little further
        # back, and forwards from there.
        before = list(islice(_cronsim(self, until + 1, reverse=True), 3))
        if not before:
            return None
        start = int(before[-1].timestamp()) - 1
        return max(_until(self._due_times(start), until), default=None)

    def _task(self, due: int) -> Task:
        key = f"{self.name} {_text_of(due)}"
        return Task(self.item, key=key, priority=self.priority, thread_id=self.thread_id)


def _cronsim(schedule: Schedule, start: int, *, reverse: bool) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError(
            "a Schedule needs the package 'cronsim', which is not installed; install the extra "
            "'cron': pip install 'rxlanggraph[cron]'",
            name=error.name,
        ) from error
    begin = datetime.fromtimestamp(start, _zone(schedule.timezone))
    try:
        return CronSim(schedule.cron, begin, reverse=reverse)
    except CronSimError as error:
        raise InvalidArgumentError(
            f"cron of {schedule.name!r} must be a cron expression such as '*/5 * * * *', not "
            f"{schedule.cron!r}: {error}"
        ) from error


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # also where there are no data of time zones
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise InvalidArgumentError(
            f"timezone must be the name of a time zone such as 'Europe/Rome', not {name!r}; if "
            "this system has no time zones, install the package tzdata"
        ) from error


def _text_of(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long tasks of a queue are kept; for a `Scheduler`, which purges the others. Any thread.

    Attributes:
        queue: The queue.
        states: As for ``purge``.
        older_than: As for ``purge``: seconds.
        keep: As for ``purge``: a number of tasks.

    Raises:
        InvalidTypeError, InvalidArgumentError: One of them is invalid, or neither ``older_than``
            nor ``keep`` is given.
    """

    queue: str
    states: Collection[TaskState] = COMPLETED
    older_than: float | None = None
    keep: int | None = None

    def __post_init__(self) -> None:
        """Check them all."""
        check_identifier("queue", self.queue)
        check_states(self.states)
        if self.older_than is None and self.keep is None:
            raise InvalidArgumentError(
                f"the retention of {self.queue!r} needs older_than=, keep= or both"
            )
        if self.older_than is not None:
            check_duration("older_than", self.older_than, zero=True)
        if self.keep is not None and check_integer("keep", self.keep) < 0:
            raise InvalidArgumentError(f"keep must be 0 or more, not {self.keep}")


class Scheduler:
    """Adds the tasks of schedules when they are due, and purges queues. Confined to its loop.

    Any number of processes run one that is declared alike. The holder of a lock of the state, the
    leader, does the work. If it dies, another process has the lock after ``ttl`` at most, and
    continues where it ended. Each due time adds one task: its key is known to the queue until the
    task is purged, and where the leader has got to is written with the fencing token of its lock.
    So keep tasks for longer than a process may be suspended. The clock is that of the leader; if it
    is set back, what was added is not added again.

    Due times that pass while this process runs are all added, late perhaps. Of those that passed
    before, while no process ran, `Schedule.missed` chooses. A schedule that is new, or has another
    expression or time zone than before, has missed nothing.

    Args:
        state: The state.
        schedules: What is added; each with a name of its own.
        retention: What is purged, at first when this process becomes the leader.
        name: Names the lock. Schedulers that declare different schedules need different names.
        ttl: Seconds until another process takes over from one that died.
        purge_every: Seconds between two purges.
        clock: Returns the time in seconds since 1970; for tests.
        sleep: Sleeps for so many seconds of ``clock``; for tests.

    Raises:
        InvalidTypeError, InvalidArgumentError: An argument is invalid, or two schedules have one
            name.
    """

    def __init__(
        self,
        state: BaseState,
        schedules: Iterable[Schedule] = (),
        *,
        retention: Iterable[Retention] = (),
        name: str = "default",
        ttl: float = 30.0,
        purge_every: float = 3600.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if not isinstance(state, BaseState):
            raise InvalidTypeError(
                f"state must be a State, as open_state(...) opens it, not {shortened(state)}"
            )
        self._state = state
        self._schedules = _all_of("schedules", schedules, Schedule)
        names = [schedule.name for schedule in self._schedules]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise InvalidArgumentError(
                f"schedules has two of the name {twice!r}; give each a name of its own"
            )
        self._retention = _all_of("retention", retention, Retention)
        self._lock = f"rxlanggraph-scheduler/{check_identifier('name', name)}"
        check_identifier("name", self._lock)
        self._ttl = check_duration("ttl", ttl)
        self._purge_every = check_duration("purge_every", purge_every)
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> NoReturn:
        """Take part until cancelled: wait for the lock, then add and purge for as long as it lasts.

        On the loop of the state. Cancelled, it gives the lock back; each step that it had begun was
        done as a whole or not at all, and is repeated by the next leader without effect. While the
        server does not answer, it logs a warning and continues to try.

        Raises:
            StateClosedError: The state is closed.
            WrongThreadError: This is not the loop of the state.
        """
        began = int(self._clock())
        while True:
            try:
                async with self._state.lock(self._lock, self._ttl) as lease:
                    await self._lead(lease, began)
            except (LeaseLostError, StaleTokenError) as error:
                _log.info("another process may schedule now: %s", error)
            except StateUnavailableError as error:
                _log.warning("the scheduler cannot reach its state, trying again: %s", error)
            await asyncio.sleep(_PAUSE)

    def run_threadsafe(self) -> AbstractContextManager[None]:
        """Return a block in which it runs: ``with scheduler.run_threadsafe(): ...``.

        For threads without a loop: any but that of the state's loop. Entering it does not wait for
        the lock; leaving it cancels `run`, and blocks until the lock is given back. Single-use.

        Raises:
            BlockingCallError: At its beginning: this is the thread of the state's loop.
            LoopUnavailableError: At its beginning or end: the loop is not running.
            StateClosedError: At its end: `run` has raised it before, or whatever else.
        """
        block = enter_on_loop(self._state.loop, self._running())
        return SingleUseContext("scheduler.run_threadsafe()", block)

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.result()

    async def _lead(self, lease: Lease, began: int) -> None:
        resumed = asyncio.Event()
        parts = [asyncio.ensure_future(self._add_regularly(lease, began, resumed))]
        if self._retention:
            parts.append(asyncio.ensure_future(self._purge_regularly(lease, resumed)))
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Both end before the lock is released.
            for part in parts:
                part.cancel()
            ends = await asyncio.gather(*parts, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):  # not the cancellation above
                raise end
        raise asyncio.CancelledError

    async def _purge_regularly(self, lease: Lease, resumed: asyncio.Event) -> NoReturn:
        # What the former leader has added, and not written, must still be known by its key.
        await resumed.wait()
        while True:
            for each in self._retention:
                lease.check()
                await self._state.purge(
                    each.queue, each.states, older_than=each.older_than, keep=each.keep
                )
            await self._sleep(self._purge_every)

    async def _add_regularly(self, lease: Lease, began: int, resumed: asyncio.Event) -> NoReturn:
        done = {each.name: await self._resume(each, lease, began) for each in self._schedules}
        while True:
            for each in self._schedules:
                done[each.name] = await self._add_due(each, done[each.name], lease)
            resumed.set()
            now = self._clock()
            due = (each.next_due(done[each.name]) for each in self._schedules)
            nearest = min((at for at in due if at is not None), default=now + _LONGEST_SLEEP)
            await self._sleep(min(max(_SHORTEST_SLEEP, nearest - now), _LONGEST_SLEEP))
            lease.check()

    async def _resume(self, schedule: Schedule, lease: Lease, began: int) -> int:
        """Add what was missed; return from which time on all due times are to be added."""
        stored = (await self._state.get(_PREFIX + schedule.name)).value
        done, is_same = began, False
        if stored is not None:
            done = int(stored["done"])
            if done > self._clock() + _LONGEST_SLEEP:
                _log.warning(
                    "the schedule %r adds nothing until %s, as a leader has got that far, whose "
                    "clock was ahead of that of this process: set the clock, or delete the key %r "
                    "and start the schedulers again",
                    *(schedule.name, _text_of(min(done, _LAST)), _PREFIX + schedule.name),
                )
            is_same = (stored["cron"], stored["timezone"]) == (schedule.cron, schedule.timezone)
        if done < began and (not is_same or schedule.missed == "none"):
            done = began
        elif done < began and schedule.missed == "last":
            last = schedule._last_due(began)
            if last is not None and last > done:
                done = last - 1
        if not is_same:
            await self._store(schedule, done, lease)
        return done

    async def _add_due(self, schedule: Schedule, done: int, lease: Lease) -> int:
        now = int(self._clock())
        while dues := list(islice(_until(schedule._due_times(done), now), _BATCH)):
            lease.check()
            tasks = [schedule._task(due) for due in dues]
            await self._state.add_tasks(schedule.queue, tasks, max_attempts=schedule.max_attempts)
            # After the tasks: what is done twice has no effect, what is left out would be lost.
            done = dues[-1]
            await self._store(schedule, done, lease)
        return done

    async def _store(self, schedule: Schedule, done: int, lease: Lease) -> None:
        value = {
            "cron": schedule.cron,
            "timezone": schedule.timezone,
            "queue": schedule.queue,
            "done": done,
        }
        await self._state.set(_PREFIX + schedule.name, value, token=lease)


class ScheduleInfo(NamedTuple):
    """A schedule as its leader has stored it.

    Attributes:
        name: As declared.
        cron: As declared.
        timezone: As declared.
        queue: As declared.
        done: All due times up to this one have been dealt with: seconds since 1970.
    """

    name: str
    cron: str
    timezone: str
    queue: str
    done: int


async def iter_schedules(state: BaseState) -> AsyncIterator[ScheduleInfo]:
    """Yield the schedules of all schedulers of ``state`` that have run, in the order of keys.

    On the loop of the state. Cancelling it changes nothing.

    Args:
        state: The state.

    Raises:
        StateUnavailableError: The server does not answer.
    """
    async for key in state.iter_keys(_PREFIX):
        stored = (await state.get(key.key)).value
        if stored is not None:
            fields = (stored[name] for name in ("cron", "timezone", "queue", "done"))
            yield ScheduleInfo(key.key.removeprefix(_PREFIX), *fields)


def _until(times: Iterator[int], now: int) -> Iterator[int]:
    for each in times:
        if each > now:
            return
        yield each


def _all_of(argument: str, given: Iterable[_T], kind: type[_T]) -> tuple[_T, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidTypeError(f"{argument} must be a list, not {shortened(given)}")
    every = tuple(given)
    for each in every:
        if not isinstance(each, kind):
            raise InvalidTypeError(
                f"each of {argument} must be a {kind.__name__}, not {shortened(each)}"
            )
    return every
