"""Steps for traces: spans of messages, runs and nodes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import StatusCode
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge, StreamMessage, errors
from rxlanggraph.bridge import callbacks
from rxlanggraph.telemetry import RunMetrics, RunTraces, api
from support.bridge.bridges import arguments, listen
from support.bridge.graphs import State, one_node
from support.bridge.streams import Subscriber
from support.cli.command import run_python
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, in_threads, thread
from support.telemetry.spans import Receiver, Spans, drawn

SECRET = "hunter2"


@given("traces of the bridge")
def step_traces_of_the_bridge(context: Context) -> None:
    step_traces_of_the_bridge_with_options(context, "")


@given("traces of the bridge with {options}")
def step_traces_of_the_bridge_with_options(context: Context, options: str) -> None:
    context.spans = Spans()
    context.traces = RunTraces(context.spans.provider, **arguments(options))
    context.tracing = context.bridge.add_hooks(context.traces)


@given("traces and metrics of the bridge, where no SDK is set up")
def step_traces_and_metrics_of_the_bridge_where_no_sdk_is_set_up(context: Context) -> None:
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    context.log = listen(context, "")
    context.bridge.add_hooks(RunTraces())
    context.bridge.add_hooks(RunMetrics())


@given("the same traces are added to the bridge again")
def step_the_same_traces_are_added_to_the_bridge_again(context: Context) -> None:
    context.bridge.add_hooks(context.traces)


def _idle(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)


def _pair(context: Context) -> Any:
    tracer = context.spans.tracer

    async def first(state: State) -> State:
        with tracer.start_as_current_span("inside first"):
            return {"count": 1}

    def second(state: State) -> State:
        with tracer.start_as_current_span("inside second"):
            return {"count": 2}

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    builder.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
    return builder.compile(name="pair")


def _status(span: ReadableSpan) -> str:
    status: str = span.attributes["rxlanggraph.status"]
    return status


# -- parents -----------------------------------------------------------------------------------


@when("a message is sent in a span, to a graph of an async and a sync node with spans of their own")
def step_a_message_is_sent_in_a_span_to_a_graph(context: Context) -> None:
    context.message = StreamMessage({"value": 0}, thread_id="t")
    with context.spans.tracer.start_as_current_span("request"):
        run = context.bridge.create_future_task(_pair(context), context.message)
    assert run.result(LIMIT).status == "ok"
    _idle(context)


@then("these are the spans")
def step_these_are_the_spans(context: Context) -> None:
    assert drawn(context.spans) == context.text, drawn(context.spans)


@then("the span of the run follows the conventions, and that of the message has its wait")
def step_the_span_of_the_run_follows_the_conventions(context: Context) -> None:
    run, message = context.spans.one("invoke_workflow pair"), context.spans.one("message pair")
    common = {
        "gen_ai.workflow.name": "pair",
        "gen_ai.conversation.id": "t",
        "rxlanggraph.message.id": context.message.id,
        "rxlanggraph.status": "ok",
    }
    operation = {"gen_ai.operation.name": "invoke_workflow", "rxlanggraph.attempts": 1}
    assert dict(run.attributes) == common | operation, run.attributes
    waited = message.attributes["rxlanggraph.waited"]
    assert dict(message.attributes) == common | {"rxlanggraph.waited": waited}
    assert run.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.41.0"
    assert (run.kind, run.status.status_code) == (trace.SpanKind.INTERNAL, StatusCode.UNSET)
    # Times are of the wall clock, and the wait is of another one.
    assert abs((run.start_time - message.start_time) / 1e9 - waited) < 0.5, waited
    assert message.start_time <= run.start_time <= run.end_time <= message.end_time


@when("a node sends a message and awaits its result")
def step_a_node_sends_a_message_and_awaits_its_result(context: Context) -> None:
    other = RxPyLangGraphBridge()
    context.add_cleanup(other.close)
    other.add_hooks(context.traces)

    async def answer(state: State) -> State:
        return state

    inner = StateGraph(State).add_node("answer", answer).add_edge(START, "answer")

    async def ask(state: State) -> State:
        content: State = (
            await other.create_future_task(inner.compile(name="inner"), state)
        ).content
        return content

    outer = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(name="outer")
    context.bridge.create_future_task(outer, {"value": 0}).result(LIMIT)
    _idle(context)
    assert other.registry.wait_idle(LIMIT)


@then("no span has a link")
def step_no_span_has_a_link(context: Context) -> None:
    assert [span.name for span in context.spans if span.links] == []


@when(
    "{threads:d} threads send {count:d} messages each, each thread in a span of its own, "
    "to a sync node with a span"
)
def step_threads_send_messages_each_thread_in_a_span_of_its_own(
    context: Context, threads: int, count: int
) -> None:
    tracer = context.spans.tracer

    def node(state: State) -> State:
        with tracer.start_as_current_span("inside", attributes={"value": state["value"]}):
            return state

    graph = one_node(node)

    def send(number: int) -> None:
        with tracer.start_as_current_span(f"thread {number}"):
            runs = [
                context.bridge.create_future_task(graph, {"value": f"{number}.{index}"}, name="g")
                for index in range(count)
            ]
        for run in runs:
            run.result(LIMIT)

    in_threads(threads, send)
    _idle(context)


@then(
    "each of {count:d} traces of messages is below the span of its thread, "
    "and the node's span below its run"
)
def step_each_of_traces_of_messages_is_below_the_span_of_its_thread(
    context: Context, count: int
) -> None:
    by_id = context.spans.by_id()
    inside = context.spans.named("inside")
    assert len(inside) == count
    for span in inside:
        run = by_id[span.parent.span_id]
        message = by_id[run.parent.span_id]
        sender = by_id[message.parent.span_id]
        assert [run.name, message.name] == ["invoke_workflow g", "message g"]
        number, _, _ = str(span.attributes["value"]).partition(".")
        assert sender.name == f"thread {number}", (sender.name, span.attributes)
    assert len({span.parent.span_id for span in inside}) == count


# -- links -------------------------------------------------------------------------------------


def _apart(source: rx.Observable[Any]) -> rx.Observable[Any]:
    """The items of ``source``, each of which goes on in a thread of its own."""

    def in_a_thread(item: Any) -> rx.Observable[Any]:
        def subscribe(observer: Any, _: object) -> None:
            def emit() -> None:
                observer.on_next(item)
                observer.on_completed()

            thread(emit)

        return rx.create(subscribe)

    return source.pipe(ops.flat_map(in_a_thread))


_BETWEEN: dict[str, Callable[[rx.Observable[Any]], rx.Observable[Any]]] = {
    "the result goes on as it is": lambda results: results,
    "the second stage is on another bridge": lambda results: results,
    "the result goes on in another thread": _apart,
    "a message is made of the result": ops.map(
        lambda result: StreamMessage(result.content, source=result)
    ),
}


@when("a message goes through two stages, where {way}")
def step_a_message_goes_through_two_stages_where_way(context: Context, way: str) -> None:
    second = context.bridge
    if "another bridge" in way:
        second = RxPyLangGraphBridge()
        context.add_cleanup(second.close)
        second.add_hooks(context.traces)

    async def answer(content: Any) -> Any:
        return content

    subscriber = Subscriber()
    stages = rx.of({"value": 0}).pipe(
        context.bridge.invoke(answer, name="first"),
        _BETWEEN[way],
        second.invoke(answer, name="second"),
    )
    subscriber.subscribe(stages)
    (result,) = subscriber.wait_for_end().items
    assert result.status == "ok"
    _idle(context)
    assert second.registry.wait_idle(LIMIT)


@then("the message of the second stage is linked to that of the first, and is {place}")
def step_the_message_of_the_second_stage_is_linked_to_that_of_the_first(
    context: Context, place: str
) -> None:
    message = context.spans.one("message second")
    assert context.spans.linked(message) == ["message first"]
    if place == "the root of its own trace":
        assert message.parent is None
    else:
        assert place == "below the run of the first"
        assert message.parent.span_id == context.spans.one("invoke_workflow first").context.span_id


@when(
    "the observer of {count:d} results sends each on to another bridge and awaits that, where {way}"
)
def step_the_observer_of_results_sends_each_on_to_another_bridge(
    context: Context, count: int, way: str
) -> None:
    first, second = RxPyLangGraphBridge(), RxPyLangGraphBridge()
    for bridge in (first, second):
        context.add_cleanup(bridge.close)
        bridge.add_hooks(context.traces)

    async def answer(content: Any) -> Any:
        return content

    def send_on(result: StreamMessage) -> StreamMessage:
        message = result
        if "is made" in way:
            message = StreamMessage(result.content, source=result)
        if "another graph" in way:
            first.create_future_task(answer, result.source, name="other")
        with context.spans.tracer.start_as_current_span("observer"):
            # So its end is told before that of the first, whose hooks are called after this.
            second.create_future_task(answer, message, name="second").result(LIMIT)
        assert second.registry.wait_idle(LIMIT)
        return result

    stages = rx.from_iterable([StreamMessage(number) for number in range(count)])
    subscriber = Subscriber()
    subscriber.subscribe(stages.pipe(first.invoke(answer, name="first"), ops.map(send_on)))
    context.results = subscriber.wait_for_end().items
    assert first.registry.wait_idle(LIMIT)


@then("each of {count:d} messages of the second stage is linked to the message of its own first")
def step_each_of_messages_of_the_second_stage_is_linked(context: Context, count: int) -> None:
    seconds, key = context.spans.named("message second"), "rxlanggraph.message.id"
    known = context.spans.by_id()
    assert len(seconds) == len(context.results) == count, len(seconds)
    linked = []
    for span in seconds:
        (link,) = span.links
        assert known[link.context.span_id].name == "message first", known[link.context.span_id]
        linked.append(known[link.context.span_id].attributes[key])
    assert sorted(linked) == sorted(result.source.id for result in context.results), linked


@when("the results of two graphs on the same {count:d} messages go on in another thread")
def step_the_results_of_two_graphs_on_the_same_messages_go_on(context: Context, count: int) -> None:
    bridge = RxPyLangGraphBridge()
    context.add_cleanup(bridge.close)
    bridge.add_hooks(context.traces)

    async def left(_: Any) -> Any:
        return "left"

    async def right(_: Any) -> Any:
        return "right"

    async def last(content: Any) -> Any:
        return content

    messages = [StreamMessage(number) for number in range(count)]
    subscriber = Subscriber()
    source = rx.from_iterable(messages)
    both = rx.merge(source.pipe(bridge.invoke(left)), source.pipe(bridge.invoke(right)))
    subscriber.subscribe(both.pipe(_apart, bridge.invoke(last)))
    context.results = subscriber.wait_for_end().items
    assert bridge.registry.wait_idle(LIMIT)


@then("each of {count:d} messages is linked to the message of the graph that its content names")
def step_each_of_messages_is_linked_to_the_message_of_the_graph(
    context: Context, count: int
) -> None:
    messages = {
        span.attributes["rxlanggraph.message.id"]: span
        for span in context.spans.named("message last")
    }
    assert len(messages) == len(context.results) == count
    for result in context.results:
        linked = context.spans.linked(messages[result.source.id])
        assert linked == [f"message {result.content}"], (linked, result)


# -- attempts and nodes ------------------------------------------------------------------------


@then(
    'the spans of its nodes are of the attempts "{attempts}", and its run says {count:d} attempts'
)
def step_the_spans_of_its_nodes_are_of_the_attempts(
    context: Context, attempts: str, count: int
) -> None:
    nodes = context.spans.named("node ")
    told = ", ".join(f"{each.attributes['rxlanggraph.attempt']} {_status(each)}" for each in nodes)
    assert told == attempts, told
    assert [node.attributes.get("error.type") for node in nodes] == ["ValueError", None]
    (run,) = context.spans.named("invoke_workflow")
    assert (_status(run), run.attributes["rxlanggraph.attempts"]) == ("ok", count)


@then('the nodes with spans are "{nodes}"')
def step_the_nodes_with_spans_are(context: Context, nodes: str) -> None:
    (run,) = context.spans.named("invoke_workflow")
    found = [span for span in context.spans if span.name.startswith("node ")]
    told = [f"{span.attributes['rxlanggraph.node']} {_status(span)}" for span in found]
    assert ", ".join(told) == nodes, told
    for span in found:
        assert span.parent.span_id == run.context.span_id
        assert run.start_time <= span.start_time <= span.end_time <= run.end_time, span


@when("making callbacks is forbidden, and a message is sent")
def step_making_callbacks_is_forbidden_and_a_message_is_sent(context: Context) -> None:
    patch(context, callbacks, "NodeCallbacks", mock.Mock(side_effect=AssertionError("made")))
    context.bridge.create_future_task(_pair(context), {"value": 0}).result(LIMIT)
    _idle(context)


# -- the end -----------------------------------------------------------------------------------


@then('its spans are "{spans}", with the status {status} and the error type "{error:Text}"')
def step_its_spans_are_with_the_status_and_the_error_type(
    context: Context, spans: str, status: str, error: str
) -> None:
    messages = context.spans.named("message ")
    if context.futures:
        wanted = context.futures[-1].message.id
        messages = [
            each for each in messages if each.attributes["rxlanggraph.message.id"] == wanted
        ]
    (message,) = messages
    below = [
        each
        for each in context.spans
        if each.parent is not None and each.parent.span_id == message.context.span_id
    ]
    found = [message, *(each for each in below if each.name.startswith("invoke_workflow "))]
    assert ["message", "run"][: len(found)] == spans.split(), [each.name for each in found]
    for span in found:
        assert _status(span) == status, span.attributes
        assert span.attributes.get("error.type", "") == error, span.attributes
        assert (span.status.status_code is StatusCode.ERROR) == bool(error)
        assert span.status.description is None
        assert not span.events, span.events


@then("no span is open")
def step_no_span_is_open(context: Context) -> None:
    assert context.spans.open() == []
    assert len(context.spans.started) > 0
    assert context.traces._open == {}


@then("as many messages have a span as were sent")
def step_as_many_messages_have_a_span_as_were_sent(context: Context) -> None:
    messages = context.spans.named("message ")
    assert len(messages) == len(context.futures) + context.refused


@when("the traces are disposed of while a run is at work, and closed")
def step_the_traces_are_disposed_of_while_a_run_is_at_work(context: Context) -> None:
    run = context.bridge.create_future_task(context.work.wait, {"value": 0})
    context.work.began.wait_for(1)
    context.tracing.dispose()
    assert len(context.spans.open()) == 2
    context.traces.close()
    context.traces.close()
    context.work.release()
    run.result(LIMIT)
    _idle(context)


def _raising(*_: Any) -> None:
    raise RuntimeError("the application's own")


@given("a span processor that raises at the end of each span")
def step_a_span_processor_that_raises_at_the_end_of_each_span(context: Context) -> None:
    processor = SpanProcessor()
    processor.on_end = _raising
    context.spans.provider.add_span_processor(processor)


@given("a sampler that raises")
def step_a_sampler_that_raises(context: Context) -> None:
    sampler = mock.Mock(Sampler, should_sample=_raising)
    context.traces = RunTraces(TracerProvider(sampler, shutdown_on_exit=False))
    context.tracing.dispose()
    context.tracing = context.bridge.add_hooks(context.traces)


@when("the traces are closed while {count:d} messages wait")
def step_the_traces_are_closed_while_messages_wait(context: Context, count: int) -> None:
    context.tracing.dispose()
    with RxPyLangGraphBridge(max_concurrency=1) as bridge:
        hooks = bridge.add_hooks(context.traces)
        runs = [bridge.create_future_task(context.work.wait, {"value": 0}) for _ in range(count)]
        context.work.began.wait_for(1)
        hooks.dispose()
        error = error_of(context.traces.close)
        context.work.release()
        for run in runs:
            run.result(LIMIT)
    assert isinstance(error, RuntimeError), error


@when("spans are begun for {count:d} messages, the last {unsent:d} of which are not sent after all")
def step_spans_are_begun_for_messages_the_last_of_which_are_not_sent(
    context: Context, count: int, unsent: int
) -> None:
    context.log = listen(context, "")
    messages = [StreamMessage({"value": 0}) for _ in range(count)]
    for message in messages:
        context.traces.begin(message)
    for message in messages[:-unsent]:
        run = context.bridge.create_future_task(context.work.answer, message)
        context.futures.append(run)
        run.result(LIMIT)
    for message in messages[-unsent:]:
        context.traces.abandon(message)
    _idle(context)


@then("the others are answered, and what was raised is logged once")
def step_the_others_are_answered_and_what_was_raised_is_logged_once(context: Context) -> None:
    assert [future.result(0).status for future in context.futures] == ["ok", "ok"]
    said = [record.getMessage() for record in context.log]
    assert len([each for each in said if "could not be begun or ended" in each]) == 1, said


@given("traces of another provider, too")
def step_traces_of_another_provider_too(context: Context) -> None:
    context.others = Spans()
    context.bridge.add_hooks(RunTraces(context.others.provider))


@then("in both providers the message of the second stage is linked to their own of the first")
def step_in_both_providers_the_message_of_the_second_stage_is_linked(context: Context) -> None:
    for spans in (context.spans, context.others):
        assert spans.linked(spans.one("message second")) == ["message first"]


# -- content -----------------------------------------------------------------------------------


class SecretError(Exception):
    def __init__(self) -> None:
        super().__init__(f"no answer to {SECRET}")
        self.add_note(SECRET)


@when("messages with a secret everywhere are answered, asked, refused and failed")
def step_messages_with_a_secret_everywhere_are_answered(context: Context) -> None:
    async def node(state: State) -> State:
        if state["count"] == 1:
            raise SecretError
        return {"value": f"{SECRET} again"}

    def ask(_: State) -> None:
        interrupt(SECRET)

    graph, asking = one_node(node), one_node(ask, checkpointer=InMemorySaver())
    for number in range(2):
        message = StreamMessage({"value": SECRET, "count": number}, metadata={"key": SECRET})
        error_of(
            lambda message=message: context.bridge.create_future_task(graph, message).result(LIMIT)
        )
    options: dict[str, Any] = {"thread_id": "t", "errors": "emit"}
    run = context.bridge.create_future_task(asking, {"value": SECRET}, **options)
    assert run.result(LIMIT).status == "interrupted"
    # It is refused, and the error says which question is pending.
    again = context.bridge.create_future_task(asking, {"value": SECRET}, **options).result(LIMIT)
    assert again.status == "rejected", again
    _idle(context)


@then("the secret is in none of the {count:d} spans of runs, nor in any other")
def step_the_secret_is_in_none_of_the_spans(context: Context, count: int) -> None:
    assert len(context.spans.named("invoke_workflow ")) == count
    assert len(context.spans.named("node ")) == 3
    assert SECRET not in context.spans.exported()


@then("the secret is in the input, the output and the texts of exceptions")
def step_the_secret_is_in_the_input_the_output_and_the_texts(context: Context) -> None:
    first, second = context.spans.named("message ")[:2]
    assert first.attributes["rxlanggraph.input"] == f'{{"value": "{SECRET}", "count": 0}}'
    answered, failed = context.spans.named("invoke_workflow ")[:2]
    assert f"{SECRET} again" in str(answered.attributes["rxlanggraph.output"])
    (event,) = failed.events
    assert event.name == "exception"
    assert str(event.attributes["exception.type"]).endswith("SecretError")
    assert event.attributes["exception.message"] == f"no answer to {SECRET}"
    assert failed.status.description == f"no answer to {SECRET}"
    assert not second.events  # it is told once


class Unspeakable:
    def __repr__(self) -> str:
        raise SystemError("not even this")


@when("messages with content that raises, or contains itself, are answered")
def step_messages_with_content_that_raises_or_contains_itself(context: Context) -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    def fail(content: Any) -> Any:
        raise UnspeakableError if content == {"fail": 1} else KeyError

    for content in (Unspeakable(), circle, deep, {(1, 2): 3}):
        context.bridge.create_future_task(lambda content: content, content).result(LIMIT)
    run = context.bridge.create_future_task(fail, {"fail": 1}, errors="emit")
    assert run.result(LIMIT).status == "error"
    _idle(context)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise SystemError("not even this")


@then("the inputs are described by their types")
def step_the_inputs_are_described_by_their_types(context: Context) -> None:
    inputs = [span.attributes["rxlanggraph.input"] for span in context.spans.named("message ")]
    assert inputs == ["<Unspeakable>", "<list>", "<list>", "<dict>", '{"fail": 1}'], inputs


# -- others ------------------------------------------------------------------------------------

_FORKED = """
import os, signal, sys, threading
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.telemetry import RunMetrics, RunTraces

ended = []

class Processor(SpanProcessor):
    def on_end(self, span):
        ended.append(span.name)

provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(Processor())
traces, held, done = RunTraces(provider), threading.Event(), threading.Event()

def hold():
    with traces._sources._messages._lock, traces._sources._results._lock:
        held.set()
        done.wait()

holder = threading.Thread(target=hold, daemon=True)
holder.start()
held.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    with RxPyLangGraphBridge() as bridge:
        bridge.add_hooks(traces)
        bridge.create_future_task(lambda content: content, 1, name="g").result(20)
    os._exit(0 if ended == ["invoke_workflow g", "message g"] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
done.set()
holder.join()
"""


@when("a process is forked while other threads send messages, and sends one on a bridge of its own")
def step_a_process_is_forked_while_other_threads_send_messages(context: Context) -> None:
    context.forked = run_python("-W", "ignore::DeprecationWarning", "-c", _FORKED)


@then("the child has ended the spans of its message")
def step_the_child_has_ended_the_spans_of_its_message(context: Context) -> None:
    assert context.forked.stdout == "0\n", context.forked


@given("a receiver of OTLP")
def step_a_receiver_of_otlp(context: Context) -> None:
    context.receiver = Receiver(context)


@when("the spans of a message are exported to it")
def step_the_spans_of_a_message_are_exported_to_it(context: Context) -> None:
    exporter = OTLPSpanExporter(context.receiver.url)
    context.add_cleanup(exporter.shutdown)
    context.spans.provider.add_span_processor(SimpleSpanProcessor(exporter))
    context.bridge.create_future_task(_pair(context), {"value": 0}).result(LIMIT)
    _idle(context)


@then('it has got "{names}" of the scope rxlanggraph')
def step_it_has_got_names_of_the_scope_rxlanggraph(context: Context, names: str) -> None:
    ours = [each for each in context.receiver.spans if each[0] == "rxlanggraph"]
    assert sorted(name for _, _, name in ours) == sorted(names.split(", ")), ours
    assert {schema for _, schema, _ in ours} == {"https://opentelemetry.io/schemas/1.41.0"}


@when("a message with lone surrogates in its name, content and error is exported with another")
def step_a_message_with_lone_surrogates_is_exported_with_another(context: Context) -> None:
    async def fail(_: Any) -> None:
        raise FileNotFoundError("\udc80")

    traces = RunTraces(context.spans.provider, content=True)
    exporter = OTLPSpanExporter(context.receiver.url)
    processor = BatchSpanProcessor(exporter)
    context.add_cleanup(processor.shutdown)
    context.spans.provider.add_span_processor(processor)
    with RxPyLangGraphBridge() as bridge:
        bridge.add_hooks(traces)
        send = bridge.create_future_task
        send(fail, "\ud800", name="odd \ud800", thread_id="\ud800", errors="emit").result(LIMIT)
        send(context.work.answer, {"value": 0}, name="plain").result(LIMIT)
    assert processor.force_flush()


@then("both have arrived, with what could be encoded")
def step_both_have_arrived_with_what_could_be_encoded(context: Context) -> None:
    names = {name for _, _, name in context.receiver.spans}
    assert {"message odd \\ud800", "invoke_workflow odd \\ud800", "message plain"} <= names, names


@when("a message is sent whose metadata has {text} as its traceparent")
def step_a_message_is_sent_whose_metadata_has_text_as_its_traceparent(
    context: Context, text: str
) -> None:
    message = StreamMessage({"value": 0}, metadata={"traceparent": eval(text)})
    context.bridge.create_future_task(context.work.answer, message).result(LIMIT)
    _idle(context)


@then("the message has {count:d} links")
def step_the_message_has_links(context: Context, count: int) -> None:
    links = context.spans.one("message answer").links
    assert len(links) == count, links
    for link in links:
        assert f"{link.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c", link
        assert f"{link.context.span_id:016x}" == "b7ad6b7169203331", link


@when("a span is begun for a message, whose ids are kept, and then that is sent below another one")
def step_a_span_is_begun_for_a_message_whose_ids_are_kept(context: Context) -> None:
    message = StreamMessage({"value": 0}, "t")
    with context.spans.tracer.start_as_current_span("here"):
        context.kept = context.traces.begin(message)
    with context.spans.tracer.start_as_current_span("elsewhere"):
        answer = one_node(context.work.answer)
        send = context.bridge.create_future_task
        send(answer, message, name="answer").result(LIMIT)
    _idle(context)


@then("the span of the message has the ids that were kept, the graph's name and its wait")
def step_the_span_of_the_message_has_the_ids_that_were_kept(context: Context) -> None:
    span = context.spans.one("message answer")
    ids = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-"
    assert context.kept.startswith(ids), (context.kept, ids)
    assert span.attributes["gen_ai.workflow.name"] == "answer", span.attributes
    assert span.attributes["gen_ai.conversation.id"] == "t", span.attributes
    assert span.attributes["rxlanggraph.waited"] >= 0, span.attributes


@when("a message fails, and is sent again with the ids of the span that was begun for it")
def step_a_message_fails_and_is_sent_again_with_the_ids_of_the_span(context: Context) -> None:
    message = StreamMessage({"value": 0})
    again = message.replace(metadata={"traceparent": context.traces.begin(message)})
    for each in (message, again):
        context.bridge.create_future_task(context.work.fail, each, errors="emit").result(LIMIT)
    _idle(context)


@then("the second span of the message is linked to the first")
def step_the_second_span_of_the_message_is_linked_to_the_first(context: Context) -> None:
    first, second = context.spans.named("message ")
    assert first.links == (), first.links
    (link,) = second.links
    assert link.context.span_id == first.context.span_id, link


@when("a span is begun for a message, and {what}")
def step_a_span_is_begun_for_a_message_and(context: Context, what: str) -> None:
    message, traces = StreamMessage(0), context.traces
    assert traces.begin(message) is not None
    if what == "the traces are closed":
        traces.close()
        return
    if what == "begun again, and abandoned":
        traces.begin(message)
    traces.abandon(message)
    traces.abandon(message)


@then("a span that is begun has no ids")
def step_a_span_that_is_begun_has_no_ids(context: Context) -> None:
    assert RunTraces().begin(StreamMessage(0)) is None


@then("no warning was logged")
def step_no_warning_was_logged(context: Context) -> None:
    assert context.log == [], context.log


@when("{call} is called with an argument that is not a provider")
def step_call_is_called_with_an_argument_that_is_not_a_provider(
    context: Context, call: str
) -> None:
    make = {"RunMetrics": RunMetrics, "RunTraces": RunTraces}[call]
    context.error = error_of(lambda: make("a name"))


@when("the part for telemetry is imported where the API is not installed")
def step_the_part_for_telemetry_is_imported_where_the_api_is_not_installed(
    context: Context,
) -> None:
    code = compile(Path(api.__file__).read_text(), api.__file__, "exec")
    with mock.patch.dict(sys.modules, {"opentelemetry.context": None}):
        context.error = error_of(lambda: exec(code, {"__name__": "without"}))
    assert isinstance(context.error, errors.RxLangGraphError)
