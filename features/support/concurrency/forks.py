"""Programs that fork with a bridge in use; each in a process of its own, as it has threads."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from support.cli.command import run_python

__all__ = ["end_children", "run", "run_in_children"]

HEAD = """
import asyncio, concurrent.futures, multiprocessing, os, selectors, signal, sys, threading
import reactivex
from reactivex.subject import Subject
from rxlanggraph import RxPyLangGraphBridge, StreamMessage, TaskRegistry
from rxlanggraph.agent import AgentPool, BaseAgent
from rxlanggraph.state import StateActor, open_state

PATIENCE = 90  # seconds, of a parent for its child: a hang, and no measure of anything
begun = threading.Event()
called_back = []

async def answer(content):
    return content

async def wait(content):
    begun.set()
    await asyncio.Event().wait()

def block(content):
    begun.set()
    threading.Event().wait()

def name_of(error):
    return type(error).__name__

def outcome(call):
    try:
        return call()
    except BaseException as error:
        return f"{name_of(error)}: {error}"

def in_child(work):
    '''What work() returns in a forked child, as text.'''
    sys.stdout.flush()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        end_child(write, work)
    return told_by(pid, read, write)

def end_child(write, work):
    '''End this child with what work() returns, as text for its parent.'''
    os.write(write, str(outcome(work)).encode())
    os._exit(0)

def told_by(pid, read, write):
    '''What that child has to say.'''
    os.close(write)
    with open(read, "rb") as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        if not selector.select(PATIENCE):
            os.kill(pid, signal.SIGKILL)
            print("the child hung")
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return text

def fork_and(end):
    '''Fork, have the child end by end(), and print its status.'''
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        end()
        sys.exit()
    print("the child's status is", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

bridge = RxPyLangGraphBridge(max_concurrency=4, max_pending=None)
"""

IN_FLIGHT = """
futures = [bridge.create_future_task(wait, i) for i in range(20)]
for future in futures:
    future.add_done_callback(called_back.append)
assert begun.wait(PATIENCE)
"""

USING = """
def raised(error):
    raise error

async def awaited(future):
    return await asyncio.wrap_future(future)

async def read(reader):
    return [item async for item in reader]

reader = bridge.astream(wait, 1)

def outcome_of(stream):
    told = []
    stream.subscribe(told.append, told.append)
    return f"{name_of(told[0])}: {told[0]}"

source, told = Subject(), []
source.pipe(bridge.invoke(wait)).subscribe(told.append, told.append)

def fed():
    source.on_next(1)
    return f"{name_of(told[0])}: {told[0]}"
"""

LINES = """
def calling(call, left):
    '''A trace function that makes the call at that line of ours, and then traces no more.'''
    def trace(frame, event, argument):
        nonlocal left
        if "rxlanggraph" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                call()
        return trace
    return trace
"""

SQLITE_FILE = """
import tempfile
folder = tempfile.TemporaryDirectory()
url = f"sqlite:///{folder.name}/file"
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def on_loop(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(PATIENCE)

async def counted(meanwhile):
    async with open_state(url) as state:
        await state.increment_counter("n")
        meanwhile()
        return await state.increment_counter("n")

def count():
    return asyncio.run(counted(lambda: (os.write(in_use[1], b"."), os.read(closed[0], 1))))

def close():
    os.read(in_use[0], 1)
    on_loop(opening.__aexit__(None, None, None))
    os.write(closed[1], b".")

in_use, closed = os.pipe(), os.pipe()
opening = open_state(url)
state = on_loop(opening.__aenter__())
state.sync.increment_counter("n")
"""

IN_USE_IN_CHILD = """
closing = threading.Thread(target=close)
closing.start()
print("counted to", {counted})
closing.join(PATIENCE)
print("the next one counts to", asyncio.run(counted(lambda: None)) - 1)
folder.cleanup()
"""

PROGRAMS: dict[str, str] = {
    "a call waits for its model": """
from langchain_core.language_models import GenericFakeChatModel
from rxlanggraph.limits import Limits, ModelLimit

model = GenericFakeChatModel(messages=iter(["well"]))
waits = threading.Event()
once = ModelLimit(requests=1, per=3600)
limits = Limits(once, key=lambda _: begun.is_set() and waits.set() or "k")

async def call(content):
    await model.ainvoke(content)

with RxPyLangGraphBridge(limits=limits) as bridge:
    bridge.create_future_task(call, "a").result(PATIENCE)
    begun.set()
    run = bridge.create_future_task(call, "b")
    waits.wait(PATIENCE)
    print(in_child(lambda: limits.statistics()))
    print(limits.statistics()["k"].calls)
    run.cancel()
""",
    "leaving the block of the bridge": """
with bridge:
    futures = [bridge.create_future_task(answer, i) for i in range(20)]
    sys.stdout.flush()
    pid = os.fork()
if pid:
    print("the child's status is", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
    "disposing a stream": USING
    + """
subscription = source.pipe(bridge.invoke(wait)).subscribe(print, print)
source.on_next(1)
assert begun.wait(PATIENCE)
fork_and(subscription.dispose)
""",
    "a thread that blocks": """
futures = [bridge.create_future_task(block, i) for i in range(4)]
assert begun.wait(PATIENCE)
fork_and(lambda: None)
""",
    "multiprocessing": IN_FLIGHT
    + """
child = multiprocessing.get_context("fork").Process(target=bridge.__repr__)
child.start()
child.join(PATIENCE)
print("the child's status is", child.exitcode)
""",
    "a loop that was lent": """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # it runs
bridge = RxPyLangGraphBridge(loop, max_concurrency=4)
"""
    + IN_FLIGHT
    + "fork_and(lambda: None)",
    "in a node": """
def fork(content):
    return in_child(lambda: bridge.create_future_task(answer, 1)).partition(":")[0]

async def fork_on_the_loop(content):
    return fork(content)

print(*(bridge.create_future_task(graph, 1).result(PATIENCE).content
        for graph in (fork, fork_on_the_loop)))
""",
    "callbacks": IN_FLIGHT
    + """
def told():
    concurrent.futures.wait(futures, PATIENCE)
    for future in futures:
        future.cancel()
    bridge.cleanup_tasks()
    bridge.close()
    return f"{len(called_back)} called back, {len(bridge.registry)} in flight"
print(in_child(told))
bridge.close(0)
print(f"{len(called_back)} called back, {len(bridge.registry)} in flight")
""",
    "a new one": IN_FLIGHT
    + """
def answered():
    with RxPyLangGraphBridge() as new:
        return [new.create_future_task(answer, i).result(PATIENCE).content for i in range(3)]
print(in_child(answered))
bridge.close(0)
""",
    "not used before": """
def answered():
    with bridge:
        return bridge.create_future_task(answer, 1).result(PATIENCE).content
print(in_child(answered), answered())
""",
    "several loops": """
from rxlanggraph.concurrency import interpreter
interpreter.gil_enabled = lambda: False
bridge, unused = RxPyLangGraphBridge(loops=2), RxPyLangGraphBridge(loops=2)
async def add_one(n):
    await asyncio.sleep(0)
    return n + 1
for future in [bridge.create_future_task(add_one, n) for n in range(20)]:
    future.result(PATIENCE)
def sent():
    try:
        bridge.create_future_task(add_one, 1)
    except Exception as error:
        refused = name_of(error)
    with RxPyLangGraphBridge(loops=2) as other:
        answered = other.create_future_task(add_one, 1).result(PATIENCE).content
    with unused:
        unused.create_future_task(add_one, 1).result(PATIENCE)
    left = [each.name for each in threading.enumerate() if "graphs" in each.name]
    bridge.close()
    return f"{refused} {answered} {'unused' if not left else left}"
print(in_child(sent), bridge.create_future_task(add_one, 1).result(PATIENCE).content)
bridge.close()
unused.close()
""",
    "the parent goes on": """
futures = [bridge.create_future_task(answer, i) for i in range(100)]
in_child(lambda: bridge.close())
futures += [bridge.create_future_task(answer, i) for i in range(100)]
print(sum(future.result(PATIENCE).source.content for future in futures))
bridge.close()
""",
    "a registry": """
registry = TaskRegistry()
tasks = [concurrent.futures.Future() for _ in range(3)]
for task in tasks:
    registry.add(task)
def looked():
    registry.add(concurrent.futures.Future())
    begun = (len(registry), registry.wait_idle(0))
    return *begun, registry.cancel_all(), registry.wait_idle(0)
print(in_child(looked), "and", len(registry))
""",
    "an actor": """
actor = StateActor(0, lambda state, command: state + command)
assert actor.ask(1).result(PATIENCE) == 1
print(in_child(lambda: actor.ask(1).result()))
print(in_child(lambda: actor.send(1)))
print(in_child(lambda: (actor.close(), actor.state)[1]))
asked = actor.ask(1)
assert asked.result(PATIENCE) == 2
actor.close()
""",
    "an answer of an actor": """
async def awaited(asked):
    return await asked
held, entered = threading.Event(), threading.Event()
def reduce(state, command):
    entered.set()
    held.wait(PATIENCE)
    return state
actor = StateActor(0, reduce)
asked = actor.ask(1)
entered.wait(PATIENCE)
print(in_child(asked.result))
print(in_child(lambda: asyncio.run(awaited(asked))))
held.set()
actor.close()
""",
    "a shared state": """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
opening = open_state("memory:NAME")
state = asyncio.run_coroutine_threadsafe(opening.__aenter__(), loop).result(PATIENCE)
state.sync.set("key", 1)
print(in_child(lambda: state.sync.get("key")))
async def open_anew():
    async with open_state("memory:NAME") as state:
        return "opened anew"
print(in_child(lambda: asyncio.run(open_anew())))
print("the parent has", state.sync.get("key").value)
asyncio.run_coroutine_threadsafe(opening.__aexit__(None, None, None), loop).result(PATIENCE)
""",
    "an SQLite file": SQLITE_FILE + IN_USE_IN_CHILD.format(counted="in_child(count)"),
    "an SQLite file, over two generations": SQLITE_FILE
    + IN_USE_IN_CHILD.format(counted="in_child(lambda: in_child(count))"),
    "an SQLite file, in a call": SQLITE_FILE
    + """
from rxlanggraph.state.backends.sql.sqlite.session import OpenFiles
check = OpenFiles.check

def fork_once(files):
    OpenFiles.check = check
    print(in_child(lambda: asyncio.run(counted(lambda: None))))

OpenFiles.check = fork_once
state.sync.increment_counter("n")
on_loop(opening.__aexit__(None, None, None))
folder.cleanup()
""",
    "an agent": """
class Echo(BaseAgent):
    async def step(self):
        if "one" in str(self.request):
            begun.set()
            await asyncio.to_thread(held.wait, PATIENCE)
        return f"echo: {self.request}"

held = threading.Event()
agent, pool = Echo("echo"), AgentPool(lambda thread_id: Echo(thread_id), max_agents=1)
threads = [
    threading.Thread(target=agent.run_sync, args=("one",)),
    threading.Thread(target=lambda: asyncio.run(pool.ainvoke("one", of("a")))),
]
def of(thread_id):
    return {"configurable": {"thread_id": thread_id}}
for thread in threads:
    begun.clear()
    thread.start()
    begun.wait(PATIENCE)
print(in_child(lambda: agent.run_sync("two")))
print(in_child(lambda: asyncio.run(pool.ainvoke("three", of("b")))))
held.set()
for thread in threads:
    thread.join(PATIENCE)
""",
    "a conversation": """
from rxlanggraph.agent import Memory
from rxlanggraph.agent.conversation.conversation import Conversation

agent, conversation = BaseAgent("agent"), Conversation()
known = conversation.memory_of(agent, Memory())
held = threading.Event()

def look_up():
    with conversation._lock:
        begun.set()
        held.wait(PATIENCE)

thread = threading.Thread(target=look_up)
thread.start()
assert begun.wait(PATIENCE)
print(in_child(lambda: conversation.memory_of(agent, Memory()) is known))
held.set()
thread.join(PATIENCE)
print(conversation.memory_of(agent, Memory()) is known)
""",
    "under load": """
sys.setswitchinterval(1e-6)
stop = threading.Event()
registry = TaskRegistry()

def submit():
    while not stop.is_set():
        futures = [bridge.create_future_task(answer, i) for i in range(20)]
        for future in futures:
            future.add_done_callback(registry.discard)
            future.result(PATIENCE)

def check():
    refused = str(outcome(lambda: bridge.create_future_task(answer, 1)))
    assert refused.startswith("WrongProcessError"), refused
    mine = outcome(lambda: last[0].result())
    assert last[0].done(), mine
    bridge.cleanup_tasks()
    len(registry)
    bridge.close()
    with RxPyLangGraphBridge() as new:
        return f"answered {new.create_future_task(answer, 1).result(PATIENCE).content}"

last = [bridge.create_future_task(answer, 0)]
threads = [threading.Thread(target=submit) for _ in range(4)]
for thread in threads:
    thread.start()
answers = []
for _ in range(25):
    last[0] = bridge.create_future_task(answer, 1)
    answers.append(in_child(check))
stop.set()
for thread in threads:
    thread.join(PATIENCE)
bridge.close()
print(len(answers), set(answers))
""",
    "between two lines": LINES
    + """
def fork():
    answers.append(in_child(again))

def again():
    sent = outcome(lambda: bridge.create_future_task(answer, 2))
    bridge.close()
    return type(sent).__name__ if not isinstance(sent, str) else sent.partition(":")[0]

bridge.create_future_task(answer, 0).result(PATIENCE)
answers, number = [], 0
while len(answers) == number:
    number += 1
    sys.settrace(calling(fork, number))
    future = bridge.create_future_task(answer, 1)
    sys.settrace(None)
    future.result(PATIENCE)
bridge.close()
print(number > 50, set(answers))
""",
    "within a submission": LINES
    + """
bridge.create_future_task(answer, 0).result(PATIENCE)
answers, pids, number = [], [], 0
while len(pids) == number:
    number += 1
    read, write = os.pipe()
    sys.settrace(calling(lambda: pids.append(os.fork()), number))
    sent = outcome(lambda: bridge.create_future_task(wait, 1))
    sys.settrace(None)
    if 0 in pids:  # a child, which goes on with what its parent has begun, and need not wait for it
        end_child(write, lambda: sent if isinstance(sent, str) else sent.result(0))
    if len(pids) == number:
        answers.append(told_by(pids[-1], read, write).partition(":")[0])
bridge.close(0)
print(number > 50, set(answers))
""",
    "plain asyncio": """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(answer(1), loop).result(PATIENCE)

def hand_over():
    coroutine = answer(1)
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    # No thread is left that could run the loop; nothing tells the one who waits.
    return f"{loop.is_running()}, {concurrent.futures.wait([future], 0.1).done}"
print(in_child(hand_over))
""",
}

# Programs that trace by themselves, or fork over and over: coverage is not to measure them.
UNMEASURED = {"under load", "between two lines", "within a submission"}


def run(what: str) -> subprocess.CompletedProcess[str]:
    """Run the program that is called ``what``."""
    return _run(PROGRAMS[what], measured=what not in UNMEASURED)


def run_in_children(calls: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Have a child for each of ``calls`` make it, and print what comes of it, on a line."""
    lines = [f"print(in_child(lambda: {call}))" for call in calls]
    return _run("\n".join([IN_FLIGHT, USING, *lines, "bridge.close(0)"]))


def end_children(ends: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Have a child for each of ``ends`` do it, and then end as a program ends."""
    lines = [f"fork_and(lambda: {end})" for end in ends]
    return _run("\n".join([IN_FLIGHT, USING, *lines]))


def _run(program: str, *, measured: bool = True) -> subprocess.CompletedProcess[str]:
    # From Python 3.12 on a fork beside threads is warned of: here it is what is looked at.
    options = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    return run_python(*options, "-c", HEAD + program, measured=measured)
