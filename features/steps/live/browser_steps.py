"""Steps for the page in a real browser."""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import StreamMessage
from rxlanggraph.live import bridge_source
from rxlanggraph.live.access import Access
from rxlanggraph.live.app import LiveApp
from support.cli import command
from support.concurrency.waiting import LIMIT, in_threads
from support.live import showcase
from support.live.browser import Tab, new_tab
from support.live.full_source import FullSource
from support.live.pages import SECRET, Page, make_world, open_page


def _open(context: Context, url: str, **options: Any) -> Tab:
    tab = new_tab(**options)
    context.add_cleanup(tab.close)
    tab.open(url)
    return tab


def _open_page(context: Context, tab: dict[str, Any] | None = None, **options: Any) -> None:
    open_page(context, make_world(context, max_concurrency=300), **options)
    context.tab = _open(context, context.page.url + context.app.path, **(tab or {}))


@given("a page that is open in a browser")
def step_a_page_that_is_open_in_a_browser(context: Context) -> None:
    _open_page(context)


@given("a page that is open in a browser, with each node")
def step_a_page_that_is_open_in_a_browser_with_each_node(context: Context) -> None:
    _open_page(context, nodes=True)


@given("a page that is open in a browser, with content {shown:w}")
def step_a_page_that_is_open_in_a_browser_with_content(context: Context, shown: str) -> None:
    _open_page(context, show_content=shown == "shown")


@given("a page that is open in a browser, where runs are stuck at once")
def step_a_page_that_is_open_in_a_browser_where_runs_are_stuck(context: Context) -> None:
    _open_page(context, stuck_after=0.001)


@given("a page that is open in a browser, on a narrow screen")
def step_a_page_that_is_open_in_a_browser_on_a_narrow_screen(context: Context) -> None:
    narrow = {"viewport": {"width": 360, "height": 740}}
    _open_page(context, narrow, show_content=True, stuck_after=0.001)


# -- what is there ---------------------------------------------------------------------------------


@then("it says that it is connected, and what will be in each empty part")
def step_it_says_that_it_is_connected_and_what_will_be(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#connection", "connected")
    assert tab.text("#state") == "● open" and "Runs appear here" in tab.text("#timeline")
    for part in ("#stuck", "#questions", "#blocked"):
        assert "appear here" in tab.text(part), part
    assert "Nothing is in flight." in tab.text("#runs")
    assert "Nothing has failed." in tab.text("#failures")


@then("nothing has gone wrong in the browser, and no other server was asked")
def step_nothing_has_gone_wrong_in_the_browser(context: Context) -> None:
    tab = context.tab
    assert tab.errors == [], tab.errors
    assert tab.evaluate("violations") == []
    assert len(tab.requests) > 5, tab.requests
    hosts = {urlsplit(url).netloc for url in tab.requests}
    assert hosts == {context.page.host}, hosts


@then(
    'the timeline has "{first}" running in the node work with one more waiting, and "{second}" '
    "as ok"
)
def step_the_timeline_has_running_in_the_node_work(
    context: Context, first: str, second: str
) -> None:
    tab = context.tab
    tab.wait_for_count(f".lane:has-text('{second}') .run.ok", 1)
    tab.wait_for_text(f".lane:has-text('{first}')", "+1 waiting")
    # Once it is long enough for its label.
    tab.click("button[data-seconds='20']")
    tab.wait_for_text(f".lane:has-text('{first}') .running .node", "work")
    label = tab.attribute(f".lane:has-text('{first}') > svg", "aria-label")
    assert "running for" in label and "at work" in label, label


@then('the table has "{thread}" as running in work, and as waiting for thread')
def step_the_table_has_as_running_in_work_and_as_waiting(context: Context, thread: str) -> None:
    rows = context.tab.texts("#runs-table tbody tr")
    assert len(rows) == 2 and all(thread in row for row in rows), rows
    assert "running" in rows[0] and "work" in rows[0] and "waiting for thread" in rows[1], rows


@then('a filter for "{thread}" leaves only that in the timeline')
def step_a_filter_leaves_only_that_in_the_timeline(context: Context, thread: str) -> None:
    context.tab.fill("#filter", thread.upper())
    context.tab.wait_for("document.querySelectorAll('.lane').length === 1")
    assert thread in context.tab.text(".lane")
    assert "matches the filter" in context.tab.text("#runs-table")


HOSTILE = {
    "markup": "<img src=x onerror=alert(1)><script>window.hacked=1</script>",
    "direction": "safe\u202etxt.exe\u2066\x1b[31m",
    "emoji": "👩‍👩‍👧‍👦 שלום & &lt; مرحبا",
    "long": "x" * 5000,
    "attribute": "\" onmouseover='hacked=1' style=position:fixed",
}


@when("messages fail and wait whose ids, names and errors are hostile")
def step_messages_fail_and_wait_whose_ids_names_and_errors_are_hostile(context: Context) -> None:
    world = context.world

    def sent(text: str, what: str) -> Any:
        async def graph(_: object) -> None:
            if what == "wait":
                await world.gate.wait_async()
            error = ValueError(text)
            error.add_note(f"During task with name '{text}' and id '1'")
            raise error

        message = StreamMessage(1, thread_id=text, id=f"{what} {text}")
        return world.bridge.create_future_task(graph, message, name=text, errors="emit")

    for text in HOSTILE.values():
        sent(text, "fail").result(LIMIT)
    for text in HOSTILE.values():
        world.futures.append(sent(text, "wait"))
    context.tab.wait_for("document.querySelectorAll('#runs-table tbody tr').length === 5")


@then("each is shown as text, what would be unseen as a replacement character")
def step_each_is_shown_as_text(context: Context) -> None:
    tab = context.tab
    for part in ("#lanes", "#runs-table", "#failures-table", "#slowest-table"):
        text = tab.evaluate(f"document.querySelector('{part}').textContent")
        for name in ("markup", "emoji", "attribute"):
            assert HOSTILE[name] in text or part == "#lanes", (part, name, text)
        assert "safe\ufffdtxt.exe\ufffd\ufffd[31m" in text, (part, text)
        assert "x" * 199 + "…" in text, (part, text)


@then("no element and no script has come of them")
def step_no_element_and_no_script_has_come_of_them(context: Context) -> None:
    assert context.tab.count("main img, main script, main [style], [onmouseover], [onerror]") == 0
    assert context.tab.evaluate("window.hacked === undefined")


@then("the failures are by kind: 3 of ValueError in check, and 2 of RunTimeoutError")
def step_the_failures_are_by_kind(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#failures-count", "5")
    first, second = tab.texts("#failures-table tbody tr")
    assert re.match(r"3\s+ValueError\s+\u00d7 error", first) and "clerk · check" in first, first
    assert re.match(r"2\s+RunTimeoutError\s+! timed out", second), second
    tab.wait_for_text("#questions-count", "1")


@then("the text of the message is {there} on the page")
def step_the_text_of_the_message_is_there_on_the_page(context: Context, there: str) -> None:
    tab = context.tab
    failures, questions = tab.text("#failures"), tab.text("#questions")
    if there == "there":
        assert SECRET in failures and SECRET in questions and "hidden" not in failures
        return
    assert SECRET not in tab.evaluate("document.documentElement.outerHTML")
    assert "What exceptions say is hidden." in failures, failures
    assert "What it asks is hidden." in questions, questions


# -- what can be done ------------------------------------------------------------------------------


@when("its run is cancelled {how}, after the first thought was to let it run")
def step_its_run_is_cancelled(context: Context, how: str) -> None:
    tab, world = context.tab, context.world
    tab.wait_for_text("#runs-table tbody tr", "running")
    if how == "with the mouse":
        tab.click("#runs-table button.danger")
        tab.click("#confirm button[value=keep]")
        tab.click("#runs-table button.danger")
        assert world.bridge.statistics().in_flight == 1
        tab.click("#confirm button[value=cancel]")
        return
    _tab_to(tab, "Cancel ada")
    tab.press("Enter")
    assert tab.focused() == "Let it run"
    tab.press("Escape")
    assert tab.focused() == "Cancel ada"
    tab.press("Space")
    assert world.bridge.statistics().in_flight == 1
    tab.press("Tab", "Enter")


def _tab_to(tab: Tab, name: str) -> None:
    """Go on from the filter until something has the focus."""
    tab.press("Tab")
    for _ in range(60):
        if tab.focused() == name:
            return
        tab.press("Tab")
    raise AssertionError(f"{name} cannot be reached by the keyboard; it ended at {tab.focused()}")


@then("it has ended as cancelled, and the page says so")
def step_it_has_ended_as_cancelled_and_the_page_says_so(context: Context) -> None:
    tab = context.tab
    assert context.world.bridge.registry.wait_idle(LIMIT)
    assert context.world.bridge.statistics().cancelled == 1
    tab.wait_for_text("#activity", "Run of ada: cancelled")
    tab.wait_for_text("#runs-table", "Nothing is in flight.")
    tab.wait_for_text(".lane:has-text('ada')", "\u2013")  # cancelled
    # The row is gone that had the focus, which has not gone to the top of the page.
    tab.wait_for("document.activeElement.id === 'runs-heading'")


@when("the page is opened a second time, where nothing new arrives")
def step_the_page_is_opened_a_second_time_where_nothing_new_arrives(context: Context) -> None:
    context.tab.wait_for_text("#questions-count", "1")
    snapshot = context.page.client.get("/api/snapshot").text
    context.second = new_tab()
    context.add_cleanup(context.second.close)
    body = f"event: snapshot\ndata: {snapshot}\n\n"
    context.second.fulfil("**/api/events", content_type="text/event-stream", body=body)
    context.second.open(context.page.url + context.app.path)


@when("what is not JSON, and then an object, is answered in the first")
def step_what_is_not_json_and_then_an_object_is_answered(context: Context) -> None:
    tab = context.tab
    tab.click("#questions input[value=json]")
    tab.fill("#questions textarea", "{nothing")
    tab.click("#questions button[type=submit]")
    tab.wait_for_text("#questions output", "Not JSON")
    tab.fill("#questions textarea", '{"yes": 12345678901234567890}')
    tab.press("Control+Enter")
    tab.wait_for_text("#activity", "Answer to ada: answered; the run has ended: ok")


@then("the run that asked has ended as ok, and its question is gone")
def step_the_run_that_asked_has_ended_as_ok(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#questions-empty", "None.")
    assert tab.count("#questions .card") == 0
    tab.wait_for_count(".lane:has-text('ada') .run.interrupted", 1)
    tab.wait_for_count(".lane:has-text('ada') .run.ok", 1)


@then("the graph was given the number of 20 digits as it was typed")
def step_the_graph_was_given_the_number_as_it_was_typed(context: Context) -> None:
    assert list(context.world.answers) == [{"yes": 12345678901234567890}]


@when("text is answered in the second")
def step_text_is_answered_in_the_second(context: Context) -> None:
    context.second.fill("#questions textarea", "yes")
    context.second.click("#questions button[type=submit]")


@then("the second says that it is too late")
def step_the_second_says_that_it_is_too_late(context: Context) -> None:
    context.second.wait_for_text("#questions output", "too late: this question is not asked")
    assert context.second.evaluate("document.querySelector('textarea').value") == "yes"


@when("half an answer is typed, and others answer")
def step_half_an_answer_is_typed_and_others_answer(context: Context) -> None:
    tab = context.tab
    tab.fill("#questions textarea", "half an ans")
    path = f"/api/interrupts/{context.question['id']}/answer"
    context.page.client.post(path, json={"value": 1}).raise_for_status()


@then(
    "the form says that this is not asked any more, and what was typed is there until it is "
    "dismissed"
)
def step_the_form_says_that_this_is_not_asked_any_more(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#questions output", "not asked any more")
    assert tab.evaluate("document.querySelector('textarea').value") == "half an ans"
    assert tab.evaluate("document.querySelector('#questions [type=submit]').disabled")
    tab.click("#questions button:has-text('Dismiss')")
    tab.wait_for_text("#questions-empty", "None.")


@then("the page has it as stuck, with a stack that names {function:w}")
def step_the_page_has_it_as_stuck_with_a_stack(context: Context, function: str) -> None:
    context.tab.wait_for_text("#stuck .stack", function)
    context.tab.wait_for_text("#tile-stuck", "▲")
    context.tab.wait_for_text("#runs-table", "▲ stuck, running")


@then("the stack of the table, opened and closed with the keyboard, names it too")
def step_the_stack_of_the_table_opened_and_closed_names_it(context: Context) -> None:
    tab = context.tab
    _tab_to(tab, "Stack of ada")
    tab.press("Enter")
    tab.wait_for_text("#where .stack", "wait_async")
    tab.press("Escape")
    assert tab.focused() == "Stack of ada"


@when("a message waits in its node, and what cancels it has the focus")
def step_a_message_waits_and_what_cancels_it_has_the_focus(context: Context) -> None:
    context.world.send("wait", "ada")
    context.tab.wait_for_text("#runs-table tbody tr", "running")
    _tab_to(context.tab, "Cancel ada")


@when("{count:d} messages end")
def step_count_messages_end(context: Context, count: int) -> None:
    world, before = context.world, context.tab.figure("succeeded")
    futures = [world.send("nothing", f"t{number}") for number in range(count)]
    for future in futures:
        future.result(LIMIT)
    context.tab.wait_for_figure("succeeded", before + count)


@then("what cancels it still has the focus")
def step_what_cancels_it_still_has_the_focus(context: Context) -> None:
    assert context.tab.focused() == "Cancel ada"


@when("it is paused, and {count:d} messages end")
def step_it_is_paused_and_messages_end(context: Context, count: int) -> None:
    context.count, tab = count, context.tab
    tab.click("#pause")
    for number in range(count):
        context.world.send("nothing", f"t{number}").result(LIMIT)
    tab.wait_for_snapshots(2)


@then("it has ended none until it is resumed")
def step_it_has_ended_none_until_it_is_resumed(context: Context) -> None:
    tab = context.tab
    assert tab.figure("succeeded") == 0 and "paused at" in tab.text("#age")
    tab.click("#pause")
    tab.wait_for_figure("succeeded", context.count)


# -- the connection --------------------------------------------------------------------------------

SERVICE = """
import socket, sys
from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.live.server import served

def graph(content):
    return content

name, port = sys.argv[1:]
with RxPyLangGraphBridge(name=name) as bridge:
    page = bridge.live_app(token="a-token-for-both-processes")
    with served(page, socket.create_server(("127.0.0.1", int(port)))):
        bridge.create_future_task(graph, 1, name=name).result()
        print(page.path, flush=True)
        sys.stdin.read()
"""


@given("a process that serves its page on a port of its own")
def step_a_process_that_serves_its_page_on_a_port_of_its_own(context: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        context.port = free.getsockname()[1]
    _serve(context, "first")


def _serve(context: Context, name: str) -> None:
    context.process = process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, name, str(context.port)],
        env=command.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.kill()
        process.wait(LIMIT)
        process.stdin.close()
        process.stdout.close()

    context.add_cleanup(end)
    context.path = process.stdout.readline().strip()
    assert context.path.startswith("/?token="), context.path


@when("its page is open in a browser, and the process is killed")
def step_its_page_is_open_in_a_browser_and_the_process_is_killed(context: Context) -> None:
    context.tab = _open(context, f"http://127.0.0.1:{context.port}{context.path}")
    context.tab.wait_for_text(".lane", "no thread")
    context.process.kill()


@then("the page says that it is reconnecting")
def step_the_page_says_that_it_is_reconnecting(context: Context) -> None:
    context.tab.wait_for_text("#connection", "reconnecting")
    assert "as of" in context.tab.text("#age")


@when("the process is started again")
def step_the_process_is_started_again(context: Context) -> None:
    _serve(context, "second")


@then("the page says that it is connected, and has only what the second process has")
def step_the_page_says_that_it_is_connected_and_has_only(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#connection", "connected")
    tab.wait_for_text("#name", "second")
    tab.wait_for_figure("submitted", 1)
    assert tab.count(".run") == 1  # each has one


@then("the page says that it has ended, and has nothing to press but what needs no server")
def step_the_page_says_that_it_has_ended_and_has_nothing_to_press(context: Context) -> None:
    tab = context.tab
    step_the_page_says_that_it_has_ended(context)
    tab.wait_for_text("#state", "closed")
    tab.wait_for_text("#questions .card", "ada")
    assert tab.count("main button.danger:visible, main form:visible") == 0
    asked = len(tab.requests)
    tab.evaluate("new Promise((resolve) => setTimeout(resolve, 2500))")  # longer than `retry`
    assert len(tab.requests) == asked, tab.requests[asked:]


@then("the page says that it has ended")
def step_the_page_says_that_it_has_ended(context: Context) -> None:
    context.tab.wait_for_text("#connection", "ended: closed")


@when("the browser forgets the token, and the connection is lost")
def step_the_browser_forgets_the_token_and_the_connection_is_lost(context: Context) -> None:
    tab = context.tab
    tab.fulfil("**/api/events", status=401, body="{}")
    tab.fulfil("**/api/snapshot", status=401, body="{}")
    tab.evaluate("location.reload()")


@then("the page says that the address with the token is needed")
def step_the_page_says_that_the_address_with_the_token_is_needed(context: Context) -> None:
    context.tab.wait_for_text("#connection", "refused: open the address that has the token")


@when("it is opened once more while there is room for no other")
def step_it_is_opened_once_more_while_there_is_room_for_no_other(context: Context) -> None:
    context.tab.fulfil("**/api/events", status=503, body="{}")
    context.tab.evaluate("location.reload()")


@then("the page says that too many are open")
def step_the_page_says_that_too_many_are_open(context: Context) -> None:
    context.tab.wait_for_text("#connection", "reconnecting: too many pages are open")


@when("there is room again")
def step_there_is_room_again(context: Context) -> None:
    context.tab.pass_on("**/api/events")


@then("the page says that it is connected")
def step_the_page_says_that_it_is_connected(context: Context) -> None:
    context.tab.wait_for_text("#connection", "connected")
    context.tab.wait_for_text("#state", "open")


@when("that page is opened in a browser")
def step_that_page_is_opened_in_a_browser(context: Context) -> None:
    context.tab = _open(context, f"{context.url}?token={context.token}")


@then("it has the 3 messages by worker, the failures by kind, and no part that only bridges have")
def step_it_has_the_3_messages_by_worker_the_failures_by_kind(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#journal", "5 of 8")
    rows = [row.split() for row in tab.texts("#journal tbody tr")]
    assert rows == [["one", "1"], ["two", "2"]], rows
    (kind,) = tab.texts("#failures-table tbody tr")
    assert re.match(r"2\s+ValueError", kind), kind
    assert tab.count("[data-of=bridge]:visible, main button:visible, main form:visible") == 0
    assert tab.errors == [], tab.errors


# -- how it looks ----------------------------------------------------------------------------------

CONTRAST = Path(showcase.__file__).with_name("contrast.js").read_text(encoding="utf-8")


@when("every other kind of end is there too, and all is shown in light and in dark")
def step_every_other_kind_of_end_is_there_too(context: Context) -> None:
    world, tab = context.world, context.tab
    before = len(world.started)
    world.send("wait", "early", multitask_strategy="reject")
    world.started.wait_for(before + 1)
    world.send("nothing", "early", multitask_strategy="reject").result(LIMIT)
    world.send("wait", "gone").cancel()
    world.send("nothing", "fine").result(LIMIT)
    tab.click("button[data-seconds='20']")
    for status in ("ok", "error", "timed_out", "interrupted", "cancelled", "rejected", "stuck"):
        tab.wait_for(f"document.querySelector('#lanes .run.{status}') !== null")
    tab.fill("#questions textarea", "no JSON")
    tab.click("#questions input[value=json]")
    tab.click("#questions button[type=submit]")
    context.seen = {}
    for scheme in ("light", "dark"):
        tab.emulate(color_scheme=scheme)
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        context.seen[scheme] = ground, tab.evaluate(CONTRAST)


@then("the colours differ, and the contrast of each text is {least:g} or more")
def step_the_colours_differ_and_the_contrast_of_each_text(context: Context, least: float) -> None:
    (light, in_light), (dark, in_dark) = context.seen["light"], context.seen["dark"]
    assert light != dark, light
    for found in (in_light, in_dark):
        assert len(found) > 80, len(found)
        weak = [each for each in found if each[0] < least]
        assert weak == [], weak


@then("nothing is wider than the screen, with a dialog open or not")
def step_nothing_is_wider_than_the_screen(context: Context) -> None:
    tab = context.tab
    wide = "document.documentElement.scrollWidth - innerWidth"
    width = tab.evaluate("innerWidth")
    assert tab.evaluate(wide) == 0
    for name in ("Stack", "Cancel"):
        tab.click(f"#runs-table button:text-is('{name}'):enabled")
        tab.wait_for("document.querySelector('dialog[open]') !== null")
        assert tab.evaluate(wide) == 0
        assert tab.evaluate("document.querySelector('dialog[open]').scrollWidth") <= width
        tab.press("Escape")


@given("a page with the most and the longest of everything, on a {width} screen")
def step_a_page_with_the_most_and_the_longest_of_everything(context: Context, width: str) -> None:
    app = LiveApp(FullSource(), Access())
    context.page = Page(app, app.token)
    context.add_cleanup(context.page.close)
    size = {"width": {"wide": 1280, "narrow": 360}[width], "height": 740}
    context.tab = _open(context, context.page.url + app.path, viewport=size)


@when("all runs are shown, one is cancelled, and a question is answered")
def step_all_runs_are_shown_one_is_cancelled_and_a_question_is_answered(context: Context) -> None:
    tab = context.tab
    tab.click("#runs-all")
    tab.wait_for_count("#runs-table tbody tr", 250)
    tab.click("#runs-table button.danger:enabled")
    tab.press("Tab", "Enter")
    tab.fill("#questions textarea", "yes")
    tab.click("#questions button[type=submit]")


@then("each is refused with a reason")
def step_each_is_refused_with_a_reason(context: Context) -> None:
    tab = context.tab
    tab.wait_for_text("#activity", "not cancelled: this run is not in flight", "refused: wwww")
    tab.wait_for_text("#questions output", "refused: wwww")


@then("it has fewer than {most:d} elements")
def step_it_has_fewer_than_most_elements(context: Context, most: int) -> None:
    assert context.tab.count("body *") < most, context.tab.count("body *")


# -- much of it ------------------------------------------------------------------------------------


@when("runs of {threads:d} threads come for {seconds:d} seconds, {rate:d} a second")
def step_runs_come_for_seconds(context: Context, threads: int, seconds: int, rate: int) -> None:
    bridge, pace, numbers = context.world.bridge, threading.Event(), itertools.count()

    async def graph(content: int) -> int:
        if content % 20 == 0:
            raise ValueError(f"of kind {content % 7}")
        return content

    for _ in range(10 * seconds):
        for number in itertools.islice(numbers, rate // 10):
            message = StreamMessage(number, thread_id=f"thread-{number % threads}")
            bridge.create_future_task(graph, message, errors="emit", name=f"graph-{number % 5}")
        pace.wait(0.1)  # the load, not a wait for anything
    context.count = 10 * seconds * (rate // 10)
    assert bridge.registry.wait_idle(LIMIT)


@then("the page has shown that, with fewer than {most:d} elements")
def step_the_page_has_shown_that_with_fewer_elements(context: Context, most: int) -> None:
    tab = context.tab
    tab.wait_for_figure("submitted", context.count)
    assert tab.count(".lane") == 16 and "more threads" in tab.text("#timeline-note")
    assert tab.count("main *") < most, tab.count("main *")
    assert tab.count(".run") > 16, tab.count(".run")
    assert tab.errors == [], tab.errors


@then("the page says how long it was busy at a time")
def step_the_page_says_how_long_it_was_busy_at_a_time(context: Context) -> None:
    long = sorted(context.tab.evaluate("longTasks"))
    print(f"{len(long)} tasks of 50 ms or more; the longest, in ms: {long[-3:]}")


@when("{waiting:d} messages wait behind {active:d}")
def step_waiting_messages_wait_behind_active(context: Context, waiting: int, active: int) -> None:
    world = context.world
    context.left_out = waiting + active - 250
    for number in range(active):
        world.send("wait", f"t{number}")
    world.started.wait_for(active)
    in_threads(4, lambda part: [world.send("nothing", "t0") for _ in range(waiting // 4)])


@then("the table has {few:d} runs, then {many:d}, and says how many more there are")
def step_the_table_has_few_runs_then_many(context: Context, few: int, many: int) -> None:
    tab = context.tab
    tab.wait_for_text("#runs-note", f"{context.left_out} more runs")
    assert tab.count("#runs-table tbody tr") == few
    tab.click("#runs-all")
    tab.wait_for(f"document.querySelectorAll('#runs-table tbody tr').length === {many}")


# -- pictures --------------------------------------------------------------------------------------

# Set to a folder, it has the pictures of the documentation made there: `nox -s screenshots`.
ASKED = "RXLANGGRAPH_SCREENSHOTS"
TABS: dict[str, dict[str, Any]] = {
    "live-light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 720}},
    "live-dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 720}},
    "live-narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
}


@given("a bridge that has much to do, whose page is open in light, in dark and on a narrow screen")
def step_a_bridge_that_has_much_to_do(context: Context) -> None:
    # The pictures are the same wherever they are made.
    here = str(Path(showcase.__file__).parents[3])
    original = bridge_source.as_stack
    patcher = mock.patch.object(
        bridge_source, "as_stack", lambda text: original(text.replace(here, "/srv/desk"))
    )
    patcher.start()
    context.add_cleanup(patcher.stop)
    context.show = showcase.Showcase()
    context.add_cleanup(context.show.close)
    app = context.show.bridge.live_app(nodes=True, stuck_after=10.0 if ASKED in os.environ else 2.0)
    context.add_cleanup(app.close)
    page = Page(app, app.token)
    context.add_cleanup(page.close)
    context.show.start()
    context.tabs = {
        name: _open(context, page.url + app.path, **options) for name, options in TABS.items()
    }


@when("as much has ended as the pictures need, if they are asked for")
def step_as_much_has_ended_as_the_pictures_need(context: Context) -> None:
    tab = context.tabs["live-light"]
    tab.wait_for_figure("succeeded", 10)
    tab.wait_for_count("#stuck .card", 2)
    if ASKED in os.environ:
        tab.wait_for_figure("succeeded", 700, seconds=600)
    tab.click("button[data-seconds='20']")  # the other two show a minute


@then("each has runs with nodes, stuck ones, failures and questions, and its picture can be taken")
def step_each_has_runs_with_nodes_stuck_ones_failures_and_questions(context: Context) -> None:
    for name, tab in context.tabs.items():
        for part in ("#lanes .run.ok", "#lanes .run.stuck .node", "#questions .card"):
            tab.wait_for_count(part, 1)
        tab.wait_for_text("#failures-table", "ToolError")
        picture = tab.screenshot()
        assert 10_000 < len(picture) < 200_000, len(picture)
        if ASKED in os.environ:
            Path(os.environ[ASKED], f"{name}.png").write_bytes(picture)
        assert tab.errors == [], tab.errors
