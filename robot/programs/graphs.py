"""Graphs for the command. Each says on standard error when it starts on a message."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import sys
import threading
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    """What is known of a number."""

    n: int
    double: NotRequired[int]
    seen: NotRequired[int]
    pid: NotRequired[int]


def starts_on(content: Any) -> None:
    # One write, so that the lines of several threads do not mix.
    os.write(2, f"started on {content['n']}\n".encode())


_asked = itertools.count(1)


def _most() -> float:
    try:
        return float(Path("most").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return math.inf


async def allowed() -> None:
    """Return at once as often as the file "most" says, and then once there is none."""
    number = next(_asked)
    while number > _most():  # noqa: ASYNC110 - another process removes the file
        await asyncio.sleep(0.01)


async def doubled(state: State) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"double": state["n"] * 2}


async def counted(state: State) -> dict[str, int]:
    seen = state.get("seen", 0)
    await asyncio.sleep(0)
    return {"seen": seen + 1}


def build(checkpointer: InMemorySaver | None = None) -> Any:
    builder = StateGraph(State)
    builder.add_node("doubled", doubled)
    builder.add_node("counted", counted)
    builder.add_edge(START, "doubled")
    builder.add_edge("doubled", "counted")
    builder.add_edge("counted", END)
    return builder.compile(checkpointer=checkpointer)


double = build()
remembering = build(InMemorySaver())


async def place(state: State) -> dict[str, int]:
    await asyncio.sleep(0.002)  # in the middle of which it can be killed
    return {"pid": os.getpid()}


placed = StateGraph(State).add_node("place", place).add_edge(START, "place").compile()


async def announced(content: Any) -> Any:
    """The number itself, once that it has started was said. For "most" see ``paced``."""
    starts_on(content)
    await allowed()
    return content["n"]


async def paced(content: Any) -> Any:
    """The number itself, after a moment; notes in the file "runs" that it has begun.

    With the file "most", as many of each process end as it says, the others once it is gone.
    """
    starts_on(content)
    runs = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(runs, f"{content['n']}\n".encode())
    os.close(runs)
    await asyncio.sleep(0.03)
    await allowed()
    return content["n"]


async def picky(content: Any) -> Any:
    """Twelve divided by the number; fails on 0, and on all that is not a number."""
    return 12 // content["n"]


async def gated(content: Any) -> Any:
    """The number itself, as soon as the gate is open."""
    starts_on(content)
    loop = asyncio.get_running_loop()
    opened = asyncio.Event()
    gate = os.open("gate", os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(gate, opened.set)  # it is not read: once open, it is so for all
    try:
        await opened.wait()
    finally:
        loop.remove_reader(gate)
        os.close(gate)
    return content["n"]


async def endless(content: Any) -> Any:
    """Nothing, ever."""
    starts_on(content)
    await asyncio.Event().wait()


def stuck(content: Any) -> Any:
    """Nothing, ever, in a thread that cannot be cancelled."""
    starts_on(content)
    threading.Event().wait()


async def even_only(content: Any) -> Any:
    """Even numbers at once; odd ones never."""
    if content["n"] % 2:
        await asyncio.Event().wait()
    return content["n"]


_last_of_ten: dict[int, asyncio.Event] = {}


async def first_waits_for_last(content: Any) -> Any:
    """The number itself; of each ten, the first has it only once the last has been asked for."""
    ten, place = divmod(content["n"] - 1, 10)
    last = _last_of_ten.setdefault(ten, asyncio.Event())
    if place == 9:
        last.set()
    if place == 0:
        await last.wait()
    return content["n"]


async def second_stage(record: Any) -> Any:
    """One more than what the graph ``double`` has answered: its input is that one's output."""
    return record["content"]["double"] + 1


async def warmth(row: Any) -> float:
    """The highest temperature of a day in Seattle."""
    return float(row["temp_max"])


_tried: set[int] = set()


async def second_try(content: Any) -> Any:
    """The number itself, but not on the first try."""
    if content["n"] not in _tried:
        _tried.add(content["n"])
        raise ConnectionError("not now")
    return content["n"]


async def bulky(content: Any) -> Any:
    """A result of several hundred bytes. For "most" see ``paced``."""
    starts_on(content)
    await allowed()
    return {"n": content["n"], "text": "x" * 600}


def chatty(content: Any) -> Any:
    """The number itself; prints meanwhile."""
    print("what a graph prints", flush=True)
    print("what a graph says", file=sys.stderr, flush=True)
    return content["n"]


number = 7
