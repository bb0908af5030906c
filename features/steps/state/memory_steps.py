from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.errors import StateClosedError, WrongThreadError
from rxlanggraph.state import State, open_state
from rxlanggraph.state.backend import Write
from rxlanggraph.state.backends.memory import MemoryBackend, open_backend
from support.concurrency.patching import patch
from support.concurrency.tasks import in_thread, run
from support.state.state_world import world


@when("a value of an opened store in memory is read, replaced and updated")
def step_a_value_of_an_opened_store_in_memory_is_read_replaced_and(context: Context) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("this is for those that wait")

    async def update() -> list[Any]:
        async with open_state("memory:") as state:
            patch(context, state.backend, "read", never)
            patch(context, state.backend, "commit", never)
            calls = (
                state.set_if_not_exists("n", 1),
                state.compare_and_set("n", 2, 0),
                state.safe_update("n", lambda value: value + 1),
                state.get("n"),
            )
            return [first_step(call) for call in calls]

    context.ended = run(update())


def first_step(call: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns, which does not wait for anything."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    call.close()
    raise AssertionError("it waits")


@then("each has ended in its first step, without the calls that could wait")
def step_each_has_ended_in_its_first_step_without_the_calls_that(context: Context) -> None:
    *done, last = context.ended
    assert (done, last.value) == ([True, False, 2], 2), context.ended


@when("a value in memory is updated, and by another thread with a loop of its own meanwhile")
def step_a_value_in_memory_is_updated_and_by_another_thread_with_a(context: Context) -> None:
    context.seen = []

    async def update(fn: Callable[[Any], Any]) -> Any:
        async with open_state("memory:threads") as state:
            await state.safe_update("list", fn)
            return (await state.get("list")).value

    def overtaken(value: Any) -> list[str]:
        context.seen.append(value)
        if value is None:
            in_thread(lambda: asyncio.run(update(lambda _: ["other"])))
        return [*(value or []), "first"]

    context.value = run(update(overtaken))


@then("both are in it, and the function was called with both values")
def step_both_are_in_it_and_the_function_was_called_with_both(context: Context) -> None:
    assert context.seen == [None, ["other"]], context.seen
    assert context.value == ["other", "first"], context.value


@when("{count:d} keys in memory are written for an hour, and then {otherwise}")
def step_count_keys_in_memory_are_written_for_an_hour_and_then(
    context: Context, count: int, otherwise: str
) -> None:
    there = world(context)
    state = there.open()
    ttls = {"forever": None, "for a second": 1.0}

    async def write() -> list[Any]:
        await state.set("another", 0, ttl=7200.0)
        for ttl in (3600.0, ttls[otherwise]):
            for number in range(count):
                await state.set(f"key {number}", number, ttl=ttl)
        await asyncio.sleep(2.0)
        return [(await state.get(f"key {number}")).value for number in range(count)]

    context.values = there.run(write())
    context.expiries = there.server(state)._namespace._expiries


@then("{which} are there, and nothing is kept of when they would have been gone")
def step_which_are_there_and_nothing_is_kept_of_when_they_would(
    context: Context, which: str
) -> None:
    count = len(context.values)
    there = {"all of them": list(range(count)), "none of them": [None] * count}
    assert context.values == there[which], context.values
    assert list(context.expiries.deadlines) == ["another"], context.expiries.deadlines
    # A few that no longer hold may wait until it is worth the while.
    assert len(context.expiries._heap) < 20, len(context.expiries._heap)


@when("{count:d} items in memory are claimed, all at once, and then completed")
def step_count_items_in_memory_are_claimed_all_at_once_and_then(
    context: Context, count: int
) -> None:
    async def claim() -> None:
        async with State(MemoryBackend()) as state:
            await state.add_tasks("q", range(count))
            claims = [await state.claim_task("q") for _ in range(count)]
            for claim in claims:
                assert claim is not None
                await claim.complete()
            assert isinstance(state.backend, MemoryBackend)
            heaps = state.backend._namespace.queue("q")._due, state._client.timer._deadlines
            context.kept = [(len(heap.deadlines), len(heap._heap)) for heap in heaps]

    run(claim())


@then("nothing is kept of when their leases would have ended, or been renewed")
def step_nothing_is_kept_of_when_their_leases_would_have_ended_or(context: Context) -> None:
    # As above.
    assert all(true == 0 and kept < 20 for true, kept in context.kept), context.kept


@when("the function of an update in memory closes its state, while another one has the store open")
def step_the_function_of_an_update_in_memory_closes_its_state_while(context: Context) -> None:
    async def update() -> tuple[Any, Any]:
        async with open_state("memory:closed") as other, open_state("memory:closed") as state:

            async def close(_: Any) -> str:
                await state.aclose()
                return "written after the end"

            (ended,) = await asyncio.gather(state.safe_update("k", close), return_exceptions=True)
            return ended, await other.get("k")

    context.ended, context.value = run(update())


@then("the update has ended with StateClosedError, and nothing was written")
def step_the_update_has_ended_with_stateclosederror_and_nothing_was(context: Context) -> None:
    assert isinstance(context.ended, StateClosedError), context.ended
    assert context.value == (None, 0), context.value


@when("two keys in memory that are gone at the same time are read while that time comes")
def step_two_keys_in_memory_that_are_gone_at_the_same_time_are_read(context: Context) -> None:
    now = 0.0
    step = 0.0

    def tick() -> float:
        nonlocal now
        now += step
        return now

    async def read() -> list[list[Any]]:
        nonlocal now, step
        backend = MemoryBackend(clock=tick)
        seen = []
        for start in (8.5, 9.5, 10.5):
            now, step = 0.0, 0.0
            await backend.commit({"a": Write("1", 10.0), "b": Write("2", 10.0)}, {})
            now, step = start, 1.0
            seen.append([entry.text for entry in await backend.read(["a", "b"])])
        return seen

    context.seen = run(read())


@then("both are there, or none of them")
def step_both_are_there_or_none_of_them(context: Context) -> None:
    # In the first reading the time would come between the two, if each was looked up by itself.
    assert context.seen == [["1", "2"], [None, None], [None, None]], context.seen


class Counting:
    """Stands before a backend, and is none of its class."""

    def __init__(self, backend: MemoryBackend) -> None:
        self._backend = backend
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._backend, name)


@when("a value is read, replaced and updated through something that counts the calls to memory")
def step_a_value_is_read_replaced_and_updated_through_something(context: Context) -> None:
    async def calls() -> list[str]:
        counting: Any = Counting(await open_backend("memory:", "rxlanggraph"))
        async with State(counting) as state:
            counting.calls.clear()
            await state.get("n")
            await state.compare_and_set("n", 1, 0)
            await state.safe_update("n", lambda value: value + 1)
            await state.get("n")
            return [*counting.calls]

    context.calls = run(calls())


@then("it has counted {reads:d} reads and {commits:d} commits")
def step_it_has_counted_reads_reads_and_commits_commits(
    context: Context, reads: int, commits: int
) -> None:
    assert sorted(context.calls) == ["commit"] * commits + ["read"] * reads, context.calls


@when("values of an opened store in memory are read and replaced on another loop")
def step_values_of_an_opened_store_in_memory_are_read_and_replaced(context: Context) -> None:
    async def calls() -> list[Any]:
        async with open_state("memory:") as state:

            async def call() -> list[Any]:
                return await asyncio.gather(
                    state.get("k"),
                    state.compare_and_set("k", 1, 0),
                    state.safe_update("k", lambda _: 1),
                    return_exceptions=True,
                )

            ended: list[Any] = in_thread(lambda: asyncio.run(call()))
            return [*ended, (await state.get("k")).version]

    context.ended = run(calls())


@then("each has ended with WrongThreadError, and nothing was written")
def step_each_has_ended_with_wrongthreaderror_and_nothing_was(context: Context) -> None:
    *errors, version = context.ended
    assert [type(error) for error in errors] == [WrongThreadError] * 3, errors
    assert version == 0, version
