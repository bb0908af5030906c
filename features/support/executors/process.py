"""Programs with workers of Ray: each prints what it saw, as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.executors import RayExecutor
from support.executors import graphs
from support.executors.meeting import Meeting

NAME = "support.executors.graphs:plain"
# Seconds: as in `world`, and shorter, so that what went wrong is told.
LIMIT = 150.0
ray_executor = partial(RayExecutor, start_timeout=LIMIT - 20)
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
    signals: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: signals.append("SIGTERM"))
    bridge = RxPyLangGraphBridge(executor=ray_executor(NAME, workers=2))
    result = bridge.create_future_task(graphs.plain, {"n": 1}).result(LIMIT)
    pids = [os.getpid(), *descendants()]
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids}
    words = b" ".join(names.values())
    (folder,) = [each for each in folders() if each.encode() in words]  # others may have one, too
    if wait:
        # Ray's own agents of a node look for their parent every so often, for a minute.
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
    executor = ray_executor(NAME, workers=1, address=address, num_cpus=0.5)
    with RxPyLangGraphBridge(executor=executor) as bridge:
        result = bridge.create_future_task(graphs.plain, {"n": 1}).result(LIMIT)
    return {"n": result.content["n"], "elsewhere": result.content["pid"] != os.getpid()}


def error_of(call: Callable[[], Any]) -> str | None:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


def answer(bridge: RxPyLangGraphBridge) -> int:
    number: int = bridge.create_future_task(graphs.plain, {"n": 1}).result(LIMIT).content["n"]
    return number


def in_child(does: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """What a forked child tells of ``does``, and its exit status; it ends as programs do."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks with threads
        child = os.fork()
    if not child:
        with open(writer, "w") as stream:
            json.dump(does(), stream)
        sys.exit(7)
    os.close(writer)
    with open(reader) as stream:
        told = json.load(stream)
    killer = threading.Timer(30, os.kill, (child, signal.SIGKILL))
    killer.start()
    _, status = os.waitpid(child, 0)
    killer.cancel()
    return told, os.waitstatus_to_exitcode(status)


def forking() -> dict[str, Any]:
    bridge = RxPyLangGraphBridge(executor=ray_executor(NAME, workers=1))
    answer(bridge)

    def use() -> dict[str, Any]:
        begun = monotonic()
        errors = [error_of(partial(answer, bridge))]
        bridge.close()
        with RxPyLangGraphBridge(executor=ray_executor(NAME, workers=1)) as another:
            errors.append(error_of(partial(answer, another)))
        return {"errors": errors, "seconds": monotonic() - begun}

    told, status = in_child(use)
    told |= {"status": status, "n": answer(bridge)}
    bridge.close()
    return told


def forking_first() -> dict[str, Any]:
    bridge = RxPyLangGraphBridge(executor=ray_executor(NAME, workers=1))

    def use() -> dict[str, Any]:
        import ray

        number = answer(bridge)
        bridge.close()
        return {"n": number, "connected": ray.is_initialized()}

    told, status = in_child(use)
    return {**told, "status": status}


def shutting_down() -> dict[str, Any]:
    import ray

    executor = ray_executor("support.executors.graphs:meeting", workers=1)
    bridge = RxPyLangGraphBridge(executor=executor)
    with Meeting() as meeting:
        send = partial(bridge.create_future_task, graphs.meeting)
        run = send({"n": 0, "port": meeting.port})
        meeting.wait_for(1)
        ray.shutdown()
        error = error_of(partial(run.result, LIMIT))
        run = send({"n": 1, "port": meeting.port})
        (guest,) = meeting.wait_for(1)
        guest.tell()
        number = run.result(LIMIT).content["n"]
    bridge.close()
    return {"error": error, "n": number, "connected": ray.is_initialized()}


def surviving(address: str) -> dict[str, Any]:
    """Tell that a run is in flight; what became of it, and of the next one; then try until told."""
    executor = ray_executor(
        "support.executors.graphs:meeting", workers=1, address=address, num_cpus=0.5
    )
    with RxPyLangGraphBridge(executor=executor) as bridge, Meeting() as meeting:
        send = partial(bridge.create_future_task, graphs.meeting)
        run = send({"n": 0, "port": meeting.port})
        meeting.wait_for(1)
        print("begun", flush=True)
        errors = [error_of(partial(run.result, LIMIT))]
        run = send({"n": 1, "port": meeting.port})
        errors.append(error_of(partial(run.result, LIMIT)))
        print("over", flush=True)
        sys.stdin.readline()  # there is another cluster, and Ray's time is over
        run = send({"n": 2, "port": meeting.port})
        (guest,) = meeting.wait_for(1)
        guest.tell()
        return {"errors": errors, "n": run.result(LIMIT).content["n"]}


def spread(address: str) -> dict[str, Any]:
    """Tell the processes of four runs in flight on two nodes; then what became of these runs."""
    executor = ray_executor(
        "support.executors.graphs:meeting",
        workers=2,
        calls_per_worker=2,  # so that each node has two, however late it starts its worker
        address=address,
        retries=1,
    )
    with RxPyLangGraphBridge(executor=executor) as bridge, Meeting() as meeting:
        content = {"port": meeting.port}
        make = partial(bridge.create_future_task, graphs.meeting)
        runs = [make({"n": n, **content}) for n in range(4)]
        guests = meeting.wait_for(4)
        print(json.dumps([guest.pid for guest in guests]), flush=True)
        lost = set(map(int, sys.stdin.readline().split()))
        for guest in guests:
            if guest.pid not in lost:
                guest.tell()
        for guest in meeting.wait_for(sum(guest.pid in lost for guest in guests)):
            guest.tell()
        results = [run.result(LIMIT).content for run in runs]
        return {
            "numbers": [result["n"] for result in results],
            "lost": sum(result["pid"] in lost for result in results),
        }


PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {
    "join": join,
    "unreachable": unreachable,
    "own": own,
    "wait": partial(own, wait=True),
    "forking": forking,
    "forking first": forking_first,
    "shutting down": shutting_down,
    "surviving": surviving,
    "spread": spread,
}

if __name__ == "__main__":
    does, *arguments = sys.argv[1:]
    print(json.dumps(PROGRAMS[does](*arguments)))
