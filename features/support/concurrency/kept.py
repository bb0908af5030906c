"""What is still there of a run when it is over, and the cyclic collector has not come."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from typing import Any

import reactivex

from rxlanggraph import RxPyLangGraphBridge
from support.bridge.graphs import one_node
from support.concurrency.waiting import LIMIT

__all__ = ["KINDS", "PATIENCE", "kept_of_a_run", "kept_of_plain_langgraph", "uncollected"]

# Seconds for what a thread still has in hand. Only a scenario that fails takes so long.
PATIENCE = 30.0


class Thing:
    """Something that a weak reference can know."""


class Known:
    """Things by name, known weakly; tells which of them are not freed."""

    def __init__(self) -> None:
        self._freed: dict[str, threading.Event] = {}
        self._refs: list[weakref.ref[Any]] = []

    def add(self, name: str, thing: object) -> None:
        freed = self._freed[name] = threading.Event()
        self._refs.append(weakref.ref(thing, lambda _: freed.set()))

    def kept(self, patience: float) -> list[str]:
        return [name for name, freed in self._freed.items() if not freed.wait(patience)]


class FailureOfNode(Exception):
    """What a node raises."""


def _async_function(thing: Thing, failing: bool) -> Any:
    async def node(state: Mapping[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        assert thing
        if failing:
            raise FailureOfNode
        if state.get("waits"):
            await asyncio.Event().wait()
        return {"count": 1}

    return node


def _hasty_function(thing: Thing, failing: bool) -> Any:
    """It ends in the first step of its run, which the loop's dispatcher takes."""

    async def node(_: Mapping[str, Any]) -> dict[str, Any]:
        assert thing
        if failing:
            raise FailureOfNode
        return {"count": 1}

    return node


def _sync_function(thing: Thing, failing: bool) -> Any:
    def node(state: Mapping[str, Any]) -> dict[str, Any]:
        assert thing
        if failing:
            raise FailureOfNode
        return {"count": 1}

    return node


KINDS = {
    "an async function": _async_function,
    "an async function that ends at once": _hasty_function,
    "a sync function": _sync_function,
    "an async node": lambda thing, failing: one_node(_async_function(thing, failing)),
    "a sync node": lambda thing, failing: one_node(_sync_function(thing, failing)),
}


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A block in which only reference counts free anything."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def kept_of_a_run(
    bridge: RxPyLangGraphBridge, kind: str, outcome: str, errors: str, options: dict[str, Any]
) -> list[str]:
    """Have a run of a new graph, and forget all that there was of it: what is kept of it?

    Args:
        bridge: What runs it.
        kind: One of `KINDS`.
        outcome: Whether it "fails", "waits" until it is cancelled or timed out, or "succeeds".
        errors: "future" for `create_future_task`, or the error policy of ``invoke``.
        options: Of the call.
    """
    known = Known()
    graph, content = _materials(kind, outcome, known)
    if errors == "future":
        _run(bridge, graph, content, known, options)
    else:
        _stream(bridge, graph, content, errors, options)
    del graph, content
    assert bridge.registry.wait_idle(LIMIT)
    loop = bridge._engine.host.loop
    assert loop is not None
    # What was scheduled when the run ended is done then.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(LIMIT)
    return known.kept(PATIENCE)


def kept_of_plain_langgraph(kind: str) -> list[str]:
    """The same of a graph that fails and that no bridge runs."""
    known = Known()
    graph, content = _materials(kind, "fails", known)
    with contextlib.suppress(FailureOfNode):
        asyncio.run(graph.ainvoke(content))
    del graph, content
    return known.kept(0)


def _materials(kind: str, outcome: str, known: Known) -> tuple[Any, dict[str, Any]]:
    thing, value = Thing(), Thing()
    known.add("graph", thing)
    known.add("content", value)
    content = {"value": value, **({"waits": True} if outcome == "waits" else {})}
    return KINDS[kind](thing, outcome == "fails"), content


def _run(
    bridge: RxPyLangGraphBridge, graph: Any, content: Any, known: Known, options: dict[str, Any]
) -> None:
    # In a list: a local of this frame would be kept by the traceback of what result() raises.
    runs = [bridge.create_future_task(graph, content, **options)]
    known.add("run", runs[0])
    if "waits" in content and "timeout" not in options:
        runs[0].cancel()
    with contextlib.suppress(FailureOfNode, TimeoutError, CancelledError):
        runs.pop().result(LIMIT)


def _stream(
    bridge: RxPyLangGraphBridge, graph: Any, content: Any, errors: Any, options: dict[str, Any]
) -> None:
    ended = threading.Event()
    reactivex.of(content).pipe(bridge.invoke(graph, errors=errors, **options)).subscribe(
        lambda result: None, lambda error: ended.set(), ended.set
    )
    assert ended.wait(LIMIT)
