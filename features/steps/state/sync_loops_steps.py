from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.concurrency import run_on_loop
from rxlanggraph.state import open_state_threadsafe
from support.bridge.bridges import LentLoop
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.tasks import PATIENCE, in_thread, pass_turns, run
from support.concurrency.waiting import Gate, Log, thread
from support.state.state_threads import home_of

# -- homes -----------------------------------------------------------------------------------------


@given("a bridge")
@given("a loop that runs in another thread")
def step_a_bridge(context: Context) -> None:
    """It is made in the next step, where loops are counted."""


@when("a thread opens a state on it, uses it in a graph and in a thread, and closes it")
def step_a_thread_opens_a_state_on_it_uses_it_in_a_graph_and_in_a(context: Context) -> None:
    made: list[asyncio.AbstractEventLoop] = []
    make = asyncio.new_event_loop

    def making() -> asyncio.AbstractEventLoop:
        made.append(make())
        return made[-1]

    patch(context, asyncio, "new_event_loop", making)
    with home_of("bridge" in context.scenario.name) as home:

        def use() -> tuple[Any, Any]:
            with open_state_threadsafe(home, "memory:") as state:

                async def graph(_: Any) -> Any:
                    await state.increment_counter("n")
                    return (await state.get("n")).value

                if isinstance(home, RxPyLangGraphBridge):
                    inside = home.create_future_task(graph, None).result(PATIENCE).content
                else:
                    inside = asyncio.run_coroutine_threadsafe(graph(None), home).result(PATIENCE)
                return inside, state.sync.increment_counter("n")

        context.told = in_thread(use)
    context.made = made


@then("both saw the same values, and no other loop was made")
def step_both_saw_the_same_values_and_no_other_loop_was_made(context: Context) -> None:
    assert context.told == (1, 2), context.told
    assert len(context.made) == 1, context.made


# -- what cannot be --------------------------------------------------------------------------------


@when("the loop itself calls sync.get, and opens a state on itself")
def step_the_loop_itself_calls_sync_get_and_opens_a_state_on_itself(context: Context) -> None:
    loop = context.loop_thread.loop

    async def call() -> list[BaseException | None]:
        return [
            error_of(lambda: context.state.sync.get("k")),
            error_of(lambda: open_state_threadsafe(loop, "memory:").__enter__()),
        ]

    context.errors = asyncio.run_coroutine_threadsafe(call(), loop).result(PATIENCE)


def hold_up(context: Context, *, close: bool) -> None:
    """Have the loop stop when it has been sent something, before it has begun with that."""
    loop_thread = context.loop_thread
    loop_thread.stop_when(have_sent := Gate())

    def look(*_: object) -> SimpleNamespace:
        have_sent.open()
        loop_thread.wait()
        if close:
            loop_thread.loop.close()
        return SimpleNamespace(done=set())

    patch(context, run_on_loop, "wait", look)


def answer_never(context: Context, first: Callable[[], object]) -> None:
    async def never(_: object) -> None:
        first()
        await asyncio.get_running_loop().create_future()

    patch(context, context.state.backend, "read", never)


def cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


def close_unseen(context: Context) -> None:
    context.loop_thread.close()
    patch(context, context.loop_thread.loop, "is_running", lambda: True)


def refuse_tasks(context: Context) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise LookupError

    loop = context.loop_thread.loop
    loop.set_task_factory(refuse)
    context.add_cleanup(loop.set_task_factory, None)


def interrupt(context: Context) -> None:
    async def read(_: object) -> None:
        raise KeyboardInterrupt

    patch(context, context.state.backend, "read", read)


MOMENTS: dict[str, Callable[[Context], None]] = {
    "after the loop was closed": lambda context: context.loop_thread.close(),
    "as the loop is being closed": close_unseen,
    "as the loop is being stopped": lambda context: hold_up(context, close=False),
    "while the loop is closed": lambda context: hold_up(context, close=True),
    "while the loop stops": lambda context: answer_never(context, context.loop_thread.loop.stop),
    "while all tasks are cancelled": lambda context: answer_never(context, cancel_all),
    "while the loop's task factory raises LookupError": refuse_tasks,
    "while it is interrupted on the loop": interrupt,
}


@when("a thread calls sync.get {moment}")
def step_a_thread_calls_sync_get_moment(context: Context, moment: str) -> None:
    MOMENTS[moment](context)
    context.error = in_thread(lambda: error_of(lambda: context.state.sync.get("k")))


@when("the loop runs again")
def step_the_loop_runs_again(context: Context) -> None:
    for _ in range(3):
        context.loop_thread.loop.run_until_complete(asyncio.sleep(0))


@when("a thread waits for sync.get that is answered after the third look at the loop")
def step_a_thread_waits_for_sync_get_that_is_answered_after_the(context: Context) -> None:
    looks = 0
    looking = run_on_loop.wait

    def look(futures: Any, _: float) -> Any:
        nonlocal looks
        looks += 1
        return looking(futures, 0 if looks < 3 else PATIENCE)

    read = context.state.backend.read

    async def slowly(keys: Any) -> Any:
        while looks < 3:  # noqa: ASYNC110 - another thread looks
            await asyncio.sleep(0)
        return await read(keys)

    patch(context, context.state.backend, "read", slowly)
    patch(context, run_on_loop, "wait", look)
    context.read = in_thread(lambda: context.state.sync.get("k"))


@when("a thread waits for sync.get, and each look finds a loop that has run and stopped again")
def step_a_thread_waits_for_sync_get_and_each_look_finds_a_loop(context: Context) -> None:
    loop, looks, answered = context.loop_thread.loop, 0, Gate()
    looking, read = run_on_loop.wait, context.state.backend.read

    async def slowly(keys: Any) -> Any:
        await answered.wait_async()
        return await read(keys)

    def look(futures: Any, _: float) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            loop.call_soon_threadsafe(loop.stop)
            context.loop_thread.wait()
        elif looks == 4:
            answered.open()
        for _turn in range(10 if looks > 1 else 0):
            loop.run_until_complete(asyncio.sleep(0))
        return looking(futures, 0)

    patch(context, context.state.backend, "read", slowly)
    patch(context, run_on_loop, "wait", look)
    context.read = in_thread(lambda: context.state.sync.get("k"))


@then("it has returned")
def step_it_has_returned(context: Context) -> None:
    assert context.read == (None, 0), context.read


@when("a thread is interrupted that waits for an item")
def step_a_thread_is_interrupted_that_waits_for_an_item(context: Context) -> None:
    state = context.state
    waiting, waits = threading.Event(), []
    claim_task = state.claim_task

    async def noting(*args: Any, **options: Any) -> Any:
        waits.append(asyncio.current_task())
        waiting.set()
        return await claim_task(*args, **options)

    patch(context, state, "claim_task", noting)

    def interrupted(*_: object) -> None:
        waiting.wait(PATIENCE)
        raise KeyboardInterrupt

    patch(context, run_on_loop, "wait", interrupted)
    context.error = thread(
        lambda: error_of(lambda: state.sync.claim_task("q", wait=float("inf")))
    ).result(PATIENCE)
    context.waits = waits


@then("KeyboardInterrupt is raised, and no call waits for an item")
def step_keyboardinterrupt_is_raised_and_no_call_waits_for_an_item(context: Context) -> None:
    async def ended() -> None:
        await asyncio.wait(context.waits)

    assert isinstance(context.error, KeyboardInterrupt), context.error
    loop = context.loop_thread.loop
    asyncio.run_coroutine_threadsafe(ended(), loop).result(PATIENCE)


@when("a state is opened on a number")
def step_a_state_is_opened_on_a_number(context: Context) -> None:
    number: Any = 7
    context.error = error_of(lambda: open_state_threadsafe(number, "memory:").__enter__())


# -- a call that is awaited on another loop, and cancelled -----------------------------------------


class Awaited:
    """A call on another loop that waits until it is to fail."""

    def __init__(self, lent: LentLoop) -> None:
        self.lent = lent
        self.began, self.fails = Gate(), Gate()
        self.log = Log()
        self.logged: list[dict[str, Any]] = []

    async def call(self) -> None:
        try:
            self.began.open()
            await self.fails.wait_async()
            raise KeyError
        finally:
            self.log.add("ended")

    async def cancel(self, moment: str) -> None:
        for loop in (asyncio.get_running_loop(), self.lent.loop):
            loop.set_exception_handler(lambda _, told: self.logged.append(told))
        busy = Gate()
        if moment == "before it has begun":
            self.lent.loop.call_soon_threadsafe(busy.wait)
        task = asyncio.create_task(run_on_loop.await_on_loop(self.lent.loop, self.call()))
        await pass_turns()
        if moment != "before it has begun":
            await self.began.wait_async()
        if moment == "just as it has failed":
            # This loop stands still until the call has failed, and has not noticed that yet.
            self.fails.open()
            self.log.wait_for(1)
            self.lent.run(asyncio.sleep(0))
        task.cancel()
        await asyncio.wait([task])
        busy.open()
        await asyncio.to_thread(self.lent.run, pass_turns())
        await pass_turns()
        assert task.cancelled(), task


@when("a call that is awaited from this loop is cancelled {moment}")
def step_a_call_that_is_awaited_from_this_loop_is_cancelled(context: Context, moment: str) -> None:
    lent = LentLoop()
    context.add_cleanup(lent.end)
    context.awaited = Awaited(lent)
    run(context.awaited.cancel(moment))
    assert context.awaited.began.is_open is (moment != "before it has begun")
    gc.collect()


@then("the call has ended there, and asyncio has logged nothing on either loop")
def step_the_call_has_ended_there(context: Context) -> None:
    awaited = context.awaited
    assert len(awaited.log) == awaited.began.is_open, list(awaited.log)
    assert not awaited.logged, awaited.logged
