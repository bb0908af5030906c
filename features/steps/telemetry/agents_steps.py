"""Steps for traces, and other hooks, of the runs of agents."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from typing import Any

from behave import then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from rxlanggraph.agent import AgentPool, BaseAgent
from rxlanggraph.errors import AgentBusyError, RunTimeoutError
from rxlanggraph.hooks import AgentEnded, AgentStarted, Hooks
from support.bridge.bridges import listen
from support.concurrency.raising import error_of
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads

_SECRET = "hunter2"
_seen: ContextVar[str] = ContextVar("seen", default="")


class Agent(BaseAgent):
    """An agent that does what it is asked."""

    def __init__(self, context: Context, name: str = "scout", **options: Any) -> None:
        super().__init__(name, **options)
        self.tracer = context.spans.tracer
        self.began, self.gate = Gate(), Gate()

    async def step(self) -> Any:
        with self.tracer.start_as_current_span("inside step"):
            self.began.open()
            if self.request == "fail":
                raise ValueError(_SECRET)
            if self.request == "cancel":
                asyncio.current_task().cancel()
            if self.request == "wait":
                await self.gate.wait_async()
            return self.request


def _agent(context: Context, **options: Any) -> Agent:
    agent = Agent(context, **options)
    agent.add_hooks(context.traces)
    return agent


def _of_agents(context: Context) -> list[Any]:
    return context.spans.named("invoke_agent ")


@when("an agent with these traces is run twice in a span, and its step makes a span")
def step_an_agent_with_these_traces_is_run_twice_in_a_span(context: Context) -> None:
    agent = _agent(context)

    async def twice() -> None:
        with context.spans.tracer.start_as_current_span("request"):
            await agent.run(_SECRET)
            await agent.run(_SECRET)

    run(twice())


@then("the spans of the agent have its name and its conversation, and say nothing of what was said")
def step_the_spans_of_the_agent_have_its_name_and_its_conversation(context: Context) -> None:
    for span in _of_agents(context):
        assert dict(span.attributes) == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "scout",
            "gen_ai.conversation.id": "scout",
            "rxlanggraph.status": "ok",
        }, span.attributes
    assert _SECRET not in context.spans.exported()


@when('an agent that asks another agent is run on the bridge, on thread "{thread_id}"')
def step_an_agent_that_asks_another_agent_is_run_on_the_bridge(
    context: Context, thread_id: str
) -> None:
    scout = _agent(context)

    class Chief(BaseAgent):
        async def step(self) -> Any:
            return await scout.run(self.request)

    chief = Chief("chief")
    chief.add_hooks(context.traces)
    send = context.bridge.create_future_task
    assert send(chief, "hello", thread_id=thread_id).result(LIMIT).content == "hello"
    assert context.bridge.registry.wait_idle(LIMIT)


@then('the conversation of "{one}" is "{first}", and that of "{other}" is "{second}"')
def step_the_conversation_of_one_is_and_that_of_other_is(
    context: Context, one: str, first: str, other: str, second: str
) -> None:
    for name, conversation in ((one, first), (other, second)):
        attributes = context.spans.one(name).attributes
        assert attributes["gen_ai.conversation.id"] == conversation, attributes


@when("a pool whose factory adds these traces answers on {count:d} threads at once")
def step_a_pool_whose_factory_adds_these_traces_answers(context: Context, count: int) -> None:
    pool = AgentPool(lambda _: _agent(context))
    futures = [
        context.bridge.create_future_task(pool, "hello", thread_id=f"t{number}")
        for number in range(count)
    ]
    for future in futures:
        future.result(LIMIT)
    assert context.bridge.registry.wait_idle(LIMIT)


@then("each of {count:d} runs of agents is below the run of the message of its thread")
def step_each_of_runs_of_agents_is_below_the_run_of_the_message(
    context: Context, count: int
) -> None:
    known, spans = context.spans.by_id(), _of_agents(context)
    assert len(spans) == count, len(spans)
    for span in spans:
        above = known[span.parent.span_id]
        assert above.name == "invoke_workflow agents", above.name
        key = "gen_ai.conversation.id"
        assert span.attributes[key] == above.attributes[key] != "", span.attributes


async def _cancelled(agent: Agent) -> None:
    task = asyncio.create_task(agent.run("wait"))
    await agent.began.wait_async()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _closed(agent: Agent) -> None:
    async with agent.stream("wait") as stream:
        step = asyncio.create_task(anext(stream))
        await agent.began.wait_async()
        step.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await step


def _asking() -> Any:
    def ask(_: MessagesState) -> MessagesState:
        raise AssertionError(interrupt("really?"))

    builder = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    return builder.compile(InMemorySaver())


@when("this happens to an agent with these traces: it {what}")
def step_this_happens_to_an_agent_with_these_traces_it(context: Context, what: str) -> None:
    agent = _agent(context, timeout=0.05 if "time" in what else LIMIT)
    if what == "asks":
        asking = BaseAgent("scout", graph=_asking())
        asking.add_hooks(context.traces)
        assert error_of(lambda: run(asking.run("hello"))).interrupts
    elif what.endswith("on a bridge"):
        send = context.bridge.create_future_task
        send(agent, "wait", errors="emit").result(LIMIT)
        assert context.bridge.registry.wait_idle(LIMIT)
    elif what in ("is cancelled", "is streamed, and that closed"):
        run((_cancelled if what == "is cancelled" else _closed)(agent))
    else:
        request = {"answers": "hello", "fails": "fail", "exceeds its time": "wait"}[what]
        with contextlib.suppress(ValueError, RunTimeoutError):
            run(agent.run(request))


@then('the span of the agent has the status {status:w} and the error type "{error}"')
@then('the span of the agent has the status {status:w} and the error type ""')
def step_the_span_of_the_agent_has_the_status_and_the_error_type(
    context: Context, status: str, error: str = ""
) -> None:
    (span,) = _of_agents(context)
    assert span.attributes["rxlanggraph.status"] == status, span.attributes
    assert span.attributes.get("error.type", "") == error, span.attributes
    assert _SECRET not in span.to_json()


@when("an agent with these traces is busy, and two callers are refused or time out")
def step_an_agent_with_these_traces_is_busy(context: Context) -> None:
    agent = _agent(context)

    async def calls() -> None:
        busy = asyncio.create_task(agent.run("wait"))
        await agent.began.wait_async()
        for error, options in (
            (AgentBusyError, {}),
            (RunTimeoutError, {"timeout": 0.01, "on_busy": "enqueue"}),
        ):
            try:
                await agent.run("hello", **options)
            except error:
                continue
            raise AssertionError(f"no {error.__name__}")
        agent.gate.open()
        await busy

    run(calls())


@then("it has one span")
def step_it_has_one_span(context: Context) -> None:
    assert len(_of_agents(context)) == 1, _of_agents(context)
    assert context.spans.open() == []


@when("the loop of a run of an agent with these traces is closed, and it is run on another")
def step_the_loop_of_a_run_is_closed_and_it_is_run_on_another(context: Context) -> None:
    class Waiting(BaseAgent):
        async def step(self) -> Any:
            began.open()
            return await gate.wait_async() if self.request == "wait" else "answer"

    began, gate, agent = Gate(), Gate(), Waiting("scout")
    agent.add_hooks(context.traces)
    loop = asyncio.new_event_loop()
    task = loop.create_task(agent.run("wait"))
    loop.run_until_complete(began.wait_async())
    loop.close()
    task._log_destroy_pending = False
    run(agent.run("hello"))
    task.get_coro().close()
    gate.open()


@then('the statuses of its spans are "{statuses}"')
def step_the_statuses_of_its_spans_are(context: Context, statuses: str) -> None:
    found = [span.attributes["rxlanggraph.status"] for span in _of_agents(context)]
    assert ", ".join(found) == statuses, found


@when("these traces are added to an agent twice, and it is run, also when disposed of")
def step_these_traces_are_added_to_an_agent_twice_and_it_is_run(context: Context) -> None:
    agent = Agent(context)
    added = [agent.add_hooks(context.traces) for _ in range(2)]
    run(agent.run("hello"))
    for each in added:
        each.dispose()
        each.dispose()
    run(agent.run("hello"))


@when("these traces are closed in the middle of the run of an agent")
def step_these_traces_are_closed_in_the_middle_of_the_run(context: Context) -> None:
    agent = _agent(context)

    async def work() -> None:
        busy = asyncio.create_task(agent.run("wait"))
        await agent.began.wait_async()
        context.traces.close()
        agent.gate.open()
        await busy

    run(work())


class _Raising(Hooks):
    def on_agent_started(self, event: AgentStarted) -> None:
        raise ValueError("started")

    def on_agent_ended(self, event: AgentEnded) -> None:
        raise ValueError("ended")


@when("an agent whose hooks raise is run {count:d} times")
def step_an_agent_whose_hooks_raise_is_run(context: Context, count: int) -> None:
    context.log = listen(context, "rxlanggraph")
    agent = Agent(context)
    agent.add_hooks(_Raising())
    context.answers = [run(agent.run("hello")) for _ in range(count)]


@then("each run has its answer, and each hook is in the log once")
def step_each_run_has_its_answer_and_each_hook_is_in_the_log_once(context: Context) -> None:
    assert set(context.answers) == {"hello"}, context.answers
    texts = [record.getMessage() for record in context.log]
    assert len(texts) == 2, texts
    for text, hook in zip(texts, ("on_agent_started", "on_agent_ended"), strict=True):
        assert hook in text and "logged once" in text, texts


class _Setting(Hooks):
    def on_agent_started(self, event: AgentStarted) -> None:
        _seen.set(event.agent)


class _Looking(BaseAgent):
    async def step(self) -> Any:
        return _seen.get()


@when("an agent whose hook sets a context variable is run")
def step_an_agent_whose_hook_sets_a_context_variable_is_run(context: Context) -> None:
    agent = _Looking("looking")
    agent.add_hooks(_Setting())

    async def look() -> tuple[str, str]:
        return await agent.run(), _seen.get()

    context.looked = run(look())


@then("its step has seen the variable, and its caller has not")
def step_its_step_has_seen_the_variable_and_its_caller_has_not(context: Context) -> None:
    assert context.looked == ("looking", ""), context.looked


class _Telling(Hooks):
    def __init__(self) -> None:
        self.told = Log()

    def on_agent_started(self, event: AgentStarted) -> None:
        self.told.add(event)

    def on_agent_ended(self, event: AgentEnded) -> None:
        self.told.add(event)


@when(
    "{threads:d} threads run {agents:d} agents with hooks {count:d} times, a third of which fail "
    "or are cancelled"
)
def step_threads_run_agents_with_hooks(
    context: Context, threads: int, agents: int, count: int
) -> None:
    context.hooks, context.count = _Telling(), count
    crew = [Agent(context, name=f"agent {number}") for number in range(agents)]
    for agent in crew:
        agent.add_hooks(context.hooks)

    async def ask(agent: Agent, number: int) -> None:
        request = ("hello", "fail", "hello", "cancel", "hello", "hello")[number % 6]
        with contextlib.suppress(ValueError, asyncio.CancelledError):
            await agent.run(request, on_busy="enqueue")

    def work(thread: int) -> None:
        async def all_of_them() -> None:
            for number in range(thread, count, threads):
                await ask(crew[number % agents], number)

        run(all_of_them())

    in_threads(threads, work)


@then("each run was told to have begun, then to have ended, once")
def step_each_run_was_told_to_have_begun_then_to_have_ended_once(context: Context) -> None:
    events: dict[object, list[type]] = {}
    for event in context.hooks.told:
        events.setdefault(event.run, []).append(type(event))
    assert len(events) == context.count, len(events)
    wrong = [each for each in events.values() if each != [AgentStarted, AgentEnded]]
    assert wrong == [], wrong[:5]


@when("a string is added to an agent as hooks")
def step_a_string_is_added_to_an_agent_as_hooks(context: Context) -> None:
    context.error = error_of(lambda: Agent(context).add_hooks("hooks"))
