"""Programs that end without closing their bridge, each run in a process of its own."""

from __future__ import annotations

import subprocess

from support.cli.command import run_python

__all__ = ["PROGRAMS", "run"]

HEAD = """
import asyncio, contextvars, sys, threading, time
from rxlanggraph import RxPyLangGraphBridge

bridge = RxPyLangGraphBridge(max_concurrency=4)
begun = threading.Event()
forever = threading.Event()

async def answer(content):
    return content

async def wait(content):
    begun.set()
    await asyncio.Event().wait()

async def clean_up(content):
    begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        print("cleaned up", flush=True)

def block(content):
    begun.set()
    forever.wait()

async def swallow(content):
    begun.set()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def block_the_loop(content):
    begun.set()
    forever.wait()

def graph_of(node):
    from typing import TypedDict
    from langgraph.graph import START, StateGraph
    State = TypedDict("State", {"value": int})
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()
"""

# For programs whose runs end: on a busy machine their cleanups may take longer than an exit waits.
PATIENT = """
from rxlanggraph.bridge import exits, loops
exits._AT_EXIT = loops._LAST_ROUND = 60.0
"""

SEND_AND_BEGIN = """
futures = [bridge.create_future_task({0}, {{"value": i}}) for i in range({1})]
assert begun.wait(90)
"""

PROGRAMS: dict[str, str] = {
    "nothing was ever sent": "",
    "all is answered": """
assert bridge.create_future_task(answer, 1).result(90).content == 1
""",
    "runs in flight": SEND_AND_BEGIN.format("wait", 20),
    "graphs in flight": SEND_AND_BEGIN.format("graph_of(wait)", 20),
    "a run with a cleanup of its own": PATIENT + SEND_AND_BEGIN.format("clean_up", 1),
    "a sync function that never ends": SEND_AND_BEGIN.format("block", 20),
    "a sync node that never ends": SEND_AND_BEGIN.format("graph_of(block)", 20),
    "a run that swallows cancelling": SEND_AND_BEGIN.format("swallow", 20),
    "a run that blocks the loop": SEND_AND_BEGIN.format("block_the_loop", 20),
    "an adopted loop in a thread": """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # it runs
bridge = RxPyLangGraphBridge(loop)
"""
    + SEND_AND_BEGIN.format("graph_of(wait)", 20),
    "an adopted loop of asyncio.run": """
async def main():
    bridge = RxPyLangGraphBridge(asyncio.get_running_loop(), max_concurrency=4)
    futures = [bridge.create_future_task(wait, i) for i in range(4)]
    while not begun.is_set():
        await asyncio.sleep(0)

asyncio.run(main())
""",
    "a paused loop with runs in flight": """
loop = asyncio.new_event_loop()
bridge = RxPyLangGraphBridge(loop, max_concurrency=4)

async def main():
    global futures
    futures = [bridge.create_future_task(graph_of(wait), {"value": i}) for i in range(20)]
    while not begun.is_set():
        await asyncio.sleep(0)

loop.run_until_complete(main())
""",
    "a call of no run that never ends": """
async def leave_behind(content):
    def block():
        begun.set()
        forever.wait()
    loop = asyncio.get_running_loop()
    contextvars.Context().run(loop.call_soon, loop.run_in_executor, None, block)

bridge.create_future_task(leave_behind, 1).result(90)
assert begun.wait(90)
""",
    "daemon threads that go on sending": """
def send():
    sent = 0
    try:
        while True:
            bridge.create_future_task(answer, sent)
            sent += 1
            if sent == 100:
                begun.set()
    except RuntimeError:
        pass  # the bridge is closed: the interpreter is leaving

for _ in range(4):
    threading.Thread(target=send, daemon=True).start()
assert begun.wait(90)
""",
    "a stream that never completes": """
from reactivex.subject import Subject

source = Subject()
source.pipe(bridge.invoke(wait)).subscribe(print, lambda error: None)
for i in range(20):
    source.on_next(i)
assert begun.wait(90)
""",
    "a bridge inside a cycle": """
class Owner:
    pass

owner = Owner()
owner.bridge, owner.self = bridge, owner
"""
    + SEND_AND_BEGIN.format("wait", 2)
    + "del bridge, owner\n",
    "a task that a node has left behind": PATIENT
    + """
async def clean_up_longer(content):
    begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.3)  # longer than the rest of the exit takes
        print("cleaned up", flush=True)

async def leave(content):
    global left
    left = asyncio.create_task(clean_up_longer(content))

bridge.create_future_task(leave, 0).result()
assert begun.wait(90)
""",
    "four bridges whose runs clean up together": PATIENT
    + """
cancelled = []

async def together(content):
    begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append(content)
        while len(cancelled) < 4:
            await asyncio.sleep(0.001)
        print("cleaned up\\n", end="", flush=True)  # in one piece

bridges = [RxPyLangGraphBridge() for _ in range(4)]
for each in bridges:
    begun.clear()
    each.create_future_task(together, 1)
    assert begun.wait(90)
""",
    "thirty bridges with a stuck run each": """
import atexit

# Called after those of the bridges. The start of the interpreter is not counted: on a busy machine
# it may take longer than anything here.
atexit.register(lambda: print(time.monotonic() - leaving, flush=True))
bridges = [RxPyLangGraphBridge() for _ in range(30)]
for each in bridges:
    begun.clear()
    each.create_future_task(block, 1)
    assert begun.wait(90)
leaving = time.monotonic()
""",
    # These close it, without waiting for the cleanup of its run.
    "Ctrl-C in the wait at the end of its block": PATIENT
    + SEND_AND_BEGIN.format("clean_up", 1)
    + """
import os, signal

def interrupt():
    while bridge.registry.state == "open":
        time.sleep(0)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
with bridge:
    pass
""",
    "aclose that was cancelled": PATIENT
    + SEND_AND_BEGIN.format("clean_up", 1)
    + """
async def main():
    closing = asyncio.create_task(bridge.aclose())
    while bridge.registry.state == "open":
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])

asyncio.run(main())
""",
    "close without waiting, in a signal handler": PATIENT
    + SEND_AND_BEGIN.format("clean_up", 1)
    + """
import os, signal

signal.signal(signal.SIGTERM, lambda *_: sys.exit(bool(bridge.close(0, cancel_timeout=0))))
os.kill(os.getpid(), signal.SIGTERM)
forever.wait()
""",
    "functions that run their own loops again": """
import nest_asyncio2

nest_asyncio2.apply()

async def ask(content):
    return (await bridge.create_future_task(answer, content)).content

async def nest(content):
    return asyncio.get_running_loop().run_until_complete(ask(content))

async def main():
    global bridge
    for loop in (asyncio.get_running_loop(), None):
        async with RxPyLangGraphBridge(loop) as bridge:
            where = "on its own loop" if loop is None else "on an adopted loop"
            print((await bridge.create_future_task(nest, where)).content, flush=True)

asyncio.run(main())
""",
}


def run(what: str) -> subprocess.CompletedProcess[str]:
    return run_python("-c", HEAD + PROGRAMS[what])
