"""What of a call reaches the function, the graph and the registry."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langgraph.config import get_config
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from support.bridge.bridges import answer
from support.bridge.graphs import one_node
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

HELLO: Any = {"value": 1}
CONFIG: Any = {"tags": ["blue"], "metadata": {"shop": "tea"}}

# -- functions -------------------------------------------------------------------------------------

Got = dict[str, Any]


async def of_message(content: Any, message: Any) -> Got:
    return {"message": message}


def of_message_sync(content: Any, message: Any) -> Got:
    return {"message": message}


def of_types_unknown() -> Callable[..., Any]:
    """One whose annotation cannot be evaluated, as if its name was imported for types alone."""
    source = "async def of_message(content, message: Unknown): return {'message': message}"
    flags = 0 if sys.version_info >= (3, 14) else annotations.compiler_flag
    names: dict[str, Any] = {}
    exec(compile(source, __file__, "exec", flags, dont_inherit=True), names)
    function: Callable[..., Any] = names["of_message"]
    return function


async def of_config(content: Any, config: Any) -> Got:
    return {"config": config}


def of_config_sync(content: Any, config: Any = None) -> Got:
    return {"config": config}


async def of_both(content: Any, config: Any, message: Any) -> Got:
    return {"config": config, "message": message}


def of_both_by_keyword(content: Any, *, message: Any, config: Any) -> Got:
    return {"config": config, "message": message}


class Taking:
    """By call and by method."""

    def __call__(self, content: Any, message: Any) -> Got:
        return {"message": message}

    async def method(self, content: Any, message: Any) -> Got:
        return {"message": message}


async def three(first: object, content: Any, message: Any) -> Got:
    return {"message": message}


async def one_called_message(message: Any) -> Got:
    assert not isinstance(message, StreamMessage)
    return {}


def of_anything(content: Any, *args: Any, **kwargs: Any) -> Got:
    return {"args": args, "kwargs": kwargs} if args or kwargs else {}


def bound_by_default() -> Any:
    own = object()
    return lambda content, config=own: {} if config is own else {"config": config}


def passing_on() -> Any:
    @functools.wraps(of_message)
    async def wrapper(*args: Any, **kwargs: Any) -> Got:
        return await of_message(*args, **kwargs)

    return wrapper


def of_content_alone() -> Any:
    @functools.wraps(of_message)
    async def wrapper(content: Any) -> Got:
        await of_message(content, "the wrapper's")
        return {}

    return wrapper


async def with_own(content: Any, message: Any) -> Got:
    return {} if message == "own" else {"message": message}


FUNCTIONS: dict[str, Callable[[], Any]] = {
    "an async function of content, message": lambda: of_message,
    "a sync function of content, message": lambda: of_message_sync,
    "a function of content, message, of a type that is not there": of_types_unknown,
    "an async function of content, config": lambda: of_config,
    "a sync function of content, config=None": lambda: of_config_sync,
    "an async function of content, config, message": lambda: of_both,
    "a sync function of content, *, message, config": lambda: of_both_by_keyword,
    "a callable object": Taking,
    "a method": lambda: Taking().method,
    "a partial": lambda: functools.partial(three, object()),
    "a function behind a wrapper that passes on": passing_on,
    "a function whose only parameter is called message": lambda: one_called_message,
    "a function of content, *args, **kwargs": lambda: of_anything,
    "a lambda that binds config by a default": bound_by_default,
    "a partial with a message of its own": lambda: functools.partial(with_own, message="own"),
    "a function behind a wrapper of content alone": of_content_alone,
    "a builtin that does not tell": lambda: dict,
}


@when("a message with a thread and metadata goes to {form}, with a config")
def step_a_message_with_a_thread_and_metadata_goes_to_form_with_a(
    context: Context, form: str
) -> None:
    context.message = StreamMessage({}, "t", {"line": 7})
    function = FUNCTIONS[form]()
    context.got = (
        context.bridge.create_future_task(function, context.message, config=CONFIG)
        .result(LIMIT)
        .content
    )


def check_message(context: Context) -> None:
    assert context.got["message"] is context.message, context.got


def check_config(context: Context) -> None:
    assert context.got["config"] == {
        "tags": ["blue"],
        "metadata": {"shop": "tea", "line": 7},
        "configurable": {"thread_id": "t"},
    }, context.got


@then("the function got {what}")
def step_the_function_got_what(context: Context, what: str) -> None:
    names = {name for name in ("message", "config") if name in what}
    assert context.got.keys() == names, context.got
    if "message" in names:
        check_message(context)
    if "config" in names:
        check_config(context)


@when("two messages without thread or config go to a function that changes its config")
def step_two_messages_without_thread_or_config_go_to_a_function(context: Context) -> None:
    async def change(content: Any, config: Any) -> Any:
        before = dict(config)
        config["changed"] = True
        return before

    task = context.bridge.create_future_task
    context.futures += [task(change, number) for number in range(2)]


@then("each had a config of its own, empty at first")
def step_each_had_a_config_of_its_own_empty_at_first(context: Context) -> None:
    assert [answer(context, number).content for number in range(2)] == [{}, {}]


# -- metadata --------------------------------------------------------------------------------------


@when(
    "a message with metadata goes by {entry} to a graph that tells its config, "
    "with metadata in the config"
)
def message_with_metadata(context: Context, entry: str) -> None:
    graph = one_node(lambda _: {"value": dict(get_config()["metadata"])})
    context.message = StreamMessage(HELLO, metadata={"line": 7, "shop": "coffee"})
    context.run_config = copy.deepcopy({**CONFIG, "metadata": {"shop": "tea", "town": "Bremen"}})
    context.before = copy.deepcopy(context.run_config)
    if entry == "invoke":
        stage = context.bridge.invoke(graph, config=context.run_config)
        context.result = rx.of(context.message).pipe(stage).run()
    else:
        future = context.bridge.create_future_task(
            graph, context.message, config=context.run_config
        )
        context.result = future.result(LIMIT)


@then("the graph has seen both, the message's over the config's")
def graph_has_seen_both(context: Context) -> None:
    seen = context.result.content["value"]
    expected = {"line": 7, "shop": "coffee", "town": "Bremen"}
    assert expected.items() <= seen.items(), seen


@then("neither was changed")
def neither_was_changed(context: Context) -> None:
    assert context.run_config == context.before
    assert context.message.metadata == {"line": 7, "shop": "coffee"} == context.result.metadata


@when('a message with the metadata {metadata} goes to it on the thread "{name}"')
def step_a_message_with_the_metadata_metadata_goes_to_it_on_the(
    context: Context, metadata: str, name: str
) -> None:
    message = StreamMessage(HELLO, name, eval(metadata))
    context.bridge.create_future_task(context.graph, message).result(LIMIT)


@then('the newest checkpoint of the thread "{name}" has the metadata {metadata}')
def newest_checkpoint_has(context: Context, name: str, metadata: str) -> None:
    state = context.graph.get_state({"configurable": {"thread_id": name}})
    assert eval(metadata).items() <= state.metadata.items(), state.metadata


@when(
    '{count:d} messages go to it on the thread "{name}" by plain "ainvoke", '
    'each with the run_id "{run_id}"'
)
def step_count_messages_go_to_it_on_the_thread_name_by_plain(
    context: Context, count: int, name: str, run_id: str
) -> None:
    config = {"configurable": {"thread_id": name}, "metadata": {"run_id": run_id}}

    async def send_all() -> None:
        for _ in range(count):
            await context.graph.ainvoke(HELLO, config)

    run(send_all())


@when('{count:d} messages go to it on the thread "{name}", each with the run_id "{run_id}"')
def step_count_messages_go_to_it_on_the_thread_name_each_with_the(
    context: Context, count: int, name: str, run_id: str
) -> None:
    for _ in range(count):
        message = StreamMessage(HELLO, name, {"run_id": run_id})
        context.bridge.create_future_task(context.graph, message).result(LIMIT)


# -- names -----------------------------------------------------------------------------------------


@when('a message goes by {entry} to a waiting graph, with name="{name}"')
def step_a_message_goes_by_entry_to_a_waiting_graph_with_name_name(
    context: Context, entry: str, name: str
) -> None:
    if entry == "invoke":
        stage = context.bridge.invoke(context.work.wait, name=name)
        subscription = rx.of(HELLO).pipe(stage, ops.materialize()).subscribe()
        context.add_cleanup(subscription.dispose)
    else:
        context.bridge.create_future_task(context.work.wait, HELLO, name=name)
    context.work.began.wait_for(1)


@then('the snapshot has the name "{name}"')
def snapshot_has_the_name(context: Context, name: str) -> None:
    (info,) = context.bridge.registry.snapshot()
    assert info.name == name, info
