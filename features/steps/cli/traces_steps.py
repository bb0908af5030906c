"""Steps for ``--traces``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.journal.location import parse_location
from rxlanggraph.state import open_state
from support.cli import command
from support.concurrency.waiting import LIMIT
from support.telemetry.spans import Received, Receiver, drawn


@given("a receiver of OTLP, which OTEL_EXPORTER_OTLP_ENDPOINT names")
def step_a_receiver_of_otlp_which_otel_exporter_otlp_endpoint_names(context: Context) -> None:
    context.receiver = Receiver(context)
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": context.receiver.endpoint}
    patcher = mock.patch.dict(os.environ, named)
    patcher.start()
    context.add_cleanup(patcher.stop)


@given("a collector that never answers, which OTEL_EXPORTER_OTLP_ENDPOINT names")
def step_a_collector_that_never_answers(context: Context) -> None:
    context.collector = socket.create_server(("127.0.0.1", 0))
    context.add_cleanup(context.collector.close)
    url = f"http://127.0.0.1:{context.collector.getsockname()[1]}"
    patcher = mock.patch.dict(os.environ, {"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    patcher.start()
    context.add_cleanup(patcher.stop)


@then("the collector was asked at most twice")
def step_the_collector_was_asked_at_most_twice(context: Context) -> None:
    context.collector.setblocking(False)
    asked = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            context.collector.accept()[0].close()
            asked += 1
    # By the export under way at the end of the run, by another one, and by those of a slow run.
    before = float(context.ended.err.rpartition("not run; ")[2].partition(" s,")[0]) / 2
    assert 1 <= asked <= 2 + before, (asked, context.ended)


@given("the exporter for OTLP is not installed")
def step_the_exporter_for_otlp_is_not_installed(context: Context) -> None:
    missing = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    patcher = mock.patch.dict(sys.modules, {missing: None})
    patcher.start()
    sys.modules.pop("rxlanggraph.cli.otlp", None)  # until then, if it was imported
    context.add_cleanup(patcher.stop)


@when('"{line}" runs in a process of its own')
def step_line_runs_in_a_process_of_its_own(context: Context, line: str) -> None:
    context.ended = command.run_apart(line, context.folder, measured=True)


@when('"{line}" is interrupted twice')
def step_line_is_interrupted_twice(context: Context, line: str) -> None:
    with subprocess.Popen(
        [*command.COMMAND, *command.arguments(line)],
        cwd=context.folder,
        env=command.environment(measured=True),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        context.add_cleanup(process.kill)
        for word in ("started", "draining"):
            while word not in (said := process.stderr.readline()):
                assert said, f"it has ended without {word!r}"
            process.send_signal(signal.SIGINT)
        process.stderr.read()
        context.ended = command.Ended(process.wait(LIMIT), "", "")


@when("the graph is mended")
def step_the_graph_is_mended(context: Context) -> None:
    (context.folder / "mended").touch()


@then('these spans have been received, of the service "{service}"')
def step_these_spans_have_been_received_of_the_service(context: Context, service: str) -> None:
    received = list(context.receiver.received)
    assert drawn(received) == context.text, drawn(received)
    assert {span.service for span in received} == {service}, received


@then("no span has been received")
def step_no_span_has_been_received(context: Context) -> None:
    assert list(context.receiver.received) == []


@then('"{text}" is in the spans that have been received')
def step_text_is_in_the_spans_that_have_been_received(context: Context, text: str) -> None:
    assert any(text in span.text for span in context.receiver.received)


@then('"{text}" is in the spans that have been received, and "{other}" is not')
def step_text_is_in_the_spans_that_have_been_received_and_other_is_not(
    context: Context, text: str, other: str
) -> None:
    step_text_is_in_the_spans_that_have_been_received(context, text)
    assert not any(other in span.text for span in context.receiver.received)


@then('"{name}" has the lines "{lines}"')
def step_name_has_the_lines(context: Context, name: str, lines: str) -> None:
    assert (context.folder / name).read_text().splitlines() == lines.split(", ")


@then('there is no file "{name}"')
def step_there_is_no_file(context: Context, name: str) -> None:
    assert not (context.folder / name).exists()


@then('"{name}" has 1 line')
def step_name_has_1_line(context: Context, name: str) -> None:
    assert (context.folder / name).read_text().count("\n") == 1


def _messages(context: Context) -> list[Received]:
    return [span for span in context.receiver.received if span.name.startswith("message ")]


@then("{count:d} messages have been received")
def step_messages_have_been_received(context: Context, count: int) -> None:
    assert len(_messages(context)) == count, len(_messages(context))


@then("{count:d} messages have been received, of which the later ones are linked to the first")
def step_messages_have_been_received_of_which_the_later_ones_are_linked(
    context: Context, count: int
) -> None:
    first, *later = _messages(context)
    assert len(later) == count - 1, later
    assert first.links == [], first
    for each in later:
        assert [link.span_id for link in each.links] == [first.context.span_id], each
        assert [link.trace_id for link in each.links] == [first.context.trace_id], each
        assert each.context.trace_id != first.context.trace_id, each


def _kept(context: Context, journal: str) -> dict[str, str]:
    location = parse_location(str(context.folder / journal))

    async def read() -> dict[str, str]:
        async with open_state(location.url, namespace=location.namespace) as state:
            keys = [each.key async for each in state.iter_keys("trace:")]
            return {key: (await state.get(key)).value for key in keys}

    return asyncio.run(read())


@then('the journal "{journal}" keeps no trace')
def step_the_journal_keeps_no_trace(context: Context, journal: str) -> None:
    assert _kept(context, journal) == {}


@then('the journal "{journal}" keeps the trace of line {line:d}')
def step_the_journal_keeps_the_trace_of_line(context: Context, journal: str, line: int) -> None:
    kept = _kept(context, journal)
    assert list(kept) == [f"trace:{line}"], kept
    (context.kept,) = kept.values()


@then("1 message has been received, which is linked to the trace that was kept")
def step_1_message_has_been_received_which_is_linked_to_the_trace(context: Context) -> None:
    (message,) = _messages(context)
    (link,) = message.links
    linked = f"00-{link.trace_id:032x}-{link.span_id:016x}"
    assert context.kept.rpartition("-")[0] == linked, (context.kept, linked)
