"""What a signal handler or a finalizer does while its own thread is inside a bridge."""

from __future__ import annotations

import builtins
import gc
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

from reactivex.subject import Subject

from rxlanggraph import RxPyLangGraphBridge, registry
from rxlanggraph.bridge import admission, bridge, engine, inbox, loops, run, shutdown
from rxlanggraph.bridge.operators import subscription
from rxlanggraph.concurrency import future, threads
from rxlanggraph.errors import BridgeClosedError
from rxlanggraph.rx import serialized_observer
from rxlanggraph.testing import LeakCheck
from support.bridge import work
from support.concurrency.entering import Enterable, one_by_one, raise_everywhere
from support.concurrency.leftovers import LoopThread
from support.concurrency.tasks import PATIENCE

__all__ = ["ADOPTED", "ENTERABLES", "raise_in_bridge"]

_T = TypeVar("_T", bound="Used | Interrupted")

_MODULES = (
    admission,
    bridge,
    engine,
    future,
    inbox,
    loops,
    registry,
    run,
    shutdown,
    threads,
)
FILES = {str(module.__file__) for module in _MODULES}
STREAM_FILES = {str(module.__file__) for module in (serialized_observer, subscription)}
# Seconds that a cleanup waits. It waits in vain where its own thread, below the handler, holds
# what the loop needs to go on: there it only has to come back, and all has to end after that.
_WAIT = 0.05


class Used:
    """A bridge, and every future that it gave."""

    def __init__(self) -> None:
        self.bridge = RxPyLangGraphBridge()
        self.futures: list[Future[Any]] = []

    def hand_over(self) -> None:
        try:
            future = self.bridge.create_future_task(work.answer, len(self.futures))
        except BridgeClosedError:
            assert self.bridge.registry.state != "open"
        else:
            self.futures.append(future)

    def cancel(self) -> None:
        future: Future[Any] = Future()
        try:
            future = self.bridge.create_future_task(work.answer, "to be cancelled")
        except BridgeClosedError:
            assert self.bridge.registry.state != "open"
        future.cancel()

    def clean_up(self) -> None:
        self.bridge.cleanup_tasks(_WAIT)

    def close(self) -> None:
        self.bridge.close(_WAIT, cancel_timeout=_WAIT)

    def check(self) -> None:
        hanging = wait(self.futures, PATIENCE).not_done
        assert not hanging, f"never resolved: {hanging}"
        loops = [thread for thread in self.threads() if thread.name.endswith("-loop")]
        assert len(loops) <= 1, loops
        assert self.bridge.registry.wait_idle(PATIENCE), self.bridge.registry.snapshot()
        self.bridge.close()
        for thread in loops:
            thread.join(PATIENCE)
        assert not self.threads(), self.threads()

    def threads(self) -> list[threading.Thread]:
        name = f"{self.bridge.name}-"
        return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


class UsedElsewhere(Used):
    """The same on an adopted loop, of another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere = LoopThread()
        self.bridge = RxPyLangGraphBridge(self.elsewhere.loop)

    def close_at_once(self) -> None:
        self.bridge.close(0, cancel_timeout=0)

    def check(self) -> None:
        self.bridge.close()
        for thread in self.threads():
            thread.join(PATIENCE)
        super().check()


ACTIONS: dict[str, Callable[[Used], None]] = {
    "hands over": Used.hand_over,
    "cancels": Used.cancel,
    "cleans up": Used.clean_up,
    "closes": Used.close,
    "handing over": Used.hand_over,
    "cancelling a future": Used.cancel,
    "cleaning up": Used.clean_up,
    "closing": Used.close,
}


def _make_used(make: Callable[[], _T], used: bool) -> _T:
    made = make()
    if used:
        work.loop_of(made.bridge)
    return made


def _discard(made: Used | Interrupted) -> None:
    made.bridge.close(0, cancel_timeout=1)
    if isinstance(made, UsedElsewhere):
        made.elsewhere.stop()


ENTERABLES = {
    used: Enterable(
        files=FILES,
        make=lambda _, used=used: _make_used(Used, used),
        discard=_discard,
        operations=ACTIONS,
        entries={name: (action, Used.check) for name, action in ACTIONS.items()},
    )
    for used in (True, False)
}
# With the standard library's own: its locks are not all reentrant.
ADOPTED = Enterable(
    files={str(module.__file__) for module in (loops, threading)},
    make=lambda _: _make_used(UsedElsewhere, used=True),
    discard=_discard,
    operations={"closing": UsedElsewhere.close_at_once},
    entries={"closes": (UsedElsewhere.close_at_once, UsedElsewhere.check)},
)


class Interrupted:
    """A bridge whose submitter gets an exception in the middle of it."""

    def __init__(self, max_pending: int | None = None) -> None:
        self.bridge = RxPyLangGraphBridge(max_pending=max_pending)

    def hand_over(self) -> None:
        self.bridge.create_future_task(work.answer, 0)

    def cancel(self) -> None:
        self.bridge.create_future_task(work.answer, 0).cancel()

    def check(self) -> None:
        registry = self.bridge.registry
        assert registry.wait_idle(PATIENCE), registry.snapshot()
        for number in range(3):  # more than there is room for, if any of it was lost
            work.answer_of(self.bridge.create_future_task(work.answer, number))
        assert not self.bridge._engine.admission._holders
        self.bridge.close()
        threads = [each for each in threading.enumerate() if each.name.startswith(self.bridge.name)]
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), thread


class InterruptedStream(Interrupted):
    """The same for the source of a stream."""

    def __init__(self, *, ordered: bool = False) -> None:
        super().__init__(max_pending=1)
        self.source: Subject[Any] = Subject()
        self.ended = threading.Event()
        self.source.pipe(self.bridge.invoke(work.answer, ordered=ordered)).subscribe(
            on_error=lambda _: self.ended.set(), on_completed=self.ended.set
        )

    def send(self) -> None:
        self.source.on_next(0)

    def check(self) -> None:
        self.source.on_completed()
        assert self.ended.wait(PATIENCE), "the stream does not end"
        super().check()


_INTERRUPTED: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "handing over": (Interrupted, Interrupted.hand_over),
    "handing over with max_pending": (partial(Interrupted, max_pending=1), Interrupted.hand_over),
    "cancelling a future": (Interrupted, Interrupted.cancel),
    "a message of a stream": (InterruptedStream, InterruptedStream.send),
    "a message of an ordered stream": (
        partial(InterruptedStream, ordered=True),
        InterruptedStream.send,
    ),
}


def raise_in_bridge(exception: type[BaseException], inside: str, *, used: bool) -> int:
    """Go through all places of ``inside``, and raise ``exception`` there.

    Returns:
        How many places there were.
    """
    make_one, operation = _INTERRUPTED[inside]
    # A coroutine or a loop is made and stored in two steps of the interpreter: an exception
    # between them leaves one that cannot be closed.
    with (
        one_by_one(partial(_make_used, make_one, used), _discard) as make,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        places = raise_everywhere(
            FILES | STREAM_FILES,
            exception,
            make=make,
            operation=operation,
            check=lambda interrupted: interrupted.check(),
        )
        gc.collect()
    return places


def main(exception: str, inside: str, used: str) -> None:
    with LeakCheck():
        print(raise_in_bridge(getattr(builtins, exception), inside, used=used == "True"))


if __name__ == "__main__":
    main(*sys.argv[1:])
