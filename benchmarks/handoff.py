"""Handing an empty coroutine from threads to the loop, and having its result back.

A sample is a burst: every thread hands over its share, then all wait until the last future is
resolved. Hand-over, run and resolution are all in the figure: a hand-over that is quick because
it leaves the work for later would gain nothing by it.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from .harness import DEADLINE, Ratio, empty, paired
from .peers import PEERS, Peer

BURST = 5_000


def burst(peer: Peer, threads: int, count: int) -> None:
    """Hand `count` empty coroutines over from so many threads; wait for every result."""
    share = count // threads
    results: list[list[Future[Any]]] = [[] for _ in range(threads)]
    together = threading.Barrier(threads)

    def hand_over(mine: list[Future[Any]]) -> None:
        submit = peer.submit
        together.wait(DEADLINE)
        mine.extend([submit(empty, None) for _ in range(share)])

    others = [threading.Thread(target=hand_over, args=(mine,)) for mine in results[1:]]
    for thread in others:
        thread.start()
    hand_over(results[0])
    for thread in others:
        thread.join(DEADLINE)
    for mine in results:
        for future in mine:
            future.result(DEADLINE)


def ratio(peer: str, threads: int, *, pairs: int = 11, count: int = BURST) -> Ratio:
    """The bridge's hand-over, tracked, over that of a peer."""
    with ExitStack() as stack:
        ours = stack.enter_context(PEERS["bridge"]())
        theirs = stack.enter_context(PEERS[peer]())
        return paired(
            lambda: burst(ours, threads, count),
            lambda: burst(theirs, threads, count),
            pairs=pairs,
            items=count,
        )


class HandOff:
    """Seconds for a burst, by peer and by number of threads."""

    params = (["bridge", "plain-asyncio", "bare-fix", "portal", "pool"], [1, 4])
    param_names = ("peer", "threads")
    timeout = 300
    number = 1
    warmup_time = 0

    def setup(self, peer: str, threads: int) -> None:
        self.peer = PEERS[peer]()
        self.peer.__enter__()
        burst(self.peer, threads, BURST)

    def teardown(self, peer: str, threads: int) -> None:
        self.peer.close()

    def time_burst(self, peer: str, threads: int) -> None:
        burst(self.peer, threads, BURST)


class HandOffRatio:
    """The bridge over each peer, in pairs."""

    params = (["plain-asyncio", "bare-fix", "portal", "pool"], [1, 4])
    param_names = ("peer", "threads")
    timeout = 600
    unit = "ratio"

    def track_burst(self, peer: str, threads: int) -> float:
        return ratio(peer, threads).value
