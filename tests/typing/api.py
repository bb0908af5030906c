"""How the public names are typed: checked by mypy, never run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from functools import partial

import reactivex as rx
from reactivex import Observable
from tenacity import AsyncRetrying, stop_after_attempt

from rxlanggraph import (
    CleanupReport,
    RxPyLangGraphBridge,
    StreamMessage,
    StuckRun,
    TaskInfo,
    TaskRegistry,
)
from rxlanggraph.agent import AgentPool, AgentState, BaseAgent, Memory, Message, Transition
from rxlanggraph.executors import Executor, LocalExecutor, RayExecutor
from rxlanggraph.hooks import Hooks, NodeEnded, RunEnded
from rxlanggraph.limits import Limits, ModelCall, ModelLimit, Price, Spent, Usage
from rxlanggraph.operators import to_async_iterable, to_future
from rxlanggraph.state import (
    Backoff,
    Claim,
    Lease,
    State,
    StateActor,
    Task,
    Versioned,
    open_state,
    open_state_threadsafe,
)
from rxlanggraph.state.transactions import Transaction
from rxlanggraph.telemetry import RunMetrics, RunTraces
from rxlanggraph.telemetry.prometheus import PrometheusMetrics
from rxlanggraph.testing import VirtualBridge


async def shout(content: str) -> str:
    return content.upper()


def messages() -> StreamMessage:
    message = StreamMessage("hello", "thread", {"from": "me"})
    thread: str | None = message.thread_id
    print(thread, message.metadata["from"], message.replace(content="bye").raise_for_status())
    return message


def futures(bridge: RxPyLangGraphBridge) -> None:
    print(bridge.statistics().dropped)
    future: Future[StreamMessage] = bridge.create_future_task(shout, "hello", timeout=1)
    print(future.result(1.0).content, future.cancel())
    mapper = partial(bridge.create_future_task, shout)
    print(mapper("hello"), bridge.create_future_task(shout, messages(), errors="emit"))


def lanes(state: State) -> RxPyLangGraphBridge:
    return RxPyLangGraphBridge(lanes=state, lane_ttl=10)


def streams(bridge: RxPyLangGraphBridge) -> Observable[StreamMessage]:
    retry = AsyncRetrying(stop=stop_after_attempt(3))
    operator = bridge.invoke(shout, max_concurrency=2, ordered=True, errors="skip", retry=retry)
    return operator(rx.of("a", "b"))


async def numbers() -> AsyncIterator[int]:
    yield 1


def pulled(bridge: RxPyLangGraphBridge) -> Observable[int]:
    words: Observable[str] = bridge.from_iterable(["a", "b"])
    print(words.pipe(bridge.invoke(shout)))
    return bridge.from_iterable(numbers())


def closing() -> tuple[StuckRun, ...]:
    with RxPyLangGraphBridge(max_concurrency=4, max_pending=8, timeout=5.0, name="b") as bridge:
        report: CleanupReport = bridge.cleanup_tasks(timeout=1.0)
        for run in bridge.close(25.0, drain_after=0).runs:
            checkpoint_id: str | None = run.checkpoint_id
            print(run.outcome == "drained", checkpoint_id)
    return report.stuck


async def adopting() -> int:
    async with RxPyLangGraphBridge(asyncio.get_running_loop()) as bridge:
        result: StreamMessage = await bridge.create_future_task(shout, "hello")
        print(result.status)
        submitted: Future[StreamMessage] = await bridge.submit(shout, "hello", errors="emit")
        print(submitted.done())
        report = await bridge.cleanup_tasks_async()
    return report.cancelled + report.completed + report.failed


async def items(source: Observable[int]) -> int:
    last: int = await source.pipe(to_future())
    async with source.pipe(to_async_iterable(max_buffered=4, overflow="drop_oldest")) as each:
        async for item in each:
            last += item
    return last + each.dropped


def in_virtual_time(source: Observable[int]) -> int:
    with VirtualBridge(timeout=60.0, idle_threshold=0.1) as bridge:
        awaited: int = bridge.run(items(source))
        last: int = bridge.run(source)
        result: StreamMessage = bridge.run(bridge.create_future_task(shout, "hello"))
        bridge.scheduler.advance_by(result.duration)
    return awaited + last + int(bridge.time())


async def questions(bridge: RxPyLangGraphBridge, graph: object) -> StreamMessage | None:
    result = await bridge.create_future_task(graph, "hello", thread_id="t", on_pending="discard")
    for interrupt in result.interrupts:
        result = await bridge.create_future_task(graph, result.reply("yes", interrupt.id))
    pending = await bridge.pending_interrupts(graph, "t")
    dropped = await bridge.expire_interrupts(graph, older_than=3600.0)
    print([(each.thread_id, each.interrupt.value, each.age) for each in dropped])
    return pending[0].reply("yes") if pending else None


def registry(future: Future[int]) -> tuple[TaskInfo, ...]:
    tasks = TaskRegistry()
    tasks.add(future, name="one", thread_id="t")
    print(len(tasks), future in tasks, tasks.statistics().in_flight, tasks.wait_idle(0.1))
    return tasks.snapshot() + tasks.close()


class Echo(BaseAgent):
    async def step(self) -> str:
        with self.state_context(AgentState.THINKING):
            await asyncio.sleep(0)
        self.add_message("assistant", "done", tool_calls=[])
        await self.output_queue.put(str(self.request))
        return str(self.request)


async def agents(bridge: RxPyLangGraphBridge) -> None:
    agent = Echo("echo", memory=Memory(max_messages=10), max_steps=3, timeout=5)
    print(await agent.run("hello", 1.0, on_busy="enqueue"), agent.run_sync("hello"))
    role: str = agent.memory.get_messages()[0].role
    changes: Observable[Transition] = agent.state_changes
    added: Message = agent.add_message("user", "hello")
    turn: tuple[Message, ...] = agent.add_messages(["hello", {"role": "user", "content": "again"}])
    async with agent.state_context(AgentState.RUNNING):
        print(agent.state.name, role, added, turn, changes)
    async for item in agent.stream(timeout=1.0):
        print(item)
    async with agent.stream("hello", 1.0, on_busy="enqueue") as chunks:
        print([chunk async for chunk in chunks])
    pool = AgentPool(Echo, max_agents=3, max_memories=100)
    threads: tuple[str, ...] = await pool.threads()
    for thread_id in threads:
        await pool.forget(thread_id, timeout=1.0)
    rx.of(messages()).pipe(bridge.invoke(pool)).subscribe(print)


async def shared() -> Claim | None:
    async with open_state("memory:", namespace="n", max_attempts=3) as state:
        version: int = await state.set("k", {"a": [1]}, ttl=60)
        entry: Versioned = await state.get("k")
        print(entry.value, await state.compare_and_set("k", 1, version), state.watch("k"))
        total: int = await state.increment_counter("n", by=2)
        async with state.lock("l", ttl=5.0, wait=1.0) as lease:
            held: Lease = lease
            await state.set("k", total, token=held)
        ids: list[str] = await state.add_tasks("q", ["item", Task("other", priority=1)])
        print(ids, await state.results("q", ids=ids), (await state.stats("q")).waiting)

        async def move(tx: Transaction) -> int:
            tx.set("k", (await tx.get("k")).value)
            return 1

        moved: int = await state.transact(move)
        plain: str = await state.transact(lambda tx: "plain")
        print(moved, plain)
        state.declare_queue("q", backoff=Backoff(first=1), max_claimed=8)
        claims: list[Claim] = await state.claim_tasks("q", 10, worker="w", lease=30.0, wait=1.0)
        lost: list[Claim] = await state.complete_tasks((claim, claim.item) for claim in claims)
        print(lost)
        return await state.claim_task("q", worker="w", lease=30.0, wait=1.0)


def from_a_thread(bridge: RxPyLangGraphBridge) -> None:
    with open_state_threadsafe(bridge, "memory:") as state:
        opened: State = state
        print(opened.sync.increment_counter("n"))
        with opened.sync.lock("l") as lease, opened.sync.transaction() as tx:
            tx.set("k", lease.token)


def add(count: int, command: str) -> int:
    return count + len(command)


async def acting() -> int:
    with StateActor(0, add) as actor:
        actor.send("hello")
        states: Observable[int] = actor.states
        print(states, actor.ask("a").result(1.0))
        return await actor.ask("b")


class Metrics(Hooks):
    def on_ended(self, event: RunEnded) -> None:
        print(event.status, event.duration, event.message.thread_id, event.future.done())

    def on_node(self, event: NodeEnded) -> None:
        print(event.node, event.status, event.error, event.attempt)


def looking_inside(bridge: RxPyLangGraphBridge) -> int:
    subscription = bridge.add_hooks(Metrics())
    subscription.dispose()
    traces, metrics = RunTraces(content=True, nodes=False), RunMetrics()
    bridge.add_hooks(traces)
    bridge.add_hooks(metrics)
    metrics.observe_loop(bridge)
    for_prometheus = PrometheusMetrics()
    for_prometheus.count_claims("work", 2)
    BaseAgent("scout").add_hooks(traces).dispose()
    message = StreamMessage("hello")
    traceparent: str | None = traces.begin(message)
    print(traceparent, list(for_prometheus.collect()))
    traces.abandon(message)
    traces.close()
    for info in bridge.registry.snapshot():
        print(info.message_id, info.state, info.waiting, info.attempt, info.node)
    return bridge.registry.cancel(lambda info: info.age > 60.0)


def tenant(call: ModelCall) -> str | None:
    name: object = call.message.metadata.get("tenant")
    return None if name is None else str(name)


def limited(state: State) -> Spent:
    limits = Limits({"*": ModelLimit(requests=500, tokens=10_000)}, key=tenant, state=state)
    usage = Usage({"large": Price(1.25, 10), "small": {"input": 1, "output": 2}})
    with RxPyLangGraphBridge(limits=limits, usage=usage) as bridge:
        bridge.create_future_task(shout, "x", retry=limits.retrying(4))
    calls: int = limits.statistics()["*"].calls
    return usage.by_model()["large"] if calls else usage.total()


def executors() -> None:
    executor: Executor = RayExecutor("package.module:graph", workers=2, retries=1)
    with RxPyLangGraphBridge(executor=executor) as bridge:
        bridge.create_future_task("package.module:graph", 1)
    RxPyLangGraphBridge(executor=LocalExecutor(), loops=1).close()
