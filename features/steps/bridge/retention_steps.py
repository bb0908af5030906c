"""Steps for how much of a thread is kept, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from reactivex import operators as ops

from rxlanggraph import StreamMessage, operators
from support.bridge.bridges import expire, listen
from support.bridge.graphs import one_node
from support.bridge.pruned import (
    BareSaver,
    PrunedGraph,
    PruningSaver,
    SlowToDelete,
    with_deltas,
)
from support.bridge.savers import open_saver, rows_of
from support.concurrency.raising import error_of, raised
from support.concurrency.waiting import LIMIT, Gate, thread


def _config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}


def _send(context: Context, thread_id: str = "t", do: str | None = None, **options: Any) -> Any:
    content = options.pop("content", {"do": do})
    return context.bridge.create_future_task(
        context.made.graph, content, thread_id=thread_id, errors="emit", **options
    )


def _answer(context: Context, thread_id: str = "t", **options: Any) -> Any:
    result = _send(context, thread_id, **options).result(LIMIT)
    assert result.status == "ok", result
    return result.content


def _on_loop(context: Context, function: Any) -> Any:
    """What ``function()`` is on the loop of the bridge, once nothing is in flight any more."""

    async def call(_: object) -> Any:
        return await function()

    assert context.bridge.registry.wait_idle(LIMIT)
    return context.bridge.create_future_task(call, None).result(LIMIT).content


def _rows(context: Context, thread_id: str = "t") -> list[Any]:
    rows: list[Any] = _on_loop(context, lambda: rows_of(context.made.saver, thread_id))
    return rows


def _sizes(context: Context) -> list[int]:
    rows = _rows(context)
    if isinstance(context.made.saver, InMemorySaver):
        rows[0] = [each for checkpoints in rows[0].values() for each in checkpoints]
    return [len(each) for each in rows]


async def _history(context: Context, thread_id: str) -> list[Any]:
    history = context.made.graph.aget_state_history(_config(thread_id))
    return [state async for state in history]


def _kept(context: Context, thread_id: str = "t") -> list[Any]:
    found: list[Any] = _on_loop(context, lambda: _history(context, thread_id))
    return found


# -- how much is kept ------------------------------------------------------------------------------


@given("a graph with subgraphs whose threads are in an {saver}")
def step_a_graph_with_subgraphs_whose_threads_are_in(context: Context, saver: str) -> None:
    context.made = PrunedGraph(open_saver(context, saver))
    context.add_cleanup(context.made.gate.open)


@when("{count:d} runs of one thread are answered, with keep_checkpoints={keep}")
def step_count_runs_of_one_thread_are_answered(context: Context, count: int, keep: str) -> None:
    context.keep = None if keep == "None" else int(keep)
    context.answers, context.few = [], None
    for number in range(count):
        context.answers.append(_answer(context, keep_checkpoints=context.keep))
        if number == 9:
            context.few = _sizes(context)


@then("the saver keeps no more of the thread than after 10 runs")
def step_the_saver_keeps_no_more_of_the_thread(context: Context) -> None:
    sizes = _sizes(context)
    assert sizes == context.few, (sizes, context.few)
    assert len(_kept(context)) == context.keep


@then("each run has continued from the one before it")
def step_each_run_has_continued_from_the_one_before(context: Context) -> None:
    for number, answer in enumerate(context.answers, 1):
        expected = {"count": number, "inner": 2 * number, "kept": number}
        assert {key: answer[key] for key in expected} == expected, (number, answer)


def _shown(state: Any) -> Any:
    return state.values, state.next, state.metadata["step"]


@then(
    "the history of the thread is the same as that of a thread with all checkpoints, for {count:d} "
    "checkpoints"
)
def step_the_history_of_the_thread_is_the_same(context: Context, count: int) -> None:
    for _ in context.answers:
        _answer(context, "all")
    context.histories = [_kept(context, each) for each in ("t", "all")]
    kept, everything = ([_shown(state) for state in each] for each in context.histories)
    assert kept == everything[:count], (kept, everything[:count])
    assert len(kept) == count, kept


@then("a run that goes back to the oldest of them is answered as on that other thread")
def step_a_run_that_goes_back_to_the_oldest(context: Context) -> None:
    kept, everything = context.histories
    oldest = len(kept) - 1
    answers = [
        _answer(context, each, content=None, config=history[oldest].config)
        for each, history in (("t", kept), ("all", everything))
    ]
    assert answers[0] == answers[1], answers


@then("the saver keeps nothing, and each run has begun anew")
def step_the_saver_keeps_nothing_and_each_run_has_begun_anew(context: Context) -> None:
    assert not any(_sizes(context)), _sizes(context)
    assert {each["count"] for each in context.answers} == {1}, context.answers


@when(
    "a thread has {count:d} runs with all checkpoints, and another one has {count_too:d} with "
    "keep_checkpoints=1"
)
def step_a_thread_has_runs_with_all_checkpoints(
    context: Context, count: int, count_too: int
) -> None:
    for _ in range(count):
        _answer(context, "all")
    context.before = _kept(context, "all")
    for _ in range(count_too):
        _answer(context, keep_checkpoints=1)


@then("the first thread has what {count:d} runs save")
def step_the_first_thread_has_what_runs_save(context: Context, count: int) -> None:
    assert _kept(context, "all") == context.before
    assert len(context.before) == 6 * count, len(context.before)  # four nodes, input and start
    assert len(_kept(context)) == 1


@when("{count:d} messages to a thread go through {way}, with keep_checkpoints=1")
def step_count_messages_to_a_thread_go_through_way(context: Context, count: int, way: str) -> None:
    bridge, graph, options = context.bridge, context.made.graph, {"keep_checkpoints": 1}
    messages = [StreamMessage({}, "t") for _ in range(count)]

    async def one_by_one() -> None:
        for each in messages:
            if way == "submit":
                await (await bridge.submit(graph, each, **options))
            else:
                async for _ in bridge.astream(graph, each, **options):
                    pass

    if way == "create_future_task":
        for each in messages:
            bridge.create_future_task(graph, each, **options).result(LIMIT)
    elif way in ("submit", "astream"):
        asyncio.run(one_by_one())
    else:
        operator_of = {
            "invoke": lambda: bridge.invoke(graph, **options),
            "stream": lambda: bridge.stream(graph, **options),
            "operators.concat_map": lambda: operators.concat_map(bridge, graph, **options),
        }[way]
        rx.from_iterable(messages).pipe(operator_of(), ops.to_list()).run()


@then("1 checkpoint of the thread is kept, and it has counted {count:d}")
def step_1_checkpoint_of_the_thread_is_kept_and_counted(context: Context, count: int) -> None:
    (state,) = _kept(context)
    assert state.values["count"] == count, state


@when("{threads:d} threads get {each:d} messages each, with keep_checkpoints=1")
def step_threads_get_messages_each(context: Context, threads: int, each: int) -> None:
    futures = [
        _send(context, f"{number}", keep_checkpoints=1)
        for _ in range(each)
        for number in range(threads)
    ]
    assert {future.result(LIMIT).status for future in futures} == {"ok"}


@then("each of the {threads:d} keeps 1 checkpoint, and has counted {count:d}")
def step_each_of_the_threads_keeps_1_checkpoint(context: Context, threads: int, count: int) -> None:
    for number in range(threads):
        (state,) = _kept(context, f"{number}")
        assert state.values["count"] == count, state


# -- what may be continued -------------------------------------------------------------------------


def _stopped(context: Context, end: str, thread_id: str = "t", **options: Any) -> Any:
    """The result of a run that ends so."""
    if end == "stops at a breakpoint":
        options["interrupt_before"] = ["stop"]
    if end in ("is cancelled", "exceeds its time limit"):
        context.made.inside, limits = Gate(), {"timeout": LIMIT}
        limits = limits if end == "exceeds its time limit" else {}
        future = _send(context, thread_id, "waits", **limits, **options)
        context.made.inside.wait()
        if end == "is cancelled":
            future.cancel()
            return None
        expire(future)
    else:
        future = _send(context, thread_id, end, **options)
    return future.result(LIMIT)


@when("a run of a thread {end}, with keep_checkpoints=1")
def step_a_run_of_a_thread(context: Context, end: str) -> None:
    for thread_id, options in (("all", {}), ("t", {"keep_checkpoints": 1})):
        _answer(context, thread_id)
        context.stopped = _stopped(context, end, thread_id, **options)


@then("nothing of the thread was deleted")
def step_nothing_of_the_thread_was_deleted(context: Context) -> None:
    kept, everything = ([_shown(state) for state in _kept(context, e)] for e in ("t", "all"))
    assert kept == everything, (kept, everything)


@when("it is continued, with keep_checkpoints=1")
def step_it_is_continued(context: Context) -> None:
    context.made.fails = False
    context.made.gate.open()
    asks = context.stopped is not None and context.stopped.interrupts
    content = Command(resume="yes") if asks else None
    context.answers = [_answer(context, content=content, keep_checkpoints=1)]
    context.answers.append(_answer(context, "all", content=content))


@then("it is answered as without keep_checkpoints, and 1 checkpoint of the thread is kept")
def step_it_is_answered_as_without_keep_checkpoints(context: Context) -> None:
    assert context.answers[0] == context.answers[1], context.answers
    assert context.answers[0]["count"] == 2, context.answers
    assert len(_kept(context)) == 1, _kept(context)


@when(
    "a run with keep_checkpoints=1 is answered, the next one is rolled back in its middle, and a "
    "third one is answered"
)
def step_a_run_with_keep_checkpoints_is_answered(context: Context) -> None:
    options = {"keep_checkpoints": 1, "multitask_strategy": "rollback"}
    _answer(context, **options)
    second = _send(context, do="waits", **options)
    context.made.inside.wait()
    _answer(context, **options)
    assert second.result(LIMIT).status == "interrupted"


@then("the thread has counted {count:d}, and 1 checkpoint of the thread is kept")
def step_the_thread_has_counted_count(context: Context, count: int) -> None:
    step_1_checkpoint_of_the_thread_is_kept_and_counted(context, count)


# -- when it is deleted ----------------------------------------------------------------------------


@given("a graph whose saver deletes when it may")
def step_a_graph_whose_saver_deletes_when_it_may(context: Context) -> None:
    context.made = PrunedGraph(SlowToDelete())
    context.add_cleanup(context.made.saver.gate.open)


@when("a run is answered, a second message waits on the thread, and another thread gets one")
def step_a_run_is_answered_a_second_message_waits(context: Context) -> None:
    context.futures = [
        _send(context, each, keep_checkpoints=0) for each in ("t", "t", "another one")
    ]


@then("the first and the other are answered, and the second begins when the saver has deleted")
def step_the_first_and_the_other_are_answered(context: Context) -> None:
    first, second, other = context.futures
    assert first.result(LIMIT).status == other.result(LIMIT).status == "ok"
    context.made.saver.deleting.wait()
    assert not second.running()
    context.made.saver.gate.open()
    assert second.result(LIMIT).content["count"] == 1


@when("a run is answered, and {end} is called while the saver deletes")
def step_a_run_is_answered_and_end_is_called(context: Context, end: str) -> None:
    saver = context.made.saver
    _answer(context, keep_checkpoints=0)
    saver.deleting.wait()
    context.ending = thread(getattr(context.bridge, end), LIMIT)


@then("that returns when the saver has deleted, and reports nothing as stuck")
def step_that_returns_when_the_saver_has_deleted(context: Context) -> None:
    assert not context.ending.done()
    context.made.saver.gate.open()
    report = context.ending.result(LIMIT)
    assert not report.stuck, report
    assert not context.made.saver.storage.get("t")


@when("a run is answered, and its saver fails to delete")
def step_a_run_is_answered_and_its_saver_fails_to_delete(context: Context) -> None:
    context.records = listen(context, "rxlanggraph")
    context.made.saver.error = ValueError("not now")
    context.made.saver.gate.open()
    _answer(context, keep_checkpoints=0)
    assert context.bridge.registry.wait_idle(LIMIT)


@then("a warning names the thread, and the next run deletes")
def step_a_warning_names_the_thread_and_the_next_run_deletes(context: Context) -> None:
    (record,) = context.records
    assert "thread 't'" in record.getMessage(), record.getMessage()
    assert "not now" in record.getMessage(), record.getMessage()
    assert context.made.saver.storage.get("t")
    context.made.saver.error = None
    assert _answer(context, keep_checkpoints=0)["count"] == 2
    assert context.bridge.registry.wait_idle(LIMIT)
    assert not context.made.saver.storage.get("t")
    assert context.bridge.statistics().failed == 0


# -- refusals --------------------------------------------------------------------------------------


async def _same(state: Any) -> Any:
    return state


_TARGETS = {
    "a graph without a saver": lambda: one_node(_same),
    "an async function": lambda: _same,
    "a graph with a bare saver": lambda: one_node(_same, checkpointer=BareSaver()),  # type: ignore[arg-type]
    "a graph with deltas": with_deltas,
    "a graph with a saver": lambda: one_node(_same, checkpointer=InMemorySaver()),
}


@when("{what} gets a message with keep_checkpoints={keep}")
def step_what_gets_a_message_with_keep_checkpoints(context: Context, what: str, keep: str) -> None:
    graph = _TARGETS[what]()
    options: Any = {"keep_checkpoints": eval(keep), "thread_id": "t"}
    context.error = error_of(lambda: context.bridge.create_future_task(graph, {}, **options))


@when("a graph with deltas is to keep 0 checkpoints of its thread, and one with a pruning saver 1")
def step_a_graph_with_deltas_is_to_keep_0_checkpoints(context: Context) -> None:
    context.saver = PruningSaver()
    graphs = [(with_deltas(), 0), (one_node(_same, checkpointer=context.saver), 1)]
    context.futures = [
        context.bridge.create_future_task(graph, {"value": 1}, thread_id="t", keep_checkpoints=keep)
        for graph, keep in graphs
    ]


@then(
    "both are answered, and the pruning saver was told to keep the latest checkpoint of the thread"
)
def step_both_are_answered_and_the_pruning_saver_was_told(context: Context) -> None:
    assert [each.result(LIMIT).status for each in context.futures] == ["ok", "ok"]
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.saver.pruned == [(["t"], "keep_latest")]


# -- threads that are not used --------------------------------------------------------------------

_UNFINISHED = ["asks", "asks in a subgraph", "stops at a breakpoint", "fails", "is cancelled"]


def _expire(context: Context, older_than: float, **options: Any) -> set[str]:
    async def expire() -> Any:
        return await context.bridge.expire_threads(context.made.graph, older_than, **options)

    return set(asyncio.run(expire()))


@when(
    "threads are answered, ask, stop at a breakpoint, fail and are cut off, and those older than "
    "{age:d} s expire"
)
def step_threads_are_answered_ask_stop_fail(context: Context, age: int) -> None:
    for end in _UNFINISHED:
        _stopped(context, end, end)
    for number in range(3):
        _answer(context, f"answered {number}")
    assert context.bridge.registry.wait_idle(LIMIT)
    context.expired = _expire(context, age)


@then("none is deleted")
def step_none_is_deleted(context: Context) -> None:
    assert not context.expired, context.expired


@when("those older than {age:d} s expire")
def step_those_older_than_age_expire(context: Context, age: int) -> None:
    context.expired = _expire(context, age)


@then("the answered ones are deleted, and no other")
def step_the_answered_ones_are_deleted(context: Context) -> None:
    answered = {f"answered {number}" for number in range(3)}
    assert context.expired == answered, context.expired
    assert all(_kept(context, each) for each in _UNFINISHED)
    assert not any(_kept(context, each) for each in answered)


@when("those older than {age:d} s expire, unfinished ones as well")
def step_those_older_than_age_expire_unfinished_ones_as_well(context: Context, age: int) -> None:
    context.expired = _expire(context, age, unfinished=True)


@then("the others are deleted, and the saver keeps nothing")
def step_the_others_are_deleted_and_the_saver_keeps_nothing(context: Context) -> None:
    assert context.expired == set(_UNFINISHED), context.expired
    assert not any(any(_rows(context, each)) for each in _UNFINISHED)


@when("threads older than {age:d} s expire while a run of one of them is in its middle")
def step_threads_expire_while_a_run_is_in_its_middle(context: Context, age: int) -> None:
    _answer(context)
    _answer(context, "other")
    future = _send(context, do="waits")
    context.made.inside.wait()
    expiring = thread(_expire, context, age)
    context.ended = future
    context.made.gate.open()
    context.expired = expiring.result(LIMIT)


@then("that thread is deleted after its run")
def step_that_thread_is_deleted_after_its_run(context: Context) -> None:
    assert context.ended.result(LIMIT).status == "ok"
    assert context.expired == {"t", "other"}, context.expired
    assert not any(_sizes(context))


@when("expire_threads is called with {what}")
def step_expire_threads_is_called_with_what(context: Context, what: str) -> None:
    graph = _TARGETS.get(what, _TARGETS["a graph with a saver"])()
    age = -1 if what == "a negative age" else 0
    context.error = asyncio.run(raised(context.bridge.expire_threads(graph, age)))
