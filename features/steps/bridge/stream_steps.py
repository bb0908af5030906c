"""Chunks, results and ends of stream."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from reactivex import operators as ops
from reactivex.disposable import SingleAssignmentDisposable
from reactivex.subject import Subject

from rxlanggraph import StreamMessage
from rxlanggraph.messages import ChunkMessage
from support.bridge.bridges import listen, on_loop
from support.bridge.chunks import UNLIMITED, counting, endless, in_subgraph, numbered, talking
from support.bridge.graphs import State, graph_of, one_node
from support.bridge.streams import Subscriber
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads


def collect(context: Context, items: list[Any], graph: Any, **options: Any) -> list[StreamMessage]:
    stream = rx.from_iterable(items).pipe(context.bridge.stream(graph, **options), ops.to_list())
    collected: list[StreamMessage] = stream.run()
    return collected


def subscribe(context: Context, source: Any, graph: Any, **options: Any) -> Subscriber:
    subscriber = context.subscriber = Subscriber()
    subscriber.subscribe(source.pipe(context.bridge.stream(graph, **options)))
    return subscriber


def shown(subscriber: Subscriber) -> str:
    """The items in words, and the end."""

    def word(item: StreamMessage) -> str:
        if item.sequence is not None:
            return f"chunk {item.sequence}"
        return "a result" if item.status == "ok" else f"a result with status {item.status}"

    return ", ".join([*map(word, subscriber.items), *subscriber.ends])


# -- what a chunk is -------------------------------------------------------------------------------


@when(
    "a message with metadata goes through stream of a graph in a graph, with the modes updates and "
    "values and subgraphs"
)
def step_a_message_with_metadata_goes_through_stream(context: Context) -> None:
    context.message = StreamMessage({"value": 0}, "thread", {"line": 3})
    context.items = collect(
        context,
        [context.message],
        in_subgraph(counting(2)),
        stream_mode=["updates", "values"],
        subgraphs=True,
    )


@then(
    "the chunks have that message, thread and metadata, a mode, a namespace, and the numbers from 0"
)
def step_the_chunks_have_that_message_thread_and_metadata(context: Context) -> None:
    *chunks, _ = context.items
    for chunk in chunks:
        assert chunk.source == context.message, chunk
        assert (chunk.thread_id, chunk.metadata) == ("thread", {"line": 3}), chunk
        assert (chunk.status, chunk.error, chunk.duration) == ("ok", None, None), chunk
    assert [each.sequence for each in chunks] == list(range(len(chunks)))
    told = {(each.mode, tuple(part.split(":")[0] for part in each.namespace)) for each in chunks}
    assert told == {(m, ns) for m in ("updates", "values") for ns in ((), ("sub",))}, told


@then("the last item is the result, which has no mode and no number")
def step_the_last_item_is_the_result(context: Context) -> None:
    result = context.items[-1]
    assert (result.mode, result.namespace, result.sequence) == (None, (), None)
    assert result.content == {"value": 2}, result
    assert result.duration is not None


@then("a chunk is equal to its copies, has all its fields in them, and shows its mode and number")
def step_a_chunk_is_equal_to_its_copies(context: Context) -> None:
    source = StreamMessage(1, "t")
    chunk = ChunkMessage(
        {"a": 1}, "t", {"line": 3}, source=source, mode="values", namespace=("sub:1",), sequence=4
    )
    copies = [copy.copy(chunk), copy.deepcopy(chunk), pickle.loads(pickle.dumps(chunk))]
    for each in (*copies, chunk.replace()):
        assert each == chunk
        assert (each.mode, each.namespace, each.sequence) == ("values", ("sub:1",), 4)
        assert (each.content, each.source, each.metadata) == ({"a": 1}, source, {"line": 3})
    assert chunk.replace(sequence=5) != chunk
    assert chunk != StreamMessage({"a": 1}, "t", {"line": 3}, id=chunk.id, source=source)
    assert repr(chunk).endswith("mode='values', namespace=('sub:1',), sequence=4)"), repr(chunk)
    assert "namespace" not in repr(chunk.replace(namespace=()))


@when("a question goes through stream of a chat model's graph in the mode messages")
def step_a_question_goes_through_stream(context: Context) -> None:
    question = {"messages": [("user", "?")]}
    context.items = collect(context, [question], talking("it is so"), stream_mode="messages")


@then("the chunks are the words of the answer, one by one, and the result has the whole answer")
def step_the_chunks_are_the_words_of_the_answer(context: Context) -> None:
    *chunks, result = context.items
    tokens = [token.content for token, _ in (chunk.content for chunk in chunks)]
    assert [token for token in tokens if token.strip()] == ["it", "is", "so"], tokens
    assert {chunk.mode for chunk in chunks} == {"messages"}
    assert result.content["messages"][-1].content == "it is so"


@when("a chat model itself goes through stream")
def step_a_chat_model_itself_goes_through_stream(context: Context) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("it is so")]))
    context.items = collect(context, ["?"], model)


@then("its chunks have no mode, and its result is the message that they make")
def step_its_chunks_have_no_mode(context: Context) -> None:
    *chunks, result = context.items
    assert "".join(chunk.content.content for chunk in chunks) == "it is so"
    assert all(isinstance(chunk.content, AIMessageChunk) for chunk in chunks)
    assert {(chunk.mode, chunk.namespace) for chunk in chunks} == {(None, ())}
    assert type(result.content) is AIMessage
    assert result.content.content == "it is so"


@when("reactivex.of(1, 2, 3) goes through stream of {function}")
def step_goes_through_stream_of_function(context: Context, function: str) -> None:
    graph, subscriber = graph_of(context.work, function), Subscriber()
    operator = context.bridge.stream(graph)
    values = ({"value": value} for value in (1, 2, 3))
    subscriber.subscribe(rx.from_iterable(values).pipe(operator))
    context.subscriber = subscriber.wait_for_end()


@when('a failed result goes through stream with errors="emit"')
def step_a_failed_result_goes_through_stream(context: Context) -> None:
    context.message = StreamMessage(None, status="error", error=ValueError("earlier"))
    context.items = collect(context, [context.message], counting(1), errors="emit")


@then("it comes out unchanged, alone")
def step_it_comes_out_unchanged_alone(context: Context) -> None:
    assert context.items == [context.message]


# -- ends ------------------------------------------------------------------------------------------


def failing_once(times: int, **options: Any) -> Any:
    """A graph of two steps, whose second one fails so often."""
    failures = iter([ValueError("of the second step")] * times)

    async def first(state: State) -> State:
        return {"value": state["value"] + 1}

    async def second(state: State) -> State:
        for error in failures:
            raise error
        return {"value": state["value"] + 1}

    builder = StateGraph(State).add_sequence([first, second]).add_edge(START, "first")
    return builder.compile(**options)


@when('a run goes through stream that fails after one chunk, with errors="{errors}"')
def step_a_run_goes_through_stream_that_fails_after_one_chunk(
    context: Context, errors: str
) -> None:
    subscriber = subscribe(context, rx.of({"value": 0}), failing_once(1), errors=errors)
    context.subscriber = subscriber.wait_for_end()
    context.shown = shown(subscriber)


@when(
    "a run goes through stream that fails after one chunk, and is tried again from its checkpoint"
)
def step_a_run_goes_through_stream_and_is_tried_again(context: Context) -> None:
    graph = failing_once(1, checkpointer=InMemorySaver())
    source = rx.of(StreamMessage({"value": 0}, "thread"))
    context.shown = shown(subscribe(context, source, graph, retry=1).wait_for_end())


@then("the subscriber gets chunk 0, {items}")
def step_the_subscriber_gets_chunk_0(context: Context, items: str) -> None:
    assert context.shown == f"chunk 0, {items}", context.shown


@when("a run goes through stream that writes and goes on when it is cancelled, with a timeout")
def step_a_run_goes_through_stream_that_goes_on(context: Context) -> None:
    begun = Gate()

    async def swallow(state: State) -> State:
        writer = get_stream_writer()
        writer("first")
        begun.open()
        try:
            await context.work.gate.wait_async()
        except asyncio.CancelledError:
            writer("late")
            await context.work.gate.wait_async()
        return state

    options = {"stream_mode": "custom", "timeout": 0.05, "errors": "emit"}
    subscriber = subscribe(context, rx.of({"value": 0}), one_node(swallow), **options)
    subscriber.wait_for_end()
    context.work.gate.open()
    assert context.bridge.registry.wait_idle(LIMIT)


@then("what follows its chunks is a result that has timed out, and nothing follows that")
def step_what_follows_its_chunks_is_a_result_that_has_timed_out(context: Context) -> None:
    *chunks, result = context.subscriber.items
    assert result.status == "timed_out"
    assert [chunk.content for chunk in chunks] in ([], ["first"]), chunks
    assert context.subscriber.ends == ["completed"]


@when(
    "a run of a subgraph gives way to another message of its thread, with "
    'multitask_strategy="{policy}"'
)
def step_a_run_of_a_subgraph_gives_way(context: Context, policy: str) -> None:
    source: Subject[Any] = Subject()
    graph = in_subgraph(counting(1_000_000), checkpointer=InMemorySaver())
    options = {"subgraphs": True, "config": UNLIMITED, "errors": "emit"}
    subscriber = subscribe(context, source, graph, multitask_strategy=policy, **options)
    source.on_next(StreamMessage({"value": 0}, "thread", id="first"))
    subscriber.log.wait_for(20)
    source.on_next(StreamMessage({"value": 999_990}, "thread", id="second"))
    source.on_completed()
    subscriber.wait_for_end()


@then("its chunks are before its result, which is interrupted, and the other run is complete")
def step_its_chunks_are_before_its_result(context: Context) -> None:
    items = context.subscriber.items
    first, second = (
        [item for item in items if item.source.id == name] for name in ("first", "second")
    )
    assert [item.sequence for item in first] == [*range(len(first) - 1), None]
    assert first[-1].status == "interrupted", first[-1]
    assert [item.sequence for item in second] == [*range(len(second) - 1), None]
    assert second[-1].content == {"value": 1_000_000}, second[-1]


@when("{count:d} messages go through stream, and the bridge cleans up once in the middle")
def step_messages_go_through_stream_and_the_bridge_cleans_up(context: Context, count: int) -> None:
    source: Subject[Any] = Subject()
    subscriber = subscribe(context, source, counting(2), errors="emit")

    def send(_: int) -> None:
        for number in range(count):
            source.on_next(StreamMessage({"value": 0}, id=str(number)))
        source.on_completed()

    def clean_up(_: int) -> None:
        subscriber.log.wait_for(100)
        assert not context.bridge.cleanup_tasks(LIMIT).stuck

    in_threads(2, lambda number: (send, clean_up)[number](number))
    subscriber.wait_for_end()
    context.count = count


@then("each message has one result, behind its chunks, and the stream is complete")
def step_each_message_has_one_result(context: Context) -> None:
    numbers: dict[str, list[int | None]] = {}
    for item in context.subscriber.items:
        numbers.setdefault(item.source.id, []).append(item.sequence)
    assert len(numbers) == context.count
    for found in numbers.values():
        assert found == [*range(len(found) - 1), None], found
    assert context.subscriber.ends == ["completed"]


@when("a node writes {count:d} chunks at once, and the subscriber cancels all runs at the 3rd")
def step_a_node_writes_chunks_at_once(context: Context, count: int) -> None:
    async def write(state: State) -> State:
        writer = get_stream_writer()
        for number in range(count):
            writer(number)
        return state

    def cancel(item: StreamMessage) -> None:
        if item.sequence == 2:
            context.bridge.registry.cancel_all()

    subscriber = context.subscriber = Subscriber()
    operator = context.bridge.stream(one_node(write), stream_mode="custom", errors="emit")
    source: Subject[Any] = Subject()
    subscriber.subscribe(source.pipe(operator, ops.do_action(cancel)))
    source.on_next({"value": 0})
    subscriber.log.wait_for(4)
    assert context.bridge.registry.wait_idle(LIMIT)
    source.on_completed()
    context.shown = shown(subscriber.wait_for_end())


@when("a graph asks through stream, and is answered through stream")
def step_a_graph_asks_through_stream(context: Context) -> None:
    graph = one_node(lambda state: {"value": interrupt("name?")}, checkpointer=InMemorySaver())
    for content in ({"value": 0}, Command(resume="Ann")):
        context.items = [
            *getattr(context, "items", []),
            collect(
                context, [StreamMessage(content, "t")], graph, stream_mode=["updates", "tasks"]
            ),
        ]


@then(
    "the question is among the chunks and in the result, and the answer leads to the second result"
)
def step_the_question_is_among_the_chunks(context: Context) -> None:
    (*chunks, asked), (*_, answered) = context.items
    questions = [each.content for each in chunks if "__interrupt__" in each.content]
    assert [each["__interrupt__"][0].value for each in questions] == ["name?"]
    assert asked.content["__interrupt__"][0].value == "name?"
    assert answered.content == {"value": "Ann"}


@when("three messages of one thread and three of another go through stream")
def step_three_messages_of_one_thread_and_three_of_another(context: Context) -> None:
    context.messages = [StreamMessage({"value": 0}, thread) for thread in "ababab"]
    context.items = collect(context, context.messages, counting(4))


@then("no chunk of a run comes before the result of the run before it on its thread")
def step_no_chunk_of_a_run_comes_before_the_result(context: Context) -> None:
    for thread in "ab":
        items = [each for each in context.items if each.thread_id == thread]
        sources = [message.id for message in context.messages if message.thread_id == thread]
        assert [each.source.id for each in items] == [each for each in sources for _ in range(5)]
        assert numbered(items) == [0, 1, 2, 3, 4] * 3


@when("a subscriber disposes at the 3rd chunk of a subgraph that would go on forever")
def step_a_subscriber_disposes_at_the_3rd_chunk(context: Context) -> None:
    context.log, context.seen = Log(), Log()
    subscription = SingleAssignmentDisposable()

    def on_next(item: Any) -> None:
        context.log.add(item)
        if len(context.log) == 3:
            subscription.dispose()

    operator = context.bridge.stream(endless(context.seen), subgraphs=True, config=UNLIMITED)
    source: Subject[Any] = Subject()
    subscription.disposable = source.pipe(operator).subscribe(on_next)
    source.on_next({"value": 0})  # only now, so that there is something to dispose of
    context.log.wait_for(3)


@then("the subgraph has stopped, the registry is idle, and nothing came after the 3rd")
def step_the_subgraph_has_stopped(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    steps = len(context.seen)
    for _ in range(20):
        on_loop(context)
    assert len(context.seen) == steps
    assert len(context.log) == 3


@when('the loop over bare "astream" is left at the 3rd chunk of a subgraph')
def step_the_loop_over_bare_astream_is_left(context: Context) -> None:
    async def leave() -> tuple[int, int]:
        seen, chunks = Log(), 0
        stream = endless(seen).astream({"value": 0}, UNLIMITED, subgraphs=True)
        async for _ in stream:
            chunks += 1
            if chunks == 3:
                break
        left_at = len(seen)
        while len(seen) < left_at + 200:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
        await stream.aclose()
        return left_at, len(seen)

    context.left_at, context.steps = run(leave())


@then("the subgraph goes on, without a reader of its chunks")
def step_the_subgraph_goes_on(context: Context) -> None:
    assert context.steps >= context.left_at + 200


@when(
    "{threads:d} threads send {each:d} messages each through stream of a graph of 3 steps, and "
    "some are cancelled"
)
def step_threads_send_messages_each_through_stream(
    context: Context, threads: int, each: int
) -> None:
    source: Subject[Any] = Subject()
    subscriber = subscribe(context, source, counting(3), errors="emit")

    def send(_: int) -> None:
        for number in range(each):
            source.on_next({"value": 0})
            if number % 10 == 5:
                context.bridge.registry.cancel_all()

    in_threads(threads, send)
    source.on_completed()
    subscriber.wait_for_end()
    context.count = threads * each


@then(
    "the subscriber was never entered twice, and each run's chunks are in order before its result"
)
def step_the_subscriber_was_never_entered_twice(context: Context) -> None:
    subscriber = context.subscriber
    assert not subscriber.overlaps
    runs: dict[str, list[StreamMessage]] = {}
    for item in subscriber.items:
        runs.setdefault(item.source.id, []).append(item)
    assert len(runs) == context.count
    for items in runs.values():
        *chunks, result = items
        assert [each.sequence for each in chunks] == list(range(len(chunks)))
        assert result.sequence is None
        if result.status == "ok":
            assert len(chunks) == 3
        else:
            assert result.status == "cancelled"


@when("a subscriber of stream raises at the 2nd chunk")
def step_a_subscriber_of_stream_raises_at_the_2nd_chunk(context: Context) -> None:
    context.records, context.log = listen(context, "rxlanggraph"), Log()

    def on_next(item: Any) -> None:
        context.log.add(item)
        if len(context.log) == 2:
            raise LookupError("of the observer")

    operator = context.bridge.stream(endless(Log()), subgraphs=True, config=UNLIMITED)
    rx.of({"value": 0}).pipe(operator).subscribe(on_next)
    context.log.wait_for(2)


@then("the log names the error of the observer, and what became of its runs")
def step_the_log_names_the_error_of_the_observer(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    (record,) = context.records
    assert "raised: its subscription has ended, and its runs are cancelled" in record.getMessage()
    assert "of the observer" in str(record.exc_info[1])
    assert len(context.log) == 2


@when(
    "a stream of {count:d} chunks is awaited on a loop of its own, whose first delivery takes its "
    "time"
)
def step_a_stream_is_awaited_on_a_loop_of_its_own(context: Context, count: int) -> None:
    seen, ahead, threads = Log(), [], set()

    def on_item(item: StreamMessage) -> None:
        threads.add(threading.get_ident())
        if item.sequence == 0:
            for _ in range(20):
                on_loop(context)  # the run could go on meanwhile
        if item.sequence is not None:
            ahead.append(len(seen) - item.sequence)

    async def collect_all() -> list[StreamMessage]:
        operator = context.bridge.stream(counting(count, seen.add), config=UNLIMITED)
        stream = rx.of({"value": 0}).pipe(operator, ops.do_action(on_item), ops.to_list())
        items: list[StreamMessage] = await stream
        threads.discard(threading.get_ident())
        return items

    context.items, context.ahead, context.threads = run(collect_all()), ahead, threads


@then("all chunks were delivered there in order, and the run was never more than {most:d} ahead")
def step_all_chunks_were_delivered_there_in_order(context: Context, most: int) -> None:
    *chunks, _ = context.items
    assert [chunk.sequence for chunk in chunks] == list(range(500))
    assert not context.threads, "delivered elsewhere"
    assert max(context.ahead) <= most, max(context.ahead)


# -- one slow consumer -----------------------------------------------------------------------------


@when("one consumer takes 5 chunks of 500 and pauses, while another takes all of 500")
def step_one_consumer_takes_5_chunks_of_500(context: Context) -> None:
    seen = Log()

    async def consume() -> tuple[Any, ...]:
        slow = context.bridge.astream(counting(500, seen.add), {"value": 0}, config=UNLIMITED)
        first = [await anext(slow) for _ in range(5)]
        quick = context.bridge.astream(counting(500), {"value": 0}, config=UNLIMITED)
        other = [each async for each in quick]
        steps = len(seen)
        return first, other, steps, [each async for each in slow]

    context.first, context.other, context.steps, context.rest = run(consume())


@then("the other has got all, and the run of the first has done no more than {most:d} steps")
def step_the_other_has_got_all(context: Context, most: int) -> None:
    assert numbered(context.other) == [*range(500), 500]
    assert context.steps <= most, context.steps


@then("the first gets the rest when it goes on")
def step_the_first_gets_the_rest(context: Context) -> None:
    assert numbered([*context.first, *context.rest]) == [*range(500), 500]


# -- ordered ---------------------------------------------------------------------------------------


def in_order(context: Context, steps: list[int]) -> None:
    """Check that whole runs came in input order, each with so many chunks."""
    items = context.subscriber.wait_for_end().items
    sources = [message.id for message in context.messages]
    found = [(sources.index(each.source.id), each.sequence) for each in items]
    expected = [
        (run, number) for run, count in enumerate(steps) for number in (*range(count), None)
    ]
    assert found == expected, found
    assert context.subscriber.ends == ["completed"], context.subscriber.ends


def ordered_stream(context: Context, graphs: list[Any], **options: Any) -> None:
    """Stream ``ordered`` a message for each graph, of which each is executed by its own."""
    builder, names = StateGraph(State), [f"graph {number}" for number in range(len(graphs))]
    for name, graph in zip(names, graphs, strict=True):
        builder.add_node(name, graph)
    route = lambda state, config: config["metadata"]["graph"]  # noqa: E731
    builder.add_conditional_edges(START, route, names)
    context.messages = [
        StreamMessage({"value": 0}, metadata={"graph": name}, id=f"m{number}")
        for number, name in enumerate(names)
    ]
    stream = {"subgraphs": True, "config": UNLIMITED, "ordered": True, **options}
    subscribe(context, rx.from_iterable(context.messages), builder.compile(), **stream)


def waiting_after_one(context: Context) -> Any:
    """A graph whose first step ends, and whose second waits for the gate."""

    async def first(state: State) -> State:
        return {"value": 1}

    async def second(state: State) -> State:
        context.work.began.add("second")
        await context.work.gate.wait_async()
        return {"value": 2}

    builder = StateGraph(State).add_sequence([first, second]).add_edge(START, "first")
    return builder.compile()


@when("three runs go through stream with ordered=True, and the last ends first")
def step_three_runs_go_through_stream_with_ordered(context: Context) -> None:
    ended = Gate()
    ordered_stream(
        context,
        [
            waiting_after_one(context),
            counting(3),
            counting(2, lambda value: ended.open() if value == 2 else None),
        ],
    )
    ended.wait()
    context.work.began.wait_for(1)
    context.live = context.subscriber.log.wait_for(1)
    context.work.gate.open()


@then("chunks of the first came while it ran, and all items are in input order")
def step_chunks_of_the_first_came_while_it_ran(context: Context) -> None:
    assert [(each.source.id, each.sequence) for each in context.live] == [("m0", 0)]
    in_order(context, [3, 4, 3])  # those of the graph around it too


@when("a run of 500 chunks is behind one that waits, with ordered=True")
def step_a_run_of_500_chunks_is_behind_one_that_waits(context: Context) -> None:
    context.seen = Log()
    ordered_stream(context, [waiting_after_one(context), counting(500, context.seen.add)])
    context.work.began.wait_for(1)
    context.seen.wait_for(60)
    for _ in range(200):
        on_loop(context)


@then("it has made no more than {most:d} chunks")
def step_it_has_made_no_more_than_most_chunks(context: Context, most: int) -> None:
    assert len(context.seen) <= most, len(context.seen)
    context.expected = [3, 501]
    context.work.gate.open()


@then("all items have come in input order")
def step_all_items_have_come_in_input_order(context: Context) -> None:
    in_order(context, context.expected)


@when("the first run, with ordered=True, calls another one while one of 500 chunks is held back")
def step_the_first_run_calls_another_one(context: Context) -> None:
    seen = Log()

    async def call(state: State) -> State:
        while len(seen) < 60:  # noqa: ASYNC110 - the other run's steps
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        result = await context.bridge.create_future_task(counting(1), {"value": 0})
        return {"value": result.content["value"]}

    ordered_stream(context, [one_node(call), counting(500, seen.add)])
    context.expected = [2, 501]


@when("the first run, with ordered=True, waits behind its thread, and one of 500 chunks runs")
def step_the_first_run_waits_behind_its_thread(context: Context) -> None:
    blocker = context.bridge.create_future_task(
        waiting_after_one(context), {"value": 0}, thread_id="thread"
    )
    behind = context.bridge.create_future_task(counting(1), {"value": 0}, thread_id="thread")
    context.work.began.wait_for(1)
    context.messages = [
        StreamMessage({"value": 499}, "thread", id="m0"),
        StreamMessage({"value": 0}, id="m1"),
    ]
    source = rx.from_iterable(context.messages)
    subscribe(context, source, counting(500), config=UNLIMITED, ordered=True)
    context.work.gate.open()
    assert blocker.result(LIMIT).status == behind.result(LIMIT).status == "ok"
    context.expected = [1, 500]
