"""Steps for the ids of runs, as LangSmith has them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from tenacity import AsyncRetrying, stop_after_attempt

from rxlanggraph import StreamMessage
from rxlanggraph.agent import BaseAgent
from support.bridge.graphs import State
from support.bridge.streams import Subscriber
from support.concurrency.waiting import LIMIT, Log


class _Runs(BaseCallbackHandler):
    """The ids of runs, and of their parents."""

    def __init__(self) -> None:
        self.told = Log()

    def on_chain_start(
        self, *_: Any, run_id: UUID, parent_run_id: UUID | None = None, **details: Any
    ) -> None:
        self.told.add((str(run_id), parent_run_id))


class _Failing:
    """A node that fails so often."""

    def __init__(self, failures: int) -> None:
        self.left = failures

    async def __call__(self, state: State) -> State:
        if self.left:
            self.left -= 1
            raise ValueError("not yet")
        return {"count": state.get("count", 0) + 1}


class _TwoSteps(BaseAgent):
    steps = 0

    async def step(self) -> Any:
        self.steps += 1
        answer = await super().step()
        return answer if self.steps == 2 else None


def _graph(failures: int = 0, *, saver: Any = None, within: Any = None) -> Any:
    node = _Failing(failures) if within is None else within
    builder = StateGraph(State).add_node("node", node)
    return builder.add_edge(START, "node").add_edge("node", END).compile(saver)


def _calling(graph: Any) -> Any:
    async def call(content: Any, config: Any) -> Any:
        return await graph.ainvoke(content, config)

    return call


def _target(name: str, failures: int) -> Any:
    graph = _graph(failures)
    return {
        "a graph": lambda: graph,
        "a graph as a stream": lambda: graph,
        "a graph on a thread with a saver": lambda: _graph(failures, saver=InMemorySaver()),
        "a graph with a subgraph": lambda: _graph(within=graph),
        "a function that calls a graph": lambda: _calling(graph),
        "an agent over a graph": lambda: BaseAgent("scout", graph=graph),
        "an agent of two steps": lambda: _TwoSteps("scout", graph=graph),
    }[name]()


def _send(context: Context, name: str, failures: int = 0) -> None:
    context.runs = _Runs()
    context.message = StreamMessage({"count": 1}, "t" if "thread" in name else None)
    options: dict[str, Any] = {
        "config": lambda message: {"run_id": UUID(message.id), "callbacks": [context.runs]},
        "retry": AsyncRetrying(stop=stop_after_attempt(failures + 1), reraise=True),
    }
    target = _target(name, failures)
    if name.endswith("as a stream"):
        subscriber = Subscriber()
        stream = context.bridge.stream(target, stream_mode="updates", **options)
        subscriber.subscribe(rx.of(context.message).pipe(stream))
        subscriber.wait_for_end()
    else:
        send = context.bridge.create_future_task
        assert send(target, context.message, **options).result(LIMIT).status == "ok"


@when("a message is sent to {name}, with its id as the run_id of its config")
def step_a_message_is_sent_to_with_its_id_as_the_run_id(context: Context, name: str) -> None:
    _send(context, name.removesuffix(" that fails twice"), 2 * name.endswith(" that fails twice"))


@then(
    "LangChain's callbacks were told of {count:d} run without a parent, with the id of the message"
)
@then(
    "LangChain's callbacks were told of {count:d} runs without a parent, the first with the id of "
    "the message"
)
def step_langchains_callbacks_were_told_of_runs_without_a_parent(
    context: Context, count: int
) -> None:
    roots = [run_id for run_id, parent in context.runs.told if parent is None]
    assert len(roots) == count, roots
    assert roots[0] == context.message.id, (roots, context.message.id)


@then("all others have ids of their own")
def step_all_others_have_ids_of_their_own(context: Context) -> None:
    ids = [run_id for run_id, _ in context.runs.told]
    assert len(ids) == len(set(ids)) > 1, ids


@when(
    "{count:d} messages are sent on a thread with a saver, each with its id as the run_id of its "
    "config"
)
def step_messages_are_sent_on_a_thread_with_a_saver(context: Context, count: int) -> None:
    context.runs, graph = _Runs(), _graph(saver=InMemorySaver())
    context.results = [
        context.bridge.create_future_task(
            graph,
            {"count": 10 * number},
            thread_id="t",
            config=lambda message: {"run_id": UUID(message.id), "callbacks": [context.runs]},
        ).result(LIMIT)
        for number in range(count)
    ]


@then("each has changed the state of the thread, and had an id of its own")
def step_each_has_changed_the_state_of_the_thread(context: Context) -> None:
    counts = [result.content["count"] for result in context.results]
    assert counts == [10 * number + 1 for number in range(len(counts))], counts
    roots = [run_id for run_id, parent in context.runs.told if parent is None]
    assert roots == [result.source.id for result in context.results], roots
