"""submit: coroutines that await room."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.bridge import RunArguments
from rxlanggraph.errors import BacklogFullError, DeadlockError, LoopUnavailableError
from support.bridge.bridges import LentLoop, on_loop
from support.concurrency.tasks import start
from support.concurrency.waiting import LIMIT, Gate, Log

_pause = threading.Event()


def until(what: Callable[[], object]) -> None:
    """Wait until ``what`` is true, of which there is no notice."""
    for _ in range(int(LIMIT / 0.001)):
        if what():
            return
        _pause.wait(0.001)
    raise AssertionError("it does not come true")


def other_loop(context: Context) -> LentLoop:
    loop = LentLoop()
    context.add_cleanup(loop.end)
    return loop


def waiting(context: Context) -> int:
    return len(context.bridge._engine.admission._gates)


class Held:
    """A run that holds the only slot until its gate opens, and one that waits behind it."""

    def __init__(self, context: Context, *, fill: bool = True) -> None:
        self.gate, self.holding, self.ran = Gate(), Gate(), Log()
        context.add_cleanup(self.gate.open)
        bridge = context.bridge
        bridge.create_future_task(self.hold, None)
        self.holding.wait()
        on_loop(context)
        self.first = bridge.create_future_task(self.node, "first") if fill else None

    async def hold(self, _: object) -> None:
        self.holding.open()
        await self.gate.wait_async()

    async def node(self, content: Any) -> Any:
        self.ran.add(content)
        return content


@when("a coroutine on {loop} submits {count:d} messages, one after another")
def step_a_coroutine_on_loop_submits_messages(context: Context, loop: str, count: int) -> None:
    bridge = context.bridge
    context.peak = 0

    async def node(content: Any) -> Any:
        context.peak = max(context.peak, len(bridge.registry))
        await asyncio.sleep(0)
        return content

    async def produce() -> tuple[list[Any], int]:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        ticking = asyncio.create_task(tick())
        runs = [await bridge.submit(node, number) for number in range(count)]
        results = [(await run).content for run in runs]
        ticking.cancel()
        return results, turns

    if loop == "another loop":
        context.results, context.turns = other_loop(context).run(produce())
        return
    bridge.create_future_task(node, None).result(LIMIT)
    own = bridge._engine.host.loop
    sent = asyncio.run_coroutine_threadsafe(produce(), own)
    context.results, context.turns = sent.result(LIMIT)


@then(
    "all {count:d} are answered, no more than {bound:d} were in flight, and that loop went on "
    "meanwhile"
)
def step_all_are_answered_no_more_than_bound_were_in_flight(
    context: Context, count: int, bound: int
) -> None:
    assert context.results == list(range(count)), context.results
    assert context.peak <= bound, context.peak
    assert context.turns > 0


@when("a coroutine on another loop sends two messages with {method}, where one has room")
def step_a_coroutine_sends_two_messages_where_one_has_room(context: Context, method: str) -> None:
    context.held = held = Held(context, fill=False)
    context.lent_other = other_loop(context)

    context.log = Log()

    async def send() -> None:
        for number in range(2):
            sent = getattr(context.bridge, method)(held.node, number)
            if method == "submit":
                await sent
            context.log.add(f"sent {number}")

    asyncio.run_coroutine_threadsafe(send(), context.lent_other.loop)
    until(lambda: waiting(context) == 1)


@then("that loop goes on while it waits for room")
def step_that_loop_goes_on_while_it_waits_for_room(context: Context) -> None:
    context.lent_other.loop.call_soon_threadsafe(context.log.add, "went on")
    context.held.gate.open()
    log = context.log.wait_for(3)
    assert log == ["sent 0", "went on", "sent 1"], log


@when("a thread, a coroutine, a thread and a coroutine wait for room, in this order")
def step_a_thread_a_coroutine_a_thread_and_a_coroutine_wait(context: Context) -> None:
    context.held = held = Held(context)
    bridge, loop = context.bridge, other_loop(context)
    context.joins = []
    for number in range(4):
        if number % 2:
            submitted = bridge.submit(held.node, number)
            context.joins.append(asyncio.run_coroutine_threadsafe(submitted, loop.loop).result)
        else:
            context.joins.append(
                start(lambda number=number: bridge.create_future_task(held.node, number))
            )
        until(lambda number=number: waiting(context) == number + 1)


@then("their messages are run in this order")
def step_their_messages_are_run_in_this_order(context: Context) -> None:
    context.held.gate.open()
    for join in context.joins:
        join().result(LIMIT)
    assert list(context.held.ran) == ["first", 0, 1, 2, 3], list(context.held.ran)


@when("a coroutine on another loop awaits room")
def step_a_coroutine_on_another_loop_awaits_room(context: Context) -> None:
    context.held = held = Held(context)
    loop = other_loop(context)
    context.task = None

    async def submit() -> Any:
        context.task = asyncio.current_task()
        async with asyncio.timeout(None) as context.time:
            return await context.bridge.submit(held.node, "second")

    context.submitting = asyncio.run_coroutine_threadsafe(submit(), loop.loop)
    context.other = loop.loop
    until(lambda: waiting(context) == 1)


@when("it is freed by {what}")
def step_it_is_freed_by_what(context: Context, what: str) -> None:
    if what == "room":
        context.held.gate.open()
    elif what == "the close of the bridge":
        context.bridge.close(0)
    elif what == "the end of the loop":
        context.lent.end()
    elif what == "a pause of the loop":
        # What the thread that watches over the loop does: see loop_pauses.feature.
        context.bridge._engine.loop_paused(LoopUnavailableError("the loop has paused"))
    elif what == "its cancellation":
        context.other.call_soon_threadsafe(context.task.cancel)
    else:
        loop = context.other
        loop.call_soon_threadsafe(lambda: context.time.reschedule(loop.time()))


@then("it {ends}, and nothing waits for room")
def step_it_ends_and_nothing_waits_for_room(context: Context, ends: str) -> None:
    try:
        run = context.submitting.result(LIMIT)
    except BaseException as error:
        assert ends == f"raises {type(error).__name__}", error
    else:
        assert ends == "has submitted its message"
        assert run.result(LIMIT).content == "second"
    assert waiting(context) == 0
    context.held.gate.open()
    assert not context.bridge._engine.admission._turned_away
    if ends in ("raises CancelledError", "raises TimeoutError"):
        assert context.held.first.result(LIMIT).content == "first"
        assert context.bridge.registry.wait_idle(LIMIT)
        assert list(context.held.ran) == ["first"]


def two_await(context: Context, loops: list[LentLoop]) -> list[Any]:
    context.held = held = Held(context)
    submitting: list[Any] = []
    for number, loop in enumerate(loops):
        submitted = context.bridge.submit(held.node, number)
        submitting.append(asyncio.run_coroutine_threadsafe(submitted, loop.loop))
        until(lambda number=number: waiting(context) == number + 1)
    return submitting


@when("the first of two coroutines that await room is cancelled just when it gets it")
def step_the_first_of_two_is_cancelled_just_when_it_gets_it(context: Context) -> None:
    loop = other_loop(context)
    first, context.second = two_await(context, [loop, loop])

    # The tasks of a loop are not ordered: the one that got the room is the one to be cancelled.
    admission = context.bridge._engine.admission
    waiter = admission._gates[0][0]._waiter

    async def give_and_cancel() -> None:
        admission.release(context.held.first)
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task() and getattr(task, "_fut_waiter", None) is (
                waiter.future
            ):
                task.cancel()

    loop.run(give_and_cancel())
    until(first.done)
    assert first.cancelled() or first.exception(0) is not None


@then("the second one gets it")
def step_the_second_one_gets_it(context: Context) -> None:
    run = context.second.result(LIMIT)
    context.held.gate.open()
    assert run.result(LIMIT).content == 1
    assert 0 not in list(context.held.ran)


@when("the loop of the first of two coroutines that await room is closed")
def step_the_loop_of_the_first_of_two_coroutines_is_closed(context: Context) -> None:
    held = context.held = Held(context)
    loop = asyncio.new_event_loop()
    submitting = context.bridge.submit(held.node, 0)
    context.add_cleanup(submitting.close)
    loop.call_soon(submitting.send, None)  # not a task: asyncio would complain of its end
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert waiting(context) == 1
    other = other_loop(context)
    submitted = context.bridge.submit(held.node, 1)
    context.second = asyncio.run_coroutine_threadsafe(submitted, other.loop)
    until(lambda: waiting(context) == 2)
    context.bridge._engine.admission.release(held.first)


@when("a run submits two messages to its own bridge, and awaits room")
def step_a_run_submits_two_messages_to_its_own_bridge(context: Context) -> None:
    async def answer(content: Any) -> Any:
        return content

    async def node(_: object) -> None:
        await context.bridge.submit(answer, 0)
        await context.bridge.submit(answer, 1)

    run = context.bridge.create_future_task(node, None)
    context.error = run.exception(LIMIT)


@then('submit raises DeadlockError: "{words}"')
def step_submit_raises_deadlockerror(context: Context, words: str) -> None:
    assert isinstance(context.error, DeadlockError), context.error
    assert words in str(context.error), context.error
    assert context.bridge.registry.wait_idle(LIMIT)
    assert waiting(context) == 0


@when("a done-callback starts a coroutine that submits {count:d} messages")
def step_a_done_callback_starts_a_coroutine_that_submits(context: Context, count: int) -> None:
    bridge = context.bridge
    context.peak, context.answered = 0, Log()

    async def node(content: Any) -> Any:
        context.peak = max(context.peak, len(bridge.registry))
        await asyncio.sleep(0)
        return content

    async def produce() -> None:
        for number in range(count):
            run = await bridge.submit(node, number)
            run.add_done_callback(context.answered.add)

    def go_on(_: object) -> None:
        context.producing = asyncio.get_running_loop().create_task(produce())

    first = bridge.create_future_task(context.work.wait, {"value": 0})
    first.add_done_callback(go_on)  # on the loop: it has not ended yet
    context.work.release()


@then("all {count:d} are answered, and no more than {bound:d} were in flight")
def step_all_are_answered_and_no_more_than_bound_were_in_flight(
    context: Context, count: int, bound: int
) -> None:
    context.answered.wait_for(count)
    assert context.peak <= bound, context.peak


@when("a run holds the slot, and a coroutine submits {count:d} messages")
def step_a_run_holds_the_slot_and_a_coroutine_submits(context: Context, count: int) -> None:
    context.held = held = Held(context, fill=False)
    context.runs, context.error = [], None

    async def submit() -> None:
        try:
            for number in range(count):
                context.runs.append(await context.bridge.submit(held.node, number, errors="emit"))
        except BacklogFullError as error:
            context.error = error

    other_loop(context).run(submit())


@then("submit returned {futures}")
def step_submit_returned_futures(context: Context, futures: str) -> None:
    dropped = [run for run in context.runs if run.done()]
    assert all(run.result(0).status == "rejected" for run in dropped)
    if "BacklogFullError" in futures:
        assert (len(context.runs), len(dropped)) == (1, 0)
        assert context.error is not None
    else:
        assert (len(context.runs), len(dropped)) == (3, 2)


@then("submit with {case} does what create_future_task does")
def step_submit_with_case_does_what_create_future_task_does(context: Context, case: str) -> None:
    bridge, options = context.bridge, eval(f"dict({case})")

    async def fail(content: Any) -> Any:
        raise LookupError(content)

    async def outcome(send: Callable[[], Awaitable[Any]]) -> Any:
        try:
            run = await send()
            result = await run
        except Exception as error:
            return type(error), str(error)
        return result.status, result.thread_id, type(result.error), run.options.name

    async def create() -> Any:
        return bridge.create_future_task(fail, 1, **options)

    async def compare() -> tuple[Any, Any]:
        return await outcome(create), await outcome(lambda: bridge.submit(fail, 1, **options))

    created, submitted = asyncio.run(compare())
    assert created == submitted, (created, submitted)


@then('submit with an unknown argument is refused: "{words}"')
def step_submit_with_an_unknown_argument_is_refused(context: Context, words: str) -> None:
    async def submit() -> None:
        await context.bridge.submit(print, 1, tread_id="t")

    try:
        asyncio.run(submit())
    except TypeError as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was accepted")


@then("RunArguments names the keyword arguments of create_future_task")
def step_runarguments_names_the_keyword_arguments_of_create_future_task(context: Context) -> None:
    parameters = inspect.signature(RxPyLangGraphBridge.create_future_task).parameters.values()
    keywords = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    assert set(RunArguments.__annotations__) == set(keywords)
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY:
            annotation = RunArguments.__annotations__[each.name]
            assert getattr(annotation, "__forward_arg__", annotation) == each.annotation, each
