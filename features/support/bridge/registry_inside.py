"""What a signal handler, a finalizer or an interruption does while a registry is being used."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from typing import Any

import rxlanggraph
from rxlanggraph import registry
from rxlanggraph.bridge import run_registry
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.concurrency import threads
from rxlanggraph.errors import RegistryClosedError
from support.cli.command import DEADLINE
from support.concurrency.entering import Enterable, Way, enter_everywhere
from support.concurrency.tasks import PATIENCE

__all__ = ["ENTERABLE", "FILES", "Storm", "import_alone", "lost_by_closing"]

FILES = {str(each.__file__) for each in (registry, run_registry, threads)}


class Known:
    """A registry, and all that should be in it."""

    def __init__(self) -> None:
        self.registry = RunRegistry()
        self.first: Future[Any] = Future()
        self.second: Future[Any] = Future()
        self.third: Future[Any] = Future()
        self.idle: list[bool] = []
        for task in (self.first, self.second):
            self.registry.add(task)
        self.added = 2
        self.withdrawn = 0

    def add(self, task: Future[Any]) -> None:
        try:
            self.registry.add(task)
        except RegistryClosedError:
            assert self.registry.state != "open"
        else:
            self.added += 1

    def withdraw(self) -> None:
        self.registry.discard(self.first)
        self.withdrawn += 1

    def leave(self) -> None:
        self.registry.leave(self.first, "failed", lambda *_: self.first.cancel())

    def end_all(self) -> None:
        self.registry._wait_begins(lambda: self.idle.append(True))
        self.first.set_result(None)
        self.second.set_exception(ValueError())

    def use_everything(self) -> None:
        registry, task, ended = self.registry, Future[Any](), Future[Any]()
        ended.set_result(None)
        self.add(ended)
        assert ended not in registry
        self.add(task)
        sweep = registry.begin_sweep()
        assert sweep.begun.in_flight == len(registry) == len(registry.snapshot())
        assert len(registry.tasks()) == sweep.begun.in_flight
        registry.end_sweep(sweep)
        registry.wait_idle(0)
        assert registry.statistics().peak_in_flight >= len(registry)
        if task in registry:
            registry.discard(ended)

    def check(self) -> None:
        seen = self.registry.statistics()
        infos = self.registry.snapshot()
        ended = seen.succeeded + seen.failed + seen.cancelled
        assert seen.submitted == self.added, (seen, self.added)
        assert seen.in_flight == seen.submitted - ended - self.withdrawn, seen
        assert seen.in_flight == len(self.registry) == len(infos) <= seen.peak_in_flight, seen
        assert len({info.id for info in infos}) == len(infos), infos
        pending = [task for task in self.registry.tasks() if task.done()]
        assert not pending, pending
        for task in self.registry.tasks():
            task.set_result(None)
        assert self.registry.wait_idle(0)
        assert self.registry.state in ("open", "closed")
        assert not self.registry._leaving
        assert not self.registry._idle_waiters


ENTERABLE = Enterable(
    files=FILES,
    make=lambda _: Known(),
    discard=lambda known: known.registry.cancel_all(),
    entries={"uses all of it": (Known.use_everything, Known.check)},
    operations={
        "adding a task": lambda known: known.add(known.third),
        "ending a task": lambda known: known.first.set_result(None),
        "discarding a task": Known.withdraw,
        "saying that a task ended": Known.leave,
        "taking a snapshot": lambda known: known.registry.snapshot(),
        "listing the tasks": lambda known: known.registry.tasks(),
        "counting the tasks": lambda known: len(known.registry),
        "looking for a task": lambda known: known.first in known.registry,
        "reading the state": lambda known: known.registry.state,
        "reading the statistics": lambda known: known.registry.statistics(),
        "closing": lambda known: known.registry.close(),
        "cancelling everything": lambda known: known.registry.cancel_all(),
        "cancelling what is chosen": lambda known: known.registry.cancel(lambda _: True),
        "sweeping": lambda known: known.registry.end_sweep(known.registry.begin_sweep()),
        "waiting until idle": lambda known: known.registry.wait_idle(0.0),
        "the end of the last task": Known.end_all,
    },
)


def lost_by_closing(make: Callable[[], Any], way: Way, files: set[str]) -> list[int]:
    """Enter at each place of closing, and add: at which was the task neither refused nor seen?"""
    lost: list[int] = []
    places = iter(range(1, 1_000_000))

    class Case:
        def __init__(self) -> None:
            self.registry = make()
            self.registry.add(Future())
            self.seen: tuple[Any, ...] = ()
            self.added = 1

        def close(self) -> None:
            self.seen = self.registry.close()

        def enter(self) -> None:
            try:
                self.registry.add(Future())
            except RuntimeError:
                return
            self.added += 1

        def check(self) -> None:
            place = next(places)
            if len(self.seen) != self.added:
                lost.append(place)

    enter_everywhere(
        files, way, make=Case, operation=Case.close, entry=Case.enter, check=Case.check
    )
    return lost


class _Allocating(Future[Any]):
    """Allocates in its hash, which is asked for under the lock: the only place on Python 3.14."""

    def __hash__(self) -> int:
        return hash(tuple([] for _ in range(4)) and id(self))


class Storm:
    """Interruptions that add a task whenever they come, until enough of them came from inside."""

    def __init__(self, registry: RunRegistry) -> None:
        self.added = 0
        self.inside = 0  # how many came while their thread held the registry's lock
        self._registry = registry
        self._entered = False

    def by_alarms(self, count: int) -> None:
        before = signal.signal(signal.SIGALRM, lambda *_: self._enter())
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        try:
            self._work(count, lambda _: None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def by_collections(self, count: int) -> None:
        enter = self._enter
        chance = random.Random(7105)

        class Garbage:
            def __init__(self, _: int) -> None:
                # By chance, or the collections would come at the same few places forever.
                gc.set_threshold(chance.randint(3, 42))
                self.itself = [self, *([] for _ in range(chance.randrange(8)))]

            def __del__(self) -> None:
                enter()

        before = gc.get_threshold()
        try:
            self._work(count, Garbage)
        finally:
            gc.set_threshold(*before)
            gc.collect()

    def _enter(self) -> None:
        if self._entered:
            return
        self._entered = True
        self.inside += self._registry._lock._is_owned()
        self._one()
        self._entered = False

    def _one(self) -> None:
        task = _Allocating()
        self._registry.add(task)
        self._registry.snapshot()
        self._registry.tasks()  # allocates under the lock what the collector counts
        self._registry.statistics()
        task.set_result(None)
        self.added += 1

    def _work(self, count: int, litter: Callable[[int], object]) -> None:
        deadline = monotonic() + PATIENCE
        while self.inside < count:
            assert monotonic() < deadline, f"only {self.inside} came from inside"
            for number in range(100):
                litter(number)
                self._one()


# -S leaves out site-packages; the stub stands for the package without its front door.
_ALONE = """
import importlib, sys, types
package = types.ModuleType("rxlanggraph")
package.__path__ = [sys.argv[1]]
sys.modules["rxlanggraph"] = package
for name in sys.argv[2:]:
    importlib.import_module("rxlanggraph." + name)
foreign = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
foreign -= {"rxlanggraph", "__main__", "__mp_main__"}
ours = {name for name in sys.modules if name.startswith("rxlanggraph.")}
assert not foreign, foreign
parts = ("clock", "forking", "threads", "user_code")
known = ("errors", "validation", "concurrency", *(f"concurrency.{part}" for part in parts))
assert ours <= {"rxlanggraph." + name for name in (*known, *sys.argv[2:])}, ours
"""


def import_alone(*modules: str) -> subprocess.CompletedProcess[str]:
    package = str(Path(rxlanggraph.__file__).parent)
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", _ALONE, package, *modules],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
