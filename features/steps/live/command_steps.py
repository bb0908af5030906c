"""Steps for the page of a command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from typing import Any
from unittest import mock
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import httpx
from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.journal.location import parse_location
from rxlanggraph.cli.journal.model import QUEUE
from rxlanggraph.state import open_state
from support.cli import command
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT
from support.live.pages import Stream
from support.servers.valkey_server import LocalValkey

TOKEN = "a-token-of-the-environment"


# -- run --live ------------------------------------------------------------------------------------


@then("the page that line 3 has seen had 1 ok, 1 failed with {text}, and itself in flight")
def step_the_page_that_line_3_has_seen_had_1_ok_1_failed(context: Context, text: str) -> None:
    records = map(json.loads, (context.folder / "out.jsonl").read_text().splitlines())
    (content,) = [record["content"] for record in records if record["line"] == 3]
    context.url, context.snapshot = content["address"], content["snapshot"]
    counts = context.snapshot["counts"]
    found = [counts[name] for name in ("succeeded", "failed", "active", "max_concurrency")]
    assert found == [1, 1, 1, 1], counts
    (run,) = context.snapshot["runs"]
    assert run["state"] == "running" and run["name"] == "graph", run
    (failure,) = context.snapshot["failures"]
    assert failure["type"] == "ValueError" and failure["count"] == 1, failure
    assert failure["message"] == (None if text == "no text" else text), failure


@then("its journal is {journal}")
def step_its_journal_is(context: Context, journal: str) -> None:
    found = context.snapshot["journal"]
    if journal == "none":
        assert found is None
        return
    assert (found["journal"], found["answered"], found["in_flight"]) == ("run.sqlite", 2, 1), found
    assert list(found["workers"].values()) == [1] and found["failed"] == 1


@then("nothing answers at the address of the page any more")
def step_nothing_answers_at_the_address_of_the_page_any_more(context: Context) -> None:
    error = error_of(lambda: urlopen(context.url, timeout=LIMIT))
    if isinstance(error, HTTPError):  # of another server, which the system gave the port by now
        assert "this page needs its token" not in error.read().decode()
        return
    assert isinstance(error, URLError), error
    assert isinstance(error.reason, ConnectionRefusedError), error


@given('the environment has {name} as "{value}"')
def step_the_environment_has_name_as_value(context: Context, name: str, value: str) -> None:
    patcher = mock.patch.dict(os.environ, {name: value})
    patcher.start()
    context.add_cleanup(patcher.stop)


@given("what serves the page is not installed")
def step_what_serves_the_page_is_not_installed(context: Context) -> None:
    ours = [name for name in sys.modules if name.startswith("rxlanggraph.live.")]
    hidden = {name: sys.modules[name] for name in ours}
    patcher = mock.patch.dict(sys.modules, {"sse_starlette": None})
    patcher.start()
    for name in ("http", "app", "server"):
        sys.modules.pop(f"rxlanggraph.live.{name}", None)
    context.add_cleanup(sys.modules.update, hidden)
    context.add_cleanup(patcher.stop)


@when("line 2 is cancelled from the page")
def step_line_2_is_cancelled_from_the_page(context: Context) -> None:
    context.stream = Stream(context.client)
    context.add_cleanup(context.stream.leave)
    runs: list[Any] = []
    while len(runs) != 2:
        runs = [run for run in context.stream.next()[1]["runs"] if run["state"] == "running"]
    (run, _) = runs
    response = context.client.post(f"/api/runs/{run['id']}/cancel", json={})
    assert response.status_code == 200, response.text


@then("the page has line 1 as ok and line 2 as cancelled, while line 3 is in flight")
def step_the_page_has_line_1_as_ok_and_line_2_as_cancelled(context: Context) -> None:
    ended: list[Any] = []
    while len(ended) != 2:
        snapshot = context.stream.next()[1]
        ended = snapshot["recent"]
    assert [run["status"] for run in ended] == ["cancelled", "ok"], ended
    assert [run["state"] for run in snapshot["runs"]] == ["running"]


@then("after two times Ctrl-C it has ended with status {status:d}, the stream of its page too")
def step_after_two_times_ctrl_c_it_has_ended_with_status(context: Context, status: int) -> None:
    context.process.send_signal(signal.SIGINT)
    while "draining" not in context.process.stderr.readline():
        pass
    context.process.send_signal(signal.SIGINT)
    end, last = context.stream.until("end")
    assert end == {"reason": "closed"} and last["state"] == "closed", (end, last["state"])
    assert context.process.wait(LIMIT) == status
    records = map(json.loads, (context.folder / "out.jsonl").read_text().splitlines())
    found = {record["line"]: record["status"] for record in records}
    assert found == {1: "ok", 2: "cancelled", 3: "cancelled"}, found
    step_nothing_answers_at_the_address_of_the_page_any_more(context)


# -- clients that do not go on --------------------------------------------------------------------

_HEADER = b"POST /api/runs/1/cancel HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_SENT = {
    "connect": b"",
    "send half a header": _HEADER,
    "send half a body": _HEADER + b"Content-Length: 9\r\n\r\n{",
    "are refused, and keep a connection": _HEADER + b"Content-Length: 2\r\n\r\n{}",
}


@when("{count:d} clients without the token {do}")
def step_count_clients_without_the_token_do(context: Context, count: int, do: str) -> None:
    address = urlsplit(context.url)
    assert address.port is not None
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", address.port), LIMIT)
        context.add_cleanup(client.close)
        with contextlib.suppress(OSError):  # closed already, for the next one
            client.sendall(_SENT[do])


@then("its page answers, and lets a client listen")
def step_its_page_answers_and_lets_a_client_listen(context: Context) -> None:
    assert context.client.get("/api/snapshot").json()["state"] == "open"
    stream = Stream(context.client)
    context.add_cleanup(stream.leave)
    assert stream.next()[0] == "snapshot"


# -- a journal -------------------------------------------------------------------------------------


@given('a journal "{name}" whose 2 workers have 3 messages in flight, and 2 failures')
def step_a_journal_whose_2_workers_have_3_messages_in_flight(context: Context, name: str) -> None:
    folder = context.folder
    (folder / "six.jsonl").write_text("".join(f'{{"n": {n % 2 + 1}}}\n' for n in range(6)))
    line = f"rxlanggraph run graphs.py:graph -i six.jsonl -o six.out -q --journal {name}"
    assert command.run_apart(line, folder).status == 1
    context.journal = parse_location(str(folder / name))
    asyncio.run(_reclaim(context.journal))


async def _reclaim(location: Any) -> None:
    """Have one failed line put back, and two more added; claim them as two workers."""
    async with open_state(location.url, namespace=location.namespace) as state:
        letters = [letter async for letter in state.iter_dead_letters(QUEUE)]
        await state.requeue(QUEUE, ids=[letters[0].id])
        items = [{**letters[0].item, "line": number} for number in (7, 8)]
        await state.add_tasks(QUEUE, items)
        for worker, count in (("one", 1), ("two", 2)):
            claims = await state.claim_tasks(QUEUE, count, worker=worker, lease=3600)
            assert len(claims) == count


@when('"{line}" is started with a token of the environment')
def step_line_is_started_with_a_token_of_the_environment(context: Context, line: str) -> None:
    _start(context, line)


@when('"{line}" is started with {count:d} descriptors')
def step_line_is_started_with_count_descriptors(context: Context, line: str, count: int) -> None:
    _start(context, line, "sh", "-c", f'ulimit -n {count}; exec "$@"', "sh")


def _start(context: Context, line: str, *through: str) -> None:
    environment = {**command.environment(measured=True), "RXLANGGRAPH_LIVE_TOKEN": TOKEN}
    process = subprocess.Popen(
        [*through, *command.COMMAND, *command.arguments(line)],
        cwd=context.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _started(context, process)


def _started(context: Context, process: Any) -> None:
    """Note a process that says where its page is, and a client of that."""
    context.process = process

    def end() -> None:
        process.kill()
        process.wait(LIMIT)
        process.stderr.close()

    context.add_cleanup(end)
    said = process.stderr.readline()
    found = re.search(r"(http://\S+/)\?token=(\S+)", said)
    assert found, said
    context.url, token = found.groups()
    headers = {"authorization": f"Bearer {token}"}
    context.client = httpx.Client(
        base_url=context.url, headers=headers, timeout=LIMIT, trust_env=False
    )
    context.add_cleanup(context.client.close)
    context.token = token


@then("its page has the 3 messages by worker, and the failures by kind")
def step_its_page_has_the_3_messages_by_worker(context: Context) -> None:
    assert context.token == TOKEN
    context.stream = Stream(context.client)
    context.add_cleanup(context.stream.leave)
    _, snapshot = context.stream.next()
    journal = snapshot["journal"]
    assert snapshot["kind"] == "journal" and snapshot["actions"] == []
    assert journal["workers"] == {"one": 1, "two": 2}, journal
    assert (journal["ok"], journal["failed"], journal["in_flight"]) == (3, 2, 3), journal
    (kind,) = snapshot["failures"]
    assert (kind["type"], kind["status"], kind["count"]) == ("ValueError", "error", 2), kind
    assert kind["message"] is None


@when("the rest is answered")
def step_the_rest_is_answered(context: Context) -> None:
    async def answer() -> None:
        location = context.journal
        async with open_state(location.url, namespace=location.namespace) as state:
            claimed = [task.id async for task in state.iter_tasks(QUEUE, states=["claimed"])]
            await state.cancel_tasks(QUEUE, claimed)

    asyncio.run(answer())


@then("the stream of its page ends, as the run has")
def step_the_stream_of_its_page_ends_as_the_run_has(context: Context) -> None:
    end, last = context.stream.until("end")
    assert end == {"reason": "closed"} and last["journal"]["finished"], last["journal"]
    assert last["journal"]["in_flight"] == 0


@then("after Ctrl-C it has ended with status {status:d}, and nothing answers at its address")
def step_after_ctrl_c_it_has_ended_with_status(context: Context, status: int) -> None:
    context.process.send_signal(signal.SIGINT)
    assert context.process.wait(LIMIT) == status
    step_nothing_answers_at_the_address_of_the_page_any_more(context)


@given("a Valkey with the journal of a run")
def step_a_valkey_with_the_journal_of_a_run(context: Context) -> None:
    context.server = LocalValkey(durable=True)
    context.server.start()
    context.add_cleanup(context.server.close)
    line = (
        f"rxlanggraph run graphs.py:graph -i three.jsonl -q --no-output --journal {_url(context)}"
    )
    (context.folder / "three.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 0}\n')
    ended = command.run_apart(line, context.folder)
    assert ended.status == 1, ended
    context.journal = parse_location(_url(context))
    asyncio.run(_put_back(context.journal))


def _url(context: Context) -> str:
    url: str = context.server.url
    return url


async def _put_back(location: Any) -> None:
    """Have the failed line wait again, so that the run is not over."""
    async with open_state(location.url, namespace=location.namespace) as state:
        assert await state.requeue(QUEUE) == 1


@when("its page is watched, and the server stops")
def step_its_page_is_watched_and_the_server_stops(context: Context) -> None:
    line = f"rxlanggraph live {_url(context)}"
    step_line_is_started_with_a_token_of_the_environment(context, line)
    context.stream = Stream(context.client)
    context.add_cleanup(context.stream.leave)
    _, snapshot = context.stream.next()
    assert (snapshot["state"], snapshot["journal"]["answered"]) == ("open", 2), snapshot
    context.server.stop()


@then("the page says unreachable, with what it knew")
def step_the_page_says_unreachable_with_what_it_knew(context: Context) -> None:
    while (snapshot := context.stream.next()[1])["state"] == "open":
        pass
    assert snapshot["state"] == "unreachable", snapshot["state"]
    assert (snapshot["journal"]["answered"], snapshot["journal"]["waiting"]) == (2, 1)


@when("the server is back")
def step_the_server_is_back(context: Context) -> None:
    context.server.start()
    while (snapshot := context.stream.next()[1])["state"] == "unreachable":
        pass
    assert snapshot["state"] == "open", snapshot["state"]


@then("the page ends as the run has")
def step_the_page_ends_as_the_run_has(context: Context) -> None:
    async def cancel() -> None:
        location = context.journal
        async with open_state(location.url, namespace=location.namespace) as state:
            waiting = [task.id async for task in state.iter_tasks(QUEUE, states=["waiting"])]
            await state.cancel_tasks(QUEUE, waiting)

    asyncio.run(cancel())
    end, last = context.stream.until("end")
    assert end == {"reason": "closed"} and last["journal"]["answered"] == 3, last["journal"]


# -- a server of one's own -------------------------------------------------------------------------

SERVICE = """
import socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from rxlanggraph import RxPyLangGraphBridge

with RxPyLangGraphBridge() as bridge:
    page = bridge.live_app()
    app = Starlette(routes=[Mount("/live", page)])
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    print(f"http://127.0.0.1:{port}/live{page.path}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None)).run([listener])
"""


@given("a process of its own that serves a page with uvicorn")
def step_a_process_of_its_own_that_serves_a_page_with_uvicorn(context: Context) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE],
        env=command.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _started(context, process)
    assert urlsplit(context.url).path == "/live/"


@when("a client listens there, and the process gets SIGTERM")
def step_a_client_listens_there_and_the_process_gets_sigterm(context: Context) -> None:
    context.stream = Stream(context.client)
    context.add_cleanup(context.stream.leave)
    assert context.stream.next()[0] == "snapshot"
    context.process.send_signal(signal.SIGTERM)


@then("the client's stream ends, and the process within seconds")
def step_the_clients_stream_ends_and_the_process_within_seconds(context: Context) -> None:
    assert context.process.wait(LIMIT) in (0, -signal.SIGTERM, 143)
