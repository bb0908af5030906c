"""Small concurrent programs in which one thread reads what another one removes at a run's end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from rxlanggraph.bridge.admission import AdmissionLimiter
from rxlanggraph.bridge.chunk_window import ChunkReader, ChunkWindow
from rxlanggraph.bridge.fenced_saver import RunFence
from rxlanggraph.bridge.hook_calls import Listener, ListenerSet, Observed
from rxlanggraph.bridge.run import Run, RunScope, run_scope
from rxlanggraph.errors import LaneLostError, LoopUnavailableError, RunDroppedError
from rxlanggraph.hooks import Hooks, RunEnded
from rxlanggraph.messages import Status
from support.bridge.models import Bridge, Model, together
from support.concurrency.explored import aside
from support.controls import naive_models

__all__ = ["CONTROLS", "MODELS"]


class Ending(Bridge):
    """A bridge without a loop, with one run that is about to be retired."""

    def __init__(self) -> None:
        super().__init__()
        with aside():
            self.run = self.make()
            registry = self.engine.registry
            with registry._lock:
                registry.insert(self.run, "answer", None, 0.0)
            self.run.scope = RunScope()
            self.run.scope.inbox, self.run.scope.run = self.run.inbox, self.run

    def retire(self, status: Status = "cancelled") -> None:
        self.engine._dispatcher.retire(self.run, self.run.unanswered(status))

    def drop(self) -> None:
        self.engine._evict(self.run)

    def counted(self) -> str:
        counters = self.engine.registry.statistics()
        assert counters.submitted == 1, counters
        return ["rejected", "ok", "cancelled"][
            [counters.dropped, counters.succeeded, counters.cancelled].index(1)
        ]


def cancelling_a_child() -> None:
    bridge = Ending()
    parent = bridge.make()
    bridge.run.parent = parent
    together(bridge.run.cancel, bridge.retire)
    assert bridge.run.done()
    assert bridge.run.parent is None


def naive_cancelling_a_child() -> None:
    child = naive_models.Child()
    together(child.cancel, child.end)


def ending_twice() -> None:
    """By the last of its threads, and by what has found that its loop is gone."""
    bridge = Ending()
    scope = bridge.run.scope
    bridge.run.timers = {"run": Timer()}  # type: ignore[dict-item]
    together(bridge.retire, bridge.retire)
    assert scope is not None and scope.run is None
    assert bridge.run.timers is None
    assert bridge.engine.registry.statistics().cancelled == 1


def ending_and_cancelling() -> None:
    check_counting(Ending(), cancelled=True)


def ending_and_dropping() -> None:
    check_counting(Ending(), cancelled=False)


def dropping_at_the_hand_over() -> None:
    """One place: its run is refused, as its loop is gone, while the next one takes the place."""
    with aside():
        bridge = Bridge(room=1)
        engine = bridge.engine
        engine.admission = AdmissionLimiter(1, engine.lock, "drop_oldest")
        engine.inbox.refuse(LoopUnavailableError("it is gone"))
        engine._started = True
        first, second = bridge.make(), bridge.make()
        assert engine.admission.claim(first) is None
        engine.admission.expose(first)
    dropped: list[Run] = []

    def take_the_place() -> None:
        loser = engine.admission.claim(second)
        if loser is not None:
            engine._evict(loser)
            dropped.append(loser)

    together(take_the_place, lambda: bridge.submit(first))
    counted = engine.registry.statistics().dropped
    assert counted == len(dropped), f"{len(dropped)} dropped, {counted} counted"


def check_counting(bridge: Any, *, cancelled: bool) -> None:
    run = bridge.run
    if cancelled:
        together(run.cancel, lambda: bridge.retire("ok"))
    else:
        run.rejection = RunDroppedError("another one has its room")
        together(bridge.drop, lambda: bridge.retire("ok"))
    outcome = "cancelled" if run.cancelled() else str(run.result_nowait().status)
    counted = bridge.counted()
    assert counted == outcome, f"it is {outcome}, and counted as {counted}"


def naive_ending_and_cancelling() -> None:
    check_counting(naive_models.Counted(), cancelled=True)


def adding_hooks_at_the_end() -> None:
    check_adding_hooks(others=False)


def adding_hooks_beside_others() -> None:
    check_adding_hooks(others=True)


def check_adding_hooks(*, others: bool) -> None:
    """Hooks that are added as a run ends are told of its end, or are not its hooks."""
    with aside():
        bridge, added = Ending(), Ends()
        listeners, observed = bridge.engine.listeners, None
        bridge.run.rejection = RunDroppedError("another one has its room")
        if others:
            observed = bridge.run.observed = Observed(ListenerSet((Listener(Ends()),)), 0.0)
        listener = listeners.add(added)
    together(lambda: listeners._add_to_runs(listener), bridge.drop)
    assert bridge.run.observed is None, "it keeps the hooks"
    if observed is not None:
        assert added.heard == (listener in observed.by.listeners), "they were not told"


class Ends(Hooks):
    def __init__(self) -> None:
        self.heard = 0

    def on_ended(self, event: RunEnded) -> None:
        self.heard += 1


class Timer:
    def cancel(self) -> None:
        """It is none."""


def saving_at_the_end() -> None:
    bridge, fence = Ending(), RunFence()
    lease = naive_models.Held()
    bridge.run.lease = lease
    context = copy_context()
    context.run(run_scope.set, bridge.run.scope)

    def save() -> None:
        with suppress(LaneLostError):
            context.run(fence.check)
            assert lease.looked_at, "it was saved without a look at the lease"

    together(save, bridge.retire)


def naive_saving_at_the_end() -> None:
    fenced = naive_models.Fenced()
    lease = fenced.lease

    def save() -> None:
        if fenced.may_save():
            assert lease is not None and lease.looked_at, "it was saved without a look at the lease"

    together(save, fenced.end)


def closing_a_reader() -> None:
    bridge = Bridge()
    run = bridge.make()
    window = ChunkWindow(threading.RLock(), 4)
    check_closing(ChunkReader(run, window, 0, "raise", owns_run=False))


def naive_closing_a_reader() -> None:
    check_closing(naive_models.Reader())


def check_closing(reader: Any) -> None:
    async def read() -> None:
        with suppress(StopAsyncIteration):
            await anext(reader)

    def close() -> None:
        with suppress(StopIteration):
            reader.aclose().send(None)

    together(lambda: asyncio.new_event_loop().run_until_complete(read()), close)


ENDS = ("bridge/dispatcher", "bridge/run")
COUNTING = ("bridge/dispatcher", "bridge/run", "registry")
MODELS: dict[str, Model] = {
    "cancelling a run while it ends": (cancelling_a_child, ENDS, 2),
    "counting a run that is cancelled at its end": (ending_and_cancelling, COUNTING, 2),
    "counting a run that is dropped at its end": (ending_and_dropping, COUNTING, 2),
    "the end of a run in two threads": (ending_twice, ("bridge/dispatcher",), 2),
    "saving while a lease is given back": (
        saving_at_the_end,
        ("bridge/dispatcher", "bridge/fenced_saver"),
        2,
    ),
    "dropping a run that is refused": (
        dropping_at_the_hand_over,
        ("bridge/engine", "bridge/admission"),
        1,
    ),
    "adding hooks as a run ends": (
        adding_hooks_at_the_end,
        ("bridge/listeners", "bridge/reports"),
        2,
    ),
    "adding hooks beside others as a run ends": (
        adding_hooks_beside_others,
        ("bridge/listeners", "bridge/reports"),
        2,
    ),
    "closing a reader that begins to wait": (
        closing_a_reader,
        ("bridge/chunk_window", "concurrency/waiters"),
        2,
    ),
}
CONTROLS: dict[str, Model] = {
    "a parent that is looked at, then told": (naive_cancelling_a_child, (), 1),
    "a run that is counted, then resolved": (naive_ending_and_cancelling, (), 1),
    "a lease that is looked for, then checked": (naive_saving_at_the_end, (), 1),
    "a reader that looks, then waits": (naive_closing_a_reader, (), 1),
}
