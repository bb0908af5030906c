"""Steps for queues that allow few claimed tasks at once."""

from __future__ import annotations

import asyncio
import json

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import errors
from rxlanggraph.state import State, open_state
from support.concurrency.tasks import PATIENCE, run
from support.servers import servers
from support.state import arriving, limited
from support.state.arriving import QUEUE
from support.state.claim_effort import effort_of_claims

BEHIND = " behind a pooler"


@given("a queue of {count:d} tasks in {backend}")
def step_a_queue_of_count_tasks_in_backend(context: Context, count: int, backend: str) -> None:
    context.backend = backend
    context.url = servers.fresh_url(context, backend.removesuffix(BEHIND))
    context.count = count
    opened = limited.opened(context.url, count)
    opened.__enter__()
    context.add_cleanup(opened.__exit__, None, None, None)


@when("workers in {count:d} {many} work on them {way}")
def step_workers_in_count_many_work_on_them(
    context: Context, count: int, many: str, way: str
) -> None:
    if many == "threads":
        context.held = limited.work_in_threads(context.url, way, count)
    elif context.backend.endswith(BEHIND):
        context.held = run(limited.work_behind_pooler(context.url, way, count))
    else:
        context.held = limited.work_in_processes(context.url, way, count)


@when("{count:d} threads work on them by the sync of one state")
def step_count_threads_work_on_them_by_the_sync_of_one_state(context: Context, count: int) -> None:
    context.held = run(limited.work_in_sync_threads(context.url, count))


@then("each task was completed once, and {most:d} were claimed at once, at most")
@then("each task was completed once, and {most:d} was claimed at once, at most")
def step_each_task_was_completed_once_and_most_were_claimed_at_once(
    context: Context, most: int
) -> None:
    assert sorted(claim.item for claim in context.held) == [*range(context.count)], context.held
    assert limited.most_at_once(context.held) <= most, limited.most_at_once(context.held)


@when(
    "workers claim {way} the index of claimed tasks beside {few:d} delayed tasks, "
    "and then beside {many:d} more"
)
def step_workers_claim_beside_few_delayed_tasks_and_then_beside_many_more(
    context: Context, way: str, few: int, many: int
) -> None:
    context.efforts = [
        run(effort_of_claims(context.url, count, has_index=way == "with")) for count in (few, many)
    ]


@then("the database has done less than {times:d} times as much for the second ones")
def step_the_database_has_done_less_than_times_as_much_for_the_second_ones(
    context: Context, times: int
) -> None:
    first, second = context.efforts
    assert 0 < second < times * first, context.efforts


@when("a process that has claimed all that may be is killed, {way}")
def step_a_process_that_has_claimed_all_that_may_be_is_killed(context: Context, way: str) -> None:
    how = {"by the declaration": "hold", "by a counter": "hold a counter"}[way]
    context.claim = run(limited.claim_after_kill(context.url, how))


@then("another worker has claimed a task that was claimed before")
def step_another_worker_has_claimed_a_task_that_was_claimed_before(context: Context) -> None:
    assert context.claim is not None
    assert (context.claim.item, context.claim.attempt) == (0, 2), context.claim


@when("a process that has claimed all that may be is stopped until others have its places")
def step_a_process_that_has_claimed_all_that_may_be_is_stopped_until(context: Context) -> None:
    context.said, context.claimed = run(limited.continue_after_stop(context.url))


@then("it has lost its claims when it continues, and {most:d} tasks are claimed")
def step_it_has_lost_its_claims_when_it_continues_and_most_tasks_are(
    context: Context, most: int
) -> None:
    assert context.said.split() == ["LeaseLostError"] * most, context.said
    assert context.claimed == most, context.claimed


@when("a worker that never polls waits, and a process that has claimed all that may be {ends}")
def step_a_worker_that_never_polls_waits_and_a_process_that_has(
    context: Context, ends: str
) -> None:
    with arriving.never_polling():
        context.claim = run(limited.complete_elsewhere(context.url))


@then("the worker that waited has claimed a task for the first time")
def step_the_worker_that_waited_has_claimed_a_task_for_the_first_time(context: Context) -> None:
    assert context.claim is not None
    assert (context.claim.item, context.claim.attempt) == (limited.MOST, 1), context.claim


@when("a worker that never polls waits for a place, and another state frees one in each way")
def step_a_worker_that_never_polls_waits_for_a_place_and_another(context: Context) -> None:
    with arriving.never_polling():
        context.woken = run(limited.free_places(context.url))


@then("it was woken each time that a place was free")
def step_it_was_woken_each_time_that_a_place_was_free(context: Context) -> None:
    assert context.woken == [*limited.FREEING], context.woken


@when("{count:d} workers of one state that never poll work on them, one task at once")
def step_count_workers_of_one_state_work_on_them(context: Context, count: int) -> None:
    with arriving.never_polling():
        context.held = run(limited.work_in_one_state(context.url, count))


@when("{count:d} workers of one state that never poll wait for one place, which each of them frees")
def step_count_workers_of_one_state_wait_for_one_place(context: Context, count: int) -> None:
    with arriving.never_polling() as pauses:
        context.calls = run(limited.take_turns(context.url, count, pauses))


@then("they have called the backend {count:d} times for it")
def step_they_have_called_the_backend_count_times_for_it(context: Context, count: int) -> None:
    assert context.calls == count, context.calls


@when("a worker that was woken for a place is cancelled, at each of {count:d} moments")
def step_a_worker_that_was_woken_for_a_place_is_cancelled(context: Context, count: int) -> None:
    with arriving.never_polling() as pauses:
        context.items = run(limited.pass_on(context.url, count, pauses))


@then("the next one has had the place, {count:d} times")
def step_the_next_one_has_had_the_place_count_times(context: Context, count: int) -> None:
    assert len(context.items) == len(set(context.items)) == count, context.items


@when("the limit is raised, and then taken back, while workers wait that never poll")
def step_the_limit_is_raised_and_then_taken_back(context: Context) -> None:
    with arriving.never_polling():
        context.items = run(limited.raise_limit(context.url))


@then("they have claimed a task each time")
def step_they_have_claimed_a_task_each_time(context: Context) -> None:
    assert context.items == [1, 2, 3], context.items


@when("a limit of 1 is declared, and then one of {limit}")
def step_a_limit_of_1_is_declared_and_then_one_of_limit(context: Context, limit: str) -> None:
    async def declare(state: State) -> Exception | None:
        state.declare_queue(QUEUE, max_claimed=1)
        try:
            state.declare_queue(QUEUE, max_claimed=json.loads(limit))
        except errors.RxLangGraphError as error:
            return error
        return None

    async def work() -> None:
        async with open_state(context.url) as state, asyncio.timeout(PATIENCE):
            context.error = await declare(state)
            context.claims = await state.claim_tasks(QUEUE, 5)

    run(work())


@then('{error} was raised, which says "{text}", and 1 task can be claimed')
def step_error_was_raised_and_1_task_can_be_claimed(
    context: Context, error: str, text: str
) -> None:
    assert type(context.error).__name__ == error, repr(context.error)
    assert text in str(context.error), context.error
    assert len(context.claims) == 1, context.claims
