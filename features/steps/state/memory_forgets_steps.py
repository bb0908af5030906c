from __future__ import annotations

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import StaleTokenError
from rxlanggraph.state.backend import FENCE_RETENTION, NewTask, Write
from rxlanggraph.state.backends.memory import MemoryBackend
from support.concurrency.tasks import run


@given("memory with a clock of its own")
def step_memory_with_a_clock_of_its_own(context: Context) -> None:
    context.now = 0.0
    context.backend = MemoryBackend(clock=lambda: context.now)


@when(
    "a key is written under a token and deleted, another one expires, a lock's holder dies, and a "
    "queue is emptied"
)
def step_a_key_is_written_under_a_token_and_deleted_another_one(context: Context) -> None:
    async def go() -> None:
        backend = context.backend
        await backend.commit({"deleted": Write("1", token=7)}, {})
        await backend.commit({"deleted": Write(None, token=7)}, {})
        await backend.commit({"expired": Write("1", ttl=1.0, token=7)}, {})
        await backend.lock_acquire("lock", "dead", 1.0)
        await backend.tasks_add("queue", [NewTask("id", "1", "key", 0, 0.0, "thread", 1)])
        await backend.tasks_purge_step("queue", ["waiting"], None)

    run(go())
    context.now = 2.0


@when("{count:d} tasks are added to a queue with a dead task, and purged, ten times")
def step_tasks_are_added_to_a_queue_with_a_dead_task_and_purged(
    context: Context, count: int
) -> None:
    async def go() -> None:
        backend = context.backend
        await backend.tasks_add("queue", [NewTask("dead", "1", None, 0, 0.0, None, 1)])
        claimed = await backend.task_claim("queue", "worker", 60.0)
        await backend.task_fail("queue", "dead", claimed.token, "1", None)
        for turn in range(10):
            names = [f"{turn}-{number}" for number in range(count)]
            tasks = [NewTask(name, "1", None, 0, 0.0, None, 1) for name in names]
            await backend.tasks_add("queue", tasks)
            await backend.tasks_purge_step("queue", ["waiting"], None)

    run(go())


@then("the queue keeps references to fewer than {count:d} tasks")
def step_the_queue_keeps_references_to_fewer_than_tasks(context: Context, count: int) -> None:
    queue = context.backend._namespace.queue("queue")
    kept = (len(queue._records), len(queue._ready), len(queue._ready_places), len(queue._order))
    assert max(kept) < count, kept
    assert len(queue._records) == 1, kept


@when("a key is written under a token and deleted, and counts again")
def step_a_key_is_written_under_a_token_and_deleted_and_counts(context: Context) -> None:
    async def go() -> None:
        await context.backend.commit({"deleted": Write("1", token=7)}, {})
        await context.backend.commit({"deleted": Write(None, token=7)}, {})
        await context.backend.increment("deleted", 1, 7)

    run(go())


@then("late writers are refused for a week")
def late_writers_are_refused(context: Context) -> None:
    assert FENCE_RETENTION == 7 * 86400
    context.now = FENCE_RETENTION - 1
    assert [run(is_refused(context, key)) for key in ("deleted", "expired")] == [True, True]


@then("late writers of it are refused after a week, too")
def late_writers_of_it_are_refused(context: Context) -> None:
    context.now = FENCE_RETENTION + 1
    assert run(is_refused(context, "deleted"))


async def is_refused(context: Context, key: str) -> bool:
    try:
        await context.backend.commit({key: Write("2", token=6)}, {})
    except StaleTokenError:
        return True
    return False


@then("after a week the store is as if it was new")
def store_is_as_new(context: Context) -> None:
    context.now = 2 * FENCE_RETENTION
    run(context.backend.read(["any"]))
    run(context.backend.lock_acquire("another", "owner", 1.0))
    run(context.backend.task_claim("never used", "worker", 1.0))
    data = context.backend._namespace
    fences = (data._fences, data._fence_expiries.deadlines)
    kept = (data._entries, *fences, data._queues, [*data._locks])
    assert kept == ({}, {}, {}, {}, ["another"]), kept
