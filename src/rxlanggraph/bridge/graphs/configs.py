"""LangGraph's config of a run: the thread that it names, and what it takes from the message.

What breaks without it: a thread that only the config or the graph's ``with_config`` names is known
to the checkpointer and not to the bridge, so runs of that thread overlap and lose each other's
updates. Everything here is recognized by its shape alone: LangChain is not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import Context, copy_context
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.messages import StreamMessage

__all__ = [
    "Config",
    "NamedThread",
    "check_version",
    "config_for",
    "configs_of_attempts",
    "configurable_of",
    "context_for_run",
    "layers_of",
    "lending_saver",
    "one_thread",
    "threads_of",
    "without_run_id",
]

Config: TypeAlias = Mapping[str, Any]

# If LangChain has not been imported, no context holds anything of it.
_LANGCHAIN = "langchain_core.runnables.config"
_SAVER = "__pregel_checkpointer"
# LangGraph takes an input whose metadata has the latest checkpoint's run_id for the same run
# reconnecting, and drops the input. A batch's own "run_id" in its messages must not do that.
_NOT_PASSED_ON = frozenset({"run_id"})


class NamedThread(NamedTuple):
    """A thread, and where it was named."""

    thread_id: str
    by: str


def threads_of(graph: Any, config: Config | None) -> Iterator[NamedThread]:
    """Yield every thread that a call's ``config`` and the graph's own name. Any thread.

    The graph's own config is what ``with_config`` has bound to it, to the graph that it wraps, or
    to a step of a sequence.

    Raises:
        InvalidTypeError: A config is not a mapping, or a thread_id is not a string.
    """
    if config is not None:
        if not isinstance(config, Mapping):
            raise InvalidTypeError(f"config must be a mapping as LangGraph's, not {config!r}")
        _mapping_in(config, "metadata", "the config")
        yield from _threads_in(config, "the config")
    yield from _threads_bound_to(graph)


def one_thread(named: Iterable[NamedThread]) -> NamedThread | None:
    """Return the one thread that all of ``named`` agree on; None if there are none.

    Raises:
        InvalidArgumentError: Two of them differ.
    """
    first = None
    for each in named:
        if first is None:
            first = each
        elif each.thread_id != first.thread_id:
            raise InvalidArgumentError(
                f"a run has one thread_id, and it was given twice: {first.thread_id!r} by "
                f"{first.by}, {each.thread_id!r} by {each.by}; give it once"
            )
    return first


def config_for(message: StreamMessage, config: Config | None) -> Config | None:
    """Return the config of the run on ``message``. Any thread; never blocks.

    This is ``config`` with the message's thread, where checkpointers look for it, and its metadata,
    of which LangGraph takes the items with string keys; ``config`` itself if the message has
    neither.
    """
    thread_id = message.thread_id
    metadata: Mapping[Any, Any] = message.metadata  # its keys need not be strings
    if thread_id is None and not metadata:
        return config
    merged = {} if config is None else dict(config)
    if thread_id is not None:
        merged["configurable"] = {**(merged.get("configurable") or {}), "thread_id": thread_id}
    if metadata:
        passed_on = {
            key: value
            for key, value in metadata.items()
            if isinstance(key, str) and key not in _NOT_PASSED_ON
        }
        merged["metadata"] = {**(merged.get("metadata") or {}), **passed_on}
    return merged


def without_run_id(config: Config) -> Config:
    """Return ``config`` without LangChain's ``run_id``, which belongs to one run. Any thread."""
    if config.get("run_id") is None:
        return config
    return {key: value for key, value in config.items() if key != "run_id"}


def configs_of_attempts(config: Config | None) -> Iterator[Config | None]:
    """Yield the config of the first attempt, then those of others, which have ids of their own."""
    yield config
    yield from repeat(None if config is None else without_run_id(config))


def lending_saver(config: Config, saver: Any) -> Config:
    """Return ``config`` with a saver for the graph to use instead of its own.

    In the way in which a graph lends its saver to its subgraphs. Any thread; never blocks.
    """
    configurable = {**(config.get("configurable") or {}), _SAVER: saver}
    return {**config, "configurable": configurable}


def context_for_run() -> Context:
    """Return a copy of the caller's context for a run without a parent run. Any thread.

    It has every context variable except the config that LangChain hands down to what a node calls.
    With it, a message sent by a node would run as the node's subgraph: on the parent's thread and
    checkpointer, under its callbacks, and a question would be an error.
    """
    context = copy_context()
    handed_down = getattr(sys.modules.get(_LANGCHAIN), "var_child_runnable_config", None)
    if handed_down is not None and context.get(handed_down) is not None:
        context.run(handed_down.set, None)
    return context


def layers_of(graph: Any) -> Iterator[Any]:
    """Yield ``graph``, then what it wraps, down to what gets the input: of a sequence, its first.

    Any thread; never blocks.
    """
    while graph is not None:
        yield graph
        steps = getattr(graph, "steps", None)
        if isinstance(steps, list) and steps:
            graph = steps[0]
        else:
            graph = None if _own_config(graph) is None else getattr(graph, "bound", None)


def check_version(graph: Any) -> None:
    """Check that ``graph`` is not bound to another version of LangGraph's results than "v1".

    Any thread; never blocks. What breaks otherwise: the questions of version "v2" are not found.

    Raises:
        InvalidArgumentError: It is.
    """
    for layer in layers_of(graph):
        bound = getattr(layer, "kwargs", None)
        if isinstance(bound, Mapping) and bound.get("version", "v1") != "v1":
            raise InvalidArgumentError(
                f"{graph!r} is bound to another version of LangGraph's results than 'v1'; leave it "
                "out: each result has its questions as interrupts, and each chunk its mode and "
                "namespace anyway"
            )


def configurable_of(graph: Any, config: Config) -> dict[str, Any]:
    """The ``configurable`` where the input goes: the graph's own, updated with ``config``'s.

    Any thread; never blocks.
    """
    merged: dict[str, Any] = {}
    for own in reversed([_own_config(layer) for layer in layers_of(graph)]):
        merged.update((own or {}).get("configurable") or {})
    return {**merged, **(config.get("configurable") or {})}


def _own_config(graph: Any) -> Config | None:
    config = getattr(graph, "config", None) if hasattr(graph, "ainvoke") else None
    return config if isinstance(config, Mapping) else None


def _threads_in(config: Config, by: str) -> Iterator[NamedThread]:
    configurable = _mapping_in(config, "configurable", by)
    # LangGraph treats keys that it does not know as configurable ones.
    for thread_id in (config.get("thread_id"), configurable.get("thread_id")):
        if thread_id is None:
            continue
        if not isinstance(thread_id, str):
            raise InvalidTypeError(
                f"thread_id must be a string, not {thread_id!r} as in {by}; "
                "convert it with str() there"
            )
        yield NamedThread(thread_id, by)


def _mapping_in(config: Config, key: str, by: str) -> Mapping[str, Any]:
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidTypeError(f"{key!r} of {by} must be a mapping, not {value!r}")
    return value


def _threads_bound_to(graph: Any) -> Iterator[NamedThread]:
    config = _own_config(graph)
    if config is not None:
        yield from _threads_in(config, "the graph's own config")
        yield from _threads_bound_to(getattr(graph, "bound", None))
    steps = getattr(graph, "steps", None)
    for step in steps if isinstance(steps, list) else ():
        yield from _threads_bound_to(step)
