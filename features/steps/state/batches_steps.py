from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backends.sql.postgresql.pool import Pool
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state.claims_cancelled import cancel_after_turns, cancel_while, cancel_while_closing
from support.state.sql_batches import (
    Told,
    claim_again,
    claim_beside_a_sweep,
    claim_beside_another,
    claim_by,
    claim_while_locked,
    count_beside,
    count_while_locked,
)
from support.state.sql_ways import opened

# -- who goes with whom ----------------------------------------------------------------------------


@given("a database that answers when it is told to")
def step_a_database_that_answers_when_it_is_told_to(context: Context) -> None:
    runner = asyncio.Runner()
    context.add_cleanup(runner.close)
    context.run_on_loop = runner.run
    context.error = OSError("the database has failed")

    async def make() -> Told:
        return Told()

    context.told = runner.run(make())


@when("1 call is made, and then {more:d} more")
def step_1_call_is_made_and_then_more_more(context: Context, more: int) -> None:
    context.run_on_loop(context.told.make(1))
    context.run_on_loop(context.told.make(more))


@when("{count:d} calls more are made")
def step_count_calls_more_are_made(context: Context, count: int) -> None:
    context.run_on_loop(context.told.make(count))


@when("it answers as long as there is something to answer")
def step_it_answers_as_long_as_there_is_something_to_answer(context: Context) -> None:
    context.run_on_loop(context.told.answer_all())


@when("it answers once")
def step_it_answers_once(context: Context) -> None:
    assert context.run_on_loop(context.told.answer())


@when("it answers once, and then fails")
def step_it_answers_once_and_then_fails(context: Context) -> None:
    assert context.run_on_loop(context.told.answer())
    context.run_on_loop(context.told.fail(context.error))


@when("call {caller:d} is cancelled")
def step_call_caller_is_cancelled(context: Context, caller: int) -> None:
    context.run_on_loop(context.told.cancel([caller]))


@when("calls {first:d} to {last:d} are cancelled")
def step_calls_first_to_last_are_cancelled(context: Context, first: int, last: int) -> None:
    context.run_on_loop(context.told.cancel(range(first, last + 1)))


@when("it answers with an error")
def step_it_answers_with_an_error(context: Context) -> None:
    context.run_on_loop(context.told.fail(context.error))


@when("it answers, and all tasks are cancelled before the next batch has begun")
def step_it_answers_and_all_tasks_are_cancelled_before_the_next(context: Context) -> None:
    context.run_on_loop(context.told.answer_and_cancel_all())


@then("calls 1 to 9 were cancelled, and were not sent")
def step_calls_1_to_9_were_cancelled_and_were_not_sent(context: Context) -> None:
    assert all(caller.cancelled() for caller in context.told.callers[1:10])
    assert context.told.sent == [[0]], context.told.sent


@then("call 0 has failed with that error")
def step_call_0_has_failed_with_that_error(context: Context) -> None:
    assert context.told.callers[0].exception() is context.error


@then("calls 1 to {last:d} have failed with an error of their own that leaves no doubt")
def step_calls_1_to_last_have_failed_with_an_error_of_their_own(
    context: Context, last: int
) -> None:
    errors = [caller.exception() for caller in context.told.callers[1 : last + 1]]
    assert len({id(error) for error in errors}) == last
    for error in errors:
        assert isinstance(error, StateUnavailableError), error
        assert not error.in_doubt


@then("it was sent 1 call, and then {second:d}")
def step_it_was_sent_1_call_and_then_second(context: Context, second: int) -> None:
    assert [*map(len, context.told.sent)] == [1, second], context.told.sent


@then("it was sent 1 call, then {second:d}, and then {third:d}")
def step_it_was_sent_1_call_then_second_and_then_third(
    context: Context, second: int, third: int
) -> None:
    assert [*map(len, context.told.sent)] == [1, second, third], context.told.sent


@then("each caller has the answer to its own call")
def step_each_caller_has_the_answer_to_its_own_call(context: Context) -> None:
    answers = [caller.result() for caller in context.told.callers]
    assert answers == [f"answer to {n}" for n in range(len(answers))], answers


@then("all callers but {one:d} have the answer to their own call")
def step_all_callers_but_one_have_the_answer_to_their_own_call(context: Context, one: int) -> None:
    for number, caller in enumerate(context.told.callers):
        if number == one:
            assert caller.cancelled()
        else:
            assert caller.result() == f"answer to {number}"


@then("callers {one:d} and {other:d} have the answer to their own call")
def step_callers_one_and_other_have_the_answer_to_their_own_call(
    context: Context, one: int, other: int
) -> None:
    for number in (one, other):
        assert context.told.callers[number].result() == f"answer to {number}"


@then("the batch was cancelled before any of them knew that it was itself")
def step_the_batch_was_cancelled_before_any_of_them_knew_that_it(context: Context) -> None:
    assert context.told.cancelled == [([1, 2, 3], [False, False, False])], context.told.cancelled
    assert all(context.told.callers[n].cancelled() for n in (1, 2, 3))


@then("call 0 was answered, and calls 1 to 9 have failed with that error")
def step_call_0_was_answered_and_calls_1_to_9_have_failed_with_that(context: Context) -> None:
    first, *others = context.told.callers
    assert first.result() == "answer to 0"
    assert [caller.exception() for caller in others] == [context.error] * 9


# -- in SQLite -------------------------------------------------------------------------------------


@when("{times:d} increments are made while the thread of the file is busy")
def step_times_increments_are_made_while_the_thread_of_the_file_is_busy(
    context: Context, times: int
) -> None:
    held: list[SqliteSession] = []
    transaction = SqliteSession.transaction

    def counted(session: SqliteSession) -> AbstractContextManager[None]:
        held.append(session)
        return transaction(session)

    patch(context, SqliteSession, "transaction", counted)
    _, context.counter = run(count_beside(context.url, times, before=held.clear))
    context.held = len(held)


@when("{times:d} increments wait for the thread of the file, and {cancelled:d} are cancelled")
def step_times_increments_wait_for_the_thread_of_the_file_and_cancelled(
    context: Context, times: int, cancelled: int
) -> None:
    context.ended, context.counter = run(count_beside(context.url, times, cancelled=cancelled))


@then("{cancelled:d} were cancelled, and the counter has come to {count:d}")
def step_cancelled_were_cancelled_and_the_counter_has_come_to_count(
    context: Context, cancelled: int, count: int
) -> None:
    lost = [end for end in context.ended if isinstance(end, asyncio.CancelledError)]
    assert (len(lost), context.counter) == (cancelled, count), (context.ended, context.counter)


@when("{times:d} increments are made at the same time, and one of a key that is not text")
def step_times_increments_are_made_at_the_same_time_and_one_of_a(
    context: Context, times: int
) -> None:
    (*_, context.error), context.counter = run(count_beside(context.url, times, "\ud800"))


@when("{times:d} increments are made at the same time while another connection writes for a while")
def step_times_increments_are_made_at_the_same_time_while_another(
    context: Context, times: int
) -> None:
    context.counter = run(count_while_locked(context.url, times, reads=3))


@when("{workers:d} workers claim at the same time while another connection has the file")
def step_workers_workers_claim_at_the_same_time_while_another(
    context: Context, workers: int
) -> None:
    context.claimed = run(claim_while_locked(context.url, workers))


@then("each of them was told at once that there is nothing")
def step_each_of_them_was_told_at_once_that_there_is_nothing(context: Context) -> None:
    assert context.claimed == [None] * len(context.claimed), context.claimed


@when(
    "{tasks:d} tasks are overdue, and whenever a claim has looked another process claims one, too"
)
def step_tasks_tasks_are_overdue_and_whenever_a_claim_has_looked(
    context: Context, tasks: int
) -> None:
    context.claimed = claim_beside_another(context.url, tasks)


@when("the only task is overdue, and a claim comes while another session is sweeping it")
def step_a_claim_comes_while_another_session_is_sweeping(context: Context) -> None:
    context.claimed = run(claim_beside_a_sweep(context.url))


@then("the claim has a task")
def step_the_claim_has_a_task(context: Context) -> None:
    assert len(context.claimed) == 1, context.claimed


@then("the counter has come to {count:d}, and the file was held {times:d} times")
def step_the_counter_has_come_to_count_and_the_file_was_held_times(
    context: Context, count: int, times: int
) -> None:
    assert (context.counter, context.held) == (count, times), (context.counter, context.held)


# -- claims ----------------------------------------------------------------------------------------


@when("{tasks:d} tasks are claimed by {workers:d} workers at the same time")
def step_tasks_tasks_are_claimed_by_workers_workers_at_the_same(
    context: Context, tasks: int, workers: int
) -> None:
    context.tasks = tasks
    context.claimed, context.by_worker = run(claim_by(context.url, tasks, workers))


@then("{count:d} have a task each, those of the highest priority, under their own names")
def step_count_have_a_task_each_those_of_the_highest_priority_under(
    context: Context, count: int
) -> None:
    ids = {f"worker {n}": task.id for n, task in enumerate(context.claimed) if task is not None}
    highest = range(context.tasks - count, context.tasks)
    assert sorted(ids.values(), key=int) == [*map(str, highest)], ids
    assert context.by_worker == dict.fromkeys(ids, 1), context.by_worker


@then("{count:d} have none")
def step_count_have_none(context: Context, count: int) -> None:
    assert context.claimed.count(None) == count, context.claimed


@when(
    "{tasks:d} tasks are claimed whose leases are over at once, and then by {workers:d} workers at "
    "the same time"
)
def step_tasks_tasks_are_claimed_whose_leases_are_over_at_once_and(
    context: Context, tasks: int, workers: int
) -> None:
    assert tasks == workers
    context.rounds = run(claim_again(context.url, tasks))


@then("each of the {tasks:d} tasks is claimed once again, under a larger token")
def step_each_of_the_tasks_tasks_is_claimed_once_again_under_a(
    context: Context, tasks: int
) -> None:
    _, second = context.rounds
    assert len({task.id for task in second}) == tasks, second
    # Where leases end at once, one may be claimed more than once in the first round, too.
    largest = max(task.token for task in context.rounds[0])
    assert all(task.token > largest for task in second), context.rounds
    assert len({task.token for task in second}) == tasks, second


@when("{workers:d} workers claim at the same time, and the server cannot be asked")
def step_workers_workers_claim_at_the_same_time_and_the_server(
    context: Context, workers: int
) -> None:
    async def refuse(_: Pool) -> Any:
        await asyncio.sleep(0)
        raise StateUnavailableError("the server cannot be asked", in_doubt=False)

    async def claim() -> list[object]:
        async with opened(context.url) as backend:
            patch(context, Pool, "take", refuse)
            calls = [backend.task_claim("queue", "worker", 60.0) for _ in range(workers)]
            return [*await asyncio.gather(*calls, return_exceptions=True)]

    context.errors = run(claim())


@then("each of them has ended with an error of its own that leaves no doubt")
def step_each_of_them_has_ended_with_an_error_of_its_own_that(context: Context) -> None:
    assert len({id(error) for error in context.errors}) == len(context.errors)
    for error in context.errors:
        assert isinstance(error, StateUnavailableError), error
        assert not error.in_doubt


# -- claims that are cancelled ---------------------------------------------------------------------


@when("one of 3 workers is cancelled {times:Times} while {what}")
def step_one_of_3_workers_is_cancelled_times_while_what(
    context: Context, times: int, what: str
) -> None:
    context.attempts, context.claims_made = run(cancel_while(context.url, what, times))


@then("all 3 tasks can be had, in attempt 1")
def step_all_3_tasks_can_be_had_in_attempt_1(context: Context) -> None:
    assert context.attempts == [1] * 3, context.attempts


@then("no claim was made but these 3")
def step_no_claim_was_made_but_these_3(context: Context) -> None:
    assert context.attempts == [1] * 3, context.attempts
    assert context.claims_made == 3, context.claims_made


@when("one of 3 workers is cancelled, after more turns of the loop each time")
def step_one_of_3_workers_is_cancelled_after_more_turns_of_the_loop(context: Context) -> None:
    context.attempts = run(cancel_after_turns(context.url))


@then("all 3 tasks could be had each time, in attempt 1")
def step_all_3_tasks_could_be_had_each_time_in_attempt_1(context: Context) -> None:
    assert all(attempts == [1] * 3 for attempts in context.attempts), context.attempts


@when("a worker is cancelled while {backend} claims for it, {when} who closes the state is, too")
def step_a_worker_is_cancelled_while_backend_claims_for_it_when_who(
    context: Context, backend: str, when: str
) -> None:
    first = {"before": "worker", "after": "closer"}[when]
    context.were_cancelled = run(cancel_while_closing(context.url, backend, first))


@then("both were cancelled")
def step_both_were_cancelled(context: Context) -> None:
    assert context.were_cancelled == [True, True], context.were_cancelled
