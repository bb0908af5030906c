"""Steps for ``rxlanggraph top``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
from concurrent.futures import CancelledError
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context
from langgraph.types import interrupt
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from rxlanggraph.cli.journal.live_source import journal_source
from rxlanggraph.cli.top.plain import as_plain_text
from rxlanggraph.cli.top.remote import RemotePage
from rxlanggraph.cli.top.watch import PolledSource
from rxlanggraph.errors import RxLangGraphError
from rxlanggraph.live.schema import VERSION
from support.cli import command
from support.cli.screens import Screen, Terminal
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT
from support.live.pages import Page, World, make_world, open_page
from support.servers.relay import Relay
from support.web.server import WebServer

# -- what is looked at -----------------------------------------------------------------------------


@given("a bridge with 2 slots, whose page is served with content")
def step_a_bridge_with_2_slots_whose_page_is_served_with_content(context: Context) -> None:
    open_page(context, make_world(context, max_concurrency=2), show_content=True, stuck_after=0.001)


@given('a message waits on the thread "{thread_id}"')
@when('a message waits on the thread "{thread_id}"')
def step_a_message_waits_on_the_thread(context: Context, thread_id: str) -> None:
    context.world.send("wait", thread_id.encode().decode("unicode_escape"))
    context.world.started.wait_for(1)


@when('3 messages wait on the threads "{one}", "{two}" and "{three}"')
def step_3_messages_wait_on_the_threads(context: Context, one: str, two: str, three: str) -> None:
    for thread_id in (one, two, three):
        context.world.send("wait", thread_id)
    context.world.started.wait_for(2)


@when('messages have failed on "{one}", asked on "{two}", and one is stuck on "{three}"')
def step_messages_have_failed_asked_and_one_is_stuck(
    context: Context, one: str, two: str, three: str
) -> None:
    world: World = context.world
    world.send("fail", one)
    world.finish()
    world.send("ask", two)
    world.finish()
    world.send("wait", three)
    world.started.wait_for(3)


@when('a message asks on the thread "{thread_id}", and notes the answer')
def step_a_message_asks_on_the_thread_and_notes_the_answer(
    context: Context, thread_id: str
) -> None:
    context.answers = []

    async def check(state: Any) -> dict[str, Any]:
        context.answers.append(interrupt("what?"))
        return {}

    context.world.graph.nodes["check"].bound.afunc = check
    context.world.send("ask", thread_id)
    context.world.finish()


@when("it is answered elsewhere")
def step_it_is_answered_elsewhere(context: Context) -> None:
    (question,) = context.page.snapshot()["interrupts"]
    path = f"/api/interrupts/{question['id']}/answer"
    assert context.page.client.post(path, json={"value": "first"}).status_code == 200


@when('the run on "{thread_id}" is cancelled elsewhere')
def step_the_run_on_is_cancelled_elsewhere(context: Context, thread_id: str) -> None:
    runs = context.page.snapshot()["runs"]
    (run,) = [run["id"] for run in runs if run["thread_id"] == thread_id]
    assert context.page.client.post(f"/api/runs/{run}/cancel", json={}).status_code == 200


@when("all runs end")
def step_all_runs_end(context: Context) -> None:
    context.world.gate.open()
    context.world.finish()


@when("its bridge is closed")
def step_its_bridge_is_closed(context: Context) -> None:
    context.world.close()


# -- the screen ------------------------------------------------------------------------------------


def _screen(context: Context) -> Screen:
    context.screen = screen = Screen()
    context.add_cleanup(screen.close)
    return screen


def _open(context: Context, address: str, size: tuple[int, int] = (80, 24)) -> None:
    """Open the screen of a page; its pauses end when they are told to."""
    screen = context.screen
    context.pauses, context.paused = [], asyncio.Queue()

    async def pause(seconds: float) -> None:
        context.pauses.append(seconds)
        await context.paused.get()

    page = screen.enter(RemotePage(address, context.app.token, pause=pause))
    screen.look(page, size)


@when("the screen is open")
def step_the_screen_is_open(context: Context) -> None:
    _screen(context)
    _open(context, context.page.url)


@when("the screen is open, of {width:d}x{height:d}")
def step_the_screen_is_open_of(context: Context, width: int, height: int) -> None:
    _screen(context)
    _open(context, context.page.url, (width, height))


@when('I press "{keys}"')
def step_i_press_keys(context: Context, keys: str) -> None:
    names = {"/": "slash", "?": "question_mark"}
    context.screen.press(*(names.get(key, key) for key in keys.split()))


@when('I write "{text}"')
def step_i_write_text(context: Context, text: str) -> None:
    context.screen.press(*text)


@when('I choose the view "{title}"')
def step_i_choose_the_view(context: Context, title: str) -> None:
    screen = context.screen
    for _ in range(7):
        if screen.app.screen._view.title == title:
            return
        screen.press("tab")
    raise AssertionError(screen.text())


@then('the screen shows in the view "{title}": "{text}"')
def step_the_screen_shows_in_the_view(context: Context, title: str, text: str) -> None:
    step_i_choose_the_view(context, title.split(maxsplit=1)[0])
    context.screen.shows(title, text)


@then('the screen shows "{one}" and "{other}"')
def step_the_screen_shows_one_and_other(context: Context, one: str, other: str) -> None:
    context.screen.shows(one, other)


@then('the screen shows "{text}"')
def step_the_screen_shows_text(context: Context, text: str) -> None:
    context.screen.shows(text)


@then('the screen says "{text}"')
def step_the_screen_says_text(context: Context, text: str) -> None:
    context.screen.settle()
    said = [each.message for each in context.screen.app._notifications]
    assert any(text in each for each in said), said


@when('what it said is over, and I press "{keys}"')
def step_what_it_said_is_over_and_i_press(context: Context, keys: str) -> None:
    context.screen.app.clear_notifications()
    step_i_press_keys(context, keys)


def _rows(text: str) -> list[str]:
    """What is in the table."""
    lines = text.splitlines()
    (head,) = [at for at, line in enumerate(lines) if line.split()[:2] == ["thread", "graph"]]
    rows = []
    for line in lines[head + 1 :]:
        if not line.strip() or line.startswith("──"):
            break
        rows.append(re.sub(r"\s+", " ", re.sub(r"\s[\d.]+s\b.*", "", line)).strip())
    return rows


@then("the rows of the screen are")
def step_the_rows_of_the_screen_are(context: Context) -> None:
    wanted = context.text.splitlines()
    context.screen.until(lambda text: _rows(text) == wanted)


@then("{count:d} rows are shown")
def step_count_rows_are_shown(context: Context, count: int) -> None:
    context.screen.until(lambda text: len(_rows(text)) == count)


@then('{count:d} rows are shown, and "{also}"')
def step_count_rows_are_shown_and_also(context: Context, count: int, also: str) -> None:
    context.screen.until(lambda text: len(_rows(text)) == count and also in text)


@when("a further snapshot has come")
def step_a_further_snapshot_has_come(context: Context) -> None:
    screen = context.screen.app.screen
    context.screen.until(lambda _: not screen._latest["runs"])


@then("all {count:d} runs are in flight")
def step_all_count_runs_are_in_flight(context: Context, count: int) -> None:
    assert len(context.page.snapshot()["runs"]) == count
    assert not any(future.done() for future in context.world.futures)


@then('the run on "{thread_id}" is cancelled, and the others are in flight')
def step_the_run_on_is_cancelled(context: Context, thread_id: str) -> None:
    ada, bob, cleo = context.world.futures
    assert isinstance(error_of(lambda: bob.result(LIMIT)), CancelledError) and thread_id == "bob"
    assert not ada.done() and not cleo.done()


@then("the answer was {value}")
def step_the_answer_was_value(context: Context, value: str) -> None:
    context.screen.settle()
    assert context.answers == [json.loads(value)], context.answers


@then("it is still running")
def step_it_is_still_running(context: Context) -> None:
    assert context.screen.app.is_running and context.screen.text()


@then("it has ended with status {status:d}")
def step_it_has_ended_with_status(context: Context, status: int) -> None:
    assert context.screen.result() == status


# -- the connection --------------------------------------------------------------------------------


@when("the screen is open, through a network")
def step_the_screen_is_open_through_a_network(context: Context) -> None:
    screen = _screen(context)
    context.relay = screen.enter(Relay(context.page.url))
    _open(context, context.relay.url)
    screen.until(lambda _: True)


@when("the network ends all connections")
def step_the_network_ends_all_connections(context: Context) -> None:
    context.screen.run(context.relay.end("idle", "RST"))


@when("the pause is over")
def step_the_pause_is_over(context: Context) -> None:
    context.paused.put_nowait(None)


@when("the page ends without saying so")
def step_the_page_ends_without_saying_so(context: Context) -> None:
    context.relay._server.close()  # nothing listens there any more
    step_the_network_ends_all_connections(context)


@then("the pauses are {seconds} seconds")
def step_the_pauses_are_seconds(context: Context, seconds: str) -> None:
    wanted = [float(each) for each in seconds.split(", ")]
    for count in range(1, len(wanted) + 1):
        context.screen.shows(f"reconnecting in {wanted[count - 1]:.1f} s")
        assert context.pauses == wanted[:count], context.pauses
        context.paused.put_nowait(None)


@when("another page is served at the same address")
def step_another_page_is_served_at_the_same_address(context: Context) -> None:
    app = context.world.bridge.live_app()
    context.add_cleanup(app.close)
    page = Page(app, app.token)
    context.add_cleanup(page.close)
    context.relay._parts = Relay(page.url)._parts
    step_the_network_ends_all_connections(context)
    context.screen.shows("reconnecting")
    step_the_pause_is_over(context)


@then('it ends with an error that says "{text}"')
def step_it_ends_with_an_error_that_says(context: Context, text: str) -> None:
    screen = context.screen
    error = screen.result()
    assert isinstance(error, RxLangGraphError) and text in str(error), error


# -- the command -----------------------------------------------------------------------------------


@when("top is run once for {what}")
def step_top_is_run_once_for_what(context: Context, what: str) -> None:
    is_page = what != "the journal"
    url, token = (context.page.url, context.app.token) if is_page else ("", "")
    with contextlib.ExitStack() as stack:
        if what == "a page of other software":
            url = stack.enter_context(_other_software({"hello": "world"}))
        elif what == "JSON nested too deep":
            url = stack.enter_context(_other_software("[" * 100_000))
        elif what == "a later release":
            url = stack.enter_context(_other_software({"version": VERSION + 1}))
        elif what == "a server that fails":
            url = stack.enter_context(_other_software({}, status=500))
        elif what == "another name of a host":
            app = context.world.bridge.live_app(allowed_hosts=["ops.example.com"])
            stack.callback(app.close)
            page = stack.enter_context(contextlib.closing(Page(app, app.token)))
            url, token = page.url, app.token
        elif what == "a port without a server":
            with socket.create_server(("127.0.0.1", 0)) as listener:
                url = "http://{}:{}".format(*listener.getsockname())
        elif "environment" in what:
            variables = {"RXLANGGRAPH_LIVE_TOKEN": token}
            stack.enter_context(mock.patch.dict(os.environ, variables))
        targets = {
            "a wrong token": f"{url}/?token={'x' * 43}",
            "no token": url,
            "the page, with its token in the environment": url,
            "the journal": "run.sqlite",
            "a path without a page": f"{url}/elsewhere/?token={token}",
            "a port too high": f"http://127.0.0.1:99999/?token={token}",
            "no host": "http://?token=x",
            "an address without http": f"127.0.0.1:80/?token={token}",
            "a bracket too few": f"http://[::1:80/?token={token}",
            "a token with a space": f"{url}/?token=a%20b",
        }
        target = targets.get(what, f"{url}/?token={token}")
        context.ended = command.run_here(
            f"rxlanggraph top '{target}' --once", context.folder, context.stdin
        )


@contextlib.contextmanager
def _other_software(answer: object, status: int = 200) -> Any:
    async def found(_: Any) -> Response:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return Response(text, status, media_type="application/json")

    server = WebServer(Starlette(routes=[Route("/api/snapshot", found)]))
    try:
        yield server.url
    finally:
        server.stop()


@given('its loop was blocked for {seconds:d} seconds in "{where}"')
def step_its_loop_was_blocked(context: Context, seconds: int, where: str) -> None:
    context.snapshot = snapshot = context.page.snapshot()
    blocked = {"time": snapshot["time"], "where": where, "seconds": seconds, "stack": "File"}
    snapshot["loop"]["blocked"].append(blocked)


@when("its snapshot is printed as plain text")
def step_its_snapshot_is_printed_as_plain_text(context: Context) -> None:
    context.ended = command.Ended(0, as_plain_text(context.snapshot), "")


@then('standard output has "{one}", "{two}", "{three}", "{four}", "{five}" and "{six}"')
def step_standard_output_has(context: Context, **texts: str) -> None:
    out = context.ended.out
    assert all(text in out for text in texts.values()), out


@then("it has no control characters")
def step_it_has_no_control_characters(context: Context) -> None:
    assert all(line.isprintable() for line in context.ended.out.splitlines())


@when("its screen is open")
def step_its_screen_is_open(context: Context) -> None:
    screen = _screen(context)
    context.paused = asyncio.Queue()
    source = journal_source(str(context.folder / "run.sqlite"), show_content=False)
    journal = contextlib.ExitStack()
    context.add_cleanup(journal.close)
    watch = PolledSource(
        journal.enter_context(source), "run.sqlite", pause=lambda _: context.paused.get()
    )
    screen.look(watch)


@then("the keys for cancelling, answering and stacks are not offered")
def step_the_keys_for_cancelling_answering_and_stacks_are_not_offered(context: Context) -> None:
    footer = context.screen.text().splitlines()[-1]
    assert "Quit" in footer
    assert not any(key in footer for key in ("Cancel", "Answer", "Stack")), footer


@given("httpx_sse is not installed")
def step_httpx_sse_is_not_installed(context: Context) -> None:
    name = "rxlanggraph.cli.top.remote"
    patcher = mock.patch.dict(sys.modules, {"httpx_sse": None})
    patcher.start()
    remote = sys.modules.pop(name)
    context.add_cleanup(sys.modules.__setitem__, name, remote)
    context.add_cleanup(patcher.stop)


@when("top is run in a terminal where Textual is not installed")
def step_top_is_run_in_a_terminal_where_textual_is_not_installed(context: Context) -> None:
    (context.folder / "textual.py").write_text("raise ImportError('textual')")
    context.terminal = Terminal("rxlanggraph top http://127.0.0.1:9/?token=a", context.folder)
    context.add_cleanup(context.terminal.close)


@then('it ends with status {status:d}, and says "{text}"')
def step_it_ends_with_status_and_says(context: Context, status: int, text: str) -> None:
    assert context.terminal.wait() == status
    assert text in context.terminal.raw.decode(), context.terminal.raw


@when("top is started in a terminal")
def step_top_is_started_in_a_terminal(context: Context) -> None:
    line = f"rxlanggraph top '{context.page.url}{context.app.path}'"
    context.terminal = Terminal(line, context.folder)
    context.add_cleanup(context.terminal.close)


@then('the terminal shows "{text}"')
def step_the_terminal_shows(context: Context, text: str) -> None:
    context.terminal.until(text)
    assert context.terminal.after != context.terminal.before  # keys are read one by one


@when("the terminal gets {what}")
def step_the_terminal_gets_what(context: Context, what: str) -> None:
    keys = {"q": "q", "Ctrl-C": "\x03"}
    if what in keys:
        context.terminal.press(keys[what])
        return
    if "asks" in what:
        context.terminal.press("c")
        context.terminal.until("Cancel this run?")
    context.terminal.signal(signal.Signals[what.split(maxsplit=1)[0]])


@when("the terminal goes away")
def step_the_terminal_goes_away(context: Context) -> None:
    context.terminal.hang_up()


@then("it ends with status {status:d}, though nothing reads its output")
def step_it_ends_with_status_though_nothing_reads_its_output(context: Context, status: int) -> None:
    assert context.terminal.wait_unread() == status


@when("the terminal takes no output any more")
def step_the_terminal_takes_no_output_any_more(context: Context) -> None:
    context.terminal.suspend_output()


@when("SIGTERM is sent until it has ended")
def step_sigterm_is_sent_until_it_has_ended(context: Context) -> None:
    context.status = context.terminal.signal_until_ended(signal.SIGTERM)


@then("SIGTERM was needed twice")
def step_sigterm_was_needed_twice(context: Context) -> None:
    assert context.status == -signal.SIGTERM  # otherwise it would have ended by itself, with 143


@then("it ends with status {status:d}, and the terminal is as before")
def step_it_ends_with_status_and_the_terminal_is_as_before(context: Context, status: int) -> None:
    terminal = context.terminal
    assert terminal.wait() == status, terminal.raw
    assert terminal.after == terminal.before
    # The alternate screen was left, and the cursor is shown; neither is asked of mouse or focus.
    for number in (1049, 1000, 1003, 1004, 1006, 2004):
        on, off = (terminal.raw.rfind(f"\x1b[?{number}{x}".encode()) for x in "hl")
        assert on <= off, (number, terminal.raw)
    shown, hidden = (terminal.raw.rfind(each) for each in (b"\x1b[?25h", b"\x1b[?25l"))
    assert shown > hidden
    assert b"Traceback" not in terminal.raw
