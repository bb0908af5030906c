"""Steps for bridges that are closed with drain_after."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command
from reactivex import Subject

from rxlanggraph import CleanupReport, RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.internal import request_drain
from rxlanggraph.errors import BridgeClosedError, RunDrainedError
from support.bridge.bridges import arguments, on_loop
from support.bridge.drained import Stages
from support.bridge.graphs import State
from support.bridge.savers import open_saver
from support.bridge.streams import Subscriber
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads, thread

_NODES = ["after", "first", "inner", "last", "left", "right", "sync"]


# -- the graph -------------------------------------------------------------------------------------


class _GatedSaver(InMemorySaver):
    """Waits before it reads, until its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.reading, self.gate = Gate(), Gate()
        self.gate.open()

    async def aget_tuple(self, config: Any) -> Any:
        self.reading.open()
        await self.gate.wait_async()
        return await super().aget_tuple(config)


class _FailingSaver(InMemorySaver):
    """Cannot be read when it is told so."""

    fails = False

    async def aget_tuple(self, config: Any) -> Any:
        if self.fails:
            raise OSError("the disk is gone")
        return await super().aget_tuple(config)


class _Uncontrolled:
    """What calls a graph, and takes no control. It has no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, graph: Any) -> None:
        self._ainvoke = graph.ainvoke

    async def __call__(self, content: Any, config: Any = None) -> Any:
        return await self._ainvoke(content, config)


def _without_signature(graph: Any) -> Any:
    async def call(*arguments: Any) -> Any:
        return await uncontrolled(*arguments)

    uncontrolled = _Uncontrolled(graph)
    call.__wrapped__ = call  # type: ignore[attr-defined]  # of this, inspect makes a ValueError
    return call


_AINVOKES = {
    "takes no control": lambda graph: _Uncontrolled(graph).__call__,
    "takes none, without a hash": _Uncontrolled,
    "has no signature": _without_signature,
}


def _stages(context: Context, saver: Any, subgraph: Any = None) -> Stages:
    context.saver = saver
    context.stages = Stages(saver, subgraph)
    context.graph = context.stages.graph
    context.add_cleanup(context.stages.gate.open)
    return context.stages


@given("stages with an {saver:w}")
def step_stages_with_an_saver(context: Context, saver: str) -> None:
    _stages(context, open_saver(context, saver))


@given("stages without a saver")
def step_stages_without_a_saver(context: Context) -> None:
    _stages(context, None)


@given("stages with an InMemorySaver, whose subgraph has checkpointer={checkpointer}")
def step_stages_whose_subgraph_has_checkpointer(context: Context, checkpointer: str) -> None:
    _stages(context, InMemorySaver(), {"None": None, "True": True, "False": False}[checkpointer])


@given("stages with an InMemorySaver, whose ainvoke {what}")
def step_stages_with_an_inmemorysaver_whose_ainvoke(context: Context, what: str) -> None:
    _stages(context, InMemorySaver())
    context.graph.ainvoke = _AINVOKES[what](context.graph)


@given("stages with an InMemorySaver, bound to a control")
def step_stages_bound_to_a_control(context: Context) -> None:
    context.graph = _stages(context, InMemorySaver()).graph.bind(control=RunControl())


@given("stages with a saver that waits before it reads")
def step_stages_with_a_saver_that_waits_before_it_reads(context: Context) -> None:
    _stages(context, _GatedSaver())


@given("stages with a saver that cannot be read after the run")
def step_stages_with_a_saver_that_cannot_be_read_after_the_run(context: Context) -> None:
    _stages(context, _FailingSaver())


# -- runs, and how they are drained ----------------------------------------------------------------


def _begin(context: Context, node: str, **options: Any) -> None:
    """Send a message whose run waits in ``node``, and wait until it is there."""
    content = {"hold": node}
    options = {"thread_id": "t", "errors": "emit", **options}
    context.run = context.bridge.create_future_task(context.graph, content, **options)
    context.stages.held.wait_for(1)


def _asked(context: Context) -> Log:
    """A log with an entry for each time that the bridge has asked its runs."""
    asked, request = Log(), context.bridge._engine.request_drain

    def request_and_say() -> None:
        request()
        asked.add("asked")

    patch(context, context.bridge._engine, "request_drain", request_and_say)
    return asked


def _drain(context: Context, timeout: float = LIMIT) -> Future[CleanupReport]:
    """Close the bridge in a thread; return when its runs are asked."""
    asked = _asked(context)
    closing = thread(lambda: context.bridge.close(timeout, drain_after=0))
    asked.wait_for(1)
    on_loop(context)
    return closing


def _drain_and_release(context: Context) -> None:
    closing = _drain(context)
    context.stages.gate.open()
    context.report = closing.result(LIMIT)


@when('a run waits in "{node}", and the bridge is closed without time to drain')
def step_a_run_waits_and_the_bridge_is_closed_without_time(context: Context, node: str) -> None:
    _begin(context, node)
    context.report = context.bridge.close(0)
    context.stages.gate.open()


@when('a run with durability="{durability}" waits in "{node}", and the bridge is drained')
def step_a_run_with_durability_waits_and_the_bridge_is_drained(
    context: Context, durability: str, node: str
) -> None:
    _begin(context, node, durability=durability)
    _drain_and_release(context)


@when('a run waits in "{node}", and the bridge is drained')
def step_a_run_waits_and_the_bridge_is_drained(context: Context, node: str) -> None:
    _begin(context, node)
    closing = _drain(context)
    if isinstance(context.saver, _FailingSaver):
        context.saver.fails = True
    context.stages.gate.open()
    context.report = closing.result(LIMIT)


@when('a run waits in "{node}", and the bridge is closed with time to drain')
def step_a_run_waits_and_the_bridge_is_closed_with_time_to_drain(
    context: Context, node: str
) -> None:
    _begin(context, node)
    closing = thread(context.bridge.close, LIMIT)
    context.stages.gate.open()
    context.report = closing.result(LIMIT)


@when('a run waits in "{node}" until it is told, and the bridge is closed with {options}')
def step_a_run_waits_until_it_is_told_and_the_bridge_is_closed(
    context: Context, node: str, options: str
) -> None:
    _begin(context, f"{node}, which is told")
    context.stages.gate.open()
    context.report = context.bridge.close(LIMIT, **arguments(options))


@when('a run waits in "{node}" forever, and the bridge is drained for {seconds:g} s')
def step_a_run_waits_forever_and_the_bridge_is_drained_for_seconds(
    context: Context, node: str, seconds: float
) -> None:
    _begin(context, "endless" if node == "last" else node)
    # In "last" it is to end when it is cancelled, in "sync" it cannot.
    cancel_timeout = LIMIT if node == "last" else seconds
    context.report = context.bridge.close(seconds, drain_after=0, cancel_timeout=cancel_timeout)
    context.stages.gate.open()
    assert context.bridge.registry.wait_idle(LIMIT)


@when(
    'a run waits in "{node}", and the bridge is closed within {seconds:g} s, with '
    "drain_after={later:g}"
)
def step_a_run_waits_and_the_bridge_is_closed_within(
    context: Context, node: str, seconds: float, later: float
) -> None:
    _begin(context, node)
    context.asked = _asked(context)
    context.report = context.bridge.close(seconds, drain_after=later)


@then("its graph was not asked to stop")
def step_its_graph_was_not_asked_to_stop(context: Context) -> None:
    assert list(context.asked) == []


@when('a run waits in "{node}", and aclose is awaited on that loop with {options}')
def step_a_run_waits_and_aclose_is_awaited_on_that_loop(
    context: Context, node: str, options: str
) -> None:
    _begin(context, f"{node}, which is told")
    context.stages.gate.open()
    context.report = context.lent.run(context.bridge.aclose(LIMIT, **arguments(options)))


@when('a run waits in "{node}", and {count:d} threads drain the bridge')
def step_a_run_waits_and_count_threads_drain_the_bridge(
    context: Context, node: str, count: int
) -> None:
    _begin(context, node)
    asked = _asked(context)
    closing = thread(in_threads, count, lambda _: context.bridge.close(LIMIT, drain_after=0))
    asked.wait_for(count)
    on_loop(context)
    context.stages.gate.open()
    context.reports = closing.result(LIMIT)


@when('a run with {options} waits in "{node}", and is asked to drain')
def step_a_run_with_options_waits_and_is_asked_to_drain(
    context: Context, options: str, node: str
) -> None:
    _begin(context, node, **arguments(options))
    request_drain(context.bridge)
    on_loop(context)
    context.stages.gate.open()


@then('it is interrupted, and "{ran}" have run')
def step_it_is_interrupted_and_ran_have_run(context: Context, ran: str) -> None:
    assert context.run.result(LIMIT).status == "interrupted"
    assert list(context.stages.ran) == ran.split(), list(context.stages.ran)


@then("another graph is still answered, and a message to this one does not begin")
def step_another_graph_is_still_answered(context: Context) -> None:
    assert context.bridge.create_future_task(lambda content: content, 1).result(LIMIT).content == 1
    run = context.bridge.create_future_task(context.graph, {"log": []}, thread_id="u")
    error = error_of(lambda: run.result(LIMIT))
    assert isinstance(error, RunDrainedError) and not error.begun, error
    assert list(context.stages.ran) == ["first"], list(context.stages.ran)


@when("another bridge is sent None on that thread")
def step_another_bridge_is_sent_none_on_that_thread(context: Context) -> None:
    context.result = _send_to_another(context, [StreamMessage(None, "t")])[0]


def _send_to_another(context: Context, messages: list[StreamMessage]) -> list[StreamMessage]:
    with RxPyLangGraphBridge() as another:
        runs = [another.create_future_task(context.graph, each) for each in messages]
        return [run.result(LIMIT) for run in runs]


async def _run_in_two_bridges(context: Context, message: StreamMessage, steps: int) -> str:
    """Drain the run of ``message`` after so many steps of the loop, and let it go on."""
    first, second = (RxPyLangGraphBridge(context.lent.loop) for _ in range(2))
    run = first.create_future_task(context.graph, message, errors="emit")
    for _ in range(steps):
        await asyncio.sleep(0)
    report = await first.aclose(LIMIT, drain_after=0)
    ended = report.runs[0] if report.runs else None  # otherwise it ended before
    outcome = "completed" if ended is None else ended.outcome
    if ended is not None and outcome != "completed":
        again = message.replace(content=None) if ended.begun else message
        assert (await second.create_future_task(context.graph, again)).status == "ok"
    assert run.done()
    await second.aclose(LIMIT)
    return outcome


@when("runs are drained after 0 to {steps:d} steps of the loop, and go on in another bridge")
def step_runs_are_drained_after_0_to_steps_steps_of_the_loop(context: Context, steps: int) -> None:
    context.outcomes = []
    for count in range(steps):
        before, message = len(context.stages.ran), StreamMessage({"log": []}, str(count))
        outcome = context.lent.run(_run_in_two_bridges(context, message, count))
        context.outcomes.append((outcome, list(context.stages.ran)[before:]))


@when(
    "runs of answers are drained after 0 to {steps:d} steps of the loop, and go on in another "
    "bridge"
)
def step_runs_of_answers_are_drained_after_0_to_steps_steps(context: Context, steps: int) -> None:
    context.outcomes = []
    for count in range(steps):
        thread_id, before = str(count), len(context.stages.ran)
        asking = context.bridge.create_future_task(
            context.graph, {"hold": "early question"}, thread_id=thread_id
        )
        (question,) = asking.result(LIMIT).interrupts
        message = StreamMessage(Command(resume={question.id: "yes"}), thread_id)
        outcome = context.lent.run(_run_in_two_bridges(context, message, count))
        context.outcomes.append((outcome, list(context.stages.ran)[before:]))


@then("each answer was taken exactly once, and some runs were drained")
def step_each_answer_was_taken_exactly_once(context: Context) -> None:
    expected = sorted([*_NODES, "yes"])
    wrong = [each for each in context.outcomes if sorted(each[1]) != expected]
    assert not wrong, wrong
    assert "drained" in {outcome for outcome, _ in context.outcomes}, context.outcomes


@then("each node of each run has run exactly once, and some runs were drained")
def step_each_node_of_each_run_has_run_exactly_once(context: Context) -> None:
    wrong = [each for each in context.outcomes if sorted(each[1]) != _NODES]
    assert not wrong, wrong
    assert "drained" in {outcome for outcome, _ in context.outcomes}, context.outcomes


# -- what has become of them -----------------------------------------------------------------------


@then("the run is drained, and the report names its checkpoint")
def step_the_run_is_drained_and_the_report_names_its_checkpoint(context: Context) -> None:
    result = context.run.result(LIMIT)
    assert (result.status, result.content) == ("interrupted", None), result
    error = result.error
    assert isinstance(error, RunDrainedError) and error.begun, result
    (run,) = context.report.runs
    assert run.outcome == "drained" and run.begun, run
    assert (run.message_id, run.thread_id) == (result.source.id, "t"), run
    assert str(context.report).startswith("1 drained, 0 cancelled"), context.report
    config = {"configurable": {"thread_id": "t"}}
    latest = context.graph.get_state(config).config["configurable"]["checkpoint_id"]
    assert run.checkpoint_id == error.checkpoint_id == latest, (run, error, latest)
    assert run.checkpoint_id in str(error) and "send None" in str(error), error
    assert error_of(result.raise_for_status) is error


@then('the run is drained, and "{ran:Text}" have run')
def step_the_run_is_drained_and_ran_have_run(context: Context, ran: str) -> None:
    step_the_run_is_drained_and_the_report_names_its_checkpoint(context)
    assert list(context.stages.ran) == ran.split(), list(context.stages.ran)


@then("the run is drained without the id of its checkpoint, and its error has the reason")
def step_the_run_is_drained_without_the_id_of_its_checkpoint(context: Context) -> None:
    error = context.run.result(LIMIT).error
    assert isinstance(error, RunDrainedError) and error.begun, error
    assert error.checkpoint_id is None and isinstance(error.__cause__, OSError), error
    (run,) = context.report.runs
    assert (run.outcome, run.checkpoint_id) == ("drained", None), run


@then("it ends, and each node has run exactly once")
def step_it_ends_and_each_node_has_run_exactly_once(context: Context) -> None:
    assert context.result.status == "ok", context.result
    assert sorted(context.stages.ran) == _NODES, list(context.stages.ran)


@then("it ends, and each node has begun exactly once")
def step_it_ends_and_each_node_has_begun_exactly_once(context: Context) -> None:
    assert context.result.status == "ok", context.result
    assert len(context.stages.held) == 1, list(context.stages.held)


@then('the run is {outcome}, and the report says "{words}"')
def step_the_run_is_outcome_and_the_report_says_words(
    context: Context, outcome: str, words: str
) -> None:
    (run,) = context.report.runs
    assert (run.outcome, run.thread_id, run.begun) == (outcome, "t", True), run
    assert str(context.report) == words, str(context.report)
    if outcome == "cancelled":
        assert context.run.cancelled()
    else:
        assert context.run.result(LIMIT).status == "ok", context.run.result()


@then("the run is stuck, and the report names the node")
def step_the_run_is_stuck_and_the_report_names_the_node(context: Context) -> None:
    (run,) = context.report.runs
    assert (run.outcome, run.thread_id) == ("stuck", "t"), run
    (stuck,) = context.report.stuck
    assert "in _sync" in stuck.stack, stuck.stack


@then("both reports name the run as drained")
def step_both_reports_name_the_run_as_drained(context: Context) -> None:
    assert context.run.result(LIMIT).status == "interrupted"
    for report in context.reports:
        assert [run.outcome for run in report.runs] == ["drained"], report


# -- messages that have not begun ------------------------------------------------------------------


@when("{count:d} messages wait {why}, and the bridge is drained")
def step_count_messages_wait_and_the_bridge_is_drained(
    context: Context, count: int, why: str
) -> None:
    _begin(context, "first")
    context.messages = [
        StreamMessage({"log": []}, "t" if why == "for their thread" else f"thread-{n}")
        for n in range(count)
    ]
    context.futures = [
        context.bridge.create_future_task(context.graph, each, errors="emit")
        for each in context.messages
    ]
    _drain_and_release(context)


@when(
    "{count:d} messages wait for their thread, and the run before them ends while they are turned "
    "away"
)
def step_count_messages_wait_and_the_run_before_them_ends(context: Context, count: int) -> None:
    _begin(context, "first")
    context.ended = Log()
    context.run.add_done_callback(lambda _: context.ended.add("the run"))
    for number in range(count):
        run = context.bridge.create_future_task(
            context.graph, {"log": []}, thread_id="t", errors="emit"
        )
        if number == 0:
            run.add_done_callback(lambda _: context.stages.gate.open())
    run.add_done_callback(lambda _: context.ended.add("the last message"))
    context.report = context.bridge.close(LIMIT, drain_after=0)


@then("it is drained before the last of them has an error")
def step_it_is_drained_before_the_last_of_them_has_an_error(context: Context) -> None:
    assert list(context.ended) == ["the run", "the last message"], list(context.ended)
    assert context.run.result(LIMIT).status == "interrupted"


@then('each of the {count:d} is "{status}", and the error says that it has not begun')
def step_each_of_the_count_is_status_and_the_error_says(
    context: Context, count: int, status: str
) -> None:
    results = [future.result(LIMIT) for future in context.futures]
    assert len(results) == count
    for result in results:
        assert result.status == status, result
        assert isinstance(result.error, RunDrainedError) and not result.error.begun, result
        assert "has not begun" in str(result.error), result


@then("the report has {drained:d} that is drained and {count:d} that have not begun")
def step_the_report_has_drained_that_is_drained_and_count_that_have(
    context: Context, drained: int, count: int
) -> None:
    report = context.report
    assert (report.drained, report.cancelled) == (drained, count), str(report)
    expected = {each.id for each in context.messages}
    found = {run.message_id for run in report.runs if not run.begun}
    assert len(expected - found) == max(0, count - 10_000), len(found)
    assert [run.outcome for run in report.runs if run.begun] == ["drained"]


@when("another bridge is sent these {count:d} messages again")
def step_another_bridge_is_sent_these_messages_again(context: Context, count: int) -> None:
    # The thread that was drained goes on first.
    messages = [StreamMessage(None, "t"), *context.messages]
    _, *context.results = _send_to_another(context, messages)
    assert len(context.results) == count


@then("each is answered")
def step_each_is_answered(context: Context) -> None:
    assert [each.status for each in context.results] == ["ok"] * len(context.results)


# -- runs that have to do with others --------------------------------------------------------------


@when("a node waits for what another graph with a saver answers, and the bridge is drained")
def step_a_node_waits_for_what_another_graph_answers(context: Context) -> None:
    inner = Stages(InMemorySaver())
    context.stages = inner
    context.add_cleanup(inner.gate.open)
    context.answers = Log()

    async def ask(state: Any) -> Any:
        run = context.bridge.create_future_task(inner.graph, {"hold": "first"}, thread_id="inner")
        context.answers.add((await run).status)
        return state

    async def then_on(state: Any) -> Any:
        context.answers.add("then")
        return state

    builder = StateGraph(State).add_node("ask", ask).add_node("then", then_on)
    builder.add_edge(START, "ask").add_edge("ask", "then").add_edge("then", END)
    context.graph = builder.compile(InMemorySaver())
    context.run = context.bridge.create_future_task(
        context.graph, {"value": 1}, thread_id="t", errors="emit"
    )
    inner.held.wait_for(1)
    _drain_and_release(context)


@then("what it waits for is completed, and its own run is drained")
def step_what_it_waits_for_is_completed_and_its_own_run_is_drained(context: Context) -> None:
    assert list(context.answers) == ["ok"], list(context.answers)
    assert context.run.result(LIMIT).status == "interrupted"
    outcomes = {run.thread_id: run.outcome for run in context.report.runs}
    assert outcomes == {"t": "drained", "inner": "completed"}, outcomes


@then("None continues that run behind the node")
def step_none_continues_that_run_behind_the_node(context: Context) -> None:
    (result,) = _send_to_another(context, [StreamMessage(None, "t")])
    assert result.status == "ok", result
    assert list(context.answers) == ["ok", "then"], list(context.answers)


@when("one run asks to stop, and another waits beside it")
def step_one_run_asks_to_stop_and_another_waits_beside_it(context: Context) -> None:
    _begin(context, "right")
    context.asking = context.bridge.create_future_task(
        context.graph, {"hold": "first, which asks"}, thread_id="asks", errors="emit", retry=3
    )


@then("the first one is interrupted at its checkpoint, and the other one completes")
def step_the_first_one_is_interrupted_and_the_other_completes(context: Context) -> None:
    result = context.asking.result(LIMIT)
    assert result.status == "interrupted" and result.error.begun, result
    latest = context.graph.get_state({"configurable": {"thread_id": "asks"}}).config
    assert result.error.checkpoint_id == latest["configurable"]["checkpoint_id"]
    context.stages.gate.open()
    assert context.run.result(LIMIT).status == "ok"


def _drain_before_it_begins(context: Context, content: Any) -> None:
    context.saver.reading, context.saver.gate = Gate(), Gate()
    context.add_cleanup(context.saver.gate.open)
    context.run = context.bridge.create_future_task(
        context.graph, content, thread_id="t", errors="emit"
    )
    context.saver.reading.wait()
    closing = _drain(context)
    context.saver.gate.open()
    context.report = closing.result(LIMIT)


@when("a question is answered, and the bridge is drained before the graph has begun")
def step_a_question_is_answered_and_the_bridge_is_drained(context: Context) -> None:
    asking = {"content": {"hold": "question"}}
    run = context.bridge.create_future_task(context.graph, asking["content"], thread_id="t")
    assert run.result(LIMIT).status == "interrupted"
    _drain_before_it_begins(context, Command(resume="yes"))


@when("a message is sent, and the bridge is drained before the graph has begun")
def step_a_message_is_sent_and_the_bridge_is_drained(context: Context) -> None:
    _drain_before_it_begins(context, {"log": []})


@then("the run is completed, and the question was asked once, and answered")
def step_the_run_is_completed_and_the_question_was_answered(context: Context) -> None:
    assert context.run.result(LIMIT).status == "ok", context.run.result()
    # A node that asked begins again with its answer.
    assert list(context.stages.ran)[-4:] == ["asked", "asked", "yes", "last"]


# -- streams ---------------------------------------------------------------------------------------


@when('{count:d} runs of {operator} with {options} wait in "{node}", and the bridge is drained')
def step_count_runs_of_operator_wait_and_the_bridge_is_drained(
    context: Context, count: int, operator: str, options: str, node: str
) -> None:
    context.source, context.subscriber = Subject[Any](), Subscriber()
    through = getattr(context.bridge, operator)(context.graph, **arguments(options))
    context.subscriber.subscribe(context.source.pipe(through))
    for number in range(count):
        context.source.on_next(StreamMessage({"hold": node}, str(number)))
    context.stages.held.wait_for(count)
    context.closing = _drain(context)


@when("the source emits one more")
def step_the_source_emits_one_more(context: Context) -> None:
    context.source.on_next(StreamMessage({"log": []}, "late"))
    assert not context.subscriber.ends
    context.stages.gate.open()
    context.report = context.closing.result(LIMIT)


@then("all {count:d} are drained, and the stream has ended with an error after them")
def step_all_count_are_drained_and_the_stream_has_ended(context: Context, count: int) -> None:
    assert [run.outcome for run in context.report.runs] == ["drained"] * count, context.report
    subscriber = context.subscriber.wait_for_end()
    assert isinstance(subscriber.error, RunDrainedError | BridgeClosedError), subscriber.ends
    assert len(subscriber.ends) == 1 and not subscriber.overlaps, subscriber.ends
    results = [each for each in subscriber.items if each.sequence is None]
    assert {each.status for each in results} <= {"interrupted"}
    assert len(results) in (0, count), results


@when('a reader of astream is at the chunk of "{node}", and the bridge is drained')
def step_a_reader_of_astream_is_at_the_chunk(context: Context, node: str) -> None:
    context.chunks = []
    read = Gate()

    async def main() -> None:
        content = {"hold": "inner"}
        async for chunk in context.bridge.astream(context.graph, content, thread_id="t"):
            context.chunks.append(chunk.content)
            read.open()

    reading = thread(lambda: error_of(lambda: asyncio.run(main())))
    read.wait()
    context.stages.held.wait_for(1)
    _drain_and_release(context)
    context.error = reading.result(LIMIT)
    assert node in context.chunks[0], context.chunks


@then('{error:w} is raised at its end, behind the chunks of "{node}"')
def step_error_is_raised_at_its_end(context: Context, error: str, node: str) -> None:
    assert type(context.error).__name__ == error, context.error
    assert [list(each) for each in context.chunks] == [[node]], context.chunks


@when("its {close} is called with drain_after={value}")
def step_its_close_is_called_with_drain_after(context: Context, close: str, value: str) -> None:
    options = arguments(f"drain_after={value}")

    def call() -> None:
        ended = getattr(context.bridge, close)(LIMIT, **options)
        if close == "aclose":
            asyncio.run(ended)

    context.error = error_of(call)
