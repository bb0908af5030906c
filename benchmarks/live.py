"""What the live page costs: a bridge that has one beside one that has none, on the same graph.

Both work as fast as they can. The page is watched by one client, in a process of its own, which
reads all events; its connection is made before the measurement begins.
"""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rxlanggraph.live.server import served

from .bridge import contents
from .harness import Ratio, in_turns, one_node_graph, paired, told
from .peers import Bridge

#: Whether anybody watches, and whether the page is told of each node.
WAYS = ("not watched", "watched", "watched, with nodes")
#: Reads events for as long as it lives, after it has said that there is one.
CLIENT = """
import sys
from urllib.request import Request, urlopen

events = urlopen(Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]}))
for line in events:
    if line.startswith(b"data:"):
        print(len(line), flush=True)
        break
while events.read1():
    pass
"""


@contextmanager
def watching(url: str, token: str) -> Iterator[None]:
    """A client that reads the events, for the length of a block."""
    command = [sys.executable, "-c", CLIENT, url, token]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        try:
            yield
        finally:
            client.kill()


def cpu_ratio(way: str, *, messages: int = 4_000, pairs: int = 7) -> Ratio:
    """The CPU time of a bridge with a page over that of one without."""
    graph, inputs = one_node_graph(), contents(messages)
    with ExitStack() as stack:
        ours = stack.enter_context(Bridge())
        peer = stack.enter_context(Bridge())
        app = ours.bridge.live_app(nodes=way == "watched, with nodes")
        stack.callback(app.close)
        if way == "not watched":
            few = contents(500)
            return in_turns(
                lambda: ours.stream(graph, few),
                lambda: peer.stream(graph, few),
                pairs=pairs,
                turns=20,
                items=len(few),
            )
        listener = socket.create_server(("127.0.0.1", 0))
        stack.enter_context(served(app, listener))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/events"

        def watched() -> float:
            with watching(url, app.token):
                return cpu_seconds(lambda: ours.stream(graph, inputs))

        return paired(
            watched,
            lambda: cpu_seconds(lambda: peer.stream(graph, inputs)),
            pairs=pairs,
            items=messages,
            clock=told,
        )


def cpu_seconds(work: Callable[[], object]) -> float:
    """Run `work` and return the CPU seconds of all threads meanwhile."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


class LiveRatio:
    """A bridge with a page over one without, in CPU time."""

    params = list(WAYS)
    param_names = ("way",)
    timeout = 600
    unit = "ratio"

    def track_cpu(self, way: str) -> float:
        return cpu_ratio(way).value
