from __future__ import annotations

import contextlib
import inspect
import itertools
import pickle
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler

from rxlanggraph.concurrency.run_on_loop import enter_on_loop
from rxlanggraph.errors import (
    UsageError,
)
from rxlanggraph.state import Claim, State, Task, open_state_threadsafe
from rxlanggraph.state.backends.memory import MemoryBackend
from rxlanggraph.state.blocking import SyncClaim, SyncState
from support.concurrency.raising import error_of
from support.concurrency.tasks import PATIENCE, in_thread
from support.concurrency.waiting import in_threads
from support.state.state_threads import LoopThread

# -- many threads ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def plain_state() -> AsyncIterator[State]:
    """A state whose every call goes through the methods of its backend, which can be patched."""
    async with State(MemoryBackend()) as state:
        yield state


def opened(context: Context) -> State:
    """A state on a loop that runs in another thread."""
    context.loop_thread = LoopThread()
    context.add_cleanup(context.loop_thread.close)
    manager = enter_on_loop(context.loop_thread.loop, plain_state())
    state = context.state = manager.__enter__()

    def close() -> None:
        if context.loop_thread.is_running:
            manager.__exit__(None, None, None)

    context.add_cleanup(close)
    return state


def under_lock(sync: SyncState) -> None:
    with sync.lock("l") as lease:
        sync.set("n", (sync.get("n").value or 0) + 1, token=lease)


def in_transaction(sync: SyncState) -> None:
    sync.transact(lambda tx: tx.set("n", (tx.get("n").value or 0) + 1), attempts=100)


WAYS: dict[str, Callable[[SyncState], object]] = {
    "the counter of a state": lambda sync: sync.increment_counter("n"),
    "a value that is updated": lambda sync: sync.safe_update(
        "n", lambda value: (value or 0) + 1, attempts=100
    ),
    "a value under a lock": under_lock,
    "a value in a transaction": in_transaction,
}


@given("{what}, and a pipeline on 8 threads")
def step_what_and_a_pipeline_on_8_threads(context: Context, what: str) -> None:
    sync = opened(context).sync
    context.increment = lambda: WAYS[what](sync)
    context.read = lambda: sync.get("n").value


@when("the state, and its sync, are pickled")
def step_the_state_and_its_sync_are_pickled(context: Context) -> None:
    targets = (context.state, context.state.sync)
    context.errors = [error_of(lambda each=each: pickle.dumps(each)) for each in targets]


@then('each error says "{words}"')
def step_each_error_says_words(context: Context, words: str) -> None:
    assert all(words in str(error) for error in context.errors), context.errors


@when("each of 80 items of the pipeline increments it")
def step_each_of_80_items_of_the_pipeline_increments_it(context: Context) -> None:
    pool = ThreadPoolScheduler(8)

    def on_a_thread(_: int) -> rx.Observable[Any]:
        return rx.of(None).pipe(ops.observe_on(pool), ops.do_action(lambda _: context.increment()))

    try:
        rx.range(80).pipe(ops.flat_map(on_a_thread), ops.to_list()).run()
    finally:
        pool.executor.shutdown()


@given("a global counter")
def step_a_global_counter(context: Context) -> None:
    context.counter = 0
    context.read = lambda: context.counter


@when("two threads of a pipeline have read it before either has written it")
def step_two_threads_of_a_pipeline_have_read_it_before_either_has(context: Context) -> None:
    have_read = threading.Barrier(2)

    def increment(_: int) -> None:
        value = context.counter
        have_read.wait(PATIENCE)
        context.counter = value + 1

    in_threads(2, increment)


@then("it is {count:d}")
def step_it_is_count(context: Context, count: int) -> None:
    assert context.read() == count, context.read()


# -- everything ------------------------------------------------------------------------------------


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


@then("each public method of a State is there in its sync, with the same parameters")
def step_each_public_method_of_a_state_is_there_in_its_sync_with(context: Context) -> None:
    ours, theirs = public(SyncState), public(State)
    left_out = {"sync", "loop", "backend", "aclose"}
    assert set(theirs) - set(ours) == left_out, set(theirs) ^ set(ours)
    for name, method in ours.items():
        assert parameters(method) == parameters(theirs[name]), name


@then("each public method and attribute of a Claim is there in that of its sync")
def step_each_public_method_and_attribute_of_a_claim_is_there_in(context: Context) -> None:
    assert set(public(SyncClaim)) == set(public(Claim))
    for name, method in public(SyncClaim).items():
        if inspect.isfunction(method):
            assert parameters(method) == parameters(getattr(Claim, name)), name
    state = opened(context)
    state.sync.add_tasks("q", [Task("item", key="k", thread_id="t")])
    claim = state.sync.claim_task("q", worker="w")
    assert claim is not None
    told = {name for name in vars(claim) if not name.startswith("_")}
    assert told == {name for name in vars(claim._claim) if not name.startswith("_")}, told


@given("a state on a loop in another thread")
def step_a_state_on_a_loop_in_another_thread(context: Context) -> None:
    opened(context)


Check = Callable[[Any, Any], None]


def through_values(sync: SyncState, check: Check) -> None:
    version = sync.set("k", [1], ttl=600)
    check(sync.get("k"), ([1], version))
    check(sync.compare_and_set("k", [2], version), True)
    check(sync.compare_and_set("k", [3], version), False)
    check(sync.set_if_not_exists("k", 1), False)
    check(sync.delete("k"), True)
    check(sync.increment_counter("k", 5), 5)
    check(sync.safe_update("k", lambda value: value + 1), 6)
    with sync.transaction() as tx:
        check(tx.get("k").value, 6)
        tx.set("made", 1, ttl=600)
        tx.delete("k")
    check(sync.get("k").version, 0)
    check(sync.transact(lambda tx: tx.get("made").value), 1)
    check(sync.watch("made").pipe(ops.first()).run().value, 1)


def through_work(sync: SyncState, check: Check) -> None:
    ids = sync.add_tasks("q", ["a", "b", "c"], max_attempts=1)
    with sync.lock("l") as lease:
        check(lease.lost, False)
    first, second, third = (sync.claim_task("q", worker="w", wait=5) for _ in ids)
    assert first is not None and second is not None and third is not None
    check((first.item, first.lost, "attempt 1" in repr(first)), ("a", False, True))
    first.extend(60)
    first.complete("done")
    second.fail("no")
    third.release()
    check(sync.results("q"), {ids[0]: "done"})
    check([dead.item for dead in sync.dead_letters("q")], ["b"])
    check(sync.requeue("q"), 1)
    check(sync.stats("q").waiting, 2)
    check(sync.purge("q"), 1)
    check(sync.claim_task("empty"), None)
    batch = sync.claim_tasks("q", 5, wait=5)
    check([claim.item for claim in batch], ["c", "b"])
    sync.purge("q", ["claimed"])
    sync.add_tasks("q", ["d"])
    (last,) = sync.claim_tasks("q", 5)
    check(sync.complete_tasks([(batch[0], 1), (last, 2)]) == [batch[0]], True)


def through_administration(sync: SyncState, check: Callable[[Any, Any], None]) -> None:
    sync.declare_queue("looked at", backoff=None)
    (first, second) = sync.add_tasks("looked at", [Task("a"), Task("b")], max_attempts=1)
    check("looked at" in sync.queues(), True)
    check([task.id for task in sync.iter_tasks("looked at")], [first, second])
    found = sync.task("looked at", second)
    check(found and found.item, "b")
    check(sync.cancel_tasks("looked at", [second]), 1)
    check([letter.id for letter in sync.iter_dead_letters("looked at")], [second])
    for claim in sync.claim_tasks("looked at", 2):
        check(sync.complete_tasks([(claim, "done")]), [])
    check([*sync.iter_results("looked at")], [(first, "done")])
    sync.set("looked at", 1)
    check([key.key for key in sync.iter_keys("looked")], ["looked at"])
    with sync.lock("looked at"):
        check([lock.key for lock in sync.iter_locks()], ["looked at"])
    check([*sync.iter_locks()], [])


@when("a thread goes through everything that sync has")
def step_a_thread_goes_through_everything_that_sync_has(context: Context) -> None:
    sync: SyncState = context.state.sync
    context.steps = []

    def check(actual: Any, expected: Any) -> None:
        context.steps.append((actual, expected))

    in_thread(lambda: through_values(sync, check))
    in_thread(lambda: through_work(sync, check))
    in_thread(lambda: through_administration(sync, check))


@then("each call did what that of the state does")
def step_each_call_did_what_that_of_the_state_does(context: Context) -> None:
    assert len(context.steps) == 31, len(context.steps)
    wrong = [(number, pair) for number, pair in enumerate(context.steps) if pair[0] != pair[1]]
    assert not wrong, wrong


@when("a thread calls safe_update and transact, and adds tasks from a generator")
def step_a_thread_calls_safe_update_and_transact_and_adds_tasks(context: Context) -> None:
    context.threads = []

    def noting(value: Any) -> Any:
        context.threads.append(threading.get_ident())
        return value

    def call() -> int:
        context.state.sync.safe_update("k", noting)
        context.state.sync.transact(noting)
        context.state.sync.add_tasks("q", (noting(number) for number in range(3)))
        return threading.get_ident()

    context.ident = in_thread(call)


@when("a thread adds tasks from a generator that has no end")
def step_a_thread_adds_tasks_from_a_generator_that_has_no_end(context: Context) -> None:
    context.error = in_thread(
        lambda: error_of(lambda: context.state.sync.add_tasks("q", itertools.count()))
    )


@when("a thread calls safe_update and transact with None")
def step_a_thread_calls_safe_update_and_transact_with_none(context: Context) -> None:
    sync: SyncState = context.state.sync
    nothing: Any = None
    calls = (lambda: sync.safe_update("k", nothing), lambda: sync.transact(nothing))
    context.errors = [in_thread(lambda call=call: error_of(call)) for call in calls]


@when("a thread enters each of them a second time")
def step_a_thread_enters_each_of_them_a_second_time(context: Context) -> None:
    state: State = context.state
    blocks: dict[str, Any] = {
        "state.sync.lock('l')": state.sync.lock("l"),
        "state.sync.transaction()": state.sync.transaction(),
        "open_state_threadsafe(...)": open_state_threadsafe(state.loop, "memory:"),
    }

    def twice(block: Any) -> None:
        for _ in range(2):
            with block:
                pass

    context.errors = {
        call: in_thread(lambda block=block: error_of(lambda: twice(block)))
        for call, block in blocks.items()
    }


@then("UsageError is raised each time, and names the call")
def step_usageerror_is_raised_each_time_and_names_the_call(context: Context) -> None:
    for call, error in context.errors.items():
        assert type(error) is UsageError and call in str(error), (call, error)


@then("its functions and its generator ran in that thread")
def step_its_functions_and_its_generator_ran_in_that_thread(context: Context) -> None:
    assert context.threads == [context.ident] * 5, (context.threads, context.ident)


@when("a thread calls safe_update and transact, whose functions are always overtaken")
def step_a_thread_calls_safe_update_and_transact_whose_functions(context: Context) -> None:
    sync: SyncState = context.state.sync
    context.calls = []

    def overtaken(value: Any) -> Any:
        context.calls.append(value)
        sync.increment_counter("k")
        return 0

    def in_a_transaction(tx: Any) -> None:
        tx.get("k")
        tx.set("k", overtaken(tx))

    def call() -> list[BaseException | None]:
        return [
            error_of(lambda: sync.safe_update("k", overtaken, 3)),
            error_of(lambda: sync.transact(in_a_transaction, 3)),
        ]

    context.errors = in_thread(call)


@then("their functions were called {count:d} times in all")
def step_their_functions_were_called_count_times_in_all(context: Context, count: int) -> None:
    assert len(context.calls) == count, context.calls


@when("a block of a thread around a {thing} {ends}")
def step_a_block_of_a_thread_around_a_thing_ends(context: Context, thing: str, ends: str) -> None:
    sync: SyncState = context.state.sync
    sync.add_tasks("q", ["item"])

    def block() -> None:
        holding: Any = sync.lock("k") if thing == "lock" else sync.claim_task("q")
        with holding:
            if ends == "raises an error":
                raise KeyError("of the block")

    error = in_thread(lambda: error_of(block))
    assert isinstance(error, KeyError) is (ends == "raises an error"), error


@then("the {thing} is left {afterwards}")
def step_the_thing_is_left_afterwards(context: Context, thing: str, afterwards: str) -> None:
    sync: SyncState = context.state.sync
    if thing == "lock":
        with sync.lock("k", wait=0):
            return
    assert (sync.stats("q").completed == 1) is (afterwards == "complete")
    assert (sync.claim_task("q") is not None) is (afterwards == "free")
