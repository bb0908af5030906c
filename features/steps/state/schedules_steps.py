from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state import (
    Retention,
    Schedule,
    Scheduler,
    State,
    Task,
    open_state,
    open_state_threadsafe,
    schedules,
)
from support.cli import command
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import LIMIT, Gate
from support.servers import servers
from support.state.schedule_process import QUEUE, START, ScheduleProcess, ToldClock, minutely
from support.state.state_threads import LoopThread
from support.state.state_world import World, slowly, world

# Seconds: how long the other process waits for the lock of one that is killed. Longer than a busy
# machine suspends a process.
TTL = 5.0
HOUR = 3600
Run = Callable[[], Awaitable[object]]


def every(minutes: str, **options: Any) -> Schedule:
    return Schedule("s", f"{minutes} * * * *", QUEUE, "item", **options)


def scheduler_in(there: World, state: State, schedule: Schedule, name: str = "default") -> Run:
    return Scheduler(state, [schedule], name=name, clock=there.clock.time).run


async def run_for(seconds: float, *runs: Run) -> list[Any]:
    """Cancel them after that time; return how they ended."""
    tasks = [asyncio.ensure_future(run()) for run in runs]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def keys(state: State) -> list[str]:
    return sorted([task.key or "" async for task in state.iter_tasks(QUEUE)])


async def minutes(state: State) -> list[int]:
    """The minutes since 1970 in the keys of the tasks."""
    texts = [key.partition(" ")[2] for key in await keys(state)]
    moments = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]
    return sorted(int(moment.timestamp()) // 60 for moment in moments)


# -- each due time has one task --------------------------------------------------------------------


def two_schedulers(context: Context, names: tuple[str, str]) -> None:
    there = world(context)
    context.states = [there.open() for _ in range(2)]
    context.runs = [
        scheduler_in(there, state, every("*/10"), name)
        for state, name in zip(context.states, names, strict=True)
    ]


@given("two schedulers of a task that is due every ten minutes")
def step_two_schedulers_of_a_task_that_is_due_every_ten_minutes(context: Context) -> None:
    two_schedulers(context, ("default", "default"))


@given("two that both hold a lock of a task that is due every ten minutes")
def step_two_that_both_hold_a_lock_of_a_task_that_is_due(context: Context) -> None:
    two_schedulers(context, ("one", "another"))


@given("two timers of a task that is due every ten minutes")
def step_two_timers_of_a_task_that_is_due_every_ten_minutes(context: Context) -> None:
    there = world(context)
    context.states = [there.open() for _ in range(2)]

    def timer(state: State) -> Run:
        async def add() -> None:
            while True:
                due = every("*/10").next_due(there.clock.now)
                assert due is not None
                await asyncio.sleep(due - there.clock.now)
                key = f"{datetime.fromtimestamp(due, UTC):s %Y-%m-%dT%H:%M:%SZ}"
                await state.add_tasks(QUEUE, [{"due": key}])

        return add

    context.runs = [timer(state) for state in context.states]


@when("both run for an hour")
def step_both_run_for_an_hour(context: Context) -> None:
    context.ends = world(context).run(run_for(HOUR, *context.runs))


@then("each of its {count:d} due times has one task")
def step_each_of_its_count_due_times_has_one_task(context: Context, count: int) -> None:
    state = context.states[0]
    there = world(context)
    stats = there.run(state.stats(QUEUE))
    assert stats.waiting == count, f"{stats.waiting} tasks"
    assert there.run(minutes(state)) == [20 + 10 * n for n in range(count)]


@given("two schedulers on a store in {backend}, and a clock that is told")
def step_two_schedulers_on_a_store_in_backend_and_a_clock(context: Context, backend: str) -> None:
    context.url = servers.fresh_url(context, backend)


@when("the clock passes three due times, and the leader is cancelled between them")
def step_the_clock_passes_three_due_times_and_the_leader_is(context: Context) -> None:
    async def pass_them() -> list[str]:
        clock = ToldClock()
        async with open_state(context.url) as one, open_state(context.url) as other:
            leader, second = (
                Scheduler(state, [minutely()], clock=clock.time, sleep=clock.sleep)
                for state in (one, other)
            )
            leading = asyncio.ensure_future(leader.run())
            await clock.until_asleep()
            waiting = asyncio.ensure_future(second.run())
            await clock.go_to(START + 60)
            await clock.until_asleep()
            leading.cancel()
            await asyncio.wait([leading], timeout=LIMIT)
            for now in (START + 120, START + 180):
                await clock.go_to(now)
                await clock.until_asleep()
            waiting.cancel()
            await asyncio.wait([waiting], timeout=LIMIT)
            return [(task.key or "") async for task in other.iter_tasks(QUEUE)]

    context.keys = asyncio.run(pass_them())


def check_due(found: list[str], count: int) -> None:
    dues = [datetime.fromtimestamp(START + 60 * n, UTC) for n in range(1, count + 1)]
    expected = [f"s {due:%Y-%m-%dT%H:%M:%SZ}" for due in dues]
    assert Counter(found) == Counter(expected), found


@then("each of the three has one task there, in the order of due times")
def step_each_of_the_three_has_one_task_there_in_the_order(context: Context) -> None:
    async def claimed() -> list[str]:
        async with open_state(context.url) as state:
            return [claim.key or "" for claim in await state.claim_tasks(QUEUE, 10)]

    check_due(context.keys, 3)
    order = asyncio.run(claimed()) if not context.url.startswith("memory") else context.keys
    assert sorted(order) == order, order


@given("two processes that run one schedule on an SQLite file")
def step_two_processes_that_run_one_schedule_on_an_sqlite_file(context: Context) -> None:
    context.url = servers.fresh_url(context, "SQLite")
    context.leader = ScheduleProcess(context.url, TTL, stalls=True)
    context.add_cleanup(context.leader.end)
    assert context.leader.read() == str(START)  # it leads, and sleeps
    context.other = ScheduleProcess(context.url, TTL)
    context.add_cleanup(context.other.end)


@when("the leading one is killed between these two steps, and the clock passes two more due times")
def step_the_leading_one_is_killed_between_these_two_steps(context: Context) -> None:
    for now, answer in ((START + 60, str(START + 60)), (START + 120, "stalled")):
        context.leader.go_to(now)
        assert context.leader.read() == answer
        context.other.go_to(now)
    context.leader.kill()
    for now in (START + 180, START + 240):
        context.other.go_to(now)
    context.told = []
    while str(START + 240) not in context.told:
        context.told.append(context.other.read())
        assert context.told[-1], "it has ended"


@then("the other one leads, and each of the four due times has one task")
def step_the_other_one_leads_and_each_of_the_four_due_times(context: Context) -> None:
    async def look() -> list[str]:
        async with open_state(context.url) as state:
            return await keys(state)

    check_due(asyncio.run(look()), 4)


# -- what was missed -------------------------------------------------------------------------------


@given('a task that is due every ten minutes, with missed="{missed}"')
def step_a_task_that_is_due_every_ten_minutes_with_missed(context: Context, missed: Any) -> None:
    context.schedule = every("*/10", missed=missed)


@given('a task that is due every minute, with missed="all"')
def step_a_task_that_is_due_every_minute_with_missed_all(context: Context) -> None:
    context.schedule = every("*", missed="all")


def run_twice(context: Context, first: float, none: float, then_: Schedule, second: float) -> None:
    there = world(context)
    for schedule, seconds in ((context.schedule, first), (then_, second)):
        state = there.open()
        context.states = [state]
        there.run(run_for(seconds, scheduler_in(there, state, schedule)))
        there.stand_still(none if seconds == first and schedule is context.schedule else 0)
        none = 0


@when("a scheduler runs for half an hour, none for an hour, and another one for half an hour")
def step_a_scheduler_runs_for_half_an_hour_none_for_an_hour(context: Context) -> None:
    run_twice(context, HOUR / 2, HOUR, context.schedule, HOUR / 2)


@when(
    "a scheduler runs for half an hour, none for an hour, and one that is due every 7 minutes for "
    "half an hour"
)
def step_a_scheduler_runs_for_half_an_hour_and_one_that_is_due(context: Context) -> None:
    run_twice(context, HOUR / 2, HOUR, every("*/7", missed="all"), HOUR / 2)


@when("a scheduler runs for a minute, none for 1200 minutes, and another one for a minute")
def step_a_scheduler_runs_for_a_minute_none_for_1200_minutes(context: Context) -> None:
    run_twice(context, 60, 1200 * 60, context.schedule, 60)


@then("these minutes have tasks: {wanted}")
def step_these_minutes_have_tasks(context: Context, wanted: str) -> None:
    found = world(context).run(minutes(context.states[0]))
    assert found == [int(each) for each in wanted.split()], found


@then("{count:d} due times have tasks")
def step_count_due_times_have_tasks(context: Context, count: int) -> None:
    found = world(context).run(minutes(context.states[0]))
    assert found == [*range(found[0], found[0] + count)], len(found)


@when("the leader stands still for an hour, and then the other one leads")
def step_the_leader_stands_still_for_an_hour_and_then_the_other(context: Context) -> None:
    there = world(context)

    async def run() -> None:
        leader, other = (asyncio.ensure_future(each()) for each in context.runs)
        await asyncio.sleep(10)
        server = there.server(context.states[0])
        with (
            mock.patch.object(server, "tasks_add", lambda *_: asyncio.Event().wait()),
            mock.patch.object(server, "lock_renew", lambda *_: asyncio.sleep(0, False)),
        ):
            await asyncio.sleep(HOUR)
            leader.cancel()
            other.cancel()
            await asyncio.gather(leader, other, return_exceptions=True)

    there.run(run())


@given("a task that is due at six in Rome")
def step_a_task_that_is_due_at_six_in_rome(context: Context) -> None:
    context.schedule = Schedule("s", "0 6 * * *", QUEUE, None, timezone="Europe/Rome")


@then("it is due at these times around the end of summer time")
def step_it_is_due_at_these_times_around_the_end_of_summer(context: Context) -> None:
    after = datetime(2026, 10, 24, tzinfo=UTC).timestamp()
    for row in context.table:
        after = context.schedule.next_due(after)
        assert f"{datetime.fromtimestamp(after, UTC):%Y-%m-%d %H:%M}" == row["UTC"], after


@given('a task that is due by "{cron}" in {zone}')
def step_a_task_that_is_due_by_cron_in_zone(context: Context, cron: str, zone: str) -> None:
    context.schedule = Schedule("s", cron, QUEUE, None, timezone=zone)


@when("a scheduler runs at {first}, and the next one at {second}, by UTC")
def step_a_scheduler_runs_at_first_and_the_next_one_at_second(
    context: Context, first: str, second: str
) -> None:
    for text in (first, second):
        run_at(context, text)


def run_at(context: Context, text: str) -> None:
    """Run a scheduler of its own, whose clock begins at that time."""
    there = world(context)
    # Only the scheduler's clock: floats of the loop's would be too coarse for its timers.
    ahead = datetime.fromisoformat(f"{text}+00:00").timestamp() - there.clock.now
    state = there.open()
    context.states = [state]
    records: list[logging.LogRecord] = []
    with mock.patch.object(schedules._log, "handle", records.append):
        there.run(
            run_for(
                10, Scheduler(state, [context.schedule], clock=lambda: there.clock.now + ahead).run
            )
        )
    context.logged = [record.getMessage() for record in records]


@then("once its key is deleted, as they say, a scheduler at {text} adds a task")
def step_once_its_key_is_deleted_as_they_say_a_scheduler_adds(context: Context, text: str) -> None:
    (key,) = re.findall("delete the key '(.*?)'", context.logged[0])
    world(context).run(context.states[0].delete(key))
    run_at(context, text)
    assert not context.logged, context.logged
    assert len(world(context).run(keys(context.states[0]))) == 1


@then("the task that was due at {text} is the only one")
def step_the_task_that_was_due_at_text_is_the_only_one(context: Context, text: str) -> None:
    due = int(datetime.fromisoformat(f"{text}+00:00").timestamp()) // 60
    found = world(context).run(minutes(context.states[0]))
    assert found == [due], found


# -- retention -------------------------------------------------------------------------------------


@given("two schedulers that keep the newest 3 completed tasks, and purge every hour")
def step_two_schedulers_that_keep_the_newest_3_completed_tasks(context: Context) -> None:
    there = world(context)
    context.states = [there.open() for _ in range(2)]
    context.purges = [0, 0]

    def counted(number: int, purge: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            context.purges[number] += 1
            return purge(*args, **options)

        return call

    for number, state in enumerate(context.states):
        state.purge = counted(number, state.purge)
    context.runs = [
        Scheduler(state, retention=[Retention(QUEUE, keep=3)], clock=there.clock.time).run
        for state in context.states
    ]


@when("tasks are completed every ten minutes for five hours")
def step_tasks_are_completed_every_ten_minutes_for_five_hours(context: Context) -> None:
    there = world(context)
    worker = there.open()
    context.counts = []

    async def work() -> None:
        for number in itertools.count():
            await worker.add_tasks(QUEUE, [Task(number)])
            claim = await worker.claim_task(QUEUE)
            assert claim is not None
            await claim.complete()
            context.counts.append((await worker.stats(QUEUE)).completed)
            await asyncio.sleep(600)

    there.run(run_for(5 * HOUR + 60, work, *context.runs))


@then(
    "3 to 9 completed tasks were there at any time, and one of the two has purged, five times or "
    "more"
)
def step_3_to_9_completed_tasks_were_there_at_any_time(context: Context) -> None:
    assert 3 <= min(context.counts[2:]) <= max(context.counts) <= 9, context.counts
    assert min(context.purges) == 0 and max(context.purges) >= 5, context.purges


@given("a scheduler that ended after it had added a task, before it had written so")
def step_a_scheduler_that_ended_after_it_had_added_a_task(context: Context) -> None:
    there = world(context)
    state = there.open()
    context.states = [state]
    there.run(run_for(60, scheduler_in(there, state, every("*/10"))))
    with mock.patch.object(there.server(state), "commit", lambda *_: asyncio.Event().wait()):
        there.run(run_for(600, scheduler_in(there, state, every("*/10"))))
    assert there.run(minutes(state)) == [20]


@when("the task is completed, and another scheduler takes over, which keeps no completed task")
def step_the_task_is_completed_and_another_scheduler_takes_over(context: Context) -> None:
    there = world(context)
    state = there.open()
    server, add = there.server(state), there.server(state).tasks_add

    async def take_over() -> None:
        claim = await state.claim_task(QUEUE)
        assert claim is not None
        await claim.complete()
        scheduler = Scheduler(
            state,
            [every("*/10")],
            retention=[Retention(QUEUE, keep=0)],
            clock=there.clock.time,
        )
        with mock.patch.object(server, "tasks_add", lambda *args: slowly(lambda: add(*args))):
            await run_for(60, scheduler.run)

    there.run(take_over())


@then("the queue has no task")
def step_the_queue_has_no_task(context: Context) -> None:
    found = world(context).run(keys(context.states[0]))
    assert found == [], found


# -- what goes wrong -------------------------------------------------------------------------------


@when("the server is gone for a quarter of an hour, and both run on for an hour")
def step_the_server_is_gone_for_a_quarter_of_an_hour_and_both(context: Context) -> None:
    there = world(context)

    async def run() -> None:
        running = asyncio.ensure_future(run_for(HOUR, *context.runs))
        await asyncio.sleep(600)
        for state in context.states:
            there.server(state).gone = float("inf")
        await asyncio.sleep(900)
        for state in context.states:
            there.server(state).gone = 0
        await running

    there.run(run())


@when("the states are closed while they run")
def step_the_states_are_closed_while_they_run(context: Context) -> None:
    async def run() -> list[Any]:
        tasks = [asyncio.ensure_future(each()) for each in context.runs]
        await asyncio.sleep(60)
        for state in context.states:
            await state.aclose()
        return await asyncio.gather(*tasks, return_exceptions=True)

    context.ends = world(context).run(run())


@then("both end with StateClosedError")
def step_both_end_with_stateclosederror(context: Context) -> None:
    for error in context.ends:
        check_error(error, "StateClosedError")


def _without_package() -> Schedule:
    with mock.patch.dict(sys.modules, {"cronsim": None}):
        return every("*")


DECLARATIONS: dict[str, Callable[[State], object]] = {
    "no cron expression": lambda _: every("every day"),
    "a number as expression": lambda _: Schedule("s", 5, QUEUE, 1),  # type: ignore[arg-type]
    "a day that never comes": lambda _: Schedule("s", "0 0 31 2 *", QUEUE, 1),
    "an unknown time zone": lambda _: every("*", timezone="Rome"),
    "another rule": lambda _: every("*", missed="first"),
    "an item that is a set": lambda _: Schedule("s", "* * * * *", QUEUE, {1}),
    "a name that is too long": lambda _: Schedule("s" * 500, "* * * * *", QUEUE, 1),
    "one name twice": lambda state: Scheduler(state, [every("*"), every("1")]),
    "a number as a thread": lambda _: Schedule("s", "* * * * *", QUEUE, 1, thread_id=7),  # type: ignore[arg-type]
    "no attempts": lambda _: Schedule("s", "* * * * *", QUEUE, 1, max_attempts=0),
    "a schedule alone": lambda state: Scheduler(state, every("*")),  # type: ignore[arg-type]
    "a queue as a schedule": lambda state: Scheduler(state, [QUEUE]),  # type: ignore[list-item]
    "an age below zero": lambda _: Retention(QUEUE, older_than=-1),
    "a negative number kept": lambda _: Retention(QUEUE, keep=-1),
    "retention without end": lambda _: Retention(QUEUE),
    "no state": lambda _: Scheduler(None, [every("*")]),  # type: ignore[arg-type]
    "no package": lambda _: _without_package(),
}


@when("a schedule or scheduler is declared with {what}")
def step_a_schedule_or_scheduler_is_declared_with_what(context: Context, what: str) -> None:
    state = world(context).open()
    context.error = error_of(lambda: DECLARATIONS[what](state))


@then('it is refused with {name}, which says "{words}"')
def step_it_is_refused_with_name_which_says_words(context: Context, name: str, words: str) -> None:
    check_error(context.error, name, words)


@given("an SQLite store with a schedule that has run")
def step_an_sqlite_store_with_a_schedule_that_has_run(context: Context) -> None:
    context.url = servers.fresh_url(context, "SQLite")

    async def run() -> None:
        clock = ToldClock()
        async with open_state(context.url) as state:
            scheduler = Scheduler(state, [minutely()], clock=clock.time, sleep=clock.sleep)
            running = asyncio.ensure_future(scheduler.run())
            await clock.until_asleep()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(run())


@when('"rxlanggraph state URL schedules" is run on it, and with --json')
def step_rxlanggraph_state_url_schedules_is_run_on_it(context: Context) -> None:
    line = f"rxlanggraph state {context.url} schedules"
    context.ended, context.json = (
        command.run_here(each, Path.cwd(), io.BytesIO()) for each in (line, f"{line} --json")
    )


@then("it lists the schedule with its expression, time zone, queue and how far it is")
def step_it_lists_the_schedule_with_its_expression_time_zone(context: Context) -> None:
    assert context.ended.status == context.json.status == 0, context.ended
    row = context.ended.out.splitlines()[1].split("  ")
    cells = [cell.strip() for cell in row if cell.strip()]
    done = datetime.fromtimestamp(START, UTC).isoformat(timespec="milliseconds")
    assert cells == ["s", "* * * * *", "UTC", QUEUE, done], context.ended
    assert json.loads(context.json.out)["name"] == "s", context.json


# -- threads without a loop ------------------------------------------------------------------------


@given("a state of a thread without a loop")
def step_a_state_of_a_thread_without_a_loop(context: Context) -> None:
    context.loop_thread = LoopThread()
    context.add_cleanup(context.loop_thread.close)
    context.stack = contextlib.ExitStack()
    context.add_cleanup(context.stack.close)
    state = context.stack.enter_context(
        open_state_threadsafe(context.loop_thread.loop, "memory:threads")
    )
    context.state = state
    # A minute later each time that it is asked for; after what is due then, nothing is due.
    context.times = itertools.count(START, 60)
    context.scheduler = Scheduler(
        state,
        [every("*")],
        clock=lambda: next(context.times),
        sleep=lambda _: asyncio.Event().wait(),
    )


@when("a scheduler runs there during a block that claims a task, which {end}")
def step_a_scheduler_runs_there_during_a_block(context: Context, end: str) -> None:
    def times_until_the_clock_fails() -> Iterator[int]:
        yield from (START, START + 60)
        raise OSError

    if end == "sees it fail":
        context.times = times_until_the_clock_fails()

    def block() -> None:
        sync = context.state.sync
        with context.scheduler.run_threadsafe():
            context.claim = sync.claim_task(QUEUE, wait=LIMIT)
            if end == "raises a LookupError":
                raise LookupError
            if end == "sees it fail":
                with sync.lock("rxlanggraph-scheduler/default", wait=LIMIT):
                    pass  # it has given it back

    context.error = error_of(block)


@then("the block has ended with {error}, and the scheduler with it")
def step_the_block_has_ended_with_error(context: Context, error: str) -> None:
    assert context.claim is not None
    assert type(context.error).__name__.replace("NoneType", "None") == error, context.error
    assert not [*context.state.sync.iter_locks()]
    assert not asyncio.all_tasks(context.loop_thread.loop)


@when("a block in which a scheduler runs is entered {where}")
def step_a_block_in_which_a_scheduler_runs_is_entered(context: Context, where: str) -> None:
    block = context.scheduler.run_threadsafe()
    if where == "on the state's loop":
        entered = Gate()

        def enter() -> None:
            context.error = error_of(block.__enter__)
            entered.open()

        context.loop_thread.loop.call_soon_threadsafe(enter)
        entered.wait()
        return
    if where == "a second time":
        with block:
            pass
    else:
        context.stack.close()
        context.loop_thread.close()
    context.error = error_of(block.__enter__)


@then("it is due once more after {moment} UTC, and never after these times")
def step_it_is_due_once_more_after_moment_utc_and_never(context: Context, moment: str) -> None:
    after = datetime.strptime(f"{moment} +0000", "%Y-%m-%d %H:%M %z").timestamp()
    assert context.schedule.next_due(after) == after + 600
    for row in context.table:
        assert context.schedule.next_due(float(row["seconds since 1970"])) is None


@then("the first due time after {after} is refused with InvalidArgumentError")
def step_the_first_due_time_after_after_is_refused_with(context: Context, after: str) -> None:
    given = float(after) if after in ("nan", "inf") else json.loads(after.replace("None", "null"))
    error = error_of(lambda: context.schedule.next_due(given))
    check_error(error, "InvalidArgumentError", "after must be a number of seconds from 0")
