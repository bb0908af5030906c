"""A future's whole life in the registry, and how long a snapshot holds the lock.

A life is: added with its name, done, its callback run, discarded. The futures are made beforehand,
as theirs is a cost that both sides share. The bare fix (a set, and a lock around each change of it)
keeps no names, ages or counters, and cannot be sealed or waited for.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from rxlanggraph import TaskRegistry

from .harness import Ratio, paired
from .peers import BareSet

LIVES = 10_000
#: How many lives overlap: as many as are in flight in a busy bridge.
OVERLAP = 100


def lives(registry: Any, count: int, options: dict[str, str]) -> float:
    """Take `count` futures through their lives; return the seconds spent in them alone."""
    spent = 0.0
    add = registry.add
    for _ in range(count // OVERLAP):
        futures: list[Future[None]] = [Future() for _ in range(OVERLAP)]
        start = time.perf_counter()
        for future in futures:
            add(future, **options)
        for future in futures:
            future.set_result(None)
        spent += time.perf_counter() - start
    return spent


def populate(entries: int, *registries: Any) -> list[Future[None]]:
    """Put the same unfinished futures into each registry: a million take over a gigabyte."""
    futures: list[Future[None]] = [Future() for _ in range(entries)]
    for registry in registries:
        for future in futures:
            registry.add(future)
    return futures


def life_ratio(
    entries: int, *, pairs: int = 15, count: int = LIVES, name: str | None = "x"
) -> Ratio:
    """A life in the registry over one in the bare fix, both with so many entries besides."""
    ours, bare = TaskRegistry(), BareSet()
    futures = populate(entries, ours, bare)
    options = {} if name is None else {"name": name}
    result = paired(
        lambda: lives(ours, count, options),
        lambda: lives(bare, count, {}),
        pairs=pairs,
        items=count,
        clock=_own_clock,
    )
    del futures
    return result


def _own_clock(work: Any) -> float:
    seconds: float = work()
    return seconds


class WatchedLock:
    """Stands in for a lock and notes how long the longest outermost hold of it took."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._depth = 0  # changed by the holder alone
        self._since = 0.0
        self.longest = 0.0

    def acquire(self, *args: Any, **options: Any) -> bool:
        taken: bool = self._lock.acquire(*args, **options)
        if taken:
            self._depth += 1
            if self._depth == 1:
                self._since = time.perf_counter()
        return taken

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.longest = max(self.longest, time.perf_counter() - self._since)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def watch(registry: Any) -> WatchedLock:
    """Replace the registry's lock by a watched one (white box: the lock is `_lock`)."""
    watched = WatchedLock(registry._lock)
    registry._lock = watched
    return watched


def snapshot_hold(entries: int = 100_000, samples: int = 15) -> float:
    """Seconds for which one snapshot holds the lock: the median of the samples."""
    registry = TaskRegistry()
    futures = populate(entries, registry)
    watched = watch(registry)
    holds = []
    for _ in range(samples):
        watched.longest = 0.0
        registry.snapshot()
        holds.append(watched.longest)
    del futures
    return sorted(holds)[samples // 2]


class Life:
    """The life of a future, with so many entries besides, by peer."""

    params = (["registry", "bare-fix"], [10, 1_000, 100_000, 1_000_000])
    param_names = ("peer", "entries")
    timeout = 600
    number = 1
    warmup_time = 0

    def setup(self, peer: str, entries: int) -> None:
        self.registry: Any = TaskRegistry() if peer == "registry" else BareSet()
        self.options = {"name": "x"} if peer == "registry" else {}
        self.futures = populate(entries, self.registry)

    def time_lives(self, peer: str, entries: int) -> None:
        lives(self.registry, LIVES, self.options)


class LifeRatio:
    """The registry over the bare fix, in pairs, with so many entries besides."""

    params = ([10, 1_000, 100_000, 1_000_000],)
    param_names = ("entries",)
    timeout = 600
    unit = "ratio"

    def track_life(self, entries: int) -> float:
        return life_ratio(entries).value


class Snapshot:
    """A snapshot: how long it takes, and how long others are kept out."""

    params = ([10, 1_000, 100_000],)
    param_names = ("entries",)
    timeout = 300

    def setup(self, entries: int) -> None:
        self.registry = TaskRegistry()
        self.futures = populate(entries, self.registry)

    def time_snapshot(self, entries: int) -> None:
        self.registry.snapshot()

    def track_lock_held(self, entries: int) -> float:
        return snapshot_hold(entries)


Snapshot.track_lock_held.unit = "s"  # type: ignore[attr-defined]
