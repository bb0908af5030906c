"""A graph of several supersteps that keeps its threads in SQLite, and a program that runs it.

Each node notes in the file "runs" that it has run, and on what. The second one waits for the gate.

Usage: stages.py begin COUNT: run it on so many threads; on SIGTERM, close the bridge, and print
what each run came to. stages.py continue THREAD...: send None to these threads.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import operator
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

NODES = ("one", "two", "three", "inner", "last")


class Threads(SqliteSaver):
    """LangGraph's saver, which blocks, for a loop. AsyncSqliteSaver needs one when it is made."""

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def aput(self, *arguments: Any) -> Any:
        return await asyncio.to_thread(self.put, *arguments)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)


class State(TypedDict):
    """What is known of a number."""

    n: int
    log: Annotated[list[str], operator.add]


async def opened() -> None:
    """Wait until the gate is open; see the graph ``gated``."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    gate = os.open("gate", os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(gate, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(gate)
        os.close(gate)


def node(name: str) -> Any:
    async def run(state: State) -> dict[str, list[str]]:
        if name == "two":
            os.write(2, f"started on {state['n']}\n".encode())
            await opened()
        runs = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(runs, f"{state['n']}-{name}\n".encode())
        os.close(runs)
        return {"log": [f"{state['n']}-{name}"]}

    return run


def build(saver: Any) -> Any:
    inside = StateGraph(State).add_node("inner", node("inner"))
    inside.add_edge(START, "inner").add_edge("inner", END)
    builder = StateGraph(State)
    names = ["one", "two", "three", "sub", "last"]
    for name in names:
        builder.add_node(name, inside.compile() if name == "sub" else node(name))
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


database = sqlite3.connect("threads.sqlite", check_same_thread=False)
atexit.register(database.close)  # Python 3.14 complains of one that is left open
graph = build(Threads(database))


def begin(count: str) -> None:
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    bridge = RxPyLangGraphBridge(max_concurrency=2)
    runs = [
        bridge.create_future_task(graph, {"n": n}, thread_id=str(n), errors="emit")
        for n in range(1, int(count) + 1)
    ]
    asked.wait(60)
    closing = threading.Thread(target=report, args=(bridge,))
    closing.start()
    # The gate opens once those that are in the second node are asked: these come after them.
    assert {run.result(60).status for run in runs[2:]} == {"rejected"}
    os.write(2, b"draining\n")
    closing.join(60)


def report(bridge: RxPyLangGraphBridge) -> None:
    for run in bridge.close(60, drain_after=0).runs:
        each = {"thread_id": run.thread_id, "outcome": run.outcome, "begun": run.begun}
        print(json.dumps({**each, "checkpoint_id": run.checkpoint_id}), flush=True)


def go_on(*threads: str) -> None:
    with RxPyLangGraphBridge() as bridge:
        messages = [StreamMessage(None, thread) for thread in threads]
        for run in [bridge.create_future_task(graph, each) for each in messages]:
            result = run.result(60)
            print(json.dumps({"thread_id": result.thread_id, "log": result.content["log"]}))


if __name__ == "__main__":
    {"begin": begin, "continue": go_on}[sys.argv[1]](*sys.argv[2:])
