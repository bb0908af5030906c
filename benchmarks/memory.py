"""Memory: what a run in flight takes, and what is left behind when very many have passed."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from .cleanup import RUNS, Waiting
from .harness import empty
from .peers import Bridge

#: Messages in one stream: what came before is gone when the next begins.
PORTION = 10_000


def bytes_in_flight(peer: str, runs: int = RUNS) -> float:
    """Bytes that Python holds for each run which has started and waits."""
    with ExitStack() as stack:
        waiting = Waiting(peer, stack)
        waiting.create_and_clean_up()  # what is made once is made before the count
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            waiting.create(runs)
            waiting._all_started()
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        waiting.clean_up()
    return held / runs


@dataclass(frozen=True, slots=True)
class Growth:
    """What was left after so many messages: blocks of Python's allocator, bytes of the process."""

    messages: int
    blocks: int
    resident: int | None

    @property
    def blocks_per_thousand(self) -> float:
        return self.blocks * 1_000 / self.messages


def growth(messages: int, target: Any = empty) -> Growth:
    """Pass so many messages through one bridge, in portions, and count what stays."""
    inputs: list[dict[str, int]] = [{"n": n} for n in range(PORTION)]
    with Bridge() as ours:
        for _ in range(3):  # pools and caches fill first
            ours.stream(target, inputs)
        blocks, resident = _now()
        for _ in range(max(1, messages // PORTION)):
            ours.stream(target, inputs)
        blocks_after, resident_after = _now()
    grown = None if resident is None or resident_after is None else resident_after - resident
    return Growth(max(messages, PORTION), blocks_after - blocks, grown)


def _now() -> tuple[int, int | None]:
    gc.collect()
    return sys.getallocatedblocks(), _resident()


def _resident() -> int | None:
    """Bytes of this process in memory, where the system says so in `/proc`."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            pages = int(statm.read().split()[1])
    except OSError:
        return None
    import resource

    return pages * resource.getpagesize()


class InFlight:
    """Bytes for each run in flight, by peer."""

    params = ["bridge", "bare-fix"]
    param_names = ("peer",)
    timeout = 300
    unit = "bytes"

    def track_bytes(self, peer: str) -> float:
        return bytes_in_flight(peer)


class AfterMany:
    """What 100,000 messages leave behind (a million: `python -m benchmarks.ratios --million`)."""

    timeout = 600
    unit = "blocks"

    def track_blocks_per_thousand_messages(self) -> float:
        return growth(100_000).blocks_per_thousand
