from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.errors import ContentionError, StateClosedError
from rxlanggraph.state import State, open_state
from rxlanggraph.state.backends.memory import MemoryBackend, MemoryStore
from rxlanggraph.state.update_queue import UpdateQueue
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state.state_world import world


@when("{tasks:d} tasks of one state update a key {times:d} times each with safe_update")
def step_tasks_tasks_of_one_state_update_a_key_times_times_each(
    context: Context, tasks: int, times: int
) -> None:
    context.calls, context.reads = [], []

    async def count(value: Any) -> int:
        context.calls.append(value)
        await asyncio.sleep(0)  # the others are in the line by the end of it
        return (value or 0) + 1

    async def update() -> Any:
        async with State(MemoryBackend()) as state:
            read = state.backend.read

            async def counted(keys: Any) -> Any:
                context.reads.append(keys)
                return await read(keys)

            patch(context, state.backend, "read", counted)

            async def work() -> None:
                for _ in range(times):
                    await state.safe_update("n", count)

            await asyncio.gather(*[work() for _ in range(tasks)])
            return (await state.get("n")).value

    context.value = run(update())


@then("its value is {value:d}, and the functions were called {times:d} times")
def step_its_value_is_value_and_the_functions_were_called_times(
    context: Context, value: int, times: int
) -> None:
    assert (context.value, len(context.calls)) == (value, times), (context.value, context.calls)


@then("its value is {value:d}, and it was read once")
def step_its_value_is_value_and_it_was_read_once(context: Context, value: int) -> None:
    # Once by the first of them; and at the end by this step.
    assert (context.value, len(context.reads)) == (value, 2), (context.value, context.reads)


@contextlib.asynccontextmanager
async def two_states() -> AsyncIterator[tuple[State, State]]:
    """Two states of one store, whose calls can be meddled with."""
    store = MemoryStore()
    async with State(MemoryBackend(store)) as state, State(MemoryBackend(store)) as other:
        yield state, other


def meddle(context: Context, state: State, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Have something done between what the next write of the state does and the answer to it."""
    commit = state.backend.commit
    once = iter([meanwhile])

    async def meddled(*args: Any) -> Any:
        written = await commit(*args)
        for act in once:
            await act()
        return written

    patch(context, state.backend, "commit", meddled)


async def turns() -> None:
    """Let everything happen that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@when("an update waits for its turn, and another state writes after the one before")
def step_an_update_waits_for_its_turn_and_another_state_writes(context: Context) -> None:
    context.seen = []

    async def append(value: Any) -> Any:
        context.seen.append(value)
        await turns()
        return [*value, len(value)]

    async def update() -> Any:
        async with two_states() as (state, other):
            await state.set("list", [])

            async def meanwhile() -> None:
                await other.set("list", ["other"])

            meddle(context, state, meanwhile)
            await asyncio.gather(*[state.safe_update("list", append) for _ in range(2)])
            return (await state.get("list")).value

    context.value = run(update())


@then("its function was called with both values, and nothing was lost")
def step_its_function_was_called_with_both_values_and_nothing_was(context: Context) -> None:
    assert context.seen == [[], [0], ["other"]], context.seen
    assert context.value == ["other", 1], context.value


@when("an update comes between what the one before has written and the answer to it")
def step_an_update_comes_between_what_the_one_before_has_written(context: Context) -> None:
    context.seen = []

    async def update() -> None:
        async with two_states() as (state, other):
            late: list[asyncio.Task[Any]] = []

            async def meanwhile() -> None:
                await other.set("n", "of the other state")
                late.append(asyncio.create_task(state.safe_update("n", context.seen.append)))
                await turns()

            meddle(context, state, meanwhile)
            await state.safe_update("n", lambda _: "of the one before")
            await late[0]

    run(update())


@then("its function was called with what another state wrote before that update began")
def step_its_function_was_called_with_what_another_state_wrote(context: Context) -> None:
    assert context.seen == ["of the other state"], context.seen


@when("an update goes ahead of one that stands still, and then another state writes")
def step_an_update_goes_ahead_of_one_that_stands_still_and_then(context: Context) -> None:
    context.seen = []
    there = world(context)
    state, other = there.open(), there.open()

    async def stand(_: Any) -> str:
        await asyncio.sleep(1.5)
        raise ValueError

    async def update() -> None:
        tasks = []
        for fn in (stand, lambda _: "of one without patience", context.seen.append):
            tasks.append(asyncio.create_task(state.safe_update("n", fn)))
            await asyncio.sleep(0.2)
        await tasks[1]
        await other.set("n", "of another state")
        await asyncio.gather(*tasks, return_exceptions=True)

    there.run(update())


@then("the update that has waited all the time was called with what was written last")
def step_the_update_that_has_waited_all_the_time_was_called_with(context: Context) -> None:
    assert context.seen == ["of another state"], context.seen


@when("an update loses patience during the write of the one before, and is overtaken once more")
def step_an_update_loses_patience_during_the_write_of_the_one(context: Context) -> None:
    context.seen = []
    there = world(context)
    state, other = there.open(), there.open()

    async def meanwhile() -> None:
        await asyncio.sleep(1.5)  # the one behind reads and calls its function in that time
        await other.set("n", "of another state")

    async def slow(value: Any) -> str:
        context.seen.append(value)
        await asyncio.sleep(1.0)
        return "of the one behind"

    async def first(_: Any) -> str:
        await turns()  # the one behind is in the line
        return "of the one before"

    async def update() -> Any:
        meddle(context, state, meanwhile)
        calls = state.safe_update("n", first), state.safe_update("n", slow, 2)
        return await asyncio.gather(*calls)

    context.ended = there.run(update())


@then("it has read both times, and needed 2 attempts")
def step_it_has_read_both_times_and_needed_2_attempts(context: Context) -> None:
    assert context.seen == ["of the one before", "of another state"], context.seen
    assert context.ended[1] == "of the one behind", context.ended


@when("a state is closed while an update waits for its turn")
def step_a_state_is_closed_while_an_update_waits_for_its_turn(context: Context) -> None:
    context.seen = []

    async def update() -> Any:
        async with State(MemoryBackend()) as state:
            late: list[asyncio.Task[Any]] = []

            async def first(_: Any) -> str:
                late.append(asyncio.create_task(state.safe_update("n", context.seen.append)))
                await turns()
                return "of the one before"

            async def meanwhile() -> None:
                closing.append(asyncio.create_task(state.aclose()))
                await turns()

            closing: list[asyncio.Task[None]] = []
            meddle(context, state, meanwhile)
            await state.safe_update("n", first)
            return await asyncio.gather(*late, *closing, return_exceptions=True)

    context.ended = run(update())


@then("it has ended with StateClosedError, and its function was not called")
def step_it_has_ended_with_stateclosederror_and_its_function_was(context: Context) -> None:
    assert isinstance(context.ended[0], StateClosedError), context.ended
    assert (context.ended[1], context.seen) == (None, []), (context.ended, context.seen)


@when("an update stands still in its function, and another one of the same key is made")
def step_an_update_stands_still_in_its_function_and_another_one_of(context: Context) -> None:
    context.seen = []

    async def update() -> Any:
        async with open_state("memory:") as state:
            going, standing = asyncio.Event(), asyncio.Event()

            async def stand(value: Any) -> Any:
                context.seen.append(value)
                standing.set()
                await going.wait()
                return [*(value or []), "first"]

            first = asyncio.create_task(state.safe_update("list", stand))
            await standing.wait()
            await state.safe_update("list", lambda value: [*(value or []), "other"])
            going.set()
            await first
            return (await state.get("list")).value

    context.value = run(update())


@when("the function of an update with {attempts:d} attempts updates the same key")
def step_the_function_of_an_update_with_attempts_attempts_updates(
    context: Context, attempts: int
) -> None:
    async def update() -> tuple[Any, Any]:
        async with open_state("memory:") as state:

            async def within(_: Any) -> str:
                await state.safe_update("n", lambda value: (value or 0) + 1)
                return "overtaken"

            (ended,) = await asyncio.gather(
                state.safe_update("n", within, attempts), return_exceptions=True
            )
            return ended, (await state.get("n")).value

    context.ended, context.value = run(update())


@then("the update has ended with ContentionError, and that within it was made twice")
def step_the_update_has_ended_with_contentionerror_and_that_within(context: Context) -> None:
    assert isinstance(context.ended, ContentionError), context.ended
    assert context.value == 2, context.value


@when("3 updates of a key wait for a fourth, and the second of them is cancelled")
def step_3_updates_of_a_key_wait_for_a_fourth_and_the_second_of(context: Context) -> None:
    async def update() -> tuple[Any, list[bool]]:
        async with open_state("memory:") as state:
            going, standing = asyncio.Event(), asyncio.Event()

            async def stand(_: Any) -> list[int]:
                standing.set()
                await going.wait()
                return [0]

            def update(fn: Any) -> asyncio.Task[Any]:
                return asyncio.create_task(state.safe_update("list", fn))

            first = update(stand)
            await standing.wait()
            others = [update(lambda value, number=number: [*value, number]) for number in (1, 2, 3)]
            tasks = [first, *others]
            await turns()  # they are in the line now
            tasks[2].cancel()
            going.set()
            await asyncio.wait(tasks)
            return (await state.get("list")).value, [task.cancelled() for task in tasks]

    context.value, context.cancelled = run(update())


@then("the others were made, one after the other")
def step_the_others_were_made_one_after_the_other(context: Context) -> None:
    assert context.value == [0, 1, 3], context.value
    assert context.cancelled == [False, False, True, False], context.cancelled


@when("of two that wait for a turn the first is cancelled {when} it has come")
def step_of_two_that_wait_for_a_turn_the_first_is_cancelled_when_it(
    context: Context, when: str
) -> None:
    line: UpdateQueue[str] = UpdateQueue()
    context.came = []

    async def wait(name: str) -> None:
        slot = await line.wait("key")
        context.came.append((name, slot.handover))
        line.end("key", slot)

    async def main() -> None:
        slot = line.begin("key")
        assert slot is not None
        first, second = [asyncio.create_task(wait(name)) for name in ("first", "second")]
        await turns()
        if when != "right after":
            first.cancel()
        if when == "long before":
            await turns()
        successor = slot.successor()
        assert successor is not None
        successor.handover = "something"
        line.end("key", slot)
        if when == "right after":
            first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        context.is_free = line.begin("key") is not None

    run(main())


@then("the turn of the second has come, with {what} left to it, and then it is free")
def step_the_turn_of_the_second_has_come_with_what_left_to_it_and(
    context: Context, what: str
) -> None:
    left = None if what == "nothing" else what
    assert context.came == [("second", left)], context.came
    assert context.is_free
