"""Steps for structured logs of runs."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.telemetry import RunLogs
from support.bridge.bridges import listen, on_loop
from support.bridge.streams import Subscriber
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT

_NAME = "rxlanggraph.runs"
_SECRET = "swordfish"


class _UntoldError(Exception):
    """An error of a user whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


@given("logs of the bridge, with its traces")
def step_logs_of_the_bridge_with_its_traces(context: Context) -> None:
    context.records = listen(context, _NAME)
    context.logs = RunLogs(traces=context.traces)
    context.bridge.add_hooks(context.logs)


def _send(context: Context, function: Any, thread_id: str | None, **options: Any) -> Any:
    context.message = StreamMessage({"value": 0, "secret": _SECRET}, thread_id=thread_id)
    options = {"errors": "emit", **options}
    return context.bridge.create_future_task(function, context.message, **options)


def _ended(context: Context) -> None:
    context.work.release()
    assert context.bridge.registry.wait_idle(LIMIT)
    on_loop(context)


def _one_at_work(context: Context, thread_id: str | None = None) -> None:
    _send(context, context.work.wait, thread_id)
    context.work.began.wait_for(1)
    on_loop(context)


async def _fail(_: Any) -> Any:
    raise ValueError("the reason")


async def _fail_untold(_: Any) -> Any:
    raise _UntoldError


@given("logs of the bridge, with its traces, that were added {moment} traces")
def step_logs_of_the_bridge_with_its_traces_that_were_added(context: Context, moment: str) -> None:
    context.bridge = RxPyLangGraphBridge()
    context.add_cleanup(context.bridge.close)
    logs = RunLogs(traces=context.traces)
    for hooks in (logs, context.traces) if moment == "before" else (context.traces, logs):
        context.bridge.add_hooks(hooks)


@given("a handler of the logs that writes a file in UTF-8, with all fields")
def step_a_handler_of_the_logs_that_writes_a_file_in_utf_8(context: Context) -> None:
    context.file = Path(tempfile.mkdtemp()) / "log"
    context.add_cleanup(shutil.rmtree, context.file.parent)
    handler, logger = logging.FileHandler(context.file, encoding="utf-8"), logging.getLogger(_NAME)
    handler.setFormatter(logging.Formatter("%(graph)s, %(message_id)s, %(thread_id)s: %(message)s"))
    logger.addHandler(handler)
    context.add_cleanup(handler.close)
    context.add_cleanup(logger.removeHandler, handler)


@when("a message with lone surrogates in its name, ids and error fails")
def step_a_message_with_lone_surrogates_in_its_name_ids_and_error_fails(context: Context) -> None:
    async def fail(_: Any) -> None:
        raise ValueError("reason \ud801")

    message = StreamMessage(0, "thread \ud802", id="id \ud803")
    send = context.bridge.create_future_task
    send(fail, message, name="name \ud804", errors="emit").result(LIMIT)
    _ended(context)


@then("the file has the record, with the traceback, and what could be encoded")
def step_the_file_has_the_record_with_the_traceback(context: Context) -> None:
    first, *others = context.file.read_text(encoding="utf-8").splitlines()
    assert first.startswith("name \\ud804, id \\ud803, thread \\ud802: run_failed"), first
    assert others[0].startswith("Traceback"), others
    assert others[-1] == "ValueError: reason \\ud801", others


@given("a record factory that sets trace_id and status")
def step_a_record_factory_that_sets_trace_id_and_status(context: Context) -> None:
    make = logging.getLogRecordFactory()

    def make_with_ids(*args: Any, **options: Any) -> logging.LogRecord:
        record = make(*args, **options)
        record.trace_id, record.status = "its own", "its own"
        return record

    logging.setLogRecordFactory(make_with_ids)
    context.add_cleanup(logging.setLogRecordFactory, make)


@when("one message goes to a graph that fails, and then to one that answers")
def step_one_message_goes_to_a_graph_that_fails_and_then_to_one(context: Context) -> None:
    message, send = StreamMessage({"value": 0}), context.bridge.create_future_task
    for _ in range(20):
        context.futures.append(send(_fail, message, errors="emit", name="fails"))
        context.futures.append(send(context.work.answer, message, name="answers"))
    for future in context.futures:
        future.result(LIMIT)
    _ended(context)


@then("the records have the ids of the span of the graph that failed")
def step_the_records_have_the_ids_of_the_span_of_the_graph_that(context: Context) -> None:
    failed = {f"{span.context.span_id:016x}" for span in context.spans.named("message fails")}
    assert len(failed) == 20
    assert {record.span_id for record in context.records} == failed, context.records


@when('a message on thread "{thread_id}" is answered')
def step_a_message_on_thread_is_answered(context: Context, thread_id: str) -> None:
    _send(context, context.work.answer, thread_id).result(LIMIT)
    _ended(context)


@when('a message on thread "{thread_id}" fails')
def step_a_message_on_thread_fails(context: Context, thread_id: str) -> None:
    context.result = _send(context, _fail, thread_id, name="fail").result(LIMIT)
    _ended(context)


@when('a message on thread "{thread_id}" fails with an error whose text raises')
def step_a_message_on_thread_fails_with_an_error_whose_text_raises(
    context: Context, thread_id: str
) -> None:
    _send(context, _fail_untold, thread_id).result(LIMIT)
    _ended(context)


@when('a message on thread "{thread_id}" exceeds its time')
def step_a_message_on_thread_exceeds_its_time(context: Context, thread_id: str) -> None:
    future = _send(context, context.work.wait, thread_id, timeout=0.01)
    context.result = future.result(LIMIT)
    _ended(context)


@when('a message on thread "{thread_id}" is dropped')
def step_a_message_on_thread_is_dropped(context: Context, thread_id: str) -> None:
    _one_at_work(context)
    _send(context, context.work.wait, None)
    context.result = _send(context, context.work.wait, thread_id).result(LIMIT)
    _ended(context)


@when('a message on thread "{thread_id}" is refused as busy')
def step_a_message_on_thread_is_refused_as_busy(context: Context, thread_id: str) -> None:
    _one_at_work(context, thread_id)
    future = _send(context, context.work.wait, thread_id, multitask_strategy="reject")
    context.result = future.result(LIMIT)
    _ended(context)


@when('a message on thread "{thread_id}" is cancelled')
def step_a_message_on_thread_is_cancelled(context: Context, thread_id: str) -> None:
    future = _send(context, context.work.wait, thread_id)
    context.work.began.wait_for(1)
    assert future.cancel()
    _ended(context)


@when("a failed result passes through a second stage")
def step_a_failed_result_passes_through_a_second_stage(context: Context) -> None:
    subscriber = Subscriber()
    invoke = context.bridge.invoke
    stages = invoke(_fail, errors="emit", name="fail"), invoke(context.work.answer, errors="emit")
    subscriber.subscribe(rx.of({"value": 0}).pipe(*stages))
    (result,) = subscriber.wait_for_end().items
    assert result.status == "error", result
    _ended(context)


@when('a message on thread "{thread_id}" does not end, and the report of the cleanup is logged')
def step_a_message_on_thread_does_not_end_and_the_report_is_logged(
    context: Context, thread_id: str
) -> None:
    _send(context, context.work.block, thread_id)
    context.work.began.wait_for(1)
    context.logs.log_report(context.bridge.cleanup_tasks(timeout=0.01))
    _ended(context)


@then("nothing is logged")
def step_nothing_is_logged(context: Context) -> None:
    assert context.records == [], context.records


@then("one record is logged, with the level {level} and these fields")
def step_one_record_is_logged_with_the_level_and_these_fields(context: Context, level: str) -> None:
    (context.record,) = context.records
    assert context.record.levelname == level, context.record
    (row,) = context.table
    fields = vars(context.record)
    assert row.as_dict() == {name: str(fields[name]) for name in context.table.headings}, fields


@then("it has the ids of the message and of its span")
def step_it_has_the_ids_of_the_message_and_of_its_span(context: Context) -> None:
    record = context.record
    assert record.message_id == context.message.id
    (span,) = [
        span
        for span in context.spans.named("message ")
        if span.attributes["rxlanggraph.message.id"] == context.message.id
    ]
    ids = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
    assert (record.trace_id, record.span_id) == ids, vars(record)


@then("its text is that of the error, and not the content")
def step_its_text_is_that_of_the_error_and_not_the_content(context: Context) -> None:
    text = context.record.getMessage()
    assert str(context.result.error) in text and _SECRET not in text, text


@then("the record has the traceback of ValueError")
def step_the_record_has_the_traceback_of_valueerror(context: Context) -> None:
    (record,) = context.records
    shown = logging.Formatter().format(record)
    assert "Traceback" in shown and "ValueError: the reason" in shown, shown


@then("it has the stack of the run")
def step_it_has_the_stack_of_the_run(context: Context) -> None:
    assert "in block" in context.record.stack, context.record.stack


@when("logs are made with {argument} as a string")
def step_logs_are_made_with_as_a_string(context: Context, argument: str) -> None:
    context.error = error_of(lambda: RunLogs(**{argument: "a string"}))


@when("a node blocks the loop until that is logged")
def step_a_node_blocks_the_loop_until_that_is_logged(context: Context) -> None:
    records = listen(context, "rxlanggraph")

    def of_block() -> list[Any]:  # on a busy machine, whatever is slow is named too
        return [each for each in records if "block" in getattr(each, "where", "")]

    async def block(_: Any) -> None:
        give_up = time.monotonic() + LIMIT
        while not of_block() and time.monotonic() < give_up:
            pass

    context.bridge.create_future_task(block, None).result(LIMIT)
    (context.record,) = of_block()


@then("the record has the fields event, bridge, where, duration and stack of a blocked loop")
def step_the_record_has_the_fields_of_a_blocked_loop(context: Context) -> None:
    record = context.record
    assert (record.event, record.bridge) == ("loop_blocked", context.bridge.name), vars(record)
    assert "block" in record.where and "block" in record.stack, vars(record)
    assert record.duration >= 0.05, vars(record)
