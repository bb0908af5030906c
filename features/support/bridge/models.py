"""Small concurrent programs over the real registry and the real hand-off, and their controls.

Each is run once for every interleaving that a search tries: it makes its own state, starts its
threads, joins them, and asserts. A thread that waits forever is found as a deadlock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, _base, as_completed, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any
from unittest import mock

from rxlanggraph.bridge.admission import AdmissionLimiter
from rxlanggraph.bridge.engine import Engine
from rxlanggraph.bridge.graphs.adapters import adapt_graph
from rxlanggraph.bridge.operators.pull import _AsyncPull
from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_options import RunOptions
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.bridge.shutdown import CleanupReport, cleanup_steps, close_steps, run_steps
from rxlanggraph.concurrency.future import SharedLockFuture
from rxlanggraph.errors import ClosedError, LoopUnavailableError
from rxlanggraph.messages import StreamMessage
from support.concurrency.explored import aside
from support.controls import naive_models

__all__ = ["CONTROLS", "MODELS"]


def together(*work: Callable[[], object]) -> None:
    threads = [threading.Thread(target=each, name=str(n)) for n, each in enumerate(work)]
    with aside():
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()


class Stubborn(Future[Any]):
    """A task that ends when it is told to, not when it is cancelled."""

    def cancel(self) -> bool:
        return True


# -- the registry ----------------------------------------------------------------------------------


def adding_and_looking() -> None:
    registry = RunRegistry()
    first, second = Future[Any](), Future[Any]()
    seen: list[int] = []

    def add_and_end() -> None:
        registry.add(first)
        first.set_result(None)

    def add_and_look() -> None:
        registry.add(second)
        seen.extend(info.id for info in registry.snapshot())

    together(add_and_end, add_and_look)
    assert registry.tasks() == [second]
    assert sorted(seen) in ([1], [2], [1, 2]), seen
    statistics = registry.statistics()
    assert (statistics.submitted, statistics.succeeded) == (2, 1), statistics
    assert statistics.peak_in_flight in (1, 2), statistics


def clearing_out() -> None:
    tasks = naive_models.Tasks()
    first, second = Future[Any](), Future[Any]()
    tasks.add(first)
    together(tasks.clear_out, lambda: tasks.add(second))
    assert second in tasks.tasks, "a task was lost"


def leaving_twice() -> None:
    registry = RunRegistry()
    task: Future[Any] = Future()
    registry.add(task)
    together(lambda: task.set_result(None), lambda: registry.discard(task))
    statistics = registry.statistics()
    assert len(registry) == statistics.in_flight == 0
    assert statistics.submitted == 1, statistics


def naive_leaving_twice() -> None:
    tasks = naive_models.Tasks()
    task: Future[Any] = Future()
    tasks.add(task)
    together(lambda: task.set_result(None), lambda: tasks.leave(task))
    assert tasks.left == 1, f"counted {tasks.left} times"


def closing() -> None:
    registry = RunRegistry()
    check_closing(registry.add, lambda: [info.id for info in registry.close()])


def naive_closing() -> None:
    tasks = naive_models.Tasks()
    check_closing(tasks.add, tasks.close)


def check_closing(add: Callable[[Any], object], close: Callable[[], list[Any]]) -> None:
    admitted: list[Future[Any]] = []
    seen: list[Any] = []

    def admit() -> None:
        task: Future[Any] = Future()
        try:
            add(task)
        except RuntimeError:
            return
        admitted.append(task)

    together(admit, lambda: seen.extend(close()))
    assert len(seen) == len(admitted), f"{len(admitted)} admitted, closing saw {len(seen)}"


def cleaning_up() -> None:
    registry = RunRegistry()

    def clean_up() -> None:
        begun = registry.begin_sweep()
        registry.cancel_all()
        registry.wait_idle()
        assert not registry.end_sweep(begun).remaining

    check_cleaning_up(registry.add, clean_up)
    assert registry.statistics().cancelled == 1


def naive_cleaning_up() -> None:
    tasks = naive_models.Tasks()
    check_cleaning_up(tasks.add, tasks.cleanup)


def check_cleaning_up(add: Callable[[Any], object], clean_up: Callable[[], object]) -> None:
    """The late task comes before the first one ends, and so before the cleanup returns."""
    first, late = Stubborn(), Future[Any]()
    add(first)

    def arrive() -> None:
        add(late)
        first.set_result(None)

    together(clean_up, arrive)
    assert late.cancelled(), "a task outlived the cleanup"


def waiting() -> None:
    registry = RunRegistry()
    check_waiting(registry.add, registry.wait_idle)


def naive_waiting() -> None:
    gate = naive_models.Gate()
    check_waiting(gate.add, gate.wait_idle)


def check_waiting(add: Callable[[Any], object], wait_idle: Callable[[], object]) -> None:
    first, second = Future[Any](), Future[Any]()
    add(first)
    add(second)
    together(wait_idle, lambda: first.set_result(None), lambda: second.set_result(None))


# -- the hand-off ----------------------------------------------------------------------------------


async def answer(calls: list[Any]) -> str:
    calls.append(asyncio.current_task())
    await asyncio.sleep(0)
    return "answer"


_OPTIONS = RunOptions(answer, adapt_graph(answer), name="answer")


class Bridge:
    """The real engine on a loop of its own, and every run that it let in."""

    def __init__(self, *, used: bool = False, room: int | None = None) -> None:
        with aside():
            self.engine = Engine(None, 2, room, "model")
            self.runs: list[Run] = []
            if used:
                self.submit()
                assert outcome(self.runs.pop()) == "answered"

    def make(self) -> Run:
        calls: list[Any] = []
        return Run(StreamMessage(calls), _OPTIONS, copy_context(), self.engine.inbox, None)

    def submit(self, run: Run | None = None) -> None:
        run = run or self.make()
        try:
            self.engine.hand_over(run)
        except (ClosedError, LoopUnavailableError):
            return
        self.runs.append(run)

    def clean_up(self) -> CleanupReport:
        return run_steps(cleanup_steps(self.engine, 5), self.engine.registry)

    def close(self) -> None:
        report = run_steps(close_steps(self.engine, 5, 5), self.engine.registry)
        assert not report.stuck, report
        self.engine.host.stopped.result(5)

    def end(self) -> None:
        """Every future is resolved, each function was called once at most, nothing is left."""
        with aside():
            self._end()

    def _end(self) -> None:
        self.close()
        for run in self.runs:
            assert outcome(run) in ("answered", "cancelled", "LoopUnavailableError"), run
            assert len(run.message.content) <= 1, "called twice"
        registry, inbox = self.engine.registry, self.engine.inbox
        assert registry.state == "closed", registry.snapshot()
        assert registry.statistics().submitted >= len(self.runs)
        assert not inbox._queue, inbox._queue
        assert inbox._drain_due is None
        loop: Any = self.engine.host.loop
        assert loop is None or not loop.complaints, loop.complaints
        self.engine.threads.shutdown(wait=False)


def outcome(run: Run) -> str:
    try:
        run.result(5)
    except CancelledError:
        return "cancelled"
    except Exception as error:
        return type(error).__name__
    return "answered"


def submitting() -> None:
    bridge = Bridge()
    together(bridge.submit, bridge.submit)
    with aside():
        assert [outcome(run) for run in bridge.runs] == ["answered"] * 2
    bridge.end()


def submitting_in_use() -> None:
    bridge = Bridge(used=True)
    bridge.submit()
    bridge.submit()
    assert [outcome(run) for run in bridge.runs] == ["answered"] * 2
    bridge.end()


def naive_submitting() -> None:
    loop: Any = asyncio.new_event_loop()
    visited: list[Any] = []

    def visit(item: Any) -> None:
        visited.append(item)
        if len(visited) == 2:
            loop.stop()

    handover = naive_models.Handover(loop, visit)
    together(loop.run_forever, lambda: handover.submit(1), lambda: handover.submit(2))


def cancelling() -> None:
    bridge = Bridge(used=True)
    run = bridge.make()
    together(lambda: bridge.submit(run), run.cancel)
    assert run.cancelled() or outcome(run) == "answered"
    bridge.end()


def naive_cancelling() -> None:
    job = naive_models.Job()
    together(job.start, job.cancel)
    stopped = job.task is not None and job.task.cancelled()
    assert stopped or not job.started, "it was cancelled, and runs on"


def stopping() -> None:
    bridge = Bridge(used=True)
    loop: Any = bridge.engine.host.loop
    together(bridge.submit, lambda: loop.call_soon_threadsafe(loop.stop))
    bridge.engine.host.stopped.result(5)
    bridge.end()


class Nothing:
    """An async iterable without items."""

    def __aiter__(self) -> Nothing:
        return self

    async def __anext__(self) -> object:
        raise StopAsyncIteration


def stopping_a_pull() -> None:
    bridge = Bridge(used=True, room=1)
    loop: Any = bridge.engine.host.loop
    ends: list[object] = []

    observer: Any = mock.Mock(on_error=ends.append, on_completed=lambda: ends.append(None))

    def subscribe() -> None:
        # Not by RxPY, which asks for the current thread: that is one of the search's.
        try:
            _AsyncPull(bridge.engine, None, Nothing(), observer).start()
        except (ClosedError, LoopUnavailableError) as error:
            ends.append(error)

    together(subscribe, lambda: loop.call_soon_threadsafe(loop.stop))
    bridge.engine.host.stopped.result(5)
    assert len(ends) == 1, f"the stream has {len(ends)} ends"
    bridge.end()


def naive_stopping() -> None:
    loop: Any = asyncio.new_event_loop()
    task = answer([])

    def submit() -> None:
        asyncio.run_coroutine_threadsafe(task, loop).result()

    try:
        together(loop.run_forever, lambda: loop.call_soon_threadsafe(loop.stop), submit)
    finally:
        task.close()


def closing_bridge() -> None:
    bridge = Bridge(used=True)
    together(bridge.submit, bridge.close)
    bridge.end()


def naive_closing_bridge() -> None:
    tasks = naive_models.Tasks()
    task: Future[Any] = Future()

    def close() -> None:
        for each in tasks.close():
            each.cancel()

    def submit() -> None:
        try:
            tasks.add(task)
        except RuntimeError:
            task.cancel()

    together(submit, close)
    assert task.done(), "its future is never resolved"


def cleaning_up_bridge() -> None:
    bridge = Bridge(used=True)
    reports: list[CleanupReport] = []
    together(bridge.submit, lambda: reports.append(bridge.clean_up()))
    assert not reports[0].stuck, f"named as stuck though its time was not over: {reports[0]}"
    bridge.end()


def resolving() -> None:
    future: SharedLockFuture[str] = SharedLockFuture(threading.RLock())
    told: list[str] = []
    future.add_done_callback(lambda _: told.append("told"))
    seen: list[str] = []
    won: list[bool] = []

    def read() -> None:
        try:
            seen.append(future.result())
        except CancelledError:
            seen.append("cancelled")

    def cancel() -> None:
        won.append(future.cancel())

    together(read, lambda: won.append(future.set_outcome("settled", None)), cancel)
    assert won.count(True) == 1, won
    assert told == ["told"], told
    assert seen == ["cancelled" if future.cancelled() else "settled"], seen


def naive_resolving() -> None:
    future = naive_models.Outcome()
    together(lambda: future.resolve("settled"), lambda: future.resolve("cancelled"))
    assert len(future.told) == 1, future.told


class Numbered:
    """A future with a number, by which the standard library hashes and locks it in a model.

    Instead of its address, which would make another schedule of each run of the model.
    """

    number: int

    def __hash__(self) -> int:
        return self.number


class Light(Numbered, SharedLockFuture[str]):
    def settle_or_set(self) -> None:
        self.set_outcome("settled", None)


class Stranger(Numbered, Future[str]):
    def settle_or_set(self) -> None:
        self.set_result("settled")


class Sharing(Numbered, naive_models.SharingFuture):
    def settle_or_set(self) -> None:
        self.set_result("settled")


@contextmanager
def numbered(*futures: Any) -> Iterator[None]:
    for number, future in enumerate(futures):
        future.number = number
    with mock.patch.object(_base, "id", hash, create=True):
        yield


def check_company(first: Any, last: Any) -> None:
    stranger = Stranger()
    done: list[int] = []

    def wait_for(*futures: Future[Any]) -> None:
        done.append(len(wait(futures).done))

    def resolve() -> None:
        for future in (first, stranger, last):
            future.settle_or_set()

    with numbered(first, stranger, last):
        together(lambda: wait_for(first, stranger), lambda: wait_for(stranger, last), resolve)
    assert done == [2, 2], done


def waiting_in_company() -> None:
    lock = threading.RLock()
    check_company(Light(lock), Light(lock))


def naive_waiting_in_company() -> None:
    condition = threading.Condition()
    check_company(Sharing(condition), Sharing(condition))


def taking_as_completed() -> None:
    lock = threading.RLock()
    futures = [Light(lock), Light(lock)]
    with aside():
        futures[1].cancel()  # which the standard library hears of when it is settled
    taken: list[Future[str]] = []
    with numbered(*futures):
        together(
            lambda: taken.extend(as_completed(futures)),
            *(future.settle_or_set for future in futures),
        )
    assert len(taken) == 2, taken
    assert set(taken) == set(futures), taken
    assert not any(len(future._waiters) for future in futures)


# Where the standard library waits for futures.
WAITING = ("concurrency/future", _base.__file__.removesuffix(".py"))


def competing_for_room() -> None:
    """One place; one submitter that waits for it, and the loop's own thread, which must not."""
    with aside():
        bridge = Bridge()
        admission = AdmissionLimiter(1, threading.RLock())
        first, second, third = (bridge.make() for _ in range(3))
        assert admission.acquire(first, may_block=False)
    got: list[bool] = []

    def on_the_loop() -> None:
        got.append(admission.acquire(third, may_block=False))
        if got[0]:
            admission.release(third)

    def submit() -> None:
        admission.acquire(second, may_block=True)
        admission.release(second)

    together(submit, on_the_loop, lambda: admission.release(first))
    assert admission.acquire(third, may_block=False), "a place was lost"


def naive_competing_for_room() -> None:
    room = naive_models.Room(1)

    def on_the_loop() -> None:
        if not room.full():
            room.enter(may_block=False)

    room.enter(may_block=False)

    def leave_and_enter() -> None:
        room.leave()
        room.enter(may_block=False)

    together(on_the_loop, leave_and_enter)


def dropping_at_the_start() -> None:
    """One place: its run is about to start, while the next one takes the place from it."""
    with aside():
        bridge = Bridge()
        admission = AdmissionLimiter(1, threading.RLock(), "drop_oldest")
        first, second = bridge.make(), bridge.make()
        assert admission.claim(first) is None
        admission.expose(first)
    dropped: list[Run | None] = []
    starts: list[bool] = []
    together(
        lambda: dropped.append(admission.claim(second)),
        lambda: starts.append(admission.release(first)),
    )
    assert starts != [dropped[0] is first], "it is dropped, and starts"
    assert admission.release(second)


def naive_dropping_at_the_start() -> None:
    job = naive_models.Droppable()
    together(job.start, job.drop)
    assert not (job.dropped and job.started), "it is dropped, and starts"


REGISTRY = ("registry", "bridge/run_registry", "concurrency/threads")
HANDOFF = ("bridge/inbox", "bridge/loops")
Model = tuple[Callable[[], None], tuple[str, ...], int]
# What is searched, the modules whose lines are places to switch, and with how many preemptions:
# as many as take a few seconds.
MODELS: dict[str, Model] = {
    "adding, ending and looking": (adding_and_looking, REGISTRY, 1),
    "a task that ends while it is discarded": (leaving_twice, REGISTRY, 2),
    "adding and closing": (closing, REGISTRY, 2),
    "adding and cleaning up": (cleaning_up, REGISTRY, 2),
    "waiting for the end of the last task": (waiting, REGISTRY, 1),
    "resolving, cancelling and waiting": (resolving, ("concurrency/future",), 1),
    "waiting beside an executor's future": (waiting_in_company, ("concurrency/future",), 1),
    "taking futures as they are completed": (taking_as_completed, WAITING, 1),
    "room, and the loop's own thread": (competing_for_room, ("bridge/admission",), 1),
    "dropping a run that is about to start": (
        dropping_at_the_start,
        ("bridge/admission", "bridge/overflow"),
        2,
    ),
    "first submitting from two threads": (submitting, ("bridge/loops",), 1),
    "submitting while the drain ends": (submitting_in_use, ("bridge/inbox",), 2),
    "submitting and cancelling": (cancelling, HANDOFF, 1),
    "submitting and the stop of the loop": (stopping, HANDOFF, 1),
    "pulling and the stop of the loop": (stopping_a_pull, ("bridge/operators/pull",), 1),
    "submitting and closing the bridge": (closing_bridge, HANDOFF, 1),
    "submitting and cleaning up the bridge": (cleaning_up_bridge, (*HANDOFF, "bridge/shutdown"), 1),
}
CONTROLS: dict[str, Model] = {
    "clearing a set out": (clearing_out, (), 2),
    "leaving a set if one is in it": (naive_leaving_twice, (), 2),
    "closing after a look at a set": (naive_closing, (), 2),
    "list(tasks), wait, subtract": (naive_cleaning_up, (), 2),
    "an event that says that a set is empty": (naive_waiting, (), 1),
    "a future without a lock": (naive_resolving, (), 1),
    "futures that share a condition": (naive_waiting_in_company, (), 2),
    "looking for room, then entering": (naive_competing_for_room, (), 2),
    "looking whether a run has started": (naive_dropping_at_the_start, (), 2),
    "a flag that says that a drain is due": (naive_submitting, (), 2),
    "cancelling through a task if there is one": (naive_cancelling, (), 1),
    "run_coroutine_threadsafe and a stop": (naive_stopping, (), 1),
    "cancelling what a set holds, then refusing": (naive_closing_bridge, (), 1),
}
