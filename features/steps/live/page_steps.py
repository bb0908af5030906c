"""Steps for who may see the page, and what those who may get."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import json
import logging
import socket
import sys
import time
import unittest
from http.cookies import SimpleCookie
from typing import Any
from unittest import mock
from urllib.parse import quote

from behave import given, then, when
from behave.runner import Context
from starlette.applications import Starlette
from starlette.routing import Mount

from rxlanggraph import StreamMessage
from rxlanggraph.live import server
from rxlanggraph.live.access import HEADERS
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Log
from support.live.pages import SECRET, Page, make_world, open_page
from support.web.server import WebServer

# -- who may see it --------------------------------------------------------------------------------


def _asked(context: Context, request: str) -> dict[str, str | None]:
    """The headers of a request, described in words."""
    token, host = f"Bearer {context.app.token}", context.page.host
    name = context.app._access._cookie_name
    port = int(host.rpartition(":")[2])
    headers: dict[str, dict[str, str | None]] = {
        "without a token": {},
        "with a wrong token": {"authorization": f"Bearer {'x' * 43}"},
        "with a wrong token in the address": {},
        "with a token that is not ASCII": {"authorization": "Bearer \xff\xfe"},
        "with a wrong cookie": {"cookie": f"{name}={'0' * 56}"},
        "with a cookie that cannot be read": {"cookie": f'{name}="; =;;\x7f'},
        "with the token": {"authorization": token},
        "with the token, for another host": {"host": "evil.example"},
        "with the token, without a host": {"host": None},
        "with the token, for localhost": {"host": f"localhost:{port}"},
        "with the token, from another page": {"origin": "https://evil.example"},
        "with the token, from another port": {"origin": f"http://127.0.0.1:{port + 1}"},
        "with the token, from no page": {"origin": "null"},
        "with the token, from this page": {"origin": f"http://{host}"},
    }
    own = {"authorization": token} if request.startswith("with the token") else {}
    return {"host": host, **own, **headers[request]}


@when("the page is asked {request}")
def step_the_page_is_asked(context: Context, request: str) -> None:
    context.world.send("nothing", SECRET)
    context.world.finish()
    context.statuses, context.texts = [], []
    query = "?token=" + "x" * 43 if "in the address" in request else ""
    for path in ("/", "/api/snapshot", "/live.js", "/api/runs/1/stack"):
        connection = http.client.HTTPConnection(context.page.host, timeout=LIMIT)
        connection.putrequest("GET", path + query, skip_host=True)
        for name, value in _asked(context, request).items():
            if value is not None:
                connection.putheader(name, value.encode("latin-1"))
        connection.endheaders()
        response = connection.getresponse()
        context.statuses.append(response.status)
        context.texts.append(response.read().decode())
        connection.close()


@then("each status is {status:d}, and nothing of the bridge is in it unless it is 200")
def step_each_status_is_status_and_nothing_of_the_bridge_is_in_it(
    context: Context, status: int
) -> None:
    # No such run; a request without a host is not even HTTP, and refused by the server itself.
    last = 404 if status == 200 else status
    known = [status, status, status, last]
    assert context.statuses in (known, [400] * 4 if status == 421 else known), context.statuses
    assert (SECRET in "".join(context.texts)) is (status == 200)


@when("a browser visits the address with the token")
def step_a_browser_visits_the_address_with_the_token(context: Context) -> None:
    context.browser = context.page.new_client()
    context.visited = context.browser.get(context.app.path)


@then(
    "it is sent to the page without the token, with a cookie for it alone, strict and unseen by "
    "scripts"
)
def step_it_is_sent_to_the_page_without_the_token(context: Context) -> None:
    response, path = context.visited, context.page.url.partition(context.page.host)[2]
    assert response.status_code == 303 and response.headers["location"] == "./"
    (morsel,) = SimpleCookie(response.headers["set-cookie"]).values()
    assert morsel["httponly"] and morsel["samesite"] == "Strict" and morsel["path"] == f"{path}/"
    assert not morsel["domain"] and not morsel["secure"] and not morsel["expires"]
    # httpx, as browsers, sends it for what is below the path alone.
    assert context.app.token not in response.headers["set-cookie"]


@then("it has the page, its script and its style")
def step_it_has_the_page_its_script_and_its_style(context: Context) -> None:
    types = {"/": "text/html", "/live.js": "text/javascript", "/live.css": "text/css"}
    context.seen = [context.browser.get(path) for path in types]
    for response, type_ in zip(context.seen, types.values(), strict=True):
        assert response.status_code == 200, response
        assert response.headers["content-type"] == f"{type_}; charset=utf-8"


@when('a browser with the cookie sends "{cookie}" along')
def step_a_browser_with_the_cookie_sends_along(context: Context, cookie: str) -> None:
    step_a_browser_visits_the_address_with_the_token(context)
    ((name, value),) = context.browser.cookies.items()
    headers = {"cookie": f"{cookie}; {name}={value}".encode()}
    context.seen = [context.page.new_client().get("/", headers=headers)]


@then("it has the page")
def step_it_has_the_page(context: Context) -> None:
    (response,) = context.seen
    assert response.status_code == 200 and "<html" in response.text, response.text


@then("the token is in neither cookie nor page")
def step_the_token_is_in_neither_cookie_nor_page(context: Context) -> None:
    token = context.app.token
    assert all(token not in response.text for response in context.seen)
    assert all(token not in str(value) for value in context.browser.cookies.values())


@when("a browser with the cookie cancels a run from {_page}")
def step_a_browser_with_the_cookie_cancels_a_run_from(context: Context, _page: str) -> None:
    step_a_browser_visits_the_address_with_the_token(context)
    origins = {
        "no page": {},
        "another port": {"origin": "http://127.0.0.1:1"},
        "this page": {"origin": f"http://{context.page.host}"},
    }
    context.statuses = []
    context.world.send("wait", "ada")
    context.world.started.wait_for(1)
    (run,) = context.page.snapshot()["runs"]
    for row in context.table:
        path, headers = f"/api/runs/{run['id']}/cancel", origins[row["page"]]
        response = context.browser.post(path, json={}, headers=headers)
        context.statuses.append((response.status_code, int(row["status"])))


@then("each status is as it should be")
def step_each_status_is_as_it_should_be(context: Context) -> None:
    assert all(found == known for found, known in context.statuses), context.statuses


@then(
    "the page, its files, its data, its events, refusals and what is not there all have the headers"
)
def step_the_page_its_files_its_data_its_events_refusals_all_have(context: Context) -> None:
    page = context.page
    stranger = page.new_client()
    stream = page.listen()
    responses = [
        *(page.client.get(path) for path in ("/", "/live.css", "/api/snapshot", "/nothing")),
        *(page.client.get(path) for path in ("/api/runs/1/stack", context.app.path)),
        page.client.post("/api/interrupts/1/answer", content="{"),
        page.client.put("/api/snapshot"),
        stranger.get("/"),
        stream.response,
    ]
    statuses = [response.status_code for response in responses]
    assert statuses == [200, 200, 200, 404, 404, 303, 415, 405, 401, 200], statuses
    for response in responses:
        for name, value in HEADERS.items():
            assert response.headers.get_list(name) == [value], (response.url, name)
        assert "access-control-allow-origin" not in response.headers
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy and "http" not in policy and "default-src 'none'" in policy


# -- events ----------------------------------------------------------------------------------------


@when("a client of the page listens")
def step_a_client_of_the_page_listens(context: Context) -> None:
    context.stream = context.page.listen()


@then("it has a snapshot at once, and a later one after that")
def step_it_has_a_snapshot_at_once_and_a_later_one(context: Context) -> None:
    (first, data), (second, later) = context.stream.next(), context.stream.next()
    assert first == second == "snapshot" and data["state"] == later["state"] == "open"
    assert data["time"] < later["time"] and data["version"] == 1


@then("the last snapshot of the client says closed, and the stream ends")
def step_the_last_snapshot_of_the_client_says_closed(context: Context) -> None:
    end, last = context.stream.until("end")
    assert end == {"reason": "closed"} and last["state"] == "closed", (end, last)
    assert context.stream.is_over()


@then("a client that listens later has one snapshot and the end")
def step_a_client_that_listens_later_has_one_snapshot_and_the_end(context: Context) -> None:
    stream = context.page.listen()
    names = [stream.next()[0], stream.next()[0]]
    assert names == ["snapshot", "end"] and stream.is_over(), names


@when("{count:d} clients listen")
def step_count_clients_listen(context: Context, count: int) -> None:
    feeds, context.left = context.app._feeds, Log()
    leave = feeds.leave

    def told(feed: Any) -> None:
        leave(feed)
        context.left.add(feed)

    patcher = mock.patch.object(feeds, "leave", told)
    patcher.start()
    context.add_cleanup(patcher.stop)
    for _ in range(count):
        assert context.page.listen().next()[0] == "snapshot"


@then("a further one is refused with {status:d}")
def step_a_further_one_is_refused(context: Context, status: int) -> None:
    stream = context.page.listen()
    assert stream.status == status
    stream.leave()


@when("all but one leave")
def step_all_but_one_leave(context: Context) -> None:
    for stream in context.page.streams[1:]:
        stream.leave()


@then("a further one has a snapshot")
def step_a_further_one_has_a_snapshot(context: Context) -> None:
    context.left.wait_for(31)
    assert context.page.listen().next()[0] == "snapshot"


@then("when they have left, nothing takes snapshots any more")
def step_when_they_have_left_nothing_takes_snapshots(context: Context) -> None:
    (feed,) = context.app._feeds._feeds.values()
    for stream in context.page.streams:
        stream.leave()
    context.left.wait_for(33)
    assert not context.app._feeds._feeds and not context.app._feeds._listening
    assert feed._producer is None
    assert not feed._listeners


@when("{count:d} clients listen, each on a loop that is closed before it leaves")
def step_count_clients_listen_each_on_a_loop_that_is_closed(context: Context, count: int) -> None:
    async def enter() -> Any:
        return context.app._feeds.enter()

    for _ in range(count):
        assert asyncio.run(enter()) is not None


@then("one that listens on another loop has a snapshot")
def step_one_that_listens_on_another_loop_has_a_snapshot(context: Context) -> None:
    assert context.page.listen().next()[0] == "snapshot"


@given("so much in the snapshots that no buffer holds two")
def step_so_much_in_the_snapshots_that_no_buffer_holds_two(context: Context) -> None:
    # Sockets hold some megabytes at most; this is what a snapshot takes with all of its lists full.
    source = context.app._feeds._source
    take = source.snapshot_nowait
    padding = ["x" * 1000] * 8000
    patcher = mock.patch.object(source, "snapshot_nowait", lambda: {**take(), "padding": padding})
    patcher.start()
    context.add_cleanup(patcher.stop)


@when("a client listens and does not read")
def step_a_client_listens_and_does_not_read(context: Context) -> None:
    host, port = context.page.host.split(":")
    silent = socket.create_connection((host, int(port)))
    context.add_cleanup(silent.close)
    silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = (
        f"GET /api/events HTTP/1.1\r\nHost: {context.page.host}\r\n"
        f"Authorization: Bearer {context.app.token}\r\n\r\n"
    )
    silent.sendall(request.encode())
    assert silent.recv(12) == b"HTTP/1.1 200"


@then("another client has {count:d} snapshots meanwhile")
def step_another_client_has_count_snapshots_meanwhile(context: Context, count: int) -> None:
    stream = context.page.listen()
    assert [stream.next()[0] for _ in range(count)] == count * ["snapshot"]
    stream.leave()


@when("the loop of the page stands still as that client is about to be cut off")
def step_the_loop_of_the_page_stands_still_as_that_client_is_cut_off(context: Context) -> None:
    cut_off = server._Server._cut_off

    def late(of: Any) -> None:
        time.sleep(2 * server._FLUSH_SECONDS)  # as a machine does, and no wait for anything
        cut_off(of)

    patcher = mock.patch.object(server._Server, "_cut_off", late)
    patcher.start()
    context.add_cleanup(patcher.stop)


@then("the page ends within seconds, and logs no error")
def step_the_page_ends_within_seconds_and_logs_no_error(context: Context) -> None:
    began = time.monotonic()
    with unittest.TestCase().assertNoLogs("uvicorn.error", logging.ERROR):
        context.page.close()
    assert time.monotonic() - began < LIMIT


# -- what it does ----------------------------------------------------------------------------------


@then("its stack is there")
def step_its_stack_is_there(context: Context) -> None:
    (context.run,) = context.page.snapshot()["runs"]
    response = context.page.client.get(f"/api/runs/{context.run['id']}/stack")
    assert "wait_async" in response.json()["stack"], response.text


def _cancel(context: Context, run_id: object) -> int:
    status: int = context.page.client.post(f"/api/runs/{run_id}/cancel", json={}).status_code
    return status


@then("cancelling it is 200, and again 404")
def step_cancelling_it_is_200_and_again_404(context: Context) -> None:
    run_id = context.run["id"]
    assert [_cancel(context, run_id), _cancel(context, run_id)] == [200, 404]
    context.world.finish()
    (ended,) = context.page.snapshot()["recent"]
    assert ended["status"] == "cancelled", ended


@then("cancelling a run that never was is 404")
def step_cancelling_a_run_that_never_was_is_404(context: Context) -> None:
    names = (7, 10**400 // 10**390, -1, "x", 2**63, "9" * 5000)
    assert {_cancel(context, name) for name in names} == {404}


@when("an answer is sent whose body is {what}")
def step_an_answer_is_sent_whose_body_is(context: Context, what: str) -> None:
    bodies = {
        "not JSON": "{",
        "a list": "[1]",
        "without a value": "{}",
        "nested too deep": "[" * 60_000,
        "NaN, which JSON lacks": '{"value": NaN}',
        "of another type": '{"value": 1}',
        "a megabyte": json.dumps({"value": "x" * 1_000_000}),
    }
    type_ = "text/plain" if what == "of another type" else "application/json"
    headers = {"content-type": type_}
    context.answer = context.page.client.post(
        "/api/interrupts/1/answer", content=bodies[what], headers=headers
    )


@then("the answer is refused with {status:d}")
def step_the_answer_is_refused_with(context: Context, status: int) -> None:
    assert context.answer.status_code == status, context.answer.text
    assert context.answer.json()["error"]


_MARKUP = "</script><script>alert(1)</script>\n\u2028'\"\x1b[31m"


@when("a message fails whose ids, node and error are markup")
def step_a_message_fails_whose_ids_node_and_error_are_markup(context: Context) -> None:
    open_page(context, context.world, show_content=True)

    async def fail(_: object) -> None:
        error = ValueError(_MARKUP)
        error.add_note(f"During task with name '{_MARKUP}' and id '1'")
        raise error

    message = StreamMessage(1, thread_id=_MARKUP, id=f"m-{_MARKUP}")
    context.world.bridge.create_future_task(fail, message, name=_MARKUP, errors="emit").result(
        LIMIT
    )
    assert context.world.bridge.registry.wait_idle(LIMIT)


@then("the data has them as they are, as JSON that no browser takes for a page")
def step_the_data_has_them_as_they_are(context: Context) -> None:
    response = context.page.client.get("/api/snapshot")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    (ended,) = response.json()["recent"]
    assert ended["name"] == ended["thread_id"] == _MARKUP, ended
    assert ended["error"] == {"type": "ValueError", "node": _MARKUP, "message": _MARKUP}
    stream = context.page.listen()
    assert stream.next()[1]["recent"][0]["thread_id"] == _MARKUP  # one line, whatever is in it
    stream.leave()


# -- where it is served ----------------------------------------------------------------------------


@given('an application that has the page mounted at "{path}"')
def step_an_application_that_has_the_page_mounted_at(context: Context, path: str) -> None:
    outer: Any = Starlette(routes=[Mount(path, context.app)])
    outer.close = context.app.close
    context.page = Page(outer, context.app.token, quote(path, safe="/@:()"))
    context.add_cleanup(context.page.close)


@given('an application behind a proxy for "{prefix}" that has the page mounted at "{path}"')
def step_an_application_behind_a_proxy_that_has_the_page_mounted_at(
    context: Context, prefix: str, path: str
) -> None:
    inner = Starlette(routes=[Mount(path, context.app)])

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        scope = {**scope, "root_path": prefix, "path": scope["path"].removeprefix(prefix)}
        await inner(scope, receive, send)

    served: Any = outer
    served.close = context.app.close
    context.page = Page(served, context.app.token, prefix + path)
    context.add_cleanup(context.page.close)


@then('"{path}" without a slash leads there too')
def step_path_without_a_slash_leads_there_too(context: Context, path: str) -> None:
    response = context.browser.get(f"http://{context.page.host}{path}", follow_redirects=True)
    assert response.status_code == 200 and response.url.path == f"{path}/", response
    assert response.text == context.seen[0].text


@given("an application on the loop that the bridge adopts")
def step_an_application_on_the_loop_that_the_bridge_adopts(context: Context) -> None:
    box: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            box["world"] = make_world(context, loop=asyncio.get_running_loop())
            box["app"] = box["world"].bridge.live_app()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await box["world"].bridge.aclose(0)
            await send({"type": "lifespan.shutdown.complete"})
            return
        await box["app"](scope, receive, send)

    server = WebServer(app)
    context.add_cleanup(server.stop)
    context.app, context.world = box["app"], box["world"]
    context.page.close()
    context.page = _Served(server.url, context.app.token)
    context.add_cleanup(context.page.close)


class _Served(Page):
    """A page that something else serves."""

    def __init__(self, url: str, token: str) -> None:
        self._ended = contextlib.ExitStack()
        self.url, self.host, self.streams = url, url.partition("://")[2], []
        self.client = self.new_client(headers={"authorization": f"Bearer {token}"})


@then("the page has it, and can cancel it")
def step_the_page_has_it_and_can_cancel_it(context: Context) -> None:
    stream = context.page.listen()
    (run,) = stream.next()[1]["runs"]
    assert _cancel(context, run["id"]) == 200
    while stream.next()[1]["recent"] == []:
        pass
    stream.leave()


# -- making it -------------------------------------------------------------------------------------


def _listeners(context: Context) -> int:
    observers = context.world.bridge._engine.listeners.current
    return 0 if observers is None else len(observers.listeners)


@when("the page is made once more, and dropped")
def step_the_page_is_made_once_more_and_dropped(context: Context) -> None:
    context.before = _listeners(context)
    app = context.world.bridge.live_app()
    assert _listeners(context) == context.before + 1
    del app
    gc.collect()


@then("the bridge has as many hooks as before")
def step_the_bridge_has_as_many_hooks_as_before(context: Context) -> None:
    assert _listeners(context) == context.before == 1


@when("a page is made {how}")
def step_a_page_is_made(context: Context, how: str) -> None:
    options: dict[str, dict[str, Any]] = {
        "with a short token": {"token": "short"},
        "with a token of bytes": {"token": b"x" * 32},
        "with one host as a string": {"allowed_hosts": "example.com"},
        "with a host that is none": {"allowed_hosts": ["a/b"]},
        "with a graph without threads": {"graphs": [lambda content: content]},
        "with stuck_after=0": {"stuck_after": 0},
        'with show_content="no"': {"show_content": "no"},
        "with a graph as its graphs": {"graphs": context.world.graph},
        "with a name as its graphs": {"graphs": "package.module:graph"},
        "without the extra": {},
    }
    if how == "without the extra":
        for name in ("rxlanggraph.live.app", "rxlanggraph.live.http"):
            kept = sys.modules.pop(name)
            context.add_cleanup(sys.modules.__setitem__, name, kept)
        with mock.patch.dict(sys.modules, {"sse_starlette": None}):
            context.error = error_of(context.world.bridge.live_app)
        return
    context.error = error_of(lambda: context.world.bridge.live_app(**options[how]))
    assert _listeners(context) == 1
