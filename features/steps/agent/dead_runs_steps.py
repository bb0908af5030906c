from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState, BaseAgent, OutputQueue
from rxlanggraph.agent import agent as agent_module
from rxlanggraph.agent import run as run_module
from rxlanggraph.errors import AgentError
from support.agent.output_crowds import listed
from support.concurrency.patching import patch
from support.concurrency.raising import check_error, raised
from support.concurrency.tasks import in_thread, run
from support.concurrency.waiting import LIMIT, Gate


class Putting(BaseAgent):
    """Puts out what it is asked; ends as `ends` says, and leaves behind what `leaves` starts."""

    def __init__(self, **options: Any) -> None:
        super().__init__("putting", timeout=LIMIT, **options)
        self.ends: Callable[[], Awaitable[Any]] = answer
        self.leaves: Callable[[BaseAgent], object] = lambda _: None
        self.begun = asyncio.Event()
        self.cut_off: list[Any] = []

    async def step(self) -> Any:
        ends, self.ends = self.ends, answer
        leaves, self.leaves = self.leaves, lambda _: None
        leaves(self)
        if self.request is not None:
            await self.output_queue.put(self.request)
        self.begun.set()
        return await ends()


async def answer() -> str:
    await asyncio.sleep(0)
    return "answer"


async def fail() -> None:
    raise LookupError("on demand")


async def hang() -> None:
    await asyncio.Event().wait()


async def end_well(agent: Putting, request: str) -> None:
    await agent.run(request)


async def fails(agent: Putting, request: str) -> None:
    agent.ends = fail
    with contextlib.suppress(LookupError):
        await agent.run(request)


async def times_out(agent: Putting, request: str) -> None:
    agent.ends = hang
    with contextlib.suppress(TimeoutError):
        await agent.run(request, 0.05)


async def is_cancelled(agent: Putting, request: str) -> None:
    agent.ends = hang
    task = asyncio.create_task(agent.run(request))
    await agent.begun.wait()
    agent.begun.clear()
    task.cancel()
    await asyncio.wait([task])


async def is_cut_off(agent: Putting, request: str) -> None:
    def begin() -> None:
        loop = asyncio.new_event_loop()
        agent.begun = asyncio.Event()
        task = loop.create_task(agent.run(request))
        loop.run_until_complete(agent.begun.wait())
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        cut_off.append(task)

    agent.ends = hang
    cut_off: list[Any] = []
    await asyncio.to_thread(in_thread, begin)
    agent.cut_off = cut_off


ENDS = {
    "ends well": end_well,
    "fails": fails,
    "times out": times_out,
    "is cancelled": is_cancelled,
    "is cut off": is_cut_off,
}


# -- output ----------------------------------------------------------------------------------------


@given(
    'a queue that a run has put "{item}" into before it failed, and a consumer reads now and then'
)
def a_queue_that_a_run_has_put_into(context: Context, item: str) -> None:
    context.queue = OutputQueue()
    context.reader = context.queue.stream()
    context.queue.begin()
    context.queue.put_nowait(item)
    context.queue.end()


@when('the next run puts "{item}", and its caller reads')
def the_next_run_puts(context: Context, item: str) -> None:
    context.queue.begin()
    context.queue.put_nowait(item)
    stream = context.queue.stream()
    context.queue.end()
    context.got = run(listed(stream))


@given("an agent that puts out what it is asked")
def an_agent_that_puts_out_what_it_is_asked(context: Context) -> None:
    context.agent = Putting()


@given("an agent that puts out what it is asked, and whose output a consumer reads now and then")
def step_an_agent_that_puts_out_what_it_is_asked_and_whose_output(context: Context) -> None:
    context.agent = Putting()
    context.reader = context.agent.stream()


@when('a run puts out "{item}" and {ended}')
def step_a_run_puts_out_item_and_ended(context: Context, item: str, ended: str) -> None:
    context.doing = lambda: ENDS[ended](context.agent, item)


@when('the next caller asks for "{item}", and reads {how}')
def the_next_caller_asks_and_reads(context: Context, item: str, how: str) -> None:
    agent = context.agent

    async def main() -> list[Any]:
        await context.doing()
        if how == "in a stream of its own":
            return await listed(agent.stream(item))
        await agent.run(item)
        return await listed(agent.stream())

    context.got = run(main())
    for task in agent.cut_off:
        task.get_coro().close()
    agent.cut_off.clear()


@then('the caller has "{item}" alone')
def step_the_caller_has_item_alone(context: Context, item: str) -> None:
    assert context.got == [item], context.got


@when('two runs put out "{one}" and "{two}", and a consumer reads twice')
def two_runs_put_out(context: Context, one: str, two: str) -> None:
    async def main() -> list[Any]:
        for item in (one, two):
            await context.agent.run(item)
        return [await context.agent.output_queue.get() for _ in range(2)]

    context.got = run(main())


@then('the reader has "{one}" and "{two}"')
def the_reader_has(context: Context, one: str, two: str) -> None:
    assert context.got == [one, two], context.got


# -- leftovers -------------------------------------------------------------------------------------


class Leftover:
    """Something that a run has started, which puts when it is told, and keeps its error."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.gate = Gate()
        self.error: Exception | None = None
        self.ended: Any = None

    def start(self, agent: BaseAgent) -> None:
        if self.kind == "a thread":
            work = contextvars.copy_context().run
            thread = threading.Thread(target=work, args=(self._put_in_thread, agent), daemon=True)
            thread.start()
            self.ended = asyncio.to_thread(thread.join, LIMIT)
        else:
            self.ended = asyncio.create_task(self._put(agent))

    def _put_in_thread(self, agent: BaseAgent) -> None:
        self.gate.wait()
        try:
            agent.output_queue.put_nowait("secret")
        except Exception as error:
            self.error = error

    async def _put(self, agent: BaseAgent) -> None:
        try:
            if self.kind == "a task":
                await self.gate.wait_async()
            await agent.output_queue.put("secret")
        except Exception as error:
            self.error = error


@when('a run that {ended} leaves {kind} behind, which puts out "secret" during the next run')
def step_a_run_that_ended_leaves_kind_behind_which_puts_out_secret(
    context: Context, ended: str, kind: str
) -> None:
    agent, leftover = context.agent, Leftover(kind)

    async def put_late() -> str:
        leftover.gate.open()
        await leftover.ended  # one that waited for room had it as this run began
        return "answer"

    async def main() -> list[Any]:
        agent.leaves = leftover.start
        if kind == "a task that waits for room":
            agent.output_queue._capacity.size = 1
            agent.output_queue.put_nowait("full")
            await agent.run(None)
        else:
            await ENDS[ended](agent, "first")
        agent.ends = put_late
        return await listed(agent.stream("mine"))

    context.leftover, context.got = leftover, run(main())


@then('the leftover has an AgentError that says "{word}", and the caller has "{item}" alone')
def step_the_leftover_has_an_agenterror_that_says_word_and_the(
    context: Context, word: str, item: str
) -> None:
    assert isinstance(context.leftover.error, AgentError), context.leftover.error
    assert word in str(context.leftover.error)
    assert context.got == [item], context.got


# -- state -----------------------------------------------------------------------------------------


@when("a run leaves a task behind that is {where} THINKING")
def step_a_run_leaves_a_task_behind_that_is_where_thinking(context: Context, where: str) -> None:
    agent, gate = context.agent, Gate()

    async def think() -> None:
        if where == "about to enter":
            await gate.wait_async()
        with contextlib.suppress(AgentError), agent.state_context(AgentState.THINKING):
            await gate.wait_async()

    async def main() -> None:
        tasks: list[asyncio.Task[None]] = []
        agent.leaves = lambda _: tasks.append(asyncio.create_task(think()))
        await agent.run("request")
        context.seen = [agent.state]
        gate.open()
        while not tasks[0].done():
            await asyncio.sleep(0)
            context.seen.append(agent.state)
        await tasks[0]
        context.seen.append(agent.state)

    run(main())


@then("the agent is IDLE, and stays so when the task has ended")
def the_agent_is_idle_and_stays_so(context: Context) -> None:
    assert set(context.seen) == {AgentState.IDLE}, context.seen


# -- a stream of one's own -------------------------------------------------------------------------


@when("{count:d} callers iterate over streams of their own requests at once")
def callers_iterate_over_streams_of_their_own(context: Context, count: int) -> None:
    async def ask(number: int) -> list[Any]:
        return await listed(context.agent.stream(f"for {number}", on_busy="enqueue"))

    async def main() -> list[Any]:
        return await asyncio.gather(*map(ask, range(count)))

    context.got = run(main())


@then("each has what it asked for, and nothing else")
def each_has_what_it_asked_for(context: Context) -> None:
    assert context.got == [[f"for {number}"] for number in range(len(context.got))], context.got


@then("nothing is left in the agent's output")
def nothing_is_left_in_the_output(context: Context) -> None:
    assert context.agent.output_queue.empty(), context.agent.output_queue


@given("an agent whose output has room for one, which is full")
def an_agent_whose_output_is_full(context: Context) -> None:
    context.agent = Putting(output_size=1)
    context.reader = context.agent.stream()
    context.agent.output_queue.put_nowait("full")


@when("a caller iterates over the stream of a request, and the run {how}")
def a_caller_iterates_over_the_stream(context: Context, how: str) -> None:
    agent = context.agent
    agent.ends = {"fails": fail, "times out": hang}.get(how, answer)
    timeout = 0.05 if how == "times out" else LIMIT

    async def collect() -> None:
        async for item in agent.stream("asked", timeout):
            context.got.append(item)

    async def main() -> None:
        if how != "finds another one in":
            await collect()
            return
        agent.ends = hang
        other = asyncio.create_task(agent.run("other"))
        await agent.begun.wait()
        try:
            await collect()
        finally:
            other.cancel()
            await asyncio.wait([other])

    context.got, context.error = [], None
    try:
        run(main())
    except Exception as error:
        context.error = error


@then('the stream gives "{item:Text}", and ends with {end:w}')
def the_stream_gives_item_and_ends_with_end(context: Context, item: str, end: str) -> None:
    assert context.got == ([item] if item else []), context.got
    found = "nothing" if context.error is None else type(context.error).__name__
    assert found == end, context.error


async def close(stream: Any) -> None:
    await stream.aclose()


async def leave_block(stream: Any) -> None:
    async with stream:
        pass


@when("a caller takes one item of a run that hangs, and the stream is {let_go}")
def a_caller_takes_one_item(context: Context, let_go: str) -> None:
    agent = context.agent

    async def main() -> None:
        agent.ends = hang
        stream = agent.stream("asked")
        assert await anext(stream) == "asked"
        task = stream._task
        if let_go == "closed":
            await stream.aclose()
        elif let_go == "left by its block":
            async with stream:
                pass
        elif let_go == "closed on another loop":
            await asyncio.to_thread(lambda: run(stream.aclose()))
        elif let_go == "dropped in a thread":
            held = [stream]
            del stream
            await asyncio.to_thread(held.clear)
        else:
            del stream
            gc.collect()
        async with asyncio.timeout(LIMIT):
            # At its end the run hands on to the one in line.
            context.answer = await agent.run("next", on_busy="enqueue")
        await asyncio.wait([task], timeout=LIMIT)  # its last steps, if it was dropped
        assert task.cancelled(), task

    run(main())


@when(
    "a caller takes one item of a run that hangs, closes its loop, and closes the stream on another"
)
def step_a_caller_takes_one_item_of_a_run_that_hangs_closes(context: Context) -> None:
    context.agent.ends = hang
    stream = context.agent.stream("asked")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    loop.close()
    context.cut_off = stream._task
    context.cut_off._log_destroy_pending = False
    run(stream.aclose())


@then("the agent answers the next request")
def step_the_agent_answers_the_next_request(context: Context) -> None:
    assert run(context.agent.run("next", on_busy="enqueue")) == "answer"
    context.cut_off.get_coro().close()
    del context.cut_off


@when("a caller begins the stream of a request, another loop steps, and the caller goes on")
def step_a_caller_begins_the_stream_of_a_request_another_loop(context: Context) -> None:
    gate = Gate()

    async def answer_later() -> str:
        await gate.wait_async()
        return "answer"

    async def main() -> list[Any]:
        context.agent.ends = answer_later
        stream = context.agent.stream("asked")
        first = asyncio.create_task(anext(stream))
        await context.agent.begun.wait()
        context.refused = await asyncio.to_thread(lambda: run(raised(anext(stream))))
        gate.open()
        return [await first, *await listed(stream)]

    context.error, context.got = None, run(main())


@then("the other loop got {error:w}")
def step_the_other_loop_got_error(context: Context, error: str) -> None:
    check_error(context.refused, error)


@then("the run is cancelled, and the agent answers the next request")
def the_run_is_cancelled(context: Context) -> None:
    assert context.answer == "answer"
    assert context.agent.state is AgentState.IDLE


@when("a caller's step in a stream of its own is cancelled, and it takes another")
def a_step_is_cancelled(context: Context) -> None:
    gate = Gate()

    class Later(Putting):
        async def step(self) -> Any:
            await gate.wait_async()
            await self.output_queue.put(self.request)
            return "answer"

    async def main() -> list[Any]:
        agent = Later()
        stream = agent.stream("asked")
        step = asyncio.create_task(anext(stream))
        for _ in range(10):
            await asyncio.sleep(0)
        step.cancel()
        await asyncio.wait([step])
        gate.open()
        return await listed(stream)

    context.error, context.got = None, run(main())


WITH: dict[str, Callable[[BaseAgent], Any]] = {
    "a request and a broadcast": lambda agent: agent.stream("asked", broadcast=True),
    "a policy and no request": lambda agent: agent.stream(on_busy="enqueue"),
    "a request and a timeout of -1": lambda agent: agent.stream("asked", -1),
}


@when("a stream is asked for with {what}")
def a_stream_is_asked_for_with(context: Context, what: str) -> None:
    try:
        context.answer = WITH[what](context.agent)
    except Exception as error:
        context.error = error


# -- nothing is kept -------------------------------------------------------------------------------


@when("it has run, and has been iterated over, while the collector does not run")
def it_has_run_while_the_collector_does_not(context: Context) -> None:
    context.alive = weakref.WeakSet()

    class Known(run_module.AgentRun):
        __slots__ = ("__weakref__",)

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            context.alive.add(self)

    patch(context, agent_module, "AgentRun", Known)

    async def main() -> None:
        await context.agent.run("hello")
        assert await listed(context.agent.stream("hello")) == ["olleh"]
        await asyncio.sleep(0)
        context.left = len(context.alive)

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


@then("nothing of either run is kept")
def nothing_of_either_run_is_kept(context: Context) -> None:
    assert context.left == 0, list(context.alive)
