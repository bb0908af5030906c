"""Steps for lanes that processes share."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, TypedDict

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.fenced_saver import FencedSaver
from rxlanggraph.bridge.lanes import ThreadLease, _key, fenced
from rxlanggraph.errors import LaneLostError, RunInterruptedError, ThreadBusyError
from rxlanggraph.state import State, open_state
from support.bridge.bridges import LentLoop, arguments, expire, pass_time
from support.bridge.lane_process import THREAD, LaneProcess, adding, saver_at
from support.bridge.savers import rows_of
from support.concurrency.patching import patch
from support.concurrency.pauses import until
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads
from support.servers import postgres_server
from support.servers.servers import fresh_url

_stores = itertools.count(1)
# Seconds of a lease whose end a scenario waits for; all others are never over.
_SHORT, _LONG = 1.5, 1000.0
_DEADLINE = 30.0  # far less than LIMIT: the loop that is told that it is over has other waits
# Checkpoints, and writes of the start of the graph. Not in this order, nor before the node begins.
_SAVED_OF_INPUT = 2, 2
_ODD = ["", " ", "ä" * 300, "x" * 600, "nul\0", "\ud800", "lane:a", "a:b/c{d}"]


# -- processes -------------------------------------------------------------------------------------


@given("a thread in a saver in {saver}, and lanes in {lanes}")
def step_a_thread_in_a_saver_and_lanes(context: Context, saver: str, lanes: str) -> None:
    context.saver_url = _saver_url(context, saver)
    context.state_url = fresh_url(context, lanes)


@given("a thread in a saver in {saver}, and no lanes")
def step_a_thread_in_a_saver_and_no_lanes(context: Context, saver: str) -> None:
    context.saver_url, context.state_url = _saver_url(context, saver), "-"


def _saver_url(context: Context, kind: str) -> str:
    """The URL of a saver with its tables: processes that make them together get in their way."""
    if kind == "PostgreSQL":
        url = postgres_server.fresh_url()
    else:
        folder = tempfile.TemporaryDirectory()
        context.add_cleanup(folder.cleanup)
        url = str(Path(folder.name, "threads.sqlite"))

    async def set_up() -> None:
        async with saver_at(url) as saver:
            await saver.setup()

    asyncio.run(set_up())
    return url


def _process(context: Context, ttl: float = _LONG) -> LaneProcess:
    process = LaneProcess(context.saver_url, context.state_url, ttl)
    context.add_cleanup(process.end)
    return process


class _Here:
    """A bridge on the same thread in this process, and the rows of the thread."""

    def __init__(self, context: Context) -> None:
        self._lent = LentLoop()
        context.add_cleanup(self._lent.end)
        self._managers: list[Any] = []
        context.add_cleanup(self._close)
        saver_url, state_url = context.saver_url, context.state_url
        lanes = None if state_url == "-" else self._open(open_state(state_url))
        self._saver = self._open(saver_at(saver_url))
        self._bridge = RxPyLangGraphBridge(self._lent.loop, lanes=lanes, lane_ttl=_LONG)
        context.add_cleanup(self._bridge.close)

    def _open(self, manager: Any) -> Any:
        value = self._lent.run(manager.__aenter__())
        self._managers.append(manager)
        return value

    def _close(self) -> None:
        for manager in reversed(self._managers):
            self._lent.run(manager.__aexit__(None, None, None))

    def send(self) -> Any:
        return self._bridge.create_future_task(
            adding(self._saver), {"hold": False}, thread_id=THREAD
        )

    def rows(self) -> Any:
        return self._lent.run(rows_of(self._saver, THREAD))

    def wait_until_saved(self) -> None:
        """Until all is there that LangGraph saves of the input, while the first node is at work."""
        limit = time.monotonic() + LIMIT
        while (saved := tuple(map(len, self.rows()[:2]))) != _SAVED_OF_INPUT:
            assert time.monotonic() < limit, f"{saved} checkpoints and writes were saved"

    def count(self) -> int:
        async def read() -> Any:
            return await adding(self._saver).aget_state({"configurable": {"thread_id": THREAD}})

        count: int = self._lent.run(read()).values["count"]
        return count


@when("{count:d} processes with bridges send {each:d} messages to the thread each, all at once")
def step_processes_with_bridges_send_messages(context: Context, count: int, each: int) -> None:
    processes = [_process(context) for _ in range(count)]
    for process in processes:
        process.tell(f"count {each}")
    context.outcomes = [process.read() for process in processes]


@then("each of them was answered, and the thread has counted {count:d}")
def step_each_was_answered_and_the_thread_has_counted(context: Context, count: int) -> None:
    assert set(context.outcomes) == {"ok"}, context.outcomes
    context.state_url = "-"
    assert _Here(context).count() == count


def _hold(context: Context) -> LaneProcess:
    process = _process(context, _SHORT)
    process.tell("hold")
    assert process.read() == "inside"
    return process


@when("a process is killed while its run on the thread is in a node")
def step_a_process_is_killed_while_its_run_is_in_a_node(context: Context) -> None:
    here, process = _Here(context), _hold(context)
    context.future = here.send()
    process.kill()


@then("a message to the thread waits here until its lease is over, and is answered")
def step_a_message_to_the_thread_waits_here(context: Context) -> None:
    assert context.future.result(LIMIT).content["count"] == 1


@when(
    "a process is suspended while its run on the thread is in a node, a message to the thread is "
    "answered here, and the process goes on"
)
def step_a_process_is_suspended_while_its_run_is_in_a_node(context: Context) -> None:
    here, process = _Here(context), _hold(context)
    here.wait_until_saved()  # what is on its way to the saver is not stopped: see docs/design.md
    process.stop()
    process.tell("go on")
    assert here.send().result(LIMIT).content["count"] == 1
    context.here, context.rows = here, here.rows()
    process.go_on()
    context.outcome = process.read()


@then("its run has ended with a LaneLostError, and the thread is as the successor left it")
def step_its_run_has_ended_with_a_lanelosterror(context: Context) -> None:
    assert context.here.rows() == context.rows
    assert context.outcome.startswith("LaneLostError("), context.outcome


# -- two bridges in this process -------------------------------------------------------------------


class _Note(TypedDict, total=False):
    count: int
    hold: str


class _Shared:
    """A saver, a graph on it that can be held, and a store for lanes."""

    def __init__(self, context: Context, home: str, options: dict[str, Any]) -> None:
        self.lent = LentLoop()
        context.add_cleanup(self.lent.end)
        self.saver = InMemorySaver()
        self.inside, self.gate = Gate(), Gate()
        self.swallowed = False
        builder = StateGraph(_Note).add_node("wait", self._wait).add_node("sync", self._sync)
        builder.add_node("add", self._add).add_edge(START, "wait").add_edge("wait", "sync")
        self.graph = builder.add_edge("sync", "add").compile(self.saver)
        self._url = f"memory:lanes-{next(_stores)}"
        self._context, self._home = context, home
        self._options = {"lane_ttl": _LONG, **options}
        self.states: list[State] = []
        self._managers: list[Any] = []
        context.add_cleanup(self._close)
        context.add_cleanup(self.gate.open)

    def bridge(self) -> RxPyLangGraphBridge:
        manager = open_state(self._url)
        self.states.append(self.lent.run(manager.__aenter__()))
        self._managers.append(manager)
        loop = self.lent.loop if self._home == "an adopted" else None
        bridge = RxPyLangGraphBridge(loop, lanes=self.states[-1], **self._options)
        self._context.add_cleanup(lambda: bridge.close(0))
        self._context.add_cleanup(self.gate.open)
        return bridge

    def _close(self) -> None:
        if self.lent.loop.is_running():
            for manager in self._managers:
                self.lent.run(manager.__aexit__(None, None, None))

    async def _wait(self, note: _Note) -> _Note:
        if note.get("hold") not in ("wait", "swallow"):
            return {}
        self.inside.open()
        try:
            await self.gate.wait_async()
        except asyncio.CancelledError:
            if note.get("hold") == "wait":
                raise
            self.swallowed = True
        return {}

    def _sync(self, note: _Note) -> _Note:
        if note.get("hold") == "sync":
            self.inside.open()
            self.gate.wait()
        return {}

    async def _add(self, note: _Note) -> _Note:
        return {"count": note.get("count", 0) + 1}

    def take_away(self, bridge: RxPyLangGraphBridge, thread_id: str) -> None:
        """Give the lease of a thread to somebody else, in the store alone."""
        lanes = bridge._engine._lanes
        assert lanes is not None

        async def take() -> None:
            lease, backend = lanes._leases.get(thread_id), self.states[-1].backend
            if lease is not None and lease.held is not None:  # or else it is lost already
                await backend.lock_release(lease.held.key, lease.held.token)
                await backend.lock_acquire(lease.held.key, "somebody else", 0.1)

        self.lent.run(take())

    def count(self, thread_id: str) -> int:
        values = self.graph.get_state({"configurable": {"thread_id": thread_id}}).values
        count: int = values.get("count", 0)
        return count


@given("2 bridges on {home:Home} loops that share their lanes")
def step_2_bridges_that_share_their_lanes(context: Context, home: str) -> None:
    _share(context, home, "")


@given("2 bridges on {home:Home} loops that share their lanes, with {options}")
def step_2_bridges_that_share_their_lanes_with_options(
    context: Context, home: str, options: str
) -> None:
    _share(context, home, options)


def _share(context: Context, home: str, options: str) -> None:
    context.shared = _Shared(context, home, arguments(options))
    context.first, context.second = context.shared.bridge(), context.shared.bridge()
    context.bridge = context.first  # for the steps that know one bridge


def _send(
    context: Context,
    bridge: RxPyLangGraphBridge,
    thread_id: str | None = "t",
    hold: str = "",
    **options: Any,
) -> Any:
    content = {"hold": hold}
    options = {"errors": "emit", "thread_id": thread_id, **options}
    return bridge.create_future_task(context.shared.graph, content, **options)


def _occupy(context: Context, hold: str = "wait", **options: Any) -> Any:
    context.held = _send(context, context.first, hold=hold, **options)
    context.shared.inside.wait()
    return context.held


@when(
    "the first one has a run on a thread, and the second one gets a message to it with "
    'multitask_strategy="{strategy}"'
)
def step_the_first_one_has_a_run_and_the_second_gets_a_message(
    context: Context, strategy: str
) -> None:
    _occupy(context)
    context.future = _send(context, context.second, multitask_strategy=strategy)


@then('that message is rejected at once, with a ThreadBusyError that says "{words}"')
def step_that_message_is_rejected_at_once(context: Context, words: str) -> None:
    result = context.future.result(LIMIT)
    assert not context.held.done()
    assert result.status == "rejected", result
    assert isinstance(result.error, ThreadBusyError), result
    assert words in str(result.error), result.error


@when("the run of the first one ends")
def step_the_run_of_the_first_one_ends(context: Context) -> None:
    context.shared.gate.open()
    assert context.held.result(LIMIT).status == "ok"
    assert context.first.registry.wait_idle(LIMIT)


@then('the second one answers a message to it with multitask_strategy="{strategy}"')
def step_the_second_one_answers_a_message_to_it(context: Context, strategy: str) -> None:
    result = _send(context, context.second, multitask_strategy=strategy).result(LIMIT)
    assert result.status == "ok", result
    assert result.content["count"] == 2


@when(
    "the first one has a run and {waiting:d} waiting messages on a thread, and the second one gets "
    'a message to it with multitask_strategy="interrupt"'
)
def step_the_first_one_has_a_run_and_waiting_messages(context: Context, waiting: int) -> None:
    _occupy(context)
    context.futures = [context.held, *(_send(context, context.first) for _ in range(waiting))]
    context.future = _send(context, context.second, multitask_strategy="interrupt")


@then("the {count:d} are interrupted, and say which message of another process it was")
def step_the_count_are_interrupted_and_say_which_message(context: Context, count: int) -> None:
    results = [future.result(LIMIT) for future in context.futures]
    assert [each.status for each in results] == ["interrupted"] * count, results
    by = f"message {context.future.message.id} of another process"
    for each in results:
        assert isinstance(each.error, RunInterruptedError), each
        assert by in str(each.error), each.error


@then("that message is answered")
def step_that_message_is_answered(context: Context) -> None:
    result = context.future.result(LIMIT)
    assert result.status == "ok", result


@when(
    "the first one gets a next message to a thread whenever one is answered, and the second one "
    "gets {count:d}"
)
def step_the_first_one_gets_a_next_message_whenever(context: Context, count: int) -> None:
    began = Gate()

    async def busily(_: object) -> int:
        for number in itertools.count():
            began.open()
            result = await _send(context, context.first)
            if result.status != "ok" or context.shared.gate.is_open:
                return number
        raise AssertionError

    context.busy = context.first.create_future_task(busily, None)
    began.wait()
    context.futures = [_send(context, context.second) for _ in range(count)]


@then("the second one answers its {count:d}")
def step_the_second_one_answers_its_count(context: Context, count: int) -> None:
    assert [each.result(LIMIT).status for each in context.futures] == ["ok"] * count
    assert not context.busy.done()
    context.shared.gate.open()
    context.busy.result(LIMIT)


@when("the first one gets {count:d} messages to a thread, and the second one gets 1")
def step_the_first_one_gets_messages_and_the_second_1(context: Context, count: int) -> None:
    wanted = Gate()
    context.answered = Log()

    async def answer(content: Any) -> Any:
        if content == 0:
            await asyncio.to_thread(wanted.wait)
        return content

    futures = [
        context.first.create_future_task(answer, number, thread_id="t") for number in range(count)
    ]
    futures.append(context.second.create_future_task(answer, "other", thread_id="t"))
    for future in futures[-2:]:
        future.add_done_callback(lambda each: context.answered.add(each.result().content))
    lease = context.first._engine._lanes._leases["t"]
    context.shared.lent.run(until(lambda: lease.wanted))
    wanted.open()


@then("the second one answers that before the first one has answered its {count:d}")
def step_the_second_one_answers_that_before_the_first(context: Context, count: int) -> None:
    answered = context.answered.wait_for(2)
    assert answered == ["other", count - 1], answered


@when("the first one has {held:d} runs that wait, and {count:d} messages to as many other threads")
def step_the_first_one_has_runs_that_wait_and_messages(
    context: Context, held: int, count: int
) -> None:
    for number in range(held):
        _send(context, context.first, f"held {number}", "wait")
    context.shared.inside.wait()
    context.futures = [_send(context, context.first, f"{number}") for number in range(count)]


@then("the second one answers a message to each of the last {count:d} of those threads")
def step_the_second_one_answers_a_message_to_each_of_the_last(context: Context, count: int) -> None:
    total = len(context.futures)
    answers = [_send(context, context.second, f"{total - 1 - number}") for number in range(count)]
    assert {each.result(LIMIT).status for each in answers} == {"ok"}
    context.shared.gate.open()
    assert {each.result(LIMIT).status for each in context.futures} == {"ok"}


# -- slots, ends -----------------------------------------------------------------------------------


@when(
    "the first one has a run on a thread, and the second one gets a message to it, and one to "
    "another thread"
)
def step_the_first_one_has_a_run_and_one_to_another_thread(context: Context) -> None:
    _occupy(context)
    context.future = _send(context, context.second)
    context.other = _send(context, context.second, "other")


@then("the second one answers the one to the other thread")
def step_the_second_one_answers_the_one_to_the_other(context: Context) -> None:
    assert context.other.result(LIMIT).status == "ok"
    assert not context.future.done()


@then("the second one answers the message that waited")
def step_the_second_one_answers_the_message_that_waited(context: Context) -> None:
    assert context.future.result(LIMIT).content["count"] == 2


def _cancel_each(context: Context) -> None:
    for each in context.futures:
        assert each.cancel()


_ENDS: dict[str, Callable[[Context], object]] = {
    "the cancellation of each": _cancel_each,
    "cleanup_tasks": lambda context: context.second.cleanup_tasks(),
    "the close of the second one": lambda context: context.second.close(0),
    "a deadline of each": lambda context: pass_time(context.shared.lent.loop, _DEADLINE),
}


@when(
    "the first one has a run on a thread, the second one has {count:d} messages that wait for it, "
    "and {end} ends them"
)
def step_the_first_one_has_a_run_and_ends_them(context: Context, count: int, end: str) -> None:
    _occupy(context)
    deadline = _DEADLINE if end == "a deadline of each" else None
    context.futures = [
        _send(context, context.second, errors="raise", deadline=deadline) for _ in range(count)
    ]
    _wait_for_note(context, context.futures)
    context.end = end
    _ENDS[end](context)


def _wait_for_note(context: Context, until_done: Sequence[Any] = ()) -> None:
    """Until the second bridge waits for the thread; or on a busy machine, ``until_done`` are."""

    async def wait() -> None:
        key = _key("lane-wanted", "t")
        while (await context.shared.states[0].get(key)).version == 0:
            if until_done and all(each.done() for each in until_done):
                return
            await asyncio.sleep(0)

    context.shared.lent.run(wait())


@when(
    "another process has a thread, a third one wants to interrupt it, and the second bridge gets a "
    "message"
)
def step_another_process_has_a_thread_a_third_one_wants_to_interrupt(context: Context) -> None:
    state, left, leave = context.shared.states[0], Log(), ThreadLease._leave_note
    context.note = {"by": "the third one", "interrupt": "a message"}

    async def leave_note(lease: ThreadLease) -> None:
        await leave(lease)
        left.add(lease)

    async def play_both() -> None:
        key = _key("lane-wanted", "t")
        async with state.lock(_key("lane", "t"), LIMIT):
            await state.set(key, context.note)
            context.future = _send(context, context.second)
            await until(lambda: bool(list(left)))
            context.found = (await state.get(key)).value
            await state.delete(key)

    patch(context, ThreadLease, "_leave_note", leave_note)
    context.shared.lent.run(play_both())


@then("the note of the third one is still there, and the message is answered in the end")
def step_the_note_of_the_third_one_is_still_there(context: Context) -> None:
    assert context.found == context.note, context.found
    assert context.future.result(LIMIT).status == "ok"


@then("the {count:d} are cancelled, and the second bridge has nothing in flight")
def step_the_count_are_cancelled_and_nothing_in_flight(context: Context, count: int) -> None:
    errors = [error_of(lambda each=each: each.result(LIMIT)) for each in context.futures]
    name = "RunTimeoutError" if context.end.startswith("a deadline") else "CancelledError"
    assert [type(each).__name__ for each in errors] == [name] * count, errors
    assert context.second.registry.wait_idle(LIMIT), context.second
    leases = context.second._engine._lanes._leases
    assert not leases, [vars(each) for each in leases.values()]


@then("the second one, or a new one, has the thread at once")
def step_the_second_one_or_a_new_one_has_the_thread(context: Context) -> None:
    bridge = context.second
    if bridge.registry.wait_idle(LIMIT) and repr(bridge).find(" open,") < 0:
        bridge = context.shared.bridge()
    result = _send(context, bridge, multitask_strategy="reject").result(LIMIT)
    assert result.status == "ok", result


@when("the first one has a run on a thread, and {end} of the first one")
def step_the_first_one_has_a_run_and_end_of_the_first_one(context: Context, end: str) -> None:
    _occupy(context)
    report = context.first.cleanup_tasks() if end == "cleanup_tasks" else context.first.close(0)
    assert report.cancelled == 1, report
    assert not report.stuck, report


@when(
    "a sync node of the first one goes on after its timeout, and the second one gets a message to "
    "its thread"
)
def step_a_sync_node_goes_on_after_its_timeout(context: Context) -> None:
    expire(_occupy(context, "sync", timeout=LIMIT))
    assert context.held.result(LIMIT).status == "timed_out"
    context.future = _send(context, context.second)
    _wait_for_note(context)


@then("that message is answered after the node has ended")
def step_that_message_is_answered_after_the_node(context: Context) -> None:
    busy = _send(context, context.second, multitask_strategy="reject").result(LIMIT)
    assert busy.status == "rejected", busy
    assert not context.future.done()
    context.shared.gate.open()
    assert context.future.result(LIMIT).status == "ok"


# -- what is lost ----------------------------------------------------------------------------------


@when("{kind} is in the middle of a run, and its lease is taken away in the store")
def step_kind_is_in_the_middle_of_a_run(context: Context, kind: str) -> None:
    holds = {"a node that swallows it": "swallow", "a sync node": "sync"}
    retry = 3 if kind == "a run that would be retried" else None
    _occupy(context, holds.get(kind, "wait"), retry=retry)
    context.rows = context.shared.lent.run(rows_of(context.shared.saver, "t"))
    context.shared.take_away(context.first, "t")


@then("its future says that the lease of the thread is lost")
def step_its_future_says_that_the_lease_is_lost(context: Context) -> None:
    result = context.held.result(LIMIT)
    assert result.status == "error", result
    assert isinstance(result.error, LaneLostError), result
    assert "the lease of the thread 't' is lost" in str(result.error), result.error


@then("the thread has nothing of it, once it has really ended")
def step_the_thread_has_nothing_of_it(context: Context) -> None:
    context.shared.gate.open()
    assert context.first.registry.wait_idle(LIMIT)
    assert context.shared.lent.run(rows_of(context.shared.saver, "t")) == context.rows
    assert context.first.statistics().failed == 1
    assert _send(context, context.second).result(LIMIT).content["count"] == 1


@when("a message has its thread, waits for the only slot, and its lease is taken away in the store")
def step_a_message_has_its_thread_waits_for_the_only_slot(context: Context) -> None:
    held = _send(context, context.first, "other", "wait")
    context.shared.inside.wait()
    context.future = _send(context, context.first)
    run = context.shared.lent.run
    run(until(lambda: context.future.lease is not None and context.future.lease.held is not None))
    context.shared.take_away(context.first, "t")
    run(until(lambda: context.future.lease.lost))
    context.shared.gate.open()
    assert held.result(LIMIT).status == "ok"


@then("the message has another one when the slot is free, and is answered")
def step_the_message_has_another_one_when_the_slot_is_free(context: Context) -> None:
    result = context.future.result(LIMIT)
    assert result.status == "ok", result
    assert context.first.registry.wait_idle(LIMIT)


@when("{what}, a message to a thread and one without are sent")
def step_a_message_to_a_thread_and_one_without_are_sent(context: Context, what: str) -> None:
    if what == "the state is closed":
        context.shared.lent.run(context.shared.states[0].aclose())
    else:
        context.shared.lent.end()

    async def answer(content: Any) -> Any:
        return content

    context.future = _send(context, context.first)
    context.other = context.first.create_future_task(answer, "no thread")


@then("the one to the thread ends with {error:w}, and the other one is answered")
def step_the_one_to_the_thread_ends_with(context: Context, error: str) -> None:
    result = context.future.result(LIMIT)
    assert result.status == "error", result
    check_error(result.error, error)
    assert context.other.result(LIMIT).content == "no thread"


@when(
    "the first one has a run on a thread, the second one has a message that waits for it, and the "
    "loop of the state ends"
)
def step_the_first_one_has_a_run_and_the_loop_of_the_state_ends(context: Context) -> None:
    _occupy(context)
    context.future = _send(context, context.second)
    _wait_for_note(context)
    context.shared.lent.end()


@then("that message ends with an error that names the state")
def step_that_message_ends_with_an_error_that_names_the_state(context: Context) -> None:
    result = context.future.result(LIMIT)
    assert result.status == "error", result
    assert "state" in str(result.error), result.error


# -- arguments -------------------------------------------------------------------------------------


@when("a bridge is made with {options}")
def step_a_bridge_is_made_with(context: Context, options: str) -> None:
    context.error = error_of(lambda: RxPyLangGraphBridge(**arguments(options)))


@when("both bridges add 1 to each of some odd threads, {times:d} times")
def step_both_bridges_add_1_to_each_of_some_odd_threads(context: Context, times: int) -> None:
    _add_to_each(context, _ODD, times)


@when("both bridges add 1 to each of {count:d} threads, {times:d} times")
def step_both_bridges_add_1_to_each_of_threads(context: Context, count: int, times: int) -> None:
    _add_to_each(context, [f"thread {number}" for number in range(count)], times)


def _add_to_each(context: Context, threads: list[str], times: int) -> None:
    context.threads = threads
    futures = [
        _send(context, bridge, each)
        for _ in range(times)
        for each in threads
        for bridge in (context.first, context.second)
    ]
    failed = [result for each in futures if (result := each.result(LIMIT)).status != "ok"]
    assert not failed, failed[0]


@then("each of these threads has counted {count:d}")
def step_each_of_these_threads_has_counted(context: Context, count: int) -> None:
    counts = {each: context.shared.count(each) for each in context.threads}
    assert set(counts.values()) == {count}, counts


@when(
    "{senders:d} threads send {count:d} messages each to both bridges, under every policy, and "
    "cancel or limit some"
)
def step_threads_send_messages_each_to_both_bridges(
    context: Context, senders: int, count: int
) -> None:
    context.threads = [f"{number}" for number in range(5)]
    locks = {each: threading.Lock() for each in context.threads}
    context.overlaps = Log()

    async def work(content: Any) -> Any:
        if not locks[content].acquire(blocking=False):
            context.overlaps.add(content)
            return
        try:
            await asyncio.sleep(0)
        finally:
            locks[content].release()

    def send(sender: int) -> list[Any]:
        sent = []
        for number in range(count):
            thread_id = context.threads[(number + sender) % 5]
            bridge = (context.first, context.second)[number % 2]
            future = bridge.create_future_task(
                work,
                thread_id,
                thread_id=thread_id,
                multitask_strategy=("enqueue", "reject", "enqueue", "interrupt")[number % 4],
                deadline=0.05 if number % 7 == 0 else None,
                errors="emit",
            )
            sent.append(future)
            if number % 9 == 0:
                future.cancel()
        return sent

    context.futures = [each for sent in in_threads(senders, send) for each in sent]


@then("all of them are resolved, and no two runs of a thread have overlapped")
def step_all_of_them_are_resolved_and_no_two_runs_of_a_thread(context: Context) -> None:
    allowed = {"ok", "rejected", "interrupted", "timed_out"}
    _, pending = wait(context.futures, LIMIT)
    assert not pending, pending
    statuses = {each.result().status for each in context.futures if not each.cancelled()}
    assert statuses <= allowed, statuses
    assert not list(context.overlaps), list(context.overlaps)
    for bridge in (context.first, context.second):
        assert bridge.registry.wait_idle(LIMIT)
        scheduler = bridge._engine._dispatcher._scheduler
        assert (scheduler._lanes, scheduler._behind, scheduler.free) == ({}, {}, 4)


@then("the bridges hold no lease")
def step_the_bridges_hold_no_lease(context: Context) -> None:
    for bridge in (context.first, context.second):
        assert bridge.registry.wait_idle(LIMIT)
        assert not bridge._engine._lanes._leases
        assert not bridge._engine._lanes._windows
    backend = context.shared.states[0].backend

    async def leases() -> list[Any]:
        keys = [_key("lane", each) for each in context.threads]
        return [await backend.lock_acquire(key, "nobody", 0.1) for key in keys]

    assert None not in context.shared.lent.run(leases())


# -- the saver behind the lanes -------------------------------------------------------------------


class _Lost:
    """The fence of a run whose lease is lost."""

    def check(self) -> None:
        raise LaneLostError("lost")

    async def check_async(self) -> None:
        self.check()


@given("a saver whose fence refuses every write")
def step_a_saver_whose_fence_refuses_every_write(context: Context) -> None:
    context.saver = InMemorySaver()
    context.fenced = FencedSaver(context.saver, _Lost())


@then("put, aput, put_writes and aput_writes each raise LaneLostError, and the saver is empty")
def step_put_aput_put_writes_and_aput_writes_each_raise(context: Context) -> None:
    fenced, metadata = context.fenced, {"source": "input", "step": 1, "parents": {}}
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "c"}}
    put, writes = (config, empty_checkpoint(), metadata, {}), (config, [("n", 1)], "a task")
    for call in (
        lambda: fenced.put(*put),
        lambda: asyncio.run(fenced.aput(*put)),
        lambda: fenced.put_writes(*writes),
        lambda: asyncio.run(fenced.aput_writes(*writes)),
    ):
        check_error(error_of(call), "LaneLostError")
    assert not context.saver.storage, context.saver.storage
    assert not context.saver.writes, context.saver.writes


@given("a saver, and another one that is fenced")
def step_a_saver_and_another_one_that_is_fenced(context: Context) -> None:
    context.savers = [InMemorySaver(), fenced(InMemorySaver())]


@when("the same checkpoints and writes are put into both, without waiting and awaited")
def step_the_same_checkpoints_and_writes_are_put_into_both(context: Context) -> None:
    first, second = empty_checkpoint(), empty_checkpoint()
    metadata: Any = {"source": "input", "step": 1, "parents": {}}

    async def awaited(saver: Any, config: Any) -> None:
        config = await saver.aput(config, second, metadata, {})
        await saver.aput_writes(config, [("n", 2)], "a task")

    for saver in context.savers:
        config = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
        config = saver.put(config, first, metadata, {})
        saver.put_writes(config, [("n", 1)], "a task")
        asyncio.run(awaited(saver, config))


@then("both answer each question about them alike")
def step_both_answer_each_question_about_them_alike(context: Context) -> None:
    async def awaited(saver: Any) -> list[Any]:
        return [await saver.aget_tuple(config), [each async for each in saver.alist(config)]]

    config = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
    stock, ours = (
        [
            saver.get_tuple(config),
            list(saver.list(config)),
            list(saver.list(config, limit=1)),
            *asyncio.run(awaited(saver)),
            str(saver.get_next_version(None, None)).partition(".")[0],
            saver.config_specs,
        ]
        for saver in context.savers
    )
    assert stock == ours, f"the saver: {stock}, fenced: {ours}"
    assert [each.pending_writes for each in stock[1]] == [
        [("a task", "n", 2)],
        [("a task", "n", 1)],
    ]


@then("what only the saver behind it has is reached as well")
def step_what_only_the_saver_behind_it_has_is_reached_as_well(context: Context) -> None:
    saver = context.savers[1]
    assert list(saver.storage) == ["a"], saver.storage
    assert type(saver.with_allowlist([("builtins", "set")])) is type(saver)
