"""Rx's flattening operators, over graphs; and streams awaited and iterated over on a loop.

Each message is mapped to a run of a graph.

In Rx a flattening operator maps each item to an inner stream and decides which of these are active
at a time. Here the inner stream is a run with its one result. The names and meanings are Rx's;
those that RxPY lacks are RxJava's.

    flat_map           all at once, results as they arrive; at most ``max_concurrent``
    concat_map         one after another, in order
    concat_map_eager   at most ``max_concurrent`` at once, results in the order of the messages
    switch_map         the latest: a new message cancels the run before it
    exhaust_map        the first: messages are refused while a run is active

`switch_map` and `exhaust_map` treat each thread separately, and all messages of a subscription
without a ``thread_id`` as one thread. Without threads they are therefore RxPY's operators. All are
thin: everything in `RxPyLangGraphBridge.invoke` holds for them too.

For coroutines that consume a stream, such as the nodes of a graph:

    to_async_iterable  ``async for item in source.pipe(to_async_iterable())``, with a bound
    to_future          ``await source.pipe(to_future())``: the last item, from any thread
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar, Unpack

from reactivex import Observable

from rxlanggraph.bridge.bridge import OperatorArguments, RxPyLangGraphBridge, check_known
from rxlanggraph.bridge.graphs.adapters import Graph
from rxlanggraph.bridge.internal import single_lane_operator
from rxlanggraph.bridge.operators.async_iterable import (
    BufferOverflow,
    ObservableIterator,
    iterate,
    last_item,
)
from rxlanggraph.bridge.operators.subscription import ErrorPolicy, ThreadSelector
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.messages import StreamMessage
from rxlanggraph.validation import check_whole

__all__ = [
    "ObservableIterator",
    "concat_map",
    "concat_map_eager",
    "exhaust_map",
    "flat_map",
    "switch_map",
    "to_async_iterable",
    "to_future",
]

_T = TypeVar("_T")
# What these operators do when a message arrives is their name.
_STRATEGIES = {"switch_map": ("interrupt", "rollback"), "exhaust_map": ("reject",)}

Operator: TypeAlias = Callable[[Observable[Any]], Observable[StreamMessage]]


def flat_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    max_concurrent: int | None = None,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on every message, and emit the results as they arrive.

    May be called from any thread; never blocks. `RxPyLangGraphBridge.invoke` describes the
    operator, and the arguments that are not listed here.

    Args:
        bridge: Executes the runs.
        graph: A compiled graph, another Runnable, or a function of the content.
        max_concurrent: How many runs of a subscription may be active at once, which RxPY's operator
            cannot limit. None: as many as the bridge allows.
        thread_id: The thread of every message, or a function of the item that returns it; None: the
            message's own.
        errors: Whether a run that did not succeed ends the stream (``"raise"``), has its result
            emitted (``"emit"``), or is left out (``"skip"``).
        options: Further arguments of `RxPyLangGraphBridge.invoke`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As for `RxPyLangGraphBridge.invoke`.
    """
    return _checked("flat_map", bridge, options, max_concurrent).invoke(
        graph, max_concurrency=max_concurrent, thread_id=thread_id, errors=errors, **options
    )


def concat_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on one message after another, in their order.

    Any thread; never blocks.

    Args:
        bridge: Executes the runs.
        graph: A compiled graph, another Runnable, or a function of the content.
        thread_id: The thread of every message, or a function of the item that returns it; None: the
            message's own.
        errors: Whether a run that did not succeed ends the stream (``"raise"``), has its result
            emitted (``"emit"``), or is left out (``"skip"``).
        options: Further arguments of `RxPyLangGraphBridge.invoke`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As for `RxPyLangGraphBridge.invoke`.
    """
    return _checked("concat_map", bridge, options).invoke(
        graph, max_concurrency=1, ordered=True, thread_id=thread_id, errors=errors, **options
    )


def concat_map_eager(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    max_concurrent: int | None = None,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on several messages at once, and emit the results in the messages' order.

    Any thread; never blocks.

    Args:
        bridge: Executes the runs.
        graph: A compiled graph, another Runnable, or a function of the content.
        max_concurrent: How many runs of a subscription may be active at once; None: as many as the
            bridge allows. Runs begin at most twice as many messages ahead of the one whose result
            is due.
        thread_id: The thread of every message, or a function of the item that returns it; None: the
            message's own.
        errors: Whether a run that did not succeed ends the stream (``"raise"``), has its result
            emitted (``"emit"``), or is left out (``"skip"``).
        options: Further arguments of `RxPyLangGraphBridge.invoke`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As for `RxPyLangGraphBridge.invoke`.
    """
    return _checked("concat_map_eager", bridge, options, max_concurrent).invoke(
        graph,
        max_concurrency=max_concurrent,
        ordered=True,
        thread_id=thread_id,
        errors=errors,
        **options,
    )


def switch_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on the latest message of each thread, and cancel the run before it.

    Any thread; never blocks. All messages without a ``thread_id`` count as one thread. A run begins
    once the cancelled one has really ended. RxPY's operator, in contrast, begins the next one
    during the cleanup of the last. A cancelled run emits nothing, except with ``errors="emit"``:
    then a result with the status ``"interrupted"``.

    Args:
        bridge: Executes the runs.
        graph: A compiled graph, another Runnable, or a function of the content.
        thread_id: The thread of every message, or a function of the item that returns it; None: the
            message's own.
        errors: Whether a run that did not succeed ends the stream (``"raise"``), has its result
            emitted (``"emit"``), or is left out (``"skip"``).
        options: Further arguments of `RxPyLangGraphBridge.invoke`; ``multitask_strategy`` may only
            be ``"rollback"``, to undo what the cancelled run has saved.

    Raises:
        InvalidTypeError, InvalidArgumentError: As for `RxPyLangGraphBridge.invoke`.
    """
    checked = _checked("switch_map", bridge, options)
    options = {"multitask_strategy": "interrupt", **options}
    return single_lane_operator(checked, graph, thread_id=thread_id, errors=errors, **options)


def exhaust_map(
    bridge: RxPyLangGraphBridge,
    graph: Graph,
    *,
    thread_id: ThreadSelector = None,
    errors: ErrorPolicy = "raise",
    **options: Unpack[OperatorArguments],
) -> Operator:
    """Run ``graph`` on a message, unless its thread has an active run: then refuse the message.

    Any thread; never blocks. All messages without a ``thread_id`` count as one thread. RxPY has
    this for streams of streams only, as ``exclusive``. A refused message emits nothing, except with
    ``errors="emit"``: then a result with the status ``"rejected"``.

    Args:
        bridge: Executes the runs.
        graph: A compiled graph, another Runnable, or a function of the content.
        thread_id: The thread of every message, or a function of the item that returns it; None: the
            message's own.
        errors: Whether a run that did not succeed ends the stream (``"raise"``), has its result
            emitted (``"emit"``), or is left out (``"skip"``).
        options: Further arguments of `RxPyLangGraphBridge.invoke`.

    Raises:
        InvalidTypeError, InvalidArgumentError: As for `RxPyLangGraphBridge.invoke`.
    """
    checked = _checked("exhaust_map", bridge, options)
    options = {"multitask_strategy": "reject", **options}
    return single_lane_operator(checked, graph, thread_id=thread_id, errors=errors, **options)


def to_async_iterable(
    *, max_buffered: int = 16, overflow: BufferOverflow = "block"
) -> Callable[[Observable[_T]], ObservableIterator[_T]]:
    """Iterate over a stream: ``async for item in source.pipe(to_async_iterable())``.

    Call it in a coroutine, of a node or elsewhere, on any loop. It subscribes at once, without a
    scheduler. The source may emit in any thread. An error of the stream is raised after the items
    before it. The subscription ends with the stream, and when the iterator is closed, dropped or
    left; threads that are blocked then continue.

    Results of a bridge arrive on its loop, which is not blocked: `RxPyLangGraphBridge.invoke`
    starts no more runs than there is room for their results, so a stream has at most
    ``max_buffered`` runs at once; and those of `RxPyLangGraphBridge.stream` wait before their next
    chunk until there is room for one more item of each. Streams that ``merge``, ``flat_map``,
    ``retry``, ``concat`` and others combine share the room. Operators in between that make several
    items of one can still exceed it; so can streams that are subscribed to in another thread, as by
    ``subscribe_on``. Of several stages, this applies to the last; for all of them, make the bridge
    with a ``max_pending``, and pull the source (`RxPyLangGraphBridge.from_iterable`).

    A node may iterate over a stream of its own bridge. If none of the remaining runs can begin and
    end before the node ends, because they need its slot or its thread, `DeadlockError` is raised
    instead of waiting.

    Args:
        max_buffered: How many items may wait to be read.
        overflow: What happens to one more. ``"block"``: the thread that emits it waits; where that
            is the thread of an event loop, the iteration ends with a `BlockingCallError` after what
            is buffered. ``"error"``: it ends with a `BacklogFullError`. ``"drop_newest"``: that
            item is dropped; ``"drop_oldest"``: the one that has waited longest. ``dropped`` of the
            iterator counts them.

    Raises:
        InvalidArgumentError: ``max_buffered`` is not a whole number above 0, or ``overflow`` is
            unknown. As the errors below, raised when the operator is applied to a stream.
        InvalidTypeError: It is applied to something else than an Observable.
        RuntimeError: No loop is running.
    """
    return lambda source: iterate(source, max_buffered, overflow)


def to_future() -> Callable[[Observable[_T]], asyncio.Future[_T]]:
    """Await the last item of a stream: ``await source.pipe(to_future())``.

    As RxPY's operator of this name, but the source may emit in any thread: the running loop is
    woken. Call it in a coroutine. It subscribes at once, without a scheduler. The first item is
    ``source.pipe(ops.first(), to_future())``. Cancelling the future ends the subscription. In a
    node, a stream of its own bridge is awaited as with `to_async_iterable`.

    Raises:
        InvalidTypeError: It is applied to something else than an Observable.
        RuntimeError: No loop is running.
    """
    return last_item


def _checked(
    operator: str,
    bridge: object,
    options: Mapping[str, Any],
    max_concurrent: int | None = None,
) -> RxPyLangGraphBridge:
    # Here and not where they are passed on to, so that the errors have this operator's names.
    if not isinstance(bridge, RxPyLangGraphBridge):
        raise InvalidTypeError(
            f"the first argument must be the bridge that executes the runs, not {bridge!r}"
        )
    check_known(operator, options, OperatorArguments)
    if max_concurrent is not None:
        check_whole("max_concurrent", max_concurrent, least=1)
    strategy = options.get("multitask_strategy")
    allowed = _STRATEGIES.get(operator)
    if allowed is not None and strategy is not None and strategy not in allowed:
        known = " or ".join(map(repr, allowed))
        raise InvalidArgumentError(
            f"the multitask_strategy of {operator}() must be {known}, not {strategy!r}; use "
            "another operator"
        )
    return bridge
