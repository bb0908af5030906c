from __future__ import annotations

import asyncio
import contextlib
import pickle
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.cli.loading import find_target, graph_of_worker
from rxlanggraph.executors import LocalExecutor, pool
from rxlanggraph.executors.host import GraphHost
from rxlanggraph.executors.payloads import RemoteCall, dump_call, load_error
from rxlanggraph.langgraph_tasks import LangGraphTasks
from support.concurrency.listening import listening
from support.concurrency.patching import patch
from support.concurrency.pauses import until
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import LIMIT, Gate
from support.executors import graphs
from support.executors.holding import holding
from support.executors.in_process import InProcessExecutor
from support.executors.meeting import Meeting
from support.executors.world import begin, open_bridge, send

PLAIN = "support.executors.graphs:plain"


# -- batches ---------------------------------------------------------------------------------------


@then("each worker had some of them")
def step_each_worker_had_some_of_them(context: Context) -> None:
    assert [bool(worker.batches) for worker in context.executor.workers] == [True, True]


@when("{count:d} messages are handed over in one step of the loop, and then one alone")
def step_messages_are_handed_over_in_one_step_of_the_loop(context: Context, count: int) -> None:
    context.bridge.create_future_task(context.graph, {"n": 0}).result(LIMIT)  # workers have started

    async def hand_over(_: object) -> list[Any]:
        make = partial(context.bridge.create_future_task, context.graph)
        return [make({"n": n}) for n in range(count)]

    loop = context.bridge._engine.inbox.loop
    for run in asyncio.run_coroutine_threadsafe(hand_over(None), loop).result(LIMIT):
        run.result(LIMIT)
    context.bridge.create_future_task(context.graph, {"n": 0}).result(LIMIT)


@then("no worker had more than {batches:d} batches, and the largest had {calls:d} calls")
def step_no_worker_had_more_than_batches_and_the_largest_had(
    context: Context, batches: int, calls: int
) -> None:
    sent = [worker.batches for worker in context.executor.workers]
    assert all(len(each) <= batches for each in sent), sent
    assert max(map(max, sent)) == calls, sent


@then("no worker had more than {calls:d} calls at once")
def step_no_worker_had_more_than_calls_at_once(context: Context, calls: int) -> None:
    most = [worker.most for worker in context.executor.workers]
    assert max(most) == calls, most


# -- faults ----------------------------------------------------------------------------------------


@when("a message begins on a thread, and another one interrupts it")
def step_a_message_begins_on_a_thread_and_another_one_interrupts(context: Context) -> None:
    port = context.meeting.port
    make = partial(context.bridge.create_future_task, context.graph, errors="emit")
    first = make(StreamMessage({"n": 0, "port": port}, "t"))
    begin(context, 1)
    second = make(StreamMessage({"n": 1, "port": port}, "t"), multitask_strategy="interrupt")
    context.runs = [first, second]


@then("the other one waits until the first has cleaned up, and then has its result")
def step_the_other_one_waits_until_the_first_has_cleaned_up(context: Context) -> None:
    first, second = context.runs
    assert context.guests[0].said() == "cancelled"
    check_error(first.result(LIMIT).error, "RunInterruptedError")
    assert first in context.bridge.registry and not second.running()
    context.guests[0].tell("clean")
    (guest,) = context.meeting.wait_for(1)
    assert first not in context.bridge.registry
    guest.tell()
    assert second.result(LIMIT).content["n"] == 1


@when("a worker is lost while it is idle")
def step_a_worker_is_lost_while_it_is_idle(context: Context) -> None:
    async def lose() -> None:
        context.executor.workers[0].lost.set()
        await asyncio.sleep(0)  # the pool is told in the same iteration of the loop

    loop = context.bridge._engine.inbox.loop
    asyncio.run_coroutine_threadsafe(lose(), loop).result(LIMIT)


@then("there was a third worker")
def step_there_was_a_third_worker(context: Context) -> None:
    assert len(context.executor.workers) == 3


@when("it begins once more, and the next worker is lost")
def step_it_begins_once_more_and_the_next_worker_is_lost(context: Context) -> None:
    begin(context, 1)
    worker = context.executor.workers[1]
    context.bridge._engine.inbox.loop.call_soon_threadsafe(worker.lost.set)
    context.error = error_of(lambda: context.runs[0].result(LIMIT))


@then("no more than {count:d} chunks have left the worker")
def step_no_more_than_chunks_have_left_the_worker(context: Context, count: int) -> None:
    async def settle() -> None:
        for _ in range(20 * context.count):  # enough steps for all chunks, if nothing held them up
            await asyncio.sleep(0)

    loop = context.bridge._engine.inbox.loop
    asyncio.run_coroutine_threadsafe(settle(), loop).result(LIMIT)
    (worker,) = context.executor.workers
    (call,) = worker.host._calls.values()
    (seat,) = context.executor.pool._seats
    assert call.credits == 0
    assert 0 < len(seat.calls[call.key].chunks) <= count // 2  # the other half is in the bridge


@when("{count:d} messages are sent and begin, and the bridge is closed")
def step_messages_are_sent_and_begin_and_the_bridge_is_closed(context: Context, count: int) -> None:
    send(context, count)
    begin(context, count)
    for guest in context.guests.values():
        guest.tell("clean")  # read when it is cancelled: as its word to go on it has no effect
    context.bridge.close(0)


@when("{count:d} messages are sent and begin, and the bridge's aclose is cancelled")
def step_messages_are_sent_and_begin_and_the_bridges_aclose_is_cancelled(
    context: Context, count: int
) -> None:
    send(context, count)
    begin(context, count)
    for guest in context.guests.values():
        guest.tell("clean")

    async def close_and_cancel() -> None:
        closing = asyncio.create_task(context.bridge.aclose(None))
        await until(lambda: context.bridge.registry.state != "open")
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()

    asyncio.run(close_and_cancel())
    assert context.bridge.registry.wait_idle(LIMIT)


@then("its workers were told to end")
def step_its_workers_were_told_to_end(context: Context) -> None:
    assert context.executor.disconnected.wait(LIMIT)


@then("their futures are cancelled, and each has cleaned up")
def step_their_futures_are_cancelled_and_each_has_cleaned_up(context: Context) -> None:
    assert all(run.done() for run in context.runs)
    assert len(context.bridge.registry) == 0


@given("a host of a sync function that waits")
@given("a host of a sync function that waits, for {most:d} calls")
def step_a_host_of_a_sync_function_that_waits(context: Context, most: int = 4) -> None:
    context.begun, context.gate = Gate(), Gate()

    def function(_: object) -> str:
        context.begun.open()
        context.gate.wait()
        return "done"

    context.host = GraphHost(lambda: function, (), most, pickle.dumps)


@when("a call of it is cancelled")
def step_a_call_of_it_is_cancelled(context: Context) -> None:
    async def main() -> list[Any]:
        assert (await context.host.open())[0] == "open"
        data = dump_call(RemoteCall((), False, (None,), {}, {}), pickle.dumps)
        events = context.host.execute([(1, data)])
        step = asyncio.ensure_future(anext(events))
        await context.begun.wait_async()
        context.host.control([("cancel", 1, 0)])
        context.host.control([("cancel", 1, 0)])
        for _ in range(5):
            await asyncio.sleep(0)
        context.early = step.done()
        context.gate.open()
        async with asyncio.timeout(LIMIT):
            happened = await step
        await events.aclose()
        await context.host.close()
        return happened

    context.events = asyncio.run(main())


@then("the call has not ended before the function returns")
def step_the_call_has_not_ended_before_the_function_returns(context: Context) -> None:
    assert not context.early
    assert context.events == [(1, "cancelled", b"")]


@when("a call of it is cancelled before it arrives")
def step_a_call_of_it_is_cancelled_before_it_arrives(context: Context) -> None:
    async def main() -> list[Any]:
        assert (await context.host.open())[0] == "open"
        context.host.control([("cancel", 1, 0)])
        await asyncio.sleep(0)
        data = dump_call(RemoteCall((), False, (None,), {}, {}), pickle.dumps)
        happened = [events async for events in context.host.execute([(1, data)])]
        await context.host.close()
        return happened

    context.events = asyncio.run(main())


@then("the call is cancelled, and the function was not called")
def step_the_call_is_cancelled_and_the_function_was_not_called(context: Context) -> None:
    assert context.events == [[(1, "cancelled", b"")]], context.events
    assert not context.begun.is_open


class WaitingSaver(InMemorySaver):
    """Saves when the gate is open."""

    def __init__(self, inside: Gate, gate: Gate) -> None:
        super().__init__()
        self._inside, self._gate = inside, gate

    async def aput(self, *arguments: Any) -> Any:
        self._inside.open()
        await self._gate.wait_async()
        return await super().aput(*arguments)


@given("a host of a graph whose saver waits")
def step_a_host_of_a_graph_whose_saver_waits(context: Context) -> None:
    context.inside, context.gate = Gate(), Gate()
    graph = graphs.counting(WaitingSaver(context.inside, context.gate))
    context.host = GraphHost(lambda: graph, (), 4, pickle.dumps)


@when("a call of it is cancelled while it saves, again and again")
def step_a_call_of_it_is_cancelled_while_it_saves_again_and_again(context: Context) -> None:
    waiting = Gate()
    end = LangGraphTasks.until_ended

    async def noted(self: LangGraphTasks, scope: Any) -> None:
        waiting.open()
        await end(self, scope)

    patch(context, LangGraphTasks, "until_ended", noted)

    async def main() -> list[Any]:
        assert (await context.host.open())[0] == "open"
        content, config = {"word": "a"}, {"configurable": {"thread_id": "t"}}
        asked = RemoteCall(("ainvoke",), False, (content, config), {}, {})
        events = context.host.execute([(1, dump_call(asked, pickle.dumps))])
        step = asyncio.ensure_future(anext(events))
        await context.inside.wait_async()
        for _ in iter(lambda: waiting.is_open, True):
            context.host.control([("cancel", 1, 0)])
            await asyncio.sleep(0)
        context.host.control([("cancel", 1, 0)])  # what its graph has left behind is waited for
        async with asyncio.timeout(LIMIT):
            happened = await step
        context.gate.open()
        await events.aclose()
        await context.host.close()
        return happened

    context.events = asyncio.run(main())


@then("the call has ended as cancelled")
def step_the_call_has_ended_as_cancelled(context: Context) -> None:
    assert context.events == [(1, "cancelled", b"")], context.events


@when("a batch of {count:d} calls is cancelled before it arrives")
def step_a_batch_of_calls_is_cancelled_before_it_arrives(context: Context, count: int) -> None:
    context.add_cleanup(context.gate.open)

    async def main() -> list[Any]:
        assert (await context.host.open())[0] == "open"
        context.host.control([("cancel", key, 0) for key in range(count)])
        await asyncio.sleep(0)
        data = dump_call(RemoteCall((), False, (None,), {}, {}), pickle.dumps)
        happened = []
        async for events in context.host.execute([(key, data) for key in range(count)]):
            happened += events
            context.gate.open()
        await context.host.close()
        return happened

    context.events = asyncio.run(main())


@then("all {count:d} calls are cancelled, and the function was not called")
def step_all_calls_are_cancelled_and_the_function_was_not_called(
    context: Context, count: int
) -> None:
    assert context.events == [(key, "cancelled", b"") for key in range(count)]
    assert not context.begun.is_open


@given("a host of a graph that meets")
def step_a_host_of_a_graph_that_meets(context: Context) -> None:
    context.meeting = Meeting()
    context.add_cleanup(context.meeting.__exit__, None, None, None)
    context.host = GraphHost(lambda: graphs.meeting, (), 4, pickle.dumps)


@when("it is closed during a call")
def step_it_is_closed_during_a_call(context: Context) -> None:
    async def main() -> list[Any]:
        assert (await context.host.open())[0] == "open"
        content = {"n": 0, "port": context.meeting.port}
        data = dump_call(RemoteCall(("ainvoke",), False, (content,), {}, {}), pickle.dumps)
        events = context.host.execute([(1, data)])
        step = asyncio.ensure_future(anext(events))
        (guest,) = await asyncio.to_thread(context.meeting.wait_for, 1)
        async with asyncio.timeout(LIMIT):
            closing = asyncio.ensure_future(context.host.close())
            assert await asyncio.to_thread(guest.said) == "cancelled"
            guest.tell("clean")
            await closing
            happened = await step
        await events.aclose()
        context.left = [*context.host._calls]
        return happened

    context.events = asyncio.run(main())


@then("the call is cancelled, and nothing is left")
def step_the_call_is_cancelled_and_nothing_is_left(context: Context) -> None:
    assert context.events == [(1, "cancelled", b"")], context.events
    assert context.left == []


def nothing_left() -> Any:
    raise StopIteration("nothing left")


HOSTED = {
    "a number": lambda: 7,
    "a factory that divides by zero": graphs.failing_factory,
    "a factory that has nothing left": nothing_left,
}


@given("a host of {what}")
def step_a_host_of(context: Context, what: str) -> None:
    context.host = GraphHost(HOSTED[what], (), 4, pickle.dumps)


@then('it opens with {error:w}, which says "{words}"')
def step_it_opens_with_which_says(context: Context, error: str, words: str) -> None:
    kind, data = asyncio.run(context.host.open())
    assert kind == "error"
    check_error(load_error(data), error, words)


# -- factories -------------------------------------------------------------------------------------


async def make_async() -> Any:
    return graphs.plain


@contextlib.contextmanager
def enter() -> Iterator[Any]:
    yield graphs.plain


@contextlib.asynccontextmanager
async def enter_async() -> AsyncIterator[Any]:
    yield graphs.plain


FACTORIES: dict[str, Any] = {
    "a function": graphs.plain_factory,
    "an async function": make_async,
    "a context manager": enter,
    "an async context manager": enter_async,
    "the name of a function": "support.executors.graphs:plain_factory",
}


@given("a bridge for what a factory makes, {kind}, with {workers:d} workers in this process")
def step_a_bridge_for_what_a_factory_makes(context: Context, kind: str, workers: int) -> None:
    context.factory = FACTORIES[kind]
    open_bridge(context, InProcessExecutor(context.factory, workers=workers), graphs.plain)


@given('a bridge for the place of the graph "{name}", with {workers:d} workers in this process')
def step_a_bridge_for_the_place_of_the_graph(context: Context, name: str, workers: int) -> None:
    target = find_target(f"support.executors.graphs:{name}")
    factory = partial(graph_of_worker, target, None, str(Path.cwd()))
    open_bridge(context, InProcessExecutor(factory, workers=workers), getattr(graphs, name))


@when("that bridge is passed {what}")
def step_that_bridge_is_passed(context: Context, what: str) -> None:
    graph = {
        "its factory": graphs.plain_factory,
        "a name": PLAIN,
        "a sequence of graphs": graphs.plain | graphs.plain,
    }[what]
    context.error = error_of(lambda: context.bridge.create_future_task(graph, {"n": 1}))


@when("{count:d} messages are sent, and calls are kept back for less than it takes them to meet")
def step_messages_are_sent_and_calls_are_kept_back_for_less(context: Context, count: int) -> None:
    patch(context, pool, "_KEPT_BACK", 0.1)
    send(context, count)
    begin(context, count)


@then("all {count:d} begin in the other worker, and end with their results")
def step_all_begin_in_the_other_worker_and_end_with_their_results(
    context: Context, count: int
) -> None:
    assert len(context.guests) == count and len(context.executor.workers) == 1
    for n, run in enumerate(context.runs):
        context.guests[n].tell()
        assert run.result(LIMIT).content["n"] == n


# -- pauses ----------------------------------------------------------------------------------------


@when(
    "a worker is lost while it is idle, and the next start fails, "
    "with a pause of {seconds:g} seconds"
)
def step_a_worker_is_lost_while_it_is_idle_and_the_next_start_fails(
    context: Context, seconds: float
) -> None:
    async def lose() -> None:
        context.executor.failing_starts = 1
        context.executor.workers[0].lost.set()
        await until(lambda: context.executor.pool._pause is not None)

    patch(context, pool, "_FIRST_PAUSE", seconds)
    patch(context, pool, "_LONGEST_PAUSE", seconds)
    loop = context.bridge._engine.inbox.loop
    asyncio.run_coroutine_threadsafe(lose(), loop).result(LIMIT)


@then("after the pause there is a third worker")
def step_after_the_pause_there_is_a_third_worker(context: Context) -> None:
    async def third() -> None:
        await until(lambda: len(context.executor.workers) == 3)

    loop = context.bridge._engine.inbox.loop
    asyncio.run_coroutine_threadsafe(third(), loop).result(LIMIT)


@when("that bridge is closed")
def step_that_bridge_is_closed(context: Context) -> None:
    with listening("rxlanggraph") as context.said:
        context.bridge.close()


@then("no other start follows")
def step_no_other_start_follows(context: Context) -> None:
    assert context.executor.pool._pause is None
    assert len(context.executor.workers) == 2


@given("its workers cannot be ended")
def step_its_workers_cannot_be_ended(context: Context) -> None:
    context.executor.disconnecting = OSError("they do not answer")


@then("the log says that they could not be ended")
def step_the_log_says_that_they_could_not_be_ended(context: Context) -> None:
    assert any("could not be ended" in said for said in context.said), context.said


@when("messages with the numbers 0 and {number:d} are sent")
def step_messages_with_the_numbers_0_and_are_sent(context: Context, number: int) -> None:
    runs = [context.bridge.create_future_task(context.graph, {"n": n}) for n in (0, number)]
    context.result = runs[0].result(LIMIT)
    context.error = error_of(lambda: runs[1].result(LIMIT))


@then('the first has its result, and the other fails with {error:w}, which says "{words}"')
def step_the_first_has_its_result_and_the_other_fails(
    context: Context, error: str, words: str
) -> None:
    assert context.result.content["n"] == 0
    check_error(context.error, error, words)


@when("a run whose chunk cannot be read here is streamed")
def step_a_run_whose_chunk_cannot_be_read_here_is_streamed(context: Context) -> None:
    async def read() -> list[Any]:
        async with asyncio.timeout(LIMIT):
            chunks = context.bridge.astream(context.graph, {"n": 1}, stream_mode="custom")
            return [chunk async for chunk in chunks]

    context.error = error_of(lambda: asyncio.run(read()))


@then("nothing of it is left in the worker")
def step_nothing_of_it_is_left_in_the_worker(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    (worker,) = context.executor.workers
    assert not worker.host._calls


# -- savers ----------------------------------------------------------------------------------------


@given("a bridge for a graph that counts in a file, with {workers:d} workers in this process")
def step_a_bridge_for_a_graph_that_counts_in_a_file(context: Context, workers: int) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    factory = holding_in(str(Path(folder.name, "threads.sqlite")), context)
    graph = holding(context.inside, context.gate, None)
    open_bridge(context, InProcessExecutor(factory, workers=workers), graph)
    context.add_cleanup(context.gate.open)


@given(
    "a bridge for a graph that counts in the memory of each of {workers:d} workers in this process"
)
def step_a_bridge_for_a_graph_that_counts_in_the_memory_of_each(
    context: Context, workers: int
) -> None:
    context.inside, context.gate = Gate(), Gate()
    patch(context, pool, "check_parts_in_memory", lambda *_: None)

    def factory() -> Any:
        return holding(context.inside, context.gate, InMemorySaver())

    open_bridge(context, InProcessExecutor(factory, workers=workers), factory())
    context.add_cleanup(context.gate.open)


def holding_in(path: str, context: Context) -> Any:
    """A factory of graphs with their threads in a SQLite file."""
    context.inside, context.gate = Gate(), Gate()

    @contextlib.asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            yield holding(context.inside, context.gate, saver)

    return make


@when("a run holds one worker, after a message to a thread there, and another message follows")
def step_a_run_holds_one_worker_after_a_message_to_a_thread_there(context: Context) -> None:
    make = partial(context.bridge.create_future_task, context.graph)

    def send(thread: str, hold: str = "") -> Any:
        return make(StreamMessage({"hold": hold}, thread))

    send("t").result(LIMIT)  # by the first worker, as all that come one by one
    held = send("another", "wait")
    context.inside.wait()
    context.result = send("t").result(LIMIT)
    context.gate.open()
    held.result(LIMIT)


@then("the thread has counted both")
def step_the_thread_has_counted_both(context: Context) -> None:
    assert context.result.content["count"] == 2, context.result.content


# -- refusals --------------------------------------------------------------------------------------


@when("a bridge for other processes is made with an executor that is not one")
def step_a_bridge_for_other_processes_is_made_with_an_executor(context: Context) -> None:
    executor: Any = object()
    context.error = error_of(lambda: RxPyLangGraphBridge(executor=executor))


@when("the bridge is passed {what}")
def step_the_bridge_is_passed(context: Context, what: str) -> None:
    graph = {
        "another graph": graphs.failing,
        "a function": lambda content: content,
        "its graph": context.graph,
        "the name of its graph": PLAIN,
    }[what]
    context.error = error_of(
        lambda: setattr(
            context, "result", context.bridge.create_future_task(graph, {"n": 1}).result(LIMIT)
        )
    )


# -- questions -------------------------------------------------------------------------------------


@when("the graph asks on a thread, new input follows, and then the answer")
def step_the_graph_asks_on_a_thread_new_input_follows_and_then(context: Context) -> None:
    make = partial(context.bridge.create_future_task, context.graph, errors="emit")
    context.asked = make(StreamMessage({"n": 0}, "t")).result(LIMIT)
    context.refused = make(StreamMessage({"n": 0}, "t")).result(LIMIT)
    context.answered = make(context.asked.reply(7)).result(LIMIT)


@then("the input was rejected with PendingInterruptError, and the answer is the result")
def step_the_input_was_rejected_with_pendinginterrupterror_and_the(context: Context) -> None:
    assert (
        context.asked.status == "interrupted" and context.asked.interrupts[0].value == "how many?"
    )
    check_error(context.refused.error, "PendingInterruptError")
    assert context.answered.status == "ok" and context.answered.content["n"] == 7
    pending = context.bridge.pending_interrupts(context.graph)
    assert asyncio.run(pending) == ()


@when("the graph asks on a thread, and a page is made that is given it by its name")
def step_the_graph_asks_on_a_thread_and_a_page_is_made(context: Context) -> None:
    # Its question stays, in the memory that the scenarios share.
    context.thread_id = uuid4().hex
    message = StreamMessage({"n": 0}, context.thread_id)
    context.bridge.create_future_task(context.graph, message).result(LIMIT)
    context.page = context.bridge.live_app(graphs=["support.executors.graphs:asking"])


@then("the page shows the question")
def step_the_page_shows_the_question(context: Context) -> None:
    async def shown() -> list[Any]:
        transport = httpx.ASGITransport(context.page)
        headers = {"authorization": f"Bearer {context.page.token}"}
        async with (
            asyncio.timeout(LIMIT),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            while True:  # the first request begins to read
                snapshot = (await client.get("/api/snapshot", headers=headers)).json()
                if snapshot["interrupts"]:
                    return list(snapshot["interrupts"])
                await asyncio.sleep(0)  # no request waits

    (question,) = asyncio.run(shown())
    assert question["thread_id"] == context.thread_id, question


@when("an answer is sent to a thread without a question")
def step_an_answer_is_sent_to_a_thread_without_a_question(context: Context) -> None:
    message = StreamMessage(Command(resume=1), "t")
    run = context.bridge.create_future_task(context.graph, message)
    context.error = error_of(lambda: run.result(LIMIT))


# -- the local one ---------------------------------------------------------------------------------


@given("a bridge with a local executor")
def step_a_bridge_with_a_local_executor(context: Context) -> None:
    context.bridge = RxPyLangGraphBridge(executor=LocalExecutor())
    context.add_cleanup(context.bridge.close, 0)


@then("its graphs are called as without one")
def step_its_graphs_are_called_as_without_one(context: Context) -> None:
    with RxPyLangGraphBridge() as without:
        options = [each._run_options(graphs.plain) for each in (context.bridge, without)]
        assert options[0].graph is options[1].graph is graphs.plain
        assert type(options[0].adapter) is type(options[1].adapter)
        assert context.bridge._workers is without._workers is None
    assert context.bridge.create_future_task(graphs.plain, {"n": 1}).result(LIMIT).content["n"] == 2
