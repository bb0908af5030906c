"""Steps for the picture that a page has of a bridge."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.hooks import Hooks, RunEnded
from rxlanggraph.live.board import Board
from rxlanggraph.live.feed import encoded
from rxlanggraph.live.questions import as_json
from support.bridge.bridges import expire
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads, thread
from support.live.board_inside import ended
from support.live.pages import SECRET, make_world

# -- a bridge that is looked at --------------------------------------------------------------------


@given("a bridge that is looked at")
def step_a_bridge_that_is_looked_at(context: Context) -> None:
    make_world(context).look()


@given("a bridge that is looked at, with content {shown}")
def step_a_bridge_that_is_looked_at_with_content(context: Context, shown: str) -> None:
    make_world(context).look(show_content=shown == "shown")


@given("a bridge that is looked at, with each node")
def step_a_bridge_that_is_looked_at_with_each_node(context: Context) -> None:
    make_world(context).look(nodes=True)


@given("a bridge that is looked at, where runs are stuck at once")
def step_a_bridge_that_is_looked_at_where_runs_are_stuck_at_once(context: Context) -> None:
    make_world(context).look(stuck_after=1e-9)


@given("a bridge with one slot that is looked at")
def step_a_bridge_with_one_slot_that_is_looked_at(context: Context) -> None:
    make_world(context, max_concurrency=1).look()


class _Ends(Hooks):
    """Hooks that note what has ended, and how."""

    def __init__(self) -> None:
        self.log = Log()

    def on_ended(self, event: RunEnded) -> None:
        self.log.add((event.message.thread_id, event.status))


@given("a bridge with {others} told of its runs")
def step_a_bridge_with_others_told_of_its_runs(context: Context, others: str) -> None:
    world = make_world(context)
    context.ends = None
    if others == "hooks":
        context.ends = _Ends()
        world.bridge.add_hooks(context.ends)


@when("one message waits in its node, one behind it, one that will ask, and one that will fail")
def step_one_message_waits_one_behind_it_one_will_ask_one_will_fail(context: Context) -> None:
    world = context.world
    world.send("wait", "ada")
    world.send("nothing", "ada")
    world.send("wait ask", "bob")
    world.send("wait fail", "cleo", errors="raise")
    world.started.wait_for(3)


@when("it is looked at now, and the gate opens")
def step_it_is_looked_at_now_and_the_gate_opens(context: Context) -> None:
    context.world.look()
    context.world.gate.open()
    context.world.finish()


_ENDS = [("ada", "ok"), ("ada", "ok"), ("bob", "interrupted"), ("cleo", "error")]


@then("the snapshot has the end of each once, with durations, the failure and the question")
def step_the_snapshot_has_the_end_of_each_once(context: Context) -> None:
    snapshot = context.world.snapshot()
    ended = snapshot["recent"]
    assert sorted((run["thread_id"], run["status"]) for run in ended) == _ENDS, ended
    assert all(run["duration"] > 0 and run["attempt"] == 1 for run in ended), ended
    (kind,) = snapshot["failures"]
    assert (kind["type"], kind["node"], kind["count"]) == ("ValueError", "check", 1), kind
    (question,) = snapshot["interrupts"]
    assert question["thread_id"] == "bob"


@then("those told before were told of each once")
def step_those_told_before_were_told_of_each_once(context: Context) -> None:
    if context.ends is not None:
        assert sorted(context.ends.log.wait_for(4)) == _ENDS


@when("a message waits in its node")
def step_a_message_waits_in_its_node(context: Context) -> None:
    context.world.send("wait", "ada")
    context.world.started.wait_for(1)


@when("a message waits in its node, a second one on its thread behind it, and a third has ended")
def step_a_message_waits_in_its_node_a_second_behind_it_and_a_third_has_ended(
    context: Context,
) -> None:
    step_a_message_waits_in_its_node(context)
    context.world.send("nothing", "ada")
    told = _Ends()  # after the board; both are told after what waits for the future
    context.world.bridge.add_hooks(told)
    context.world.send("nothing", "bob")
    told.log.wait_for(1)


@then(
    "the snapshot has the first in the node work, the second waiting for its thread, and the third "
    "ended"
)
def step_the_snapshot_has_the_first_in_the_node_work(context: Context) -> None:
    snapshot = context.world.snapshot()
    first, second = snapshot["runs"]
    assert (first["state"], first["node"], first["attempt"]) == ("running", "work", 1), first
    assert (second["state"], second["node"]) == ("waiting_for_thread", None), second
    assert second["began"] is None and first["began"] <= snapshot["time"]
    (ended,) = snapshot["recent"]
    assert (ended["thread_id"], ended["status"]) == ("bob", "ok"), ended
    assert snapshot["counts"]["active"] == 1 and snapshot["counts"]["queued"] == 1
    assert first["name"] == ended["name"] == "clerk"


@when("the gate opens, and each message has ended")
@when("one message has ended")
def step_message_has_ended(context: Context) -> None:
    world = context.world
    world.gate.open()
    if not world.futures:
        world.send("nothing", "ada")
    world.finish()


@then("the snapshot has three that have ended, and nothing in flight")
def step_the_snapshot_has_three_that_have_ended(context: Context) -> None:
    snapshot = context.world.snapshot()
    assert snapshot["runs"] == [] and len(snapshot["recent"]) == 3
    assert sum(snapshot["history"]["ok"]) == 3
    ends = [ended["ended"] for ended in snapshot["recent"]]
    assert ends == sorted(ends, reverse=True)


@then("its counters are those of the registry")
def step_its_counters_are_those_of_the_registry(context: Context) -> None:
    counts = context.world.snapshot()["counts"]
    statistics = context.world.bridge.statistics()
    for name in ("submitted", "succeeded", "failed", "cancelled", "in_flight", "peak_in_flight"):
        assert counts[name] == getattr(statistics, name), name


@when("3 messages fail, 2 take too long and 1 asks")
def step_3_messages_fail_2_take_too_long_and_1_asks(context: Context) -> None:
    world = context.world
    for number in range(3):
        world.send("fail", f"f{number}")
    waiting = [world.send("wait", f"w{number}", timeout=LIMIT) for number in range(2)]
    world.started.wait_for(5)
    for run in waiting:
        expire(run)
    world.send("ask", "a")
    world.finish()


@then("the snapshot has 3 failures of ValueError in check, and 2 of RunTimeoutError in work")
def step_the_snapshot_has_3_failures_of_valueerror_in_check(context: Context) -> None:
    kinds = [
        (kind["name"], kind["status"], kind["type"], kind["node"], kind["count"])
        for kind in context.world.snapshot()["failures"]
    ]
    assert kinds == [
        ("clerk", "error", "ValueError", "check", 3),
        ("clerk", "timed_out", "RunTimeoutError", "work", 2),
    ], kinds


@then("what messages say is {there} in the snapshot")
def step_what_messages_say_is_there_in_the_snapshot(context: Context, there: str) -> None:
    snapshot = context.world.snapshot()
    (question,) = snapshot["interrupts"]
    shown = there == "there"
    assert (question["value"] == {"may I": SECRET}) is shown, question
    assert (SECRET in json.dumps(snapshot["failures"])) is shown
    assert (SECRET in json.dumps(snapshot["recent"])) is shown
    assert (SECRET in json.dumps(snapshot)) is shown is snapshot["shows_content"]


@then("its nodes are work and check, one after the other, each ok")
def step_its_nodes_are_work_and_check_one_after_the_other(context: Context) -> None:
    snapshot = context.world.snapshot()
    (ended,) = snapshot["recent"]
    work, check = ended["nodes"]
    assert (work["node"], check["node"]) == ("work", "check")
    assert work["status"] == check["status"] == "ok" and snapshot["nodes"] == "exact"
    assert work["began"] <= work["ended"] <= check["began"] + 0.01


@when("a message waits in its node, is looked at twice, and ends")
def step_a_message_waits_in_its_node_is_looked_at_twice_and_ends(context: Context) -> None:
    step_a_message_waits_in_its_node(context)
    first, second = context.world.snapshot(), context.world.snapshot()
    assert first["runs"][0]["nodes"] == second["runs"][0]["nodes"] != []
    step_message_has_ended(context)


@then("its only node is work, which ended with its run")
def step_its_only_node_is_work_which_ended_with_its_run(context: Context) -> None:
    (ended,) = context.world.snapshot()["recent"]
    (work,) = ended["nodes"]
    assert (work["node"], work["ended"], work["status"]) == ("work", ended["ended"], None), work


@then("the snapshot has it as stuck, with a stack that names {function:w}")
def step_the_snapshot_has_it_as_stuck_with_a_stack(context: Context, function: str) -> None:
    (run,) = context.world.snapshot()["runs"]
    assert run["stuck"] and function in run["stack"], run


@when("a callback blocks the loop until it is named")
def step_a_callback_blocks_the_loop_until_it_is_named(context: Context) -> None:
    world, named = context.world, Gate()
    on_blocked = world.source._board.on_blocked

    def told(event: Any) -> None:
        on_blocked(event)
        if "held_up" in event.where:  # on a busy machine, whatever is slow is named too
            named.open()

    def held_up(_: object) -> None:
        named.wait()

    with mock.patch.object(world.source._board, "on_blocked", told):
        world.source.close()
        detach = world.source._watched.add_hooks(world.source._board)
        future = world.send("wait", "ada")
        future.add_done_callback(held_up)  # of a run that has ended, it would hold up this thread
        world.gate.open()
        world.finish()
        detach()


@then("the snapshot has what blocked the loop, with a stack that names {function:w}")
def step_the_snapshot_has_what_blocked_the_loop(context: Context, function: str) -> None:
    all_blocked = context.world.snapshot()["loop"]["blocked"]
    (blocked,) = [each for each in all_blocked if function in each["where"]]
    assert function in blocked["stack"], blocked
    assert blocked["seconds"] > 0.4


@when("{count:d} messages wait behind one")
def step_count_messages_wait_behind_one(context: Context, count: int) -> None:
    step_a_message_waits_in_its_node(context)
    context.count = count
    for number in range(count):
        context.world.send("nothing", f"t{number}")


@then("the snapshot has the one that runs, 50 that wait, and how many more there are")
def step_the_snapshot_has_the_one_that_runs_50_that_wait(context: Context) -> None:
    snapshot = context.world.snapshot()
    states = [run["state"] for run in snapshot["runs"]]
    assert states == ["running"] + 50 * ["queued"], states
    assert snapshot["left_out"]["runs"] == context.count - 50
    assert snapshot["counts"]["queued"] == context.count
    context.world.bridge.registry.cancel_all()


@when("the bridge that is looked at is dropped")
def step_the_bridge_that_is_looked_at_is_dropped(context: Context) -> None:
    world = context.world
    world.send("nothing", "ada").result(LIMIT)
    assert world.bridge.registry.wait_idle(LIMIT)
    ended = world.bridge._engine.host.stopped
    context.dropped = weakref.ref(world.bridge)
    world.futures.clear()
    world.bridge = _Closed()
    gc.collect()
    ended.result(LIMIT)


class _Closed:
    def close(self, _: float) -> None:
        """It was dropped."""


@then("it is collected, and the source says that it is closed")
def step_it_is_collected_and_the_source_says_that_it_is_closed(context: Context) -> None:
    assert context.dropped() is None
    assert context.world.source.closed
    assert context.world.snapshot()["state"] == "closed"


# -- a board alone ---------------------------------------------------------------------------------


@given("a board")
def step_a_board(context: Context) -> None:
    context.board = Board(lambda: (1, 2), lambda run: None, show_content=True)
    context.told = 0


@when("{threads:d} threads tell it of {count:d} ends of {kinds:d} kinds of failure")
def step_threads_tell_it_of_count_ends_of_kinds_of_failure(
    context: Context, threads: int, count: int, kinds: int
) -> None:
    def tell(number: int) -> None:
        for each in range(count // threads):
            context.board.on_ended(ended(number + threads * each, 2 * kinds))

    in_threads(threads, tell)
    context.told = count


@when("{threads:d} threads tell it of {count:d} ends, while another reads it all the time")
def step_threads_tell_it_of_count_ends_while_another_reads(
    context: Context, threads: int, count: int
) -> None:
    over = threading.Event()
    runs: list[Future[Any]] = [Future() for _ in range(count)]
    in_flight = deque(runs)

    def read() -> int:
        reads = 0
        while not over.is_set():
            first = count - len(in_flight)  # a deque cannot be copied while others change it
            at_work: dict[Future[Any], str | None] = dict.fromkeys(
                runs[first : first + 500], f"node {reads}"
            )
            context.board.note_nodes(at_work, time.time())
            _read(context.board)
            reads += 1
        return reads

    def tell(number: int) -> None:
        for each in range(count // threads):
            run = in_flight.popleft()
            context.board.on_ended(ended(number + threads * each, 10, run=run))

    reading = thread(read)
    try:
        in_threads(threads, tell)
    finally:
        over.set()
    assert reading.result(LIMIT) > 0
    context.told = count
    context.board.note_nodes({}, time.time())
    assert not context.board._spans


def _read(board: Board) -> dict[str, Any]:
    now = time.time()
    board.count(now)
    return {
        "history": board.history(now, 1, 2),
        "recent": board.recent(200),
        "slowest": board.slowest(now),
        "failures": board.failures(50),
    }


@then("it has counted all of them")
def step_it_has_counted_all_of_them(context: Context) -> None:
    read = _read(context.board)
    history = read["history"]
    assert sum(history["ok"]) == sum(history["error"]) == context.told // 2
    kinds, others = read["failures"]
    assert sum(kind["count"] for kind in kinds) + others == context.told // 2


@then("it keeps 1000 of them, 200 kinds, 20 slowest, and nothing uncounted")
def step_it_keeps_1000_of_them_200_kinds_20_slowest(context: Context) -> None:
    board = context.board
    recent, older = board.recent(10_000)
    assert len(recent) == 1000 and older == 0
    assert len(board.failures(10_000)[0]) == 200
    slowest = [run["duration"] for run in board.slowest(time.time())]
    assert slowest == sorted(slowest, reverse=True) and len(slowest) == 20
    assert slowest[0] == 0.999 and not board._pending


@then("a snapshot of it has fewer than {most:d} characters")
def step_a_snapshot_of_it_has_fewer_characters(context: Context, most: int) -> None:
    assert len(encoded(_read(context.board))) < most


@when("the clock is set back by an hour, and ahead by a day, between ends")
def step_the_clock_is_set_back_and_ahead_between_ends(context: Context) -> None:
    now = time.time()
    for number, at in enumerate((now, now - 3600, now - 3599, now + 86400, now, now)):
        context.board.on_ended(ended(2 * number, 1, at))


@then("the history has those of its minutes, and all are among the recent ones")
def step_the_history_has_those_of_its_minutes(context: Context) -> None:
    read = _read(context.board)
    assert sum(read["history"]["ok"]) == 3, read["history"]["ok"]
    assert len(read["recent"][0]) == 6


# -- values ----------------------------------------------------------------------------------------


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no text of this")


def _values() -> dict[str, Any]:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    return {
        "large numbers": {"least": -(2**53), "exact": 2**53 - 1, "most": 12345678901234567890},
        "nan": float("nan"),
        "a list that holds itself": loop,
        "a class whose repr fails": _Hostile(),
        "a million characters": "x" * 1_000_000,
        "a lone surrogate": "\ud800",
        "nested a thousand deep": deep,
    }


@when("a question with {value} is shown")
def step_a_question_with_value_is_shown(context: Context, value: str) -> None:
    context.shown = as_json(_values()[value])


@then("those that are rounded are text, and the one that is exact is a number")
def step_those_that_are_rounded_are_text(context: Context) -> None:
    least, most = "-9007199254740992", "12345678901234567890"
    assert context.shown == {"least": least, "exact": 2**53 - 1, "most": most}, context.shown


@then("it is text or data that JSON can hold, of at most {most:d} characters")
def step_it_is_text_or_data_that_json_can_hold(context: Context, most: int) -> None:
    assert 0 < len(encoded(context.shown)) <= most
