"""A program with a cluster of its own: it prints what it saw, as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.executors import RayExecutor
from support.executors import graphs

NAME = "support.executors.graphs:plain"
_LISTEN = "0A"


def descendants() -> list[int]:
    """The processes below this one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, below = [], [os.getpid()]
    while below:
        children = parents.get(below.pop(), [])
        found += children
        below += children
    return found


def listening(pids: list[int]) -> list[str]:
    """The addresses on which the processes listen."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):  # it has ended, or is closed
                target = str(link.readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                found.append(fields[1].partition(":")[0])
    return found


# As the kernel writes them: 127.0.0.1, and the same as an address of IPv6; ::1.
LOOPBACK = {
    "0100007F",
    "0000000000000000FFFF00000100007F",
    "00000000000000000000000001000000",
}


def unreachable() -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    executor = RayExecutor(NAME, workers=1, address=f"127.0.0.1:{port}")
    begun = monotonic()
    with RxPyLangGraphBridge(executor=executor) as bridge:
        error = bridge.create_future_task(graphs.plain, {"n": 1}).exception(60)
    return {"error": type(error).__name__, "says": str(error), "seconds": monotonic() - begun}


def folders() -> set[str]:
    return {str(each) for each in Path(tempfile.gettempdir()).glob("rxlg-ray-*")}


def own(*, wait: bool = False) -> dict[str, Any]:
    """Leaves the bridge open: it ends with the process."""
    before, signals = folders(), []
    signal.signal(signal.SIGTERM, lambda *_: signals.append("SIGTERM"))
    bridge = RxPyLangGraphBridge(executor=RayExecutor(NAME, workers=2))
    result = bridge.create_future_task(graphs.plain, {"n": 1}).result(60)
    pids = [os.getpid(), *descendants()]
    (folder,) = folders() - before
    if wait:
        # Ray's own agents of a node look for their parent every so often, for a minute.
        names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
        workers = [pid for pid, name in names.items() if b"Agent" not in name]
        print(json.dumps({"pids": workers, "folder": folder}), flush=True)
        sys.stdin.read()
    addresses = listening(pids)
    os.kill(os.getpid(), signal.SIGTERM)
    return {
        "n": result.content["n"],
        "pids": pids[1:],
        "listening": addresses,
        "elsewhere": [each for each in addresses if each not in LOOPBACK],
        "folder": folder,
        "signals": signals,
    }


def join(address: str) -> dict[str, Any]:
    executor = RayExecutor(NAME, workers=1, address=address, num_cpus=0.5)
    with RxPyLangGraphBridge(executor=executor) as bridge:
        result = bridge.create_future_task(graphs.plain, {"n": 1}).result(60)
    return {"n": result.content["n"], "elsewhere": result.content["pid"] != os.getpid()}


if __name__ == "__main__":
    does, *arguments = sys.argv[1:]
    if does == "join":
        told = join(*arguments)
    else:
        told = unreachable() if does == "unreachable" else own(wait=does == "wait")
    print(json.dumps(told))
