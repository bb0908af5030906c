"""Steps for ``--metrics``."""

from __future__ import annotations

import json
import socket
import sys
from unittest import mock
from urllib.error import URLError
from urllib.request import urlopen

from behave import given, then, when
from behave.runner import Context

from support.cli import command
from support.concurrency.raising import error_of


@given("a port that is in use")
def step_a_port_that_is_in_use(context: Context) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    context.add_cleanup(listener.close)
    context.port = listener.getsockname()[1]


@when('I run with that port "{line}"')
def step_i_run_with_that_port(context: Context, line: str) -> None:
    line = line.replace("{port}", str(context.port))
    context.ended = command.run_here(line, context.folder, context.stdin)


@given("the client of Prometheus is not installed")
def step_the_client_of_prometheus_is_not_installed(context: Context) -> None:
    patcher = mock.patch.dict(sys.modules, {"prometheus_client": None})
    patcher.start()
    context.add_cleanup(patcher.stop)


def _read_by_line_3(context: Context) -> list[float]:
    records = map(json.loads, (context.folder / "out.jsonl").read_text().splitlines())
    (content,) = [record["content"] for record in records if record["line"] == 3]
    context.url, *values = content.values()
    return [float(value) for value in values]


@then("the metrics that line 3 has read are {ok:d} ok, {failed:d} error and {active:d} in flight")
def step_the_metrics_that_line_3_has_read_are(
    context: Context, ok: int, failed: int, active: int
) -> None:
    assert _read_by_line_3(context) == [ok, failed, active]


@then("the metrics that line 3 has read are {count:d} claims")
def step_the_metrics_that_line_3_has_read_are_claims(context: Context, count: int) -> None:
    assert _read_by_line_3(context) == [count]


@then('line 1 has read the value {value} of "{name}", and no other metric')
def step_line_1_has_read_the_value_of_name_and_no_other_metric(
    context: Context, value: str, name: str
) -> None:
    (record,) = map(json.loads, (context.folder / "out.jsonl").read_text().splitlines())
    (sample,) = [line for line in record["content"].splitlines() if line[0] != "#"]
    assert sample.startswith(f"{name}{{"), sample
    assert sample.endswith(f" {value}"), sample


@then("nothing answers at their address any more")
def step_nothing_answers_at_their_address_any_more(context: Context) -> None:
    error = error_of(lambda: urlopen(context.url, timeout=30))
    assert isinstance(error, URLError), error
    assert isinstance(error.reason, ConnectionRefusedError), error
