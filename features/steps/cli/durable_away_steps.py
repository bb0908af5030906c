from __future__ import annotations

import asyncio
import logging
import time
import unittest
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.cli.journal import progress, retry, writer
from rxlanggraph.cli.journal.model import IngestProgress
from rxlanggraph.cli.journal.progress import ProgressMonitor, RunProgress
from rxlanggraph.cli.journal.retry import JournalRetry
from rxlanggraph.cli.journal.writer import JournalWriter
from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import QueueStats, State, SyncState, Task
from support.cli import command
from support.concurrency.patching import patch
from support.state.state_world import claimed, world

BEGUN = RunProgress(IngestProgress(line=1, messages=1), QueueStats(waiting=1))
FINISHED = RunProgress(IngestProgress(line=1, messages=1, complete=True), QueueStats(completed=1))


@when("a look at the journal {what}, and the run ends behind it")
def step_a_look_at_the_journal_what_and_the_run_ends_behind_it(context: Context, what: str) -> None:
    there, looks = world(context), iter(range(10))
    state = there.open()

    async def look(_: State) -> RunProgress:
        number = next(looks)
        if number:
            return FINISHED if number > 1 else BEGUN
        await asyncio.sleep(30)
        context.behind = there.clock.now
        if "fails" in what:
            raise StateUnavailableError("the server is gone")
        return BEGUN

    patch(context, progress, "read_progress", look)
    there.run(ProgressMonitor(state, JournalRetry()).wait_finished())


@then("the end is seen within {seconds:d} seconds")
def step_the_end_is_seen_within_seconds_seconds(context: Context, seconds: int) -> None:
    passed = world(context).clock.now - context.behind
    assert 0 < passed <= seconds, passed


@when("three callers wait for the journal while its server is away {times:d} times")
def step_three_callers_wait_for_the_journal_while_its_server_is(
    context: Context, times: int
) -> None:
    there, retrying = world(context), JournalRetry()
    context.said = []

    async def outage() -> None:
        back = there.clock.now + 5

        async def call() -> None:
            if there.clock.now < back:
                raise StateUnavailableError("the server is gone")

        await asyncio.gather(*(retrying.acall(call) for _ in range(3)))

    patch(context, retry, "print_stderr", context.said.append)
    for _ in range(times):
        there.run(outage())


@then("it is said {times:d} times that it does not answer")
def step_it_is_said_times_times_that_it_does_not_answer(context: Context, times: int) -> None:
    text = "the journal does not answer; trying again for 60 s"
    assert context.said == [text] * times, context.said


@when("a call waits an hour for work, and its server goes then")
def step_a_call_waits_an_hour_for_work_and_its_server_goes_then(context: Context) -> None:
    there, calls = world(context), iter(range(10))

    async def call() -> str:
        if next(calls):
            return "answered"
        await asyncio.sleep(3600)
        raise StateUnavailableError("the server is gone")

    patch(context, retry, "print_stderr", lambda _: None)
    # No longer than that: other threads, and the check for leaks, need the time that passes.
    with mock.patch.object(time, "monotonic", there.clock.time):
        context.answer = there.run(JournalRetry().acall(call))


@then("it is asked again, and answers")
def step_it_is_asked_again_and_answers(context: Context) -> None:
    assert context.answer == "answered", context.answer


@when("a heartbeat of a claim fails with {error}")
def step_a_heartbeat_of_a_claim_fails_with_error(context: Context, error: str) -> None:
    raised = {
        "StateUnavailableError": StateUnavailableError("the server is gone"),
        "another error": RuntimeError("unexpected"),
    }[error]
    there = world(context)
    state = there.open()

    async def fails(*_: Any) -> bool:
        raise raised

    async def work() -> None:
        await state.add_tasks("q", [Task(1)])
        claim = await claimed(state, 60)
        patch(context, there.server(state), "task_renew", fails)
        await asyncio.sleep(50)
        assert not claim.lost

    with unittest.TestCase().assertLogs("rxlanggraph", logging.WARNING) as logs:
        there.run(work())
    context.logged = [logging.Formatter().format(record) for record in logs.records]


@then("what is logged names {what}, {how} a traceback")
def step_what_is_logged_names_what_how_a_traceback(context: Context, what: str, how: str) -> None:
    assert context.logged
    for text in context.logged:
        assert what in text.splitlines()[0], text
        assert ("Traceback" in text) == (how == "with"), text


@when('I run "{line}", and "{name}" grows before the first line is kept')
def step_i_run_line_and_name_grows_before_the_first_line_is_kept(
    context: Context, line: str, name: str
) -> None:
    add, grown = SyncState.add_tasks, []

    def grow(state: SyncState, *arguments: Any, **options: Any) -> list[str]:
        if not grown:
            grown.append(True)
            with (context.folder / name).open("a") as file:
                file.write('\n{"n": 5}\n{"n": ')
        return add(state, *arguments, **options)

    patch(context, SyncState, "add_tasks", grow)
    context.ended = command.run_here(line, context.folder, context.stdin)


@when('I run "{line}", and the checks are counted')
def step_i_run_line_and_the_checks_are_counted(context: Context, line: str) -> None:
    check = RxPyLangGraphBridge._run_options
    context.checks = 0

    def count(bridge: RxPyLangGraphBridge, *arguments: Any, **options: Any) -> Any:
        context.checks += bridge.name == "run"  # the journal has a bridge of its own
        return check(bridge, *arguments, **options)

    patch(context, RxPyLangGraphBridge, "_run_options", count)
    context.ended = command.run_here(line, context.folder, context.stdin)


@then("it was checked {times:d} time how the graph is to run")
def step_it_was_checked_how_the_graph_is_to_run(context: Context, times: int) -> None:
    assert context.checks == times, context.checks


@given("results of more than {count:d} character are long")
def step_results_of_more_than_count_character_are_long(context: Context, count: int) -> None:
    patch(context, writer, "_REPORTED_CHARACTERS", count)


@then("no answer was looked for")
def step_no_answer_was_looked_for(context: Context) -> None:
    assert context.looks == [], context.looks


@given("the writer is not told what is answered here")
def step_the_writer_is_not_told_what_is_answered_here(context: Context) -> None:
    """As if other processes had answered it."""
    patch(context, JournalWriter, "note_answered", lambda *_: None)


@when('I run "{line}", and what is looked for is noted')
def step_i_run_line_and_what_is_looked_for_is_noted(context: Context, line: str) -> None:
    look = SyncState.results
    context.looks = []

    def note(state: SyncState, queue: str, *, keys: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = look(state, queue, keys=keys)
        context.looks.append((len(keys), len(found)))
        return found

    patch(context, SyncState, "results", note)
    context.ended = command.run_here(line, context.folder, context.stdin)


@then(
    "each time no more than {few:d} answers were looked for, or twice as many as the time before "
    "had found"
)
def step_each_time_no_more_were_looked_for(context: Context, few: int) -> None:
    assert sum(found for _, found in context.looks) == 300, context.looks
    before = 0
    for asked, found in context.looks:
        assert asked <= max(few, 2 * before), context.looks
        before = found


@then("the {count:d} answers were looked for no more than {times:d} times")
def step_the_answers_were_looked_for_no_more_than_times_times(
    context: Context, count: int, times: int
) -> None:
    assert sum(found for _, found in context.looks) == count, context.looks
    assert sum(asked for asked, _ in context.looks) <= times, context.looks
